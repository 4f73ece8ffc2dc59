"""Rows D, P, F and Q: deadlines, tiers, fairness and the door."""

from labkit.core.admission import default_depth_limit
from labkit.core.books import percentile
from labkit.core.gateway import Gateway
from labkit.core.messages import Answer, Depart, End, Outcome, Request, Tier
from labkit.core.settings import Settings, TierRule
from labkit.core.units import MS, NEVER, S
from tests.cases.world import at, live, takes

HUNDRED = list(range(100))


def test_d1_a_deadline_that_passes_in_the_queue_keeps_the_request_off_the_gpu():
    story = live(at(0, *HUNDRED), at(10, 100, deadline=200 * MS), at(10, 101), fates=(takes(300),))
    assert story.ends == {100: (200, Outcome.EXPIRED)}
    assert story.departures == [(0, HUNDRED), (300, [101])]


def test_d1_a_tiers_timeout_does_the_same():
    tiers = (TierRule("paid", 190 * MS), TierRule("free", NEVER))
    story = live(
        at(0, *HUNDRED), at(10, 100), at(10, 101, tier=Tier.FREE), tiers=tiers, fates=(takes(300),)
    )
    assert story.ends == {100: (200, Outcome.EXPIRED)}
    assert story.departures == [(0, HUNDRED), (300, [101])]


def test_d1_at_the_very_instant_the_deadline_wins():
    story = live(at(0, *HUNDRED), at(10, 100, deadline=100 * MS))
    assert story.ends == {100: (100, Outcome.EXPIRED)}
    assert len(story.departures) == 1


def test_d1_also_in_a_batch_that_is_bound_and_not_started():
    story = live(
        at(0, 0, 1),
        at(10, 2, deadline=60 * MS),
        at(10, 3),
        max_batch=2,
        backlog=1,
    )
    assert story.ends == {2: (60, Outcome.EXPIRED)}
    assert story.departures == [(0, [0, 1]), (100, [3])]


def test_d1_also_for_a_request_that_came_back():
    story = live(
        at(0, 0, deadline=200 * MS),
        at(0, 1),
        max_batch=2,
        fates=(takes(50, "die"),),
        back_after=300 * MS,
    )
    assert story.ends == {0: (200, Outcome.EXPIRED)}
    assert story.departures == [(0, [0, 1]), (350, [1])]


def test_d3_a_deadline_that_passes_on_the_gpu_changes_nothing():
    story = live(at(0, 0, deadline=60 * MS), tiers=(TierRule("paid", 70 * MS), TierRule("free")))
    assert story.departures == [(50, [0])]
    assert story.answered == {0: 150}


def test_p2_an_urgent_request_rides_in_the_very_next_batch():
    story = live(at(0, *range(200), tier=Tier.FREE), at(1, 200, tier=Tier.PAID))
    assert story.departures[:2] == [(0, HUNDRED), (100, [200, *range(100, 199)])]


def test_p3_an_urgent_request_overtakes_all_that_have_not_started():
    story = live(at(0, *range(6), tier=Tier.FREE), at(50, 6, tier=Tier.PAID), max_batch=2)
    assert story.departures == [(0, [0, 1]), (100, [6, 2]), (200, [3, 4]), (300, [5])]


def test_p4_equals_leave_in_the_order_they_came():
    story = live(at(0, *range(6)), max_batch=2)
    assert [row for _, rows in story.departures for row in rows] == [0, 1, 2, 3, 4, 5]


def test_p5_whoever_came_back_boards_before_those_who_came_later():
    story = live(
        at(0, 0, 1), at(10, 2, 3, 4), max_batch=2, fates=(takes(50, "die"),), back_after=10 * MS
    )
    assert story.departures == [(0, [0, 1]), (60, [0, 1]), (160, [2, 3]), (260, [4])]


def test_p5_even_a_free_one_before_one_who_pays():
    story = live(at(0, 0, tier=Tier.FREE), at(60, 1), fates=(takes(50, "die"),), back_after=10 * MS)
    assert story.departures == [(50, [0]), (110, [0]), (210, [1])]


def test_f1_one_request_beside_ten_thousand_rides_in_the_next_batch():
    gateway = Gateway(Settings())
    gateway.join(0, "ferry", 0)
    for number in range(10_000):
        gateway.arrive(Request(number, tenant="A"), 0)
    (first,) = gateway.advance(0)
    gateway.arrive(Request(10_000, tenant="B", arrived_at=1 * MS), 1 * MS)
    gateway.finish(first.batch_id, ["ok"] * 100, 100 * MS)
    (second,) = gateway.advance(100 * MS)
    assert [row.id for row in second.rows] == [100, 10_000, *range(101, 199)]


def test_q1_at_the_limit_the_door_says_no_in_the_same_call():
    gateway = Gateway(Settings(depth_limit=100))
    for number in range(100):
        assert gateway.arrive(Request(number), 0) == ()
    assert gateway.arrive(Request(100), 0) == (End(100, Outcome.REJECTED, "queue_full"),)
    assert gateway.depth() == 100


def test_q2_ten_times_the_load_for_a_minute_keeps_the_depth_and_the_latency_bounded():
    limit = default_depth_limit(1, 100, 500 * MS, 100 * MS, 200 * MS)
    assert limit == 170
    gateway = Gateway(Settings(depth_limit=limit))
    gateway.join(0, "ferry", 0)
    running, deepest, latencies = None, 0, []
    for number in range(600_000):
        now = number * 100
        if running and running[0] <= now:
            (answer,) = gateway.finish(running[1].batch_id, ["ok"] * len(running[1].rows), now)
            assert isinstance(answer, Answer)
            latencies += [now - row.arrived_at for row in answer.rows]
            running = None
        gateway.arrive(Request(number, arrived_at=now), now)
        deepest = max(deepest, gateway._serving["ferry"].queue.depth)
        if gateway.due_at <= now:
            for command in gateway.advance(now):
                assert isinstance(command, Depart)
                running = (now + 100 * MS, command)
    assert now == 60 * S - 100
    assert deepest == 170
    assert percentile(sorted(latencies), 95) <= 500 * MS
    assert len(latencies) > 59_000


def test_q3_of_a_thousand_at_one_instant_exactly_the_limit_come_in():
    gateway = Gateway(Settings(depth_limit=100))
    gateway.join(0, "ferry", 0)
    answers = [gateway.arrive(Request(number), 0) for number in range(1_000)]
    assert [number for number, said in enumerate(answers) if said == ()] == HUNDRED
    (depart,) = gateway.advance(0)
    assert [row.id for row in depart.rows] == HUNDRED
    assert gateway.arrive(Request(1_000), 0) == ()
