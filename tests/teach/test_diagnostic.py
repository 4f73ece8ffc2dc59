"""The diagnostic: answers in, a path out, and clear words for what it cannot read."""

import pytest

from labkit.teach.diagnostic import Diagnostic, diagnostic


def test_every_question_has_its_right_choice_among_four() -> None:
    for question in Diagnostic().questions:
        assert len(question.choices) == 4
        assert question.right in range(4)
        assert question.because.endswith(".")


def test_what_is_known_is_left_out_of_the_path() -> None:
    asked = Diagnostic()
    marks = asked.marks("b b a c c b")
    assert marks == [True, True, False, True, True, True]
    assert asked.path(marks, "two hours") == ["03"]
    assert asked.path(asked.marks("- - - - - -"), "two hours") == ["01", "03", "06"]


def test_letters_may_be_run_together_or_parted_by_commas() -> None:
    asked = Diagnostic()
    assert asked.marks("bbcccb") == asked.marks("B, b, c, c, c, b") == [True] * 6


@pytest.mark.parametrize("answers", ["", "bb", "bbcccz", "b b c c c b a"])
def test_answers_it_cannot_read_are_refused_with_an_example(answers: str) -> None:
    with pytest.raises(ValueError, match="give 6 letters from a to d"):
        diagnostic(answers)


def test_an_unknown_time_is_refused_with_the_times_there_are() -> None:
    with pytest.raises(ValueError, match="two hours, a day, a week"):
        diagnostic("bbcccb", "an hour")


def test_the_advice_explains_what_was_missed_and_names_notebooks() -> None:
    text = repr(diagnostic("a b c c c b", "a day"))
    assert "5 of 6" in text
    assert "01_ferry_rule" in text
    assert "the one who started the clock" in text
