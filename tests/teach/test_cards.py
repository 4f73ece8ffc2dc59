"""Flash cards: four a notebook, one idea each, and every number on them is computed again."""

import pytest

from labkit.teach.interview.cards import Card, CardError, cards, read_cards
from labkit.theory import capacity, dock

CARDS = read_cards()
THEORY = {**vars(dock), **vars(capacity)}


@pytest.mark.parametrize("notebook", ["00", "01", "02", "03", "06", "16"])
def test_a_notebook_has_four_cards(notebook):
    assert len([card for card in CARDS if card.notebook == notebook]) == 4
    page = cards(notebook)
    assert page.html.count("<details>") == 4
    assert all(card.front in page.text for card in CARDS if card.notebook == notebook)


@pytest.mark.parametrize("card", [c for c in CARDS if c.prove], ids=lambda card: card.id)
def test_the_numbers_on_a_card_are_true(card):
    assert eval(card.prove, dict(THEORY)) is True


def test_most_cards_with_numbers_prove_them():
    assert sum(bool(card.prove) for card in CARDS) >= 9


def test_a_card_is_a_question_and_no_front_is_asked_twice():
    assert all(card.front.endswith(("?", ".")) for card in CARDS)
    assert len({card.front for card in CARDS}) == len(CARDS)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"id": "1.x"}, "an id is like '01.size_or_time'"),
        ({"id": 1.5}, "id must be text; put it in quotes"),
        ({"front": " "}, "front has 0 characters, of 1 to 140"),
        ({"back": "b" * 400}, "back has 400 characters, of 1 to 320; one idea a card"),
        ({"back": 18}, "back must be text"),
    ],
)
def test_a_card_that_cannot_be_used_is_refused(fields, said):
    with pytest.raises(CardError, match="card") as refused:
        Card(**{"id": "01.x", "front": "a?", "back": "b", **fields})
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cards: [", "deck.yaml: "),
        ("- id: x", "expected one key, `cards`"),
        ("cards: {}", "with a list under it"),
        ("cards: [7]", "entry 1: 7 is no card"),
        ("cards: [{id: '01.a', front: a, back: b, hint: c}]", "entry 1: unknown key 'hint'"),
        ("cards: [{id: '01.a', front: a}]", "entry 1: back is missing"),
        (
            "cards: [{id: '01.a', front: a, back: b}, {id: '01.a', front: c, back: d}]",
            "01.a is there twice",
        ),
    ],
)
def test_a_file_that_breaks_the_schema_is_refused(tmp_path, text, said):
    deck = tmp_path / "deck.yaml"
    deck.write_text(text)
    with pytest.raises(CardError) as refused:
        read_cards(deck)
    assert said in str(refused.value)


def test_a_notebook_without_cards_is_refused_with_those_that_have_some():
    with pytest.raises(CardError, match="there are some for 00, 01, 02, 03"):
        cards("77")
