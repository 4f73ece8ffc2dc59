"""What the model reads of a prompt, and which lines belong to its language."""

from random import Random

import pytest

from labkit.gpu.grammar import (
    LINE_BYTES,
    PLACES,
    SUBJECT_BYTES,
    TIMES,
    VERBS,
    Line,
    begins,
    belongs,
    line_for,
    parse,
    prompt_for,
    subject_of,
)
from labkit.gpu.tokens import COLUMNS, END, FIRST, GO, PAD, decode, encode, lesson


@pytest.mark.parametrize(
    ("prompt", "subject"),
    [
        ("hello", "hello"),
        ("request 42", "request 42"),
        ("Tell me about the fog", "the fog"),
        ("Where is my parcel?", "is my parcel"),
        ("a\nb\tc", "a b c"),
        ("", "nobody"),
        ("\0 \0", "nobody"),
        ("\ud800", "nobody"),
        ("???", "???"),
        ("x" * 1_000_000, "x" * 12),
        ("🚢" * 50, "🚢🚢🚢"),
        ("é" * 7, "é" * 6),
        ("a" + "é" * 6, "é" * 6),
    ],
)
def test_the_subject_is_the_last_words_that_fit(prompt: str, subject: str) -> None:
    assert subject_of(prompt) == subject


def test_the_last_letters_choose_verb_place_and_time() -> None:
    # "row 42": "2" is byte 50, "4" is byte 52, " " is byte 32.
    assert line_for("row 42") == Line("row 42", VERBS[0], PLACES[2], TIMES[2])
    assert str(line_for("row 42")) == "row 42 waits in the fog at dusk."


def test_every_taught_line_belongs_and_fits() -> None:
    rng = Random(5)
    for _ in range(2000):
        subject = subject_of(prompt_for(rng))
        line = line_for(subject)
        assert len(subject.encode()) <= SUBJECT_BYTES
        assert parse(str(line)) == line
        assert len(str(line).encode()) <= LINE_BYTES


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "hello waits on the deck today",
        "hello waits on the deck.",
        "hello flies on the deck today.",
        " waits on the deck today.",
        "a much longer subject waits on the deck today.",
        "hello waits on the deck today. And more.",
    ],
)
def test_other_texts_do_not_belong(text: str) -> None:
    assert not belongs(text)


def test_a_cut_line_begins_one_about_the_same_subject_only() -> None:
    assert begins("hello waits on the", "hello")
    assert not begins("hello waits on the", "hell")
    assert not begins("hello waits at sea", "hello")


def test_a_prompt_is_seated_left_aligned_before_go() -> None:
    assert encode("cat") == [*b"cat", *[PAD] * 9, GO]
    assert len(encode("")) == len(encode("x" * 500)) == FIRST


def test_a_lesson_fills_its_seat_with_the_line_and_ends() -> None:
    seat = lesson("cat", "cat waits.")
    assert len(seat) == COLUMNS
    assert seat[FIRST : FIRST + 11] == [*b"cat waits.", END]


def test_text_ends_at_the_first_token_that_is_no_byte() -> None:
    assert decode([*b"cat", END, *b"dog"]) == "cat"
    assert decode([*b"cat", PAD, *b"dog"]) == "cat"


def test_text_that_was_cut_keeps_whole_words() -> None:
    assert decode(list(b"hello wai")) == "hello"
    assert decode(list(b"hellohel")) == "hellohel"


def test_bytes_that_are_no_character_are_shown_as_such() -> None:
    assert decode([0xFF, *b"a", 7, END]) == "\ufffda\ufffd"
