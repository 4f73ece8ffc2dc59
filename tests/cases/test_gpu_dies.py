"""Rows R: a GPU dies, hangs, or comes back late."""

import pytest

from labkit.core.messages import Outcome
from labkit.core.units import MS
from tests.cases.world import at, live, takes

HUNDRED = list(range(100))


def test_r1_what_a_dead_gpu_held_goes_back_to_the_head_in_order():
    story = live(at(0, *HUNDRED), at(20, 100), fates=(takes(50, "die"),), back_after=30 * MS)
    assert story.departures == [(0, HUNDRED), (80, HUNDRED), (180, [100])]
    assert story.answered == {**dict.fromkeys(HUNDRED, 180), 100: 280}


def test_r1_another_gpu_takes_it_at_once():
    story = live(at(0, *HUNDRED), gpus=2, fates=(takes(50, "die"),))
    assert story.departures == [(0, HUNDRED), (50, HUNDRED)]
    assert story.answered == dict.fromkeys(HUNDRED, 150)


def test_r1_of_a_batch_that_was_bound_and_never_started_nobody_is_blamed():
    story = live(
        at(0, 0, 1), at(5, 2, 3), max_batch=2, backlog=1, fates=(takes(50, "die"),), back_after=MS
    )
    assert story.departures == [(0, [0, 1]), (51, [0, 1]), (151, [2, 3])]


@pytest.mark.parametrize("poison", [0, 37, 99])
@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_r2_a_request_that_kills_is_found_and_its_company_answered(poison: int, gpus: int):
    story = live(at(0, *HUNDRED), gpus=gpus, poison=frozenset({poison}), back_after=30 * MS)
    assert story.deaths == 4
    assert len(story.departures) == 22
    assert list(story.ends) == [poison]
    assert story.ends[poison][1] is Outcome.FAILED
    assert story.outcomes == {Outcome.ANSWERED: 99, Outcome.FAILED: 1}


def test_r2_the_company_gets_smaller_with_each_death():
    story = live(at(0, *HUNDRED), poison=frozenset({5}), back_after=30 * MS)
    sizes = [len(rows) for _, rows in story.departures if 5 in rows]
    assert sizes == [100, 100, 10, 1]


def test_r3_a_late_answer_resolves_nobody_and_is_counted():
    story = live(at(0, 0, 1), gpus=2, max_batch=2, overdue_after=250 * MS, fates=(takes(270),))
    assert story.departures == [(0, [0, 1]), (250, [0, 1])]
    assert story.answered == {0: 350, 1: 350}
    assert story.stops == [(250, 0)]
    assert story.gateway.late == 1


def test_r3_an_answer_at_the_last_instant_is_in_time():
    story = live(at(0, 0), max_batch=1, overdue_after=250 * MS, fates=(takes(250),))
    assert story.answered == {0: 250}
    assert (story.stops, story.gateway.late) == ([], 0)


def test_r5_the_retry_does_not_go_back_to_the_gpu_that_failed():
    story = live(at(0, 0), max_batch=1, gpus=3, fates=(takes(50, "die"),), back_after=None)
    assert story.gpus == [0, 1]


def test_r5_not_even_when_that_gpu_only_miscounted():
    story = live(at(0, 0), max_batch=1, gpus=2, fates=(takes(50, "short"),), back_after=None)
    assert story.gpus == [0, 1]


def test_r5_but_the_only_gpu_may_take_it_again_in_its_next_life():
    story = live(at(0, 0), max_batch=1, fates=(takes(50, "die"),), back_after=30 * MS)
    assert story.departures == [(0, [0]), (80, [0])]
    assert story.answered == {0: 180}
