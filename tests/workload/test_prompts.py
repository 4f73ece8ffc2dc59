"""Prompts: readable when made here, and any text at all when somebody else's."""

from random import Random

import pytest

from labkit.workload import (
    PROMPT_CAP,
    PromptError,
    check_prompt,
    ferry_prompt,
    ferry_prompts,
    prompt_of,
)


def test_a_seed_means_the_same_prompt_for_ever() -> None:
    said = ferry_prompt(Random(1))
    assert said == "How long do I wait for the boat of a hundred seats in the rush hour?"


def test_prompts_are_whole_sentences_of_a_readable_length() -> None:
    said = ferry_prompts(2000, Random(2))
    assert len(set(said)) > 500
    assert all(one[0].isupper() and one[-1] in ".?" and 20 <= len(one) <= 130 for one in said)
    assert not any(mark in one for one in said for mark in "{}")


@pytest.mark.parametrize("words", [1, 7, 500])
def test_a_prompt_has_as_many_words_as_asked(words: int) -> None:
    assert len(prompt_of(words, Random(3)).split()) == words


def test_no_words_are_no_prompt() -> None:
    with pytest.raises(PromptError, match="a prompt of 0 words: ask for 1 or more"):
        prompt_of(0, Random(1))


@pytest.mark.parametrize("text", ["", "🚢" * 10, "nul \0 inside", "a\nb", "\ud800", "x" * 4096])
def test_any_text_is_a_prompt(text: str) -> None:
    assert check_prompt(text) is text


def test_a_prompt_over_the_cap_is_refused_with_its_length() -> None:
    assert PROMPT_CAP == 4096
    with pytest.raises(PromptError, match=r"has 4,097 characters, over the cap of 4,096; shorten"):
        check_prompt("x" * 4097)
    with pytest.raises(PromptError, match="has 4 characters, over the cap of 3"):
        check_prompt("🚢🚢🚢🚢", cap=3)


def test_what_is_not_text_is_no_prompt() -> None:
    with pytest.raises(PromptError, match="a prompt must be text, not bytes; pass a string"):
        check_prompt(b"hello")
