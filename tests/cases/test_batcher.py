"""Rows B: what breaks in batchers elsewhere, and must not here."""

import pytest

from labkit.core.gateway import Gateway
from labkit.core.messages import Outcome, Request, Tier
from labkit.core.settings import Settings, TierRule
from labkit.core.units import MS, NEVER
from tests.cases.world import at, live, takes

HUNDRED = list(range(100))


def test_b1_one_client_leaves_mid_batch_and_the_others_are_answered():
    story = live(at(0, 0, 1, 2, 3), at(200, 4, 5, 6, 7), max_batch=4, cancels=((20 * MS, 1),))
    assert story.answered == {0: 100, 2: 100, 3: 100, 4: 300, 5: 300, 6: 300, 7: 300}
    assert story.ends == {1: (20, Outcome.CANCELLED)}


def test_b2_who_leaves_the_queue_is_not_computed():
    leaving = range(110, 140)
    story = live(
        at(0, *HUNDRED), at(5, *range(100, 200)), cancels=tuple((10 * MS, i) for i in leaving)
    )
    assert story.departures[1] == (100, [*range(100, 110), *range(140, 200)])
    assert story.outcomes == {Outcome.ANSWERED: 170, Outcome.CANCELLED: 30}


def test_b2_when_everybody_leaves_no_gpu_is_called():
    story = live(at(0, *range(99)), cancels=tuple((10 * MS, i) for i in range(99)))
    assert story.departures == []
    assert story.outcomes == {Outcome.CANCELLED: 99}


def test_b2_who_leaves_a_batch_that_is_bound_but_not_started_is_not_computed():
    story = live(at(0, 0, 1), at(5, 2, 3), max_batch=2, backlog=1, cancels=((50 * MS, 2),))
    assert story.departures == [(0, [0, 1]), (100, [3])]


@pytest.mark.parametrize("backlog", [0, 1, None])
def test_b3_a_storm_of_cancels_leaves_the_gateway_as_it_was(backlog: int | None):
    gateway = Gateway(Settings(backlog=backlog))
    gateway.join(0, "ferry", 0)
    for number in range(1_000):
        gateway.arrive(Request(number), 0)
        assert gateway.cancel(number, 0)[0].outcome is Outcome.CANCELLED
    assert (gateway.depth(), gateway.due_at) == (0, NEVER)
    gateway.arrive(Request(1_000), 0)
    assert gateway.due_at == 50 * MS
    (depart,) = gateway.advance(50 * MS)
    assert [row.id for row in depart.rows] == [1_000]
    (answer,) = gateway.finish(depart.batch_id, ["yes"], 150 * MS)
    assert answer.outputs == ("yes",)


def test_b5_the_window_opens_with_the_first_aboard_not_with_the_last_batch():
    story = live(at(0, 0), at(10_000, 1), at(10_005, 2))
    assert story.departures == [(50, [0]), (10_050, [1, 2])]


def test_b6_a_newcomer_does_not_restart_the_window():
    assert live(at(0, 0), at(45, 1)).departures == [(50, [0, 1])]


def test_b7_the_window_runs_while_the_gpu_is_busy():
    story = live(at(0, *HUNDRED), at(10, 100))
    assert story.departures == [(0, HUNDRED), (100, [100])]


def test_b8_a_full_batch_does_not_wait_for_the_timer():
    assert live(at(1, *HUNDRED)).departures == [(1, HUNDRED)]


def test_b8_the_arrival_that_fills_the_batch_makes_it_leave():
    story = live(at(0, *range(99)), at(7, 99))
    assert story.departures == [(7, HUNDRED)]


def test_b10_one_bad_input_fails_alone_after_at_most_fifteen_calls():
    story = live(at(0, *HUNDRED), bad=frozenset({37}))
    assert len(story.departures) <= 15
    assert story.outcomes == {Outcome.ANSWERED: 99, Outcome.FAILED: 1}
    assert story.ends[37][1] is Outcome.FAILED
    assert story.deaths == 0


