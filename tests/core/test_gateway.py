"""Every verb of the gateway, told in milliseconds."""

import sys
from collections.abc import Callable
from random import Random

import pytest

from labkit.core.gateway import Gateway
from labkit.core.messages import (
    Answer,
    BatchError,
    Depart,
    End,
    Outcome,
    Reason,
    Receipt,
    Request,
    RowError,
    Stop,
    Tier,
)
from labkit.core.settings import ConfigError, ModelRule, Settings, TierRule
from labkit.core.units import MS, NEVER, S


def gateway(gpus: int = 1, **changes) -> Gateway:
    made = Gateway(Settings(**changes), Random(1))
    for gpu in range(gpus):
        assert made.join(gpu, "ferry", 0) == []
    return made


def come(to: Gateway, ms: float, *ids: int, **others) -> None:
    now = round(ms * MS)
    for request_id in ids:
        assert to.arrive(Request(request_id, f"p{request_id}", now, **others), now) == ()


def leave(of: Gateway, ms: float) -> list[tuple[int, int, list[int]]]:
    """(batch, gpu, rows) of every departure at this instant; nothing else may be said."""
    commands = of.advance(round(ms * MS))
    assert all(isinstance(command, Depart) for command in commands)
    return [(c.batch_id, c.gpus[0], [row.id for row in c.rows]) for c in commands]


def rows(depart: Depart) -> list[int]:
    return [row.id for row in depart.rows]


