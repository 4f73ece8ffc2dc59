"""Who waits, and who boards next."""

import gc
import weakref
from random import Random

from labkit.core.messages import Request, Tier
from labkit.core.queues import SLACK, FairQueue
from labkit.core.units import MS, NEVER, S

PATIENT = (NEVER, NEVER)


class Prompt(str):
    """A prompt that can be watched: plain strings take no weak reference."""

    __slots__ = ("__weakref__",)


def ids(requests: list[Request]) -> list[int]:
    return [request.id for request in requests]


def queue_of(*requests: Request, timeouts: tuple[int, ...] = PATIENT) -> FairQueue:
    queue = FairQueue(timeouts)
    for request in requests:
        queue.push(request)
    return queue


def line(text: str, tier: int = Tier.PAID, start: int = 0) -> list[Request]:
    """`AAB` is three requests of tenants A, A and B, a millisecond apart."""
    return [
        Request(start + i, tenant=tenant, tier=tier, arrived_at=(start + i) * MS)
        for i, tenant in enumerate(text)
    ]


def test_an_empty_bank_has_no_oldest():
    queue = FairQueue(PATIENT)
    assert (queue.depth, queue.oldest_at, queue.take(100)) == (0, NEVER, [])
    assert queue.stayed() == ((0, 0), (None, None))
    assert queue.next_expiry() == NEVER


def test_one_tenant_boards_in_order_of_arrival():
    assert ids(queue_of(*line("AAAA")).take(3)) == [0, 1, 2]


def test_paid_boards_before_free_that_came_first():
    queue = queue_of(*line("AA", Tier.FREE), *line("AA", Tier.PAID, start=2))
    assert ids(queue.take(3)) == [2, 3, 0]
    assert ids(queue.take(3)) == [1]


def test_free_tops_up_what_paid_leaves():
    queue = queue_of(*line("A", Tier.PAID), *line("BBB", Tier.FREE, start=1))
    assert ids(queue.take(3)) == [0, 1, 2]


def test_tenants_of_a_tier_board_in_turn():
    assert ids(queue_of(*line("AAAABBC")).take(6)) == [0, 4, 6, 1, 5, 2]


def test_the_turn_goes_on_where_the_last_batch_left_it():
    queue = queue_of(*line("AAABBB"))
    assert ids(queue.take(3)) == [0, 3, 1]
    assert ids(queue.take(3)) == [4, 2, 5]


def test_a_tenant_who_comes_back_joins_the_end_of_the_turn():
    queue = queue_of(*line("AABB"))
    assert ids(queue.take(3)) == [0, 2, 1]
    queue.push(Request(9, tenant="A"))
    assert ids(queue.take(2)) == [3, 9]


def test_each_tier_has_turns_of_its_own():
    queue = queue_of(*line("AB", Tier.PAID), *line("AAB", Tier.FREE, start=2))
    assert ids(queue.take(5)) == [0, 1, 2, 4, 3]


def test_the_oldest_is_found_among_all_tiers_and_tenants():
    queue = queue_of(
        Request(1, tier=Tier.FREE, arrived_at=1 * MS),
        Request(2, tier=Tier.PAID, arrived_at=2 * MS),
        Request(3, tier=Tier.PAID, tenant="B", arrived_at=3 * MS),
    )
    assert queue.oldest_at == 1 * MS
    queue.remove(1)
    assert queue.oldest_at == 2 * MS
    queue.take(1)
    assert queue.oldest_at == 3 * MS
    queue.take(1)
    assert queue.oldest_at == NEVER


def test_the_oldest_may_stay_while_younger_ones_of_other_tenants_board():
    queue = queue_of(*line("AAAB"))
    assert ids(queue.take(2)) == [0, 3]
    assert queue.oldest_at == 1 * MS


def test_who_stayed_is_counted_by_tier_with_the_first_of_each():
    queue = queue_of(*line("AAB", Tier.PAID), *line("CC", Tier.FREE, start=3))
    queue.take(1)
    assert queue.stayed() == ((2, 2), (1, 3))
    queue.take(2)
    assert queue.stayed() == ((0, 2), (None, 3))


def test_removing_a_stranger_changes_nothing():
    queue = queue_of(*line("A"))
    assert queue.remove(7) is None
    assert (queue.depth, queue.oldest_at, queue.stayed()) == (1, 0, ((1, 0), (0, None)))


def test_whoever_leaves_the_middle_of_a_line_is_stepped_over():
    queue = queue_of(*line("AAAABB"))
    for left in (0, 1, 4):
        assert queue.remove(left).id == left
    assert queue.depth == 3
    assert ids(queue.take(3)) == [2, 5, 3]
    assert queue.depth == 0


def test_a_tenant_of_whom_everybody_left_loses_no_seat_for_others():
    queue = queue_of(*line("AABB"))
    queue.remove(0)
    queue.remove(1)
    assert ids(queue.take(2)) == [2, 3]
    queue.push(Request(5, tenant="A"))
    assert ids(queue.take(2)) == [5]


