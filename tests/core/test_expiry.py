"""Deadlines that the order of arrival does not tell, of requests and of batches on GPUs."""

from labkit.core.expiry import SLACK, Deadlines, Overdue
from labkit.core.units import MS, NEVER


def test_the_soonest_who_still_waits_is_next():
    waiting = {1, 2, 3}
    deadlines = Deadlines(waiting.__contains__)
    for request_id, at in ((1, 30), (2, 10), (3, 20)):
        deadlines.watch(request_id, at * MS)
    assert deadlines.next() == 10 * MS
    waiting.remove(2)
    assert deadlines.next() == 20 * MS


def test_nobody_watched_means_never():
    assert Deadlines(lambda _: True).next() == NEVER


def test_one_who_never_expires_is_not_watched():
    deadlines = Deadlines(lambda _: True)
    deadlines.watch(1, NEVER)
    assert (deadlines.next(), deadlines._heap) == (NEVER, [])
    deadlines.watch(1, NEVER - 1)
    assert deadlines.next() == NEVER - 1


def test_whose_time_is_up_is_named_once_soonest_first():
    waiting = {1, 2, 3}
    deadlines = Deadlines(waiting.__contains__)
    for request_id in (3, 1, 2):
        deadlines.watch(request_id, request_id * 10 * MS)
    assert deadlines.expired(10 * MS - 1) == []
    assert deadlines.expired(20 * MS) == [1, 2]
    assert deadlines.expired(20 * MS) == []
    assert deadlines.next() == 30 * MS


def test_one_who_left_does_not_expire():
    deadlines = Deadlines({1}.__contains__)
    deadlines.watch(2, 5)
    deadlines.watch(1, 7)
    assert deadlines.expired(9) == [1]


def test_ten_thousand_who_left_are_forgotten():
    waiting = set(range(10))
    deadlines = Deadlines(waiting.__contains__)
    for request_id in range(10):
        deadlines.watch(request_id, NEVER - 10 + request_id)
    for request_id in range(100, 10_100):
        deadlines.watch(request_id, request_id)
        assert len(deadlines._heap) <= 2 * len(waiting) + SLACK + 1
    assert deadlines.expired(NEVER - 1) == list(range(10))


def test_a_crowd_that_stays_is_not_searched_at_every_arrival():
    looks = 0

    def waits(_: int) -> bool:
        nonlocal looks
        looks += 1
        return True

    deadlines = Deadlines(waits)
    for request_id in range(10_000):
        deadlines.watch(request_id, request_id)
    assert looks < 3 * 10_000


def test_one_who_is_watched_again_and_again_is_remembered_once():
    deadlines = Deadlines({1}.__contains__)
    for _ in range(10_000):
        deadlines.watch(1, 5)
        assert len(deadlines._heap) <= 2 * 1 + SLACK + 1
    assert deadlines.expired(5)[0] == 1


def test_batches_are_overdue_in_the_order_in_which_they_left():
    out = {4, 5, 6}
    overdue = Overdue(250 * MS, out.__contains__)
    overdue.departed(5, 10 * MS)
    overdue.departed(4, 10 * MS)
    overdue.departed(6, 11 * MS)
    assert overdue.next() == 260 * MS
    assert overdue.expired(260 * MS - 1) == []
    assert overdue.expired(260 * MS) == [5, 4]
    assert overdue.next() == 261 * MS


def test_a_batch_that_is_back_is_not_overdue():
    out = {1, 2}
    overdue = Overdue(250 * MS, out.__contains__)
    overdue.departed(1, 0)
    overdue.departed(2, 20 * MS)
    out.remove(1)
    assert overdue.next() == 270 * MS
    out.remove(2)
    assert (overdue.next(), overdue.expired(1_000 * MS)) == (NEVER, [])


def test_where_one_waits_for_ever_no_batch_is_overdue():
    overdue = Overdue(None, lambda _: True)
    overdue.departed(1, 0)
    assert overdue.next() == NEVER