def steps(work: Callable[[], object]) -> int:
    """Bytecode steps that `work` takes: the same on every run."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def pushed(batches: int, **changes) -> Gateway:
    """Two GPUs under push that hold so many batches of one request, all but two unstarted."""
    door = gateway(gpus=2, max_batch=1, backlog=None, **changes)
    for request_id in range(batches):
        come(door, 0, request_id)
        door.advance(0)
    return door


# -- arrive and advance ---------------------------------------------------------------------------


def test_the_whole_way_of_one_request():
    door = gateway()
    request = Request(7, "hello", 3 * MS)
    assert door.arrive(request, 3 * MS) == ()
    assert (door.due_at, door.depth(), door.in_flight()) == (53 * MS, 1, 0)
    assert door.advance(53 * MS) == [
        Depart(1, (0,), (request,), Receipt(Reason.TIMER, 50 * MS, 350 * MS, (0, 0), (None, None)))
    ]
    assert (door.due_at, door.depth(), door.in_flight()) == (NEVER, 0, 1)
    assert door.finish(1, ["HELLO"], 153 * MS) == [Answer(1, (request,), ("HELLO",))]
    assert (door.due_at, door.depth(), door.in_flight()) == (NEVER, 0, 0)


def test_advancing_too_early_does_nothing():
    door = gateway()
    come(door, 0, 1)
    assert leave(door, 49.999) == []
    assert door.due_at == 50 * MS
    assert leave(door, 50) == [(1, 0, [1])]


def test_advancing_late_makes_nobody_wait_longer():
    door = gateway()
    come(door, 0, 1)
    assert leave(door, 80) == [(1, 0, [1])]


def test_an_arrival_only_lowers_what_is_due():
    door = gateway()
    come(door, 0, 1)
    come(door, 40, 2)
    assert door.due_at == 50 * MS


def test_without_a_gpu_nothing_is_due_and_a_gpu_that_joins_takes_what_waits():
    door = gateway(gpus=0)
    come(door, 0, 1)
    assert door.due_at == NEVER
    door.join(3, "ferry", 20 * MS)
    assert door.due_at == 50 * MS
    come(door, 60, 2)
    assert leave(door, 60) == [(1, 3, [1, 2])]


def test_the_one_hundred_and_first_waits_for_its_own_time():
    door = gateway(gpus=2)
    come(door, 0, *range(101))
    assert leave(door, 0) == [(1, 0, list(range(100)))]
    assert door.due_at == 50 * MS
    assert leave(door, 50) == [(2, 1, [100])]


def test_as_many_batches_leave_at_once_as_are_full_and_have_a_gpu():
    door = gateway(gpus=2, max_batch=2)
    come(door, 0, *range(7))
    assert leave(door, 0) == [(1, 0, [0, 1]), (2, 1, [2, 3])]
    assert door.due_at == NEVER


def test_who_leaves_at_once_and_who_waits_until_full():
    eager = gateway(rule="at_once")
    come(eager, 5, 1)
    assert leave(eager, 5) == [(1, 0, [1])]
    patient = gateway(rule="full", max_batch=2)
    come(patient, 5, 1)
    assert patient.due_at == NEVER
    come(patient, 900, 2)
    assert leave(patient, 900) == [(1, 0, [1, 2])]


def test_a_rule_and_a_chooser_of_ones_own_replace_those_of_the_settings():
    class Highest:
        def choose(self, room):
            return room[-1]

    class Fives:
        max_batch = 2

        def due_at(self, bank):
            return bank.oldest_at + 5 * MS if bank.depth else NEVER

    door = Gateway(Settings(), rule=Fives(), chooser=Highest())
    for gpu in range(3):
        door.join(gpu, "ferry", 0)
    come(door, 0, 1, 2, 3)
    assert door.due_at == 5 * MS
    assert leave(door, 5) == [(1, 2, [1, 2]), (2, 1, [3])]


def test_a_rule_of_ones_own_is_asked_at_every_arrival():
    class Threes:
        max_batch = 100

        def due_at(self, bank):
            return bank.oldest_at if bank.depth >= 3 else NEVER

    door = Gateway(Settings(), rule=Threes())
    door.join(0, "ferry", 0)
    come(door, 0, 1)
    come(door, 1, 2)
    assert door.due_at == NEVER
    come(door, 2, 3)
    assert door.due_at <= 2 * MS
    assert leave(door, 2) == [(1, 0, [1, 2, 3])]


def test_an_arrival_never_puts_off_what_is_due_sooner():
    door = gateway()
    come(door, 0, 1, deadline=30 * MS)
    come(door, 10, 2, tier=Tier.FREE)
    assert door.due_at == 30 * MS


# -- the door -------------------------------------------------------------------------------------


def test_an_unknown_model_is_refused():
    assert gateway().arrive(Request(1, model="raft"), 0) == (
        End(1, Outcome.REJECTED, "unknown_model"),
    )


@pytest.mark.parametrize("tier", [2, 99, -1, -2])
def test_a_tier_there_is_none_of_is_refused_and_changes_nothing(tier: int):
    door = gateway()
    with pytest.raises(IndexError, match=f"request 7: tier {tier}; .* tiers 0 to 1"):
        door.arrive(Request(7, tier=tier), 0)
    assert (door.depth(), door.due_at) == (0, NEVER)
    come(door, 0, 8)
    assert leave(door, 50) == [(1, 0, [8])]


@pytest.mark.parametrize("seats", [0, -1, 101])
def test_a_rule_of_ones_own_with_impossible_seats_is_refused(seats: int):
    class Mine:
        max_batch = seats

        def due_at(self, bank):
            return bank.oldest_at

    with pytest.raises(ConfigError, match=f"max_batch {seats} of the rule"):
        Gateway(Settings(), rule=Mine())


def test_a_tier_may_fill_its_share_and_the_rest_is_kept_for_the_others():
    door = gateway(depth_limit=125, tiers=(TierRule("paid"), TierRule("free", share=80)))
    come(door, 0, *range(60))
    come(door, 0, *range(60, 100), tier=Tier.FREE)
    free, paid = Request(100, tier=Tier.FREE), Request(101, tier=Tier.PAID)
    assert door.arrive(free, 0) == (End(100, Outcome.REJECTED, "tier_quota"),)
    assert door.arrive(paid, 0) == ()
    assert (door.depth(), door.refused) == (101, {"tier_quota": 1})


def test_a_refusal_says_whether_anybody_could_still_come():
    door = gateway(
        max_batch=8, depth_limit=10, tiers=(TierRule("paid"), TierRule("free", share=80))
    )
    come(door, 0, *range(9))
    assert door.arrive(Request(9, tier=Tier.FREE), 0)[0].detail == "tier_quota"
    come(door, 0, 10)
    assert door.arrive(Request(11, tier=Tier.FREE), 0)[0].detail == "queue_full"
    assert door.arrive(Request(12), 0)[0].detail == "queue_full"
    assert door.arrive(Request(13, model="raft"), 0)[0].detail == "unknown_model"
    door.close(0)
    assert door.arrive(Request(14), 0)[0].detail == "draining"
    assert door.refused == {"tier_quota": 1, "queue_full": 2, "unknown_model": 1, "draining": 1}


def test_where_no_tier_may_fill_it_all_the_largest_part_is_the_queue():
    door = gateway(
        max_batch=4, depth_limit=10, tiers=(TierRule("a", share=50), TierRule("b", share=40))
    )
    come(door, 0, *range(4))
    assert door.arrive(Request(4, tier=1), 0)[0].detail == "tier_quota"
    come(door, 0, 5)
    assert door.arrive(Request(6, tier=1), 0)[0].detail == "queue_full"
    assert door.arrive(Request(7, tier=0), 0)[0].detail == "queue_full"


def test_the_limit_counts_those_bound_to_a_gpu_and_not_those_on_it():
    door = gateway(max_batch=2, depth_limit=2, backlog=1)
    come(door, 0, 0, 1)
    assert leave(door, 0) == [(1, 0, [0, 1])]
    come(door, 1, 2, 3)
    assert leave(door, 1) == []
    assert (door.depth(), door.in_flight()) == (2, 2)
    assert door.arrive(Request(4), 2 * MS) == (End(4, Outcome.REJECTED, "queue_full"),)
    door.finish(1, ["", ""], 100 * MS)
    assert leave(door, 100) == [(2, 0, [2, 3])]
    come(door, 100, 5, 6)


def test_after_close_nobody_comes_in_and_whoever_waits_leaves_as_soon_as_a_gpu_is_free():
    door = gateway(max_batch=2)
    come(door, 0, 1, 2)
    assert leave(door, 0) == [(1, 0, [1, 2])]
    come(door, 1, 3)
    assert door.close(2 * MS) == ()
    assert door.arrive(Request(4), 2 * MS) == (End(4, Outcome.REJECTED, "draining"),)
    assert door.due_at == NEVER
    door.finish(1, ["", ""], 20 * MS)
    assert door.due_at <= 20 * MS
    (depart,) = door.advance(20 * MS)
    assert (rows(depart), depart.receipt.reason) == ([3], Reason.DRAIN)
    door.finish(2, [""], 120 * MS)
    assert door.due_at == NEVER


def test_closing_with_an_idle_gpu_sends_everybody_off_now():
    door = gateway(rule="full")
    come(door, 0, 1)
    door.close(3 * MS)
    assert door.due_at <= 3 * MS
    assert leave(door, 3) == [(1, 0, [1])]
    assert door.due_at == NEVER


# -- backlog --------------------------------------------------------------------------------------


def test_with_a_backlog_of_one_a_busy_gpu_is_bound_to_one_batch_more():
    door = gateway(max_batch=1, backlog=1)
    come(door, 0, 0, 1, 2)
    assert leave(door, 0) == [(1, 0, [0])]
    assert (door.depth(), door.due_at) == (2, NEVER)
    door.finish(1, [""], 100 * MS)
    assert door.due_at <= 100 * MS
    assert leave(door, 100) == [(2, 0, [1])]
    door.finish(2, [""], 200 * MS)
    assert leave(door, 200) == [(3, 0, [2])]


def test_pushing_without_bound_gives_everybody_a_gpu_at_once():
    door = gateway(gpus=2, max_batch=1, backlog=None, dispatch="round_robin")
    come(door, 0, *range(5))
    assert leave(door, 0) == [(1, 0, [0]), (2, 1, [1])]
    assert door.due_at == NEVER
    door.finish(2, [""], 100 * MS)
    assert leave(door, 100) == [(4, 1, [3])]
    door.finish(4, [""], 200 * MS)
    assert leave(door, 200) == []
    door.finish(1, [""], 300 * MS)
    assert leave(door, 300) == [(3, 0, [2])]


def test_with_a_backlog_of_three_the_fourth_waits_on_the_bank():
    door = gateway(max_batch=1, backlog=3)
    come(door, 0, *range(6))
    assert leave(door, 0) == [(1, 0, [0])]
    queue = door._serving["ferry"].queue
    assert (queue.depth, door.depth()) == (2, 5)


def test_a_batch_bound_early_leaves_with_the_reason_it_was_bound_for():
    door = gateway(max_batch=2, backlog=1)
    come(door, 0, 0, 1)
    leave(door, 0)
    come(door, 10, 2)
    assert leave(door, 60) == []
    door.finish(1, ["", ""], 100 * MS)
    (depart,) = door.advance(100 * MS)
    assert (depart.receipt.reason, depart.receipt.oldest_age) == (Reason.TIMER, 90 * MS)


def test_a_batch_whose_rows_all_left_is_never_started():
    door = gateway(max_batch=1, backlog=2)
    come(door, 0, 0, 1, 2)
    leave(door, 0)
    door.cancel(1, 10 * MS)
    assert door.depth() == 1
    door.finish(1, [""], 100 * MS)
    assert leave(door, 100) == [(3, 0, [2])]
    assert door.depth() == 0
    assert set(door.mapping.batches) == {3}


def test_a_bound_batch_whose_rows_all_left_does_not_come_back_from_a_lost_gpu():
    door = gateway(max_batch=1, backlog=1)
    come(door, 0, 0, 1)
    leave(door, 0)
    door.cancel(0, 1 * MS)
    door.cancel(1, 1 * MS)
    door.lose(0, 2 * MS)
    assert (door.depth(), len(door._serving["ferry"].queue.returned)) == (0, 0)
    door.join(0, "ferry", 3 * MS)
    assert door.due_at == NEVER


def test_a_bound_batch_whose_rows_all_left_is_forgotten_and_makes_room_for_another():
    door = gateway(max_batch=1, backlog=1)
    come(door, 0, 0, 1, 2)
    assert leave(door, 0) == [(1, 0, [0])]
    assert door.due_at == NEVER
    door.cancel(1, 10 * MS)
    assert set(door.mapping.batches) == {1}
    assert door.due_at <= 10 * MS
    assert leave(door, 10) == []
    assert set(door.mapping.batches) == {1, 3}
    door.finish(1, [""], 100 * MS)
    assert leave(door, 100) == [(3, 0, [2])]


def test_a_gpu_whose_bound_batches_all_left_counts_as_less_loaded():
    door = gateway(gpus=2, max_batch=1, backlog=None)
    come(door, 0, 0, 1, 2, 3, 4)
    leave(door, 0)
    assert door.mapping.find(2).gpu == door.mapping.find(4).gpu == 0
    door.cancel(2, 1 * MS)
    door.cancel(4, 1 * MS)
    come(door, 2, 5)
    door.advance(2 * MS)
    assert door.mapping.find(5).gpu == 0


def test_among_many_bound_batches_one_is_cancelled_as_quickly_as_among_few():
    few, many = (pushed(n) for n in (20, 400))
    assert steps(lambda: few.cancel(19, 1 * MS)) == steps(lambda: many.cancel(399, 1 * MS))


def test_what_expires_late_is_looked_for_as_quickly_among_many_bound_batches_as_among_few():
    tiers = (TierRule("paid", 10 * S),)
    few, many = (pushed(n, tiers=tiers) for n in (20, 400))
    assert steps(lambda: few._waits(19)) == steps(lambda: many._waits(399))
    assert steps(lambda: few._waits(0)) == steps(lambda: many._waits(0))


# -- cancel ---------------------------------------------------------------------------------------


def test_whoever_leaves_the_queue_takes_the_timer_along():
    door = gateway()
    come(door, 0, 1)
    come(door, 20, 2)
    assert door.cancel(1, 30 * MS) == (End(1, Outcome.CANCELLED, "client_left"),)
    assert door.due_at == 70 * MS
    assert door.cancel(2, 30 * MS) == (End(2, Outcome.CANCELLED, "client_left"),)
    assert door.due_at == NEVER


def test_whoever_leaves_the_gpu_keeps_the_seat_and_gets_no_answer():
    door = gateway()
    come(door, 0, 1, 2, 3)
    leave(door, 50)
    assert door.cancel(2, 60 * MS) == (End(2, Outcome.CANCELLED, "client_left"),)
    assert door.in_flight() == 2
    (answer,) = door.finish(1, ["a", "b", "c"], 150 * MS)
    assert ([row.id for row in answer.rows], answer.outputs) == ([1, 3], ("a", "c"))


def test_when_everybody_aboard_left_nobody_is_answered():
    door = gateway()
    come(door, 0, 1)
    leave(door, 50)
    door.cancel(1, 60 * MS)
    assert door.finish(1, ["a"], 150 * MS) == []
    assert door.due_at == NEVER


@pytest.mark.parametrize("request_id", [1, 9])
def test_whoever_is_gone_or_never_came_cannot_leave(request_id: int):
    door = gateway()
    come(door, 0, 1)
    leave(door, 50)
    door.finish(1, ["a"], 150 * MS)
    assert door.cancel(request_id, 160 * MS) == ()


def test_leaving_twice_is_leaving_once():
    door = gateway()
    come(door, 0, 1)
    assert len(door.cancel(1, 1 * MS)) == 1
    assert door.cancel(1, 2 * MS) == ()


# -- finish ---------------------------------------------------------------------------------------


def test_a_row_that_failed_alone_ends_and_the_others_are_answered_in_one():
    door = gateway()
    come(door, 0, 1, 2, 3)
    leave(door, 50)
    answer, end = door.finish(1, ["a", RowError("too long"), "c"], 150 * MS)
    assert ([row.id for row in answer.rows], answer.outputs) == ([1, 3], ("a", "c"))
    assert end == End(2, Outcome.FAILED, "too long")


def test_a_row_that_failed_after_its_client_left_is_not_told():
    door = gateway()
    come(door, 0, 1)
    leave(door, 50)
    door.cancel(1, 60 * MS)
    assert door.finish(1, [RowError("too long")], 150 * MS) == []


def test_a_batch_that_raised_is_tried_in_halves_ahead_of_everybody():
    door = gateway(max_batch=4)
    come(door, 0, 1, 2, 3, 4)
    leave(door, 0)
    come(door, 1, 5, 6, 7, 8)
    assert door.finish(1, BatchError("boom"), 100 * MS) == []
    assert door.due_at <= 100 * MS
    (half,) = door.advance(100 * MS)
    assert (rows(half), half.receipt.reason) == ([1, 2], Reason.RETURNED)
    door.finish(2, BatchError("boom"), 200 * MS)
    assert leave(door, 200) == [(3, 0, [1])]
    assert door.finish(3, BatchError("boom"), 300 * MS) == [End(1, Outcome.FAILED, "boom")]
    assert leave(door, 300) == [(4, 0, [2])]
    door.finish(4, ["b"], 400 * MS)
    assert leave(door, 400) == [(5, 0, [3, 4])]
    door.finish(5, ["c", "d"], 500 * MS)
    assert leave(door, 500) == [(6, 0, [5, 6, 7, 8])]


def test_one_left_over_from_a_batch_that_raised_is_not_blamed_for_its_company():
    door = gateway()
    come(door, 0, 1, 2)
    leave(door, 50)
    door.cancel(1, 60 * MS)
    assert door.finish(1, BatchError("boom"), 150 * MS) == []
    assert leave(door, 150) == [(2, 0, [2])]


def test_wrong_counts_answer_nobody_and_stop_the_gpu_with_the_numbers():
    door = gateway()
    come(door, 0, 1, 2)
    leave(door, 50)
    assert door.finish(1, ["a"], 150 * MS) == [
        Stop(
            0,
            "batch 1: 1 outputs for 2 requests; a worker must return one output per request, in "
            "order",
        )
    ]
    assert door.gpus() == ()
    door.join(0, "ferry", 200 * MS)
    (again,) = door.advance(200 * MS)
    assert (rows(again), again.receipt.reason) == ([1, 2], Reason.RETURNED)


def test_wrong_counts_return_what_the_gpu_held_unstarted():
    door = gateway(max_batch=1, backlog=1)
    come(door, 0, 0, 1)
    leave(door, 0)
    door.finish(1, [], 100 * MS)
    door.join(0, "ferry", 130 * MS)
    assert leave(door, 130) == [(3, 0, [0])]
    door.finish(3, [""], 230 * MS)
    assert leave(door, 230) == [(4, 0, [1])]


def test_too_many_outputs_are_as_wrong_as_too_few():
    door = gateway()
    come(door, 0, 1)
    leave(door, 50)
    (stop,) = door.finish(1, ["a", "b"], 150 * MS)
    assert stop.gpu == 0


def test_a_result_nobody_waits_for_is_dropped_and_counted():
    door = gateway()
    assert door.finish(1, ["a"], 0) == ()
    assert door.late == 1


# -- the fleet ------------------------------------------------------------------------------------


def test_a_lost_gpu_gives_its_requests_back_and_gets_no_more():
    door = gateway(gpus=2)
    come(door, 0, 1)
    leave(door, 50)
    assert door.lose(0, 60 * MS) == []
    assert door.gpus() == (1,)
    (depart,) = door.advance(60 * MS)
    assert (
        depart.gpus,
        depart.receipt.reason,
        depart.receipt.oldest_age,
        depart.receipt.slack,
    ) == (
        (1,),
        Reason.RETURNED,
        60 * MS,
        340 * MS,
    )
    assert door.lose(0, 70 * MS) == ()


def test_with_no_other_gpu_what_came_back_is_not_due_before_one_joins():
    door = gateway()
    come(door, 0, 1)
    leave(door, 50)
    door.lose(0, 60 * MS)
    assert door.due_at == NEVER
    assert leave(door, 60) == []
    door.join(0, "ferry", 90 * MS)
    assert door.due_at <= 90 * MS


def test_after_four_losses_a_request_has_failed():
    door = gateway()
    come(door, 0, 1)
    leave(door, 50)
    for death in range(1, 4):
        assert door.lose(0, death * S) == []
        door.join(0, "ferry", death * S)
        assert leave(door, death * 1_000) == [(death + 1, 0, [1])]
    assert door.lose(0, 4 * S) == [
        End(1, Outcome.FAILED, "4 GPUs were lost with this request aboard, the last time alone")
    ]


def test_a_gpu_that_joins_again_has_lost_what_it_ran():
    door = gateway()
    come(door, 0, 1)
    leave(door, 50)
    assert door.join(0, "ferry", 60 * MS) == []
    assert leave(door, 60) == [(2, 0, [1])]
    assert door.finish(1, ["late"], 150 * MS) == ()
    assert door.late == 1
    (answer,) = door.finish(2, ["a"], 160 * MS)
    assert answer.outputs == ("a",)


def test_an_idle_gpu_that_is_lost_is_gone_without_a_word():
    door = gateway(gpus=2)
    come(door, 0, 1)
    assert door.lose(0, 10 * MS) == []
    assert door.gpus() == (1,)
    assert leave(door, 50) == [(1, 1, [1])]


def test_empty_hardware_serves_nobody():
    door = gateway(gpus=0)
    assert door.join(0, None, 0) == []
    assert door.gpus() == ()


def test_a_gpu_with_a_model_nobody_serves_is_refused_and_changes_nothing():
    door = gateway()
    come(door, 0, 1)
    leave(door, 50)
    with pytest.raises(
        ValueError, match="GPU 0 joined with model 'raft'; this gateway serves ferry"
    ):
        door.join(0, "raft", 60 * MS)
    (answer,) = door.finish(1, ["a"], 150 * MS)
    assert answer.outputs == ("a",)


def test_a_draining_gpu_finishes_its_batch_gets_no_other_and_is_stopped():
    door = gateway(max_batch=1)
    come(door, 0, 0, 1)
    leave(door, 0)
    assert door.drain(0, 30 * MS) == []
    assert leave(door, 30) == []
    answer, stop = door.finish(1, ["a"], 100 * MS)
    assert (answer.outputs, stop) == (("a",), Stop(0, "drained"))
    assert (door.gpus(), door.due_at, door.depth()) == ((), NEVER, 1)


def test_an_idle_gpu_that_drains_is_stopped_at_once():
    door = gateway()
    assert door.drain(0, 0) == [Stop(0, "drained")]
    assert door.drain(0, 0) == ()


def test_a_draining_gpu_gives_back_what_it_has_not_started():
    door = gateway(gpus=2, max_batch=1, backlog=1, dispatch="round_robin")
    come(door, 0, 0, 1, 2, 3)
    assert leave(door, 0) == [(1, 0, [0]), (2, 1, [1])]
    door.drain(0, 10 * MS)
    assert door.depth() == 2
    door.finish(2, [""], 100 * MS)
    assert leave(door, 100) == [(4, 1, [3])]
    door.finish(4, [""], 200 * MS)
    assert [rows for _, _, rows in leave(door, 200)] == [[2]]


def test_a_gpu_lost_while_it_drains_needs_no_stop():
    door = gateway()
    come(door, 0, 1)
    leave(door, 50)
    door.drain(0, 60 * MS)
    assert door.lose(0, 70 * MS) == []
    assert door.gpus() == ()
    assert door.depth() == 1


def test_a_draining_gpu_that_miscounts_is_stopped_once():
    door = gateway()
    come(door, 0, 1)
    leave(door, 50)
    door.drain(0, 60 * MS)
    (stop,) = door.finish(1, [], 150 * MS)
    assert stop.why.startswith("batch 1: 0 outputs for 1 requests")


# -- overdue --------------------------------------------------------------------------------------


def test_a_batch_out_for_too_long_has_lost_its_gpu():
    door = gateway(gpus=2, overdue_after=250 * MS)
    come(door, 0, 1)
    leave(door, 50)
    assert door.due_at == 300 * MS
    assert door.advance(299 * MS) == []
    stop, depart = door.advance(300 * MS)
    assert stop == Stop(0, "batch 1 is overdue after 250 ms")
    assert (rows(depart), depart.gpus) == ([1], (1,))
    assert door.due_at == 550 * MS
    assert door.finish(1, ["late"], 310 * MS) == ()
    assert door.late == 1


def test_a_batch_that_came_back_is_never_overdue():
    door = gateway(overdue_after=250 * MS)
    come(door, 0, 1)
    leave(door, 50)
    door.finish(1, [""], 150 * MS)
    assert door.due_at == NEVER
    come(door, 160, 2)
    assert leave(door, 210) == [(2, 0, [2])]
    assert door.due_at == 460 * MS


def test_only_the_batch_that_is_overdue_is_given_up():
    door = gateway(gpus=2, max_batch=1, overdue_after=250 * MS)
    come(door, 0, 1)
    assert leave(door, 0) == [(1, 0, [1])]
    come(door, 10, 2)
    assert leave(door, 10) == [(2, 1, [2])]
    assert door.due_at == 250 * MS
    assert door.advance(250 * MS) == [Stop(0, "batch 1 is overdue after 250 ms")]
    assert door.due_at == 260 * MS
    assert door.advance(260 * MS) == [Stop(1, "batch 2 is overdue after 250 ms")]
    assert (door.gpus(), door.depth()) == ((), 2)


# -- expiry ---------------------------------------------------------------------------------------


IMPATIENT = (TierRule("paid", 200 * MS), TierRule("free", 1 * S))


def test_whoever_waited_too_long_expires_at_that_instant():
    door = gateway(gpus=0, tiers=IMPATIENT)
    come(door, 0, 1)
    come(door, 10, 2, tier=Tier.FREE)
    assert door.due_at == 200 * MS
    assert door.advance(199 * MS) == []
    assert door.advance(200 * MS) == [End(1, Outcome.EXPIRED, "deadline_exceeded")]
    assert door.due_at == 1_010 * MS
    assert door.advance(1_010 * MS) == [End(2, Outcome.EXPIRED, "deadline_exceeded")]
    assert (door.due_at, door.depth()) == (NEVER, 0)


def test_ones_own_deadline_counts_when_it_is_sooner():
    door = gateway(gpus=0, tiers=IMPATIENT)
    come(door, 0, 1, deadline=30 * MS)
    come(door, 0, 2, deadline=300 * MS)
    assert door.due_at == 30 * MS
    assert door.advance(30 * MS) == [End(1, Outcome.EXPIRED, "deadline_exceeded")]
    assert door.due_at == 200 * MS


def test_a_deadline_alone_is_enough():
    door = gateway(gpus=0)
    come(door, 0, 1, deadline=30 * MS)
    assert door.due_at == 30 * MS
    assert door.advance(30 * MS) == [End(1, Outcome.EXPIRED, "deadline_exceeded")]


def test_a_less_patient_tier_expires_first_though_it_came_later():
    door = gateway(gpus=0, tiers=(TierRule("paid"), TierRule("free", 100 * MS)))
    come(door, 0, 1)
    come(door, 10, 2, tier=Tier.FREE)
    assert door.due_at == 110 * MS
    assert door.advance(110 * MS) == [End(2, Outcome.EXPIRED, "deadline_exceeded")]
    assert door.due_at == NEVER


def test_what_came_back_expires_too():
    door = gateway(tiers=IMPATIENT)
    come(door, 0, 1, 2)
    leave(door, 50)
    assert door.due_at == NEVER
    door.lose(0, 60 * MS)
    assert door.due_at == 200 * MS
    assert [c.request_id for c in door.advance(200 * MS)] == [1, 2]


def test_what_is_bound_and_not_started_expires_too():
    door = gateway(max_batch=1, backlog=1, tiers=IMPATIENT)
    come(door, 0, 0, 1)
    leave(door, 0)
    assert door.due_at == 200 * MS
    assert door.advance(200 * MS) == [End(1, Outcome.EXPIRED, "deadline_exceeded")]
    assert door.depth() == 0


# -- several models -------------------------------------------------------------------------------


def test_models_have_banks_rules_and_gpus_of_their_own():
    door = Gateway(Settings(models=("a", "b"), max_batch=2))
    door.join(0, "a", 0)
    door.join(1, "b", 0)
    come(door, 0, 1, 2, 3, model="b")
    come(door, 10, 4, model="a")
    assert leave(door, 10) == [(1, 1, [1, 2])]
    assert door.due_at == 60 * MS
    assert leave(door, 60) == [(2, 0, [4])]
    assert (door.depth(), door.depth("a"), door.depth("b")) == (1, 0, 1)
    assert (door.gpus(), door.gpus("a"), door.gpus("b")) == ((0, 1), (0,), (1,))


def test_a_model_of_its_own_size_has_its_own_batch_window_and_slack():
    small = ModelRule("dinghy", max_batch=2, batch_time=40 * MS, max_wait=10 * MS)
    door = Gateway(Settings(models=("ferry", "dinghy"), sizes=(small,)))
    door.join(0, "ferry", 0)
    door.join(1, "dinghy", 0)
    come(door, 0, 1, 2, 3, model="dinghy")
    come(door, 0, 4, 5, 6, model="ferry")
    (depart,) = door.advance(0)
    assert (rows(depart), depart.receipt.reason, depart.receipt.slack) == (
        [1, 2],
        Reason.FULL,
        460_000,
    )
    door.finish(1, ["", ""], 5 * MS)
    assert door.due_at == 10 * MS
    (depart,) = door.advance(10 * MS)
    assert (rows(depart), depart.receipt.reason, depart.receipt.slack) == (
        [3],
        Reason.TIMER,
        450_000,
    )
    assert door.due_at == 50 * MS
    (depart,) = door.advance(50 * MS)
    assert (rows(depart), depart.receipt.slack) == ([4, 5, 6], 350_000)


def test_a_model_may_have_a_depth_limit_of_its_own():
    small = ModelRule("dinghy", max_batch=2, depth_limit=2)
    door = Gateway(Settings(models=("ferry", "dinghy"), sizes=(small,), depth_limit=100))
    come(door, 0, 1, 2, model="dinghy")
    assert door.arrive(Request(3, model="dinghy"), 0)[0].detail == "queue_full"
    come(door, 0, 4, 5, 6, model="ferry")


def test_the_full_queue_of_one_model_refuses_nobody_of_another():
    door = Gateway(Settings(models=("a", "b"), max_batch=2, depth_limit=2))
    come(door, 0, 1, 2, model="a")
    assert door.arrive(Request(3, model="a"), 0)[0].detail == "queue_full"
    come(door, 0, 4, model="b")


def test_a_gpu_may_come_back_with_another_model():
    door = Gateway(Settings(models=("a", "b")))
    door.join(0, "a", 0)
    come(door, 0, 1, model="a")
    leave(door, 50)
    door.join(0, "b", 60 * MS)
    assert (door.gpus("a"), door.gpus("b"), door.depth("a")) == ((), (0,), 1)


def test_what_is_random_comes_from_the_rng_that_was_passed_in():
    def gpus(seed: int) -> list[int]:
        door = Gateway(Settings(max_batch=1, dispatch="random", backlog=None), Random(seed))
        for gpu in range(8):
            door.join(gpu, "ferry", 0)
        come(door, 0, *range(40))
        door.advance(0)
        return [batch.gpu for batch in door.mapping.batches.values()]

    assert gpus(1) == gpus(1)
    assert gpus(1) != gpus(2)


def test_a_gpu_that_drains_takes_what_was_due_with_it():
    door = gateway()
    come(door, 0, 1)
    assert door.due_at == 50 * MS
    door.drain(0, 10 * MS)
    assert door.due_at == NEVER


def test_what_a_draining_gpu_gives_back_is_due_at_once_elsewhere():
    door = gateway(gpus=2, max_batch=1, backlog=1, dispatch="round_robin")
    come(door, 0, 0, 1, 2)
    leave(door, 0)
    door.finish(2, [""], 10 * MS)
    door.drain(0, 20 * MS)
    assert door.due_at <= 20 * MS
    assert [rows for _, _, rows in leave(door, 20)] == [[2]]


def test_a_bound_batch_that_lost_a_row_starts_and_answers_without_it():
    door = gateway(max_batch=2, backlog=1)
    come(door, 0, 0, 1, 2, 3)
    assert leave(door, 0) == [(1, 0, [0, 1])]
    door.cancel(2, 10 * MS)
    door.finish(1, ["a", "b"], 100 * MS)
    assert leave(door, 100) == [(2, 0, [3])]
    (answer,) = door.finish(2, ["d"], 200 * MS)
    assert ([row.id for row in answer.rows], answer.outputs) == ([3], ("d",))


def test_bound_batches_of_a_lost_gpu_return_in_the_order_in_which_they_were_bound():
    door = gateway(gpus=1, max_batch=1, backlog=None)
    come(door, 0, 0, 1, 2)
    assert leave(door, 0) == [(1, 0, [0])]
    door.lose(0, 10 * MS)
    door.join(0, "ferry", 20 * MS)
    order = []
    for ms in (20, 30, 40):
        ((batch_id, _, aboard),) = leave(door, ms)
        order += aboard
        door.finish(batch_id, ["x"], (ms + 5) * MS)
    assert order == [0, 1, 2]


def test_a_busy_gpu_that_drains_is_bound_to_nothing_more():
    door = gateway(max_batch=1, backlog=3)
    come(door, 0, 0)
    assert leave(door, 0) == [(1, 0, [0])]
    door.drain(0, 10 * MS)
    come(door, 20, 1)
    assert door.due_at == NEVER
    assert leave(door, 20) == []


def test_a_rule_of_ones_own_may_take_one_at_a_time():
    class Singles:
        max_batch = 1

        def due_at(self, bank):
            return bank.oldest_at

    door = Gateway(Settings(), rule=Singles())
    door.join(0, "ferry", 0)
    come(door, 0, 0, 1)
    assert leave(door, 0) == [(1, 0, [0])]
