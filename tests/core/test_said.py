"""What a step said, as a number that any machine agrees on and that no text of a caller changes."""

from dataclasses import replace

import pytest

from labkit.core.messages import Answer, Depart, End, Outcome, Receipt, Request, Stop
from labkit.core.said import said

RECEIPT = Receipt("timer", 50_000, 350_000, (1, 0), (9, None))
DEPART = Depart(1, (0,), (Request(7, "hello"), Request(8)), RECEIPT)
ANSWER = Answer(1, (Request(7), Request(8)), ("a", "b"))


def test_nothing_is_zero_and_everything_else_is_not():
    assert said(()) == 0
    assert said((DEPART,)) == 2_067_309_273


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (DEPART, replace(DEPART, batch_id=2)),
        (DEPART, replace(DEPART, gpus=(1,))),
        (DEPART, replace(DEPART, rows=DEPART.rows[::-1])),
        (DEPART, replace(DEPART, receipt=replace(RECEIPT, slack=None))),
        (ANSWER, replace(ANSWER, rows=ANSWER.rows[:1])),
        (End(1, Outcome.FAILED, "a"), End(1, Outcome.EXPIRED, "a")),
        (End(1, Outcome.FAILED, "a"), End(1, Outcome.FAILED, "b")),
        (Stop(1, "overdue"), Stop(2, "overdue")),
    ],
)
def test_another_decision_is_another_number(one, other):
    assert said((one,)) != said((other,))
    assert said((one, other)) != said((other, one))


def test_prompts_and_outputs_are_left_out():
    assert said((DEPART,)) == said((replace(DEPART, rows=(Request(7), Request(8, "\ud800"))),))
    assert said((ANSWER,)) == said((replace(ANSWER, outputs=("c", "d")),))