@pytest.mark.parametrize("bad", range(100))
def test_b10_wherever_the_bad_input_stands(bad: int):
    story = live(at(0, *HUNDRED), bad=frozenset({bad}))
    assert len(story.departures) <= 15
    assert list(story.ends) == [bad]


def test_b10_two_bad_inputs_fail_and_nobody_else():
    story = live(at(0, *HUNDRED), bad=frozenset({0, 99}))
    assert sorted(story.ends) == [0, 99]
    assert story.outcomes == {Outcome.ANSWERED: 98, Outcome.FAILED: 2}
    assert len(story.departures) == 25


def test_b11_too_few_outputs_answer_nobody_and_quarantine_the_gpu():
    story = live(at(0, *HUNDRED), gpus=2, fates=(takes(100, "short"),))
    assert story.departures == [(0, HUNDRED), (100, HUNDRED)]
    assert story.gpus == [0, 1]
    assert story.stops == [(100, 0)]
    assert story.answered == dict.fromkeys(HUNDRED, 200)


def test_b12_as_many_outcomes_as_requests_whatever_fails():
    kinds = ["die", "raise", "short", "row", "hang", "die", "ok", "short", "raise", "hang"]
    for turn in range(len(kinds)):
        fates = tuple(takes(100, kind) for kind in kinds[turn:] + kinds[:turn])
        arrivals = [at(number * 7, number, tier=number % 2) for number in range(60)]
        story = live(
            *arrivals,
            gpus=3,
            max_batch=8,
            overdue_after=250 * MS,
            depth_limit=20,
            fates=fates,
            cancels=((90 * MS, 9), (95 * MS, 10)),
        )
        assert story.outcomes.total() == 60
        assert set(story.answered) | set(story.ends) == set(range(60))


def test_b13_batches_that_come_back_out_of_order_answer_their_own():
    story = live(at(0, 0, 1), at(1, 2, 3), max_batch=2, gpus=2, fates=(takes(150), takes(100)))
    assert story.answered == {2: 101, 3: 101, 0: 150, 1: 150}


def test_b17_those_who_come_during_a_run_leave_together():
    story = live(at(0, *HUNDRED), *(at(20 * i, 100 + i) for i in range(1, 5)))
    assert story.departures[1] == (100, [101, 102, 103, 104])


def test_b18_an_idle_gateway_with_no_history_refuses_nobody():
    story = live(at(0, 0), depth_limit=100)
    assert story.outcomes == {Outcome.ANSWERED: 1}


def test_b21_a_window_of_100_ms_does_not_close_at_1_ms():
    gateway = Gateway(Settings(max_wait=100 * MS, budget=None))
    gateway.join(0, "ferry", 0)
    gateway.arrive(Request(0), 0)
    assert gateway.due_at == 100_000
    assert gateway.advance(1 * MS) == []
    assert gateway.advance(99_999) == []
    assert len(gateway.advance(100_000)) == 1


def test_b21_a_timeout_and_an_overdue_batch_are_counted_in_the_same_unit():
    tiers = (TierRule("paid", 300 * MS), TierRule("free", 400 * MS))
    story = live(
        at(0, 0),
        at(100, 1),
        at(100, 2, tier=Tier.FREE),
        tiers=tiers,
        overdue_after=500 * MS,
        fates=(takes(0, "hang"),),
        back_after=None,
    )
    assert story.departures == [(50, [0])]
    assert story.stops == [(550, 0)]
    assert story.ends == {
        1: (400, Outcome.EXPIRED),
        2: (500, Outcome.EXPIRED),
        0: (550, Outcome.EXPIRED),
    }


def test_b22_two_models_never_share_a_batch():
    arrivals = [at(i, i, model="AB"[i % 2]) for i in range(10)]
    story = live(*arrivals, models=("A", "B"), gpus=2)
    assert story.departures == [(50, [0, 2, 4, 6, 8]), (51, [1, 3, 5, 7, 9])]
    assert story.gpus == [0, 1]