def test_a_returned_group_stands_ahead_and_is_not_mixed():
    queue = queue_of(*line("AA"))
    queue.push_front([(line("BB", start=10), 1), (line("C", start=20), 2)])
    assert queue.depth == 5
    rows, losses = queue.take_returned()
    assert (ids(rows), losses) == ([10, 11], 1)
    rows, losses = queue.take_returned()
    assert (ids(rows), losses) == ([20], 2)
    assert (queue.depth, bool(queue.returned), ids(queue.take(9))) == (2, False, [0, 1])


def test_the_last_to_come_back_stands_at_the_very_head():
    queue = FairQueue(PATIENT)
    queue.push_front([(line("A"), 1)])
    queue.push_front([(line("A", start=5), 1), (line("A", start=6), 1)])
    assert [ids(queue.take_returned()[0]) for _ in range(3)] == [[5], [6], [0]]


def test_whoever_leaves_the_returned_lane_is_gone_and_an_empty_group_with_them():
    queue = FairQueue(PATIENT)
    queue.push_front([(line("AA"), 1), (line("B", start=5), 1)])
    assert queue.remove(1).id == 1
    assert queue.remove(1) is None
    assert (queue.depth, len(queue.returned)) == (2, 2)
    assert queue.remove(0).id == 0
    assert (queue.depth, len(queue.returned)) == (1, 1)
    assert ids(queue.take_returned()[0]) == [5]
    assert queue.depth == 0


def test_a_group_of_whom_everybody_left_is_stepped_over_wherever_it_stands():
    queue = FairQueue(PATIENT)
    queue.push_front([(line("A", start=i), 1) for i in range(4)])
    queue.remove(1)
    queue.remove(2)
    assert ids(queue.take_returned()[0]) == [0]
    assert (queue.depth, len(queue.returned)) == (1, 1)
    queue.remove(3)
    assert (queue.depth, len(queue.returned)) == (0, 0)


def test_a_thousand_groups_that_came_back_are_not_searched_for_one_who_leaves():
    looks = 0

    class Id(int):
        def __eq__(self, other):
            nonlocal looks
            looks += 1
            return int(self) == other

        __hash__ = int.__hash__

    queue = FairQueue(PATIENT)
    queue.push_front([([Request(Id(i))], 1) for i in range(1000)])
    queue.remove(999)
    assert looks < 10


def test_a_bank_holds_those_in_its_tiers_and_those_who_came_back():
    queue = queue_of(*line("A"))
    queue.push_front([(line("B", start=5), 1)])
    assert (0 in queue, 5 in queue, 9 in queue) == (True, True, False)
    queue.take_returned()
    queue.take(1)
    assert (0 in queue, 5 in queue) == (False, False)


def test_somebody_who_came_back_is_not_the_oldest_of_those_who_never_left():
    queue = queue_of(*line("AAB"))
    assert ids(queue.take(2)) == [0, 2]
    queue.push_front([([Request(0), Request(2, arrived_at=2 * MS)], 1)])
    queue.remove(1)
    assert queue.oldest_at == NEVER
    assert queue.stayed() == ((0, 0), (None, None))
    queue.take_returned()
    queue.push(Request(9, arrived_at=40 * MS))
    assert queue.oldest_at == 40 * MS


def test_somebody_who_came_back_and_left_again_does_not_expire_in_the_tiers():
    queue = queue_of(*line("AAB"), timeouts=(1 * S, 1 * S))
    queue.take(2)
    queue.push_front([([Request(0), Request(2, arrived_at=2 * MS)], 1)])
    queue.remove(1)
    queue.take_returned()
    assert queue.next_expiry() == NEVER
    assert queue.expired(10 * S) == []


def test_a_tier_with_a_timeout_names_whom_it_lets_go():
    queue = queue_of(
        Request(1, arrived_at=0),
        Request(2, arrived_at=5 * MS),
        Request(3, tier=Tier.FREE, arrived_at=0),
        timeouts=(100 * MS, 1 * S),
    )
    assert queue.next_expiry() == 100 * MS
    assert queue.expired(99 * MS + 999) == []
    assert queue.expired(100 * MS) == [1]
    assert queue.expired(105 * MS) == [1, 2]
    queue.remove(1)
    assert queue.next_expiry() == 105 * MS
    assert queue.expired(1 * S) == [2, 3]


def test_those_who_left_are_stepped_over_when_others_expire():
    queue = queue_of(*line("AAA"), timeouts=(100 * MS, NEVER))
    queue.remove(1)
    assert queue.expired(1 * S) == [0, 2]


def test_a_patient_tier_never_expires():
    queue = queue_of(*line("A"), timeouts=(NEVER, 1 * S))
    assert queue.next_expiry() == NEVER
    assert queue.expired(NEVER - 1) == []


def test_ones_own_deadline_or_the_tiers_timeout_whichever_is_sooner():
    queue = FairQueue((100 * MS, NEVER))
    assert queue.expires_at(Request(1, arrived_at=7)) == 100 * MS + 7
    assert queue.expires_at(Request(1, arrived_at=7, deadline=50 * MS)) == 50 * MS
    assert queue.expires_at(Request(1, arrived_at=7, deadline=1 * S)) == 100 * MS + 7
    assert queue.expires_at(Request(1, tier=Tier.FREE, deadline=3)) == 3
    assert queue.expires_at(Request(1, tier=Tier.FREE)) == NEVER


