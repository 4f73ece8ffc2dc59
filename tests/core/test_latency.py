"""Where each request's time went, to the microsecond."""

import pytest

from labkit.core.latency import GPU, LOST, WAITING, Ledger, Stage
from labkit.core.messages import End, Outcome
from labkit.core.trace import Step
from labkit.core.units import MS
from tests.cases.world import at, live, takes


def account(story, request_id: int):
    return Ledger(story.trace.steps).accounts[request_id]


def stages(story, request_id: int) -> list[tuple[str, float, float]]:
    return [(s.name, s.start / MS, s.end / MS) for s in account(story, request_id).stages]


def test_an_answered_request_waited_and_was_computed():
    story = live(at(3, 1))
    assert stages(story, 1) == [(WAITING, 3, 53), (GPU, 53, 153)]
    kept = account(story, 1)
    assert (kept.outcome, kept.arrived_at, kept.ended_at) == (Outcome.ANSWERED, 3_000, 153_000)
    assert (kept.spent(WAITING), kept.spent(GPU), kept.spent(LOST)) == (50_000, 100_000, 0)


def test_time_on_a_gpu_that_died_is_lost():
    story = live(at(0, 1), fates=(takes(40, "die"),), back_after=30 * MS)
    assert stages(story, 1) == [
        (WAITING, 0, 50),
        (LOST, 50, 90),
        (WAITING, 90, 120),
        (GPU, 120, 220),
    ]


def test_time_on_a_gpu_that_hung_is_lost_until_it_is_given_up():
    story = live(at(0, 1), gpus=2, overdue_after=250 * MS, fates=(takes(0, "hang"),))
    assert stages(story, 1) == [
        (WAITING, 0, 50),
        (LOST, 50, 300),
        (WAITING, 300, 300),
        (GPU, 300, 400),
    ]


@pytest.mark.parametrize("kind", ["raise", "short"])
def test_time_in_a_batch_that_came_back_without_answers_is_lost(kind: str):
    story = live(at(0, 1, 2), fates=(takes(100, kind),), gpus=2)
    assert stages(story, 2)[:2] == [(WAITING, 0, 50), (LOST, 50, 150)]
    assert account(story, 2).outcome is Outcome.ANSWERED


def test_of_a_request_that_came_before_the_ring_began_there_is_no_account():
    ledger = Ledger([Step(5, "advance", (), (End(1, Outcome.EXPIRED, "deadline_exceeded"),))])
    assert ledger.accounts == {}


def test_a_request_that_fails_has_lost_its_time():
    story = live(at(0, 1), fates=(takes(100, "row"),))
    assert stages(story, 1) == [(WAITING, 0, 50), (LOST, 50, 150)]
    assert account(story, 1).outcome is Outcome.FAILED


def test_whoever_leaves_waited_or_lost_what_was_computed():
    story = live(at(0, 1, 2), at(60, 3), cancels=((70 * MS, 1), (80 * MS, 3)))
    assert stages(story, 1) == [(WAITING, 0, 50), (LOST, 50, 70)]
    assert stages(story, 3) == [(WAITING, 60, 80)]
    assert stages(story, 2) == [(WAITING, 0, 50), (GPU, 50, 150)]


def test_a_refused_request_spent_nothing():
    story = live(at(0, 1, 2, 3, 4, 5), max_batch=2, depth_limit=4)
    assert stages(story, 5) == [(WAITING, 0, 0)]
    assert account(story, 5).outcome is Outcome.REJECTED


def test_a_batch_that_was_bound_and_given_back_only_waited():
    story = live(
        at(0, 0), at(5, 1), max_batch=1, backlog=1, fates=(takes(50, "die"),), back_after=10 * MS
    )
    assert stages(story, 1) == [(WAITING, 5, 160), (GPU, 160, 260)]


def test_every_account_adds_up_whatever_happens():
    kinds = ["die", "raise", "ok", "short", "row", "hang", "ok"] * 4
    story = live(
        *(at(i * 3, i) for i in range(80)),
        gpus=3,
        max_batch=8,
        overdue_after=250 * MS,
        fates=tuple(takes(90 + i, kind) for i, kind in enumerate(kinds)),
        cancels=tuple((200 * MS, i) for i in range(0, 80, 7)),
        poison=frozenset({33}),
    )
    for kept in Ledger(story.trace.steps).accounts.values():
        spent = sum(kept.spent(name) for name in (WAITING, GPU, LOST))
        assert kept.arrived_at + spent == kept.ended_at
        ends = [kept.arrived_at] + [stage.end for stage in kept.stages]
        assert [stage.start for stage in kept.stages] == ends[:-1]


def test_a_ledger_kept_step_by_step_is_the_same():
    story = live(at(0, 1), fates=(takes(40, "die"),), back_after=30 * MS)
    ledger = Ledger()
    for step in story.trace.steps:
        ledger.enter(step)
    assert ledger.accounts == Ledger(story.trace.steps).accounts
    assert ledger.accounts[1].stages[0] == Stage(WAITING, 0, 50_000)