def entries(queue: FairQueue) -> int:
    """Every entry the queue remembers, alive or dead."""
    return max(
        max(sum(len(line) for line in tier.lines.values()), len(tier.order))
        for tier in queue._tiers
    )


def test_ten_thousand_who_came_and_left_leave_no_more_than_the_slack_behind():
    queue = queue_of(Request(0, tenant="patient"))
    for number in range(1, 10_001):
        queue.push(Request(number, tenant=f"tenant {number % 7}"))
        queue.remove(number)
        assert entries(queue) <= 2 * queue.depth + SLACK + 1
    assert ids(queue.take(100)) == [0]


def test_tenants_of_whom_nobody_is_left_are_forgotten():
    queue = FairQueue(PATIENT)
    for number in range(1_000):
        queue.push(Request(number, tenant=f"tenant {number}"))
        queue.remove(number)
    assert len(queue._tiers[0].lines) == len(queue._tiers[0].turn) <= SLACK + 1


def test_boarding_past_a_patient_head_keeps_the_line_of_arrivals_short():
    queue = queue_of(Request(0, tenant="patient"))
    for number in range(1, 1_001):
        queue.push(Request(number, tenant="B"))
        queue._tiers[0].turn.rotate()
        assert ids(queue.take(1)) == [number]
        assert entries(queue) <= 2 * queue.depth + SLACK
    assert queue.oldest_at == 0


def test_compaction_keeps_the_turn_and_the_order():
    queue = queue_of(*line("ABABAB"))
    for number in range(100, 200):
        queue.push(Request(number, tenant="C", arrived_at=number * MS))
    for number in range(100, 200):
        queue.remove(number)
    assert ids(queue.take(6)) == [0, 1, 2, 3, 4, 5]


def test_no_prompt_outlives_the_request_that_left():
    queue = FairQueue(PATIENT)
    watched = []
    for number in range(10):
        prompt = Prompt(f"prompt {number}")
        watched.append(weakref.ref(prompt))
        queue.push(Request(number, prompt))
        del prompt
    queue.remove(3)
    queue.take(2)
    queue.push_front([([Request(50, Prompt("back"))], 1)])
    watched.append(weakref.ref(queue.back[50].prompt))
    queue.remove(50)
    gc.collect()
    alive = [number for number, prompt in enumerate(watched) if prompt() is not None]
    assert alive == [2, 4, 5, 6, 7, 8, 9]


def test_tenants_who_boarded_are_forgotten_as_well():
    queue = FairQueue(PATIENT)
    for number in range(1_000):
        queue.push(Request(number, tenant=f"tenant {number}"))
        assert ids(queue.take(1)) == [number]
        assert len(queue._tiers[0].lines) <= SLACK
    assert len(queue._tiers[0].turn) == 0


def test_a_tenants_empty_line_is_kept_while_there_are_few():
    queue = queue_of(*line("AB"))
    queue.take(1)
    assert sorted(queue._tiers[0].lines) == ["A", "B"]


def test_the_dead_are_counted_exactly_whatever_happens():
    queue, rng = FairQueue(PATIENT), Random(1)
    for number in range(3_000):
        queue.push(Request(number, tenant="ABCDE"[number % 5], tier=number % 2))
        if rng.random() < 0.6:
            queue.remove(int(rng.random() * (number + 1)))
        if rng.random() < 0.2:
            queue.take(int(rng.random() * 4))
        for tier in queue._tiers:
            assert sum(map(len, tier.lines.values())) == tier.count + tier.dead
            assert sum(bool(each) for each in tier.lines.values()) == len(tier.turn)
        assert queue.depth == sum(tier.count for tier in queue._tiers) == len(queue.waiting)


def test_a_newcomer_matters_who_is_the_oldest_or_the_first_of_a_tier():
    queue = FairQueue(PATIENT)
    assert queue.push(Request(1, arrived_at=5)) is True
    assert queue.push(Request(2, arrived_at=6)) is False
    assert queue.push(Request(3, arrived_at=7, tier=Tier.FREE)) is True
    assert queue.push(Request(4, arrived_at=8, tier=Tier.FREE, tenant="B")) is False
    assert queue.push(Request(5, arrived_at=4)) is True
    queue.take(5)
    assert queue.push(Request(6, arrived_at=9)) is True


def test_the_oldest_may_be_one_who_pays():
    queue = queue_of(Request(1), Request(2, arrived_at=5, tier=Tier.FREE), Request(3, arrived_at=9))
    queue.remove(3)
    assert queue.oldest_at == 0


def test_the_dead_are_counted_exactly_across_compactions():
    queue = FairQueue(PATIENT)
    for number in range(400):
        queue.push(Request(number, tenant="AB"[number % 2]))
    for number in range(0, 390):
        queue.remove(number)
        tier = queue._tiers[0]
        assert sum(map(len, tier.lines.values())) == tier.count + tier.dead
        assert tier.dead <= tier.count + SLACK
