"""The door: who computes, who waits, who is told what, and when a key is free again."""

import pytest

from labkit.core.door import Commit, Door, Ended, Send
from labkit.core.gateway import Gateway
from labkit.core.idempotency import Entry, Key, KeyLedger
from labkit.core.messages import (
    Answer,
    BatchError,
    Depart,
    End,
    Outcome,
    Reason,
    Receipt,
    Request,
)
from labkit.core.settings import Settings, TierRule
from labkit.core.units import MS, NEVER

KEY = Key("acme", "POST /v1/completions", "k1")
SAME, OTHER = b"same", b"other"


def render(ticket: int, ended: Ended) -> tuple[int, bytes]:
    """Bytes that differ from one execution to the next."""
    if isinstance(ended, End):
        return {Outcome.FAILED: 422, Outcome.REJECTED: 429}.get(ended.outcome, 503), b"no"
    return 200, f"{ticket}:{'|'.join(ended)}".encode()


def door(render=render, keys: KeyLedger | None = None, **settings) -> Door:
    """A door before one GPU with `max_batch` 1, so that everybody leaves at once."""
    gateway = Gateway(Settings(**{"max_batch": 1, **settings}))
    made = Door(gateway, KeyLedger() if keys is None else keys, render)
    made.join(0, "ferry", 0)
    return made


def ask(
    door: Door,
    ticket: int,
    now: int = 0,
    *,
    key: Key | None = KEY,
    print: bytes = SAME,
    deadline: int = NEVER,
):
    return door.submit([Request(ticket, "p", now, deadline=deadline)], key, print, now)


def crosses(door: Door, now: int, output: str = "out"):
    """The next batch departs, and comes back 100 ms later."""
    (depart,) = door.advance(now)
    assert isinstance(depart, Depart)
    return door.finish(depart.batch_id, [output] * len(depart.rows), now + 100 * MS)


def test_an_outcome_is_made_durable_before_anybody_hears_it():
    it = door()
    assert ask(it, 1) == ()
    assert crosses(it, 0) == [Commit(KEY, Entry(SAME, 1, 100 * MS, 200, b"1:out"))]
    assert it.stored(KEY) == (Send((1,), 200, b"1:out"),)


def test_fifty_at_once_are_one_execution_and_fifty_equal_answers():
    it = door()
    assert [ask(it, ticket) for ticket in range(50)] == [()] * 50
    crosses(it, 0)
    assert it.stored(KEY) == (Send(tuple(range(50)), 200, b"0:out"),)
    assert it.due_at == NEVER


def test_who_comes_while_the_outcome_is_written_waits_for_the_write():
    it = door()
    ask(it, 1)
    crosses(it, 0)
    assert ask(it, 2, 101 * MS) == ()
    assert it.stored(KEY) == (Send((1, 2), 200, b"1:out"),)
    assert ask(it, 3, 102 * MS) == (Send((3,), 200, b"1:out", replayed=True),)


def test_another_request_under_the_key_is_refused_in_flight_and_done():
    it = door()
    refused = "idempotency_key_reuse"
    ask(it, 1)
    assert ask(it, 2, print=OTHER) == (End(2, Outcome.REJECTED, refused),)
    crosses(it, 0)
    it.stored(KEY)
    assert ask(it, 3, 200 * MS, print=OTHER) == (End(3, Outcome.REJECTED, refused),)


def test_a_full_queue_is_told_to_all_who_wait_and_frees_the_key():
    it = door(depth_limit=1)
    ask(it, 8, key=None)
    assert ask(it, 1) == [Send((1,), 429, b"no")]
    it.advance(0)
    assert ask(it, 2) == ()
    assert it.keys.in_flight() == 1


def test_an_expired_request_frees_its_key():
    it = door(tiers=(TierRule("paid", 60 * MS), TierRule("free")))
    it.drain(0, 0)
    ask(it, 1)
    ask(it, 2)
    assert it.advance(60 * MS) == [Send((1, 2), 503, b"no")]
    assert len(it.keys) == 0


def test_a_request_that_fails_alone_is_recorded_as_422_and_kills_no_more():
    it = door()
    ask(it, 1)
    (depart,) = it.advance(0)
    (commit,) = it.finish(depart.batch_id, BatchError("boom"), 100 * MS)
    assert (commit.entry.status, it.stored(KEY)) == (422, (Send((1,), 422, b"no"),))
    assert ask(it, 2, 200 * MS) == (Send((2,), 422, b"no", replayed=True),)


def test_work_is_cancelled_only_when_the_last_waiter_leaves():
    it = door()
    for ticket in (1, 2, 3):
        ask(it, ticket)
    left = [End(ticket, Outcome.CANCELLED, "client_left") for ticket in (1, 2, 3)]
    assert it.cancel(1, 0) == [left[0]]
    assert it.cancel(3, 0) == [left[2]]
    assert (it.due_at, it.keys.in_flight()) == (0, 1)
    assert it.cancel(2, 0) == [left[1]]
    assert (it.due_at, len(it.keys)) == (NEVER, 0)
    assert it.cancel(2, 0) == ()


def test_who_waits_for_anothers_work_waits_until_its_own_deadline():
    it = door()
    ask(it, 1)
    (depart,) = it.advance(0)
    assert ask(it, 2, 10 * MS, deadline=40 * MS) == ()
    assert ask(it, 3, 10 * MS, deadline=200 * MS) == ()
    assert it.due_at == 40 * MS
    assert it.advance(40 * MS) == [End(2, Outcome.EXPIRED, "deadline_exceeded")]
    assert it.due_at == 200 * MS
    it.finish(depart.batch_id, ["out"], 100 * MS)
    assert it.stored(KEY) == (Send((1, 3), 200, b"1:out"),)
    assert it.due_at == NEVER


def test_work_ends_with_the_deadline_of_the_last_who_waits_for_it():
    it = door(max_batch=2, max_wait=50 * MS)
    ask(it, 1)
    ask(it, 2, deadline=40 * MS)
    it.cancel(1, 10 * MS)
    assert it.due_at == 40 * MS
    assert it.advance(40 * MS) == [End(2, Outcome.EXPIRED, "deadline_exceeded")]
    assert (it.due_at, len(it.keys)) == (NEVER, 0)


def test_who_left_while_it_was_written_leaves_the_record():
    it = door()
    ask(it, 1)
    crosses(it, 0)
    assert it.cancel(1, 101 * MS) == [End(1, Outcome.CANCELLED, "client_left")]
    assert it.stored(KEY) == ()
    assert ask(it, 2, 102 * MS) == (Send((2,), 200, b"1:out", replayed=True),)


def test_who_waits_no_longer_may_come_back_for_the_outcome():
    it = door()
    ask(it, 1)
    ask(it, 2)
    assert it.wait_over(2, 0) == (End(2, Outcome.REJECTED, "idempotency_in_flight"),)
    assert it.wait_over(1, 0) == (End(1, Outcome.REJECTED, "idempotency_in_flight"),)
    assert it.wait_over(1, 0) == ()
    crosses(it, 0)
    assert it.stored(KEY) == ()
    assert ask(it, 3, 200 * MS) == (Send((3,), 200, b"1:out", replayed=True),)


def test_requests_without_a_key_pass_untouched_and_in_order():
    it = door(max_batch=3)
    ask(it, 1, key=None)
    ask(it, 2)
    ask(it, 3, key=None)
    (depart,) = it.advance(0)
    commit, answer = it.finish(depart.batch_id, ["a", "b", "c"], 100 * MS)
    assert (commit.entry.body, answer) == (
        b"2:b",
        Answer(depart.batch_id, (depart.rows[0], depart.rows[2]), ("a", "c")),
    )


def test_with_no_key_about_the_commands_are_the_schedulers_own():
    it = door()
    commands = (Answer(1, (), ()),)
    assert it.settle(commands, 0) is commands
    ask(it, 7)
    assert it.settle(commands, 0) == [commands[0]]


def test_a_list_is_one_call_with_one_outcome():
    it = door(max_batch=3)
    rows = [Request(n, f"p{n}") for n in (1, 2, 3)]
    assert it.submit(rows, KEY, SAME, 0) == []
    (depart,) = it.advance(0)
    (commit,) = it.finish(depart.batch_id, ["a", "b", "c"], 100 * MS)
    assert commit.entry.body == b"1:a|b|c"


def test_a_list_over_several_batches_ends_with_its_last_and_fails_with_any():
    it = door()
    it.submit([Request(1), Request(2)], KEY, SAME, 0)
    assert crosses(it, 0) == []
    (depart,) = it.advance(100 * MS)
    (commit,) = it.finish(depart.batch_id, BatchError("boom"), 200 * MS)
    assert commit.entry.status == 422


@pytest.mark.parametrize("key", [KEY, None])
def test_of_a_list_all_come_in_or_none(key: Key | None):
    it = door(depth_limit=2)
    rows = [Request(n) for n in (1, 2, 3, 4)]
    ends = it.submit(rows, key, SAME, 0)
    if key is None:
        refused = [end.request_id for end in ends if end.outcome is Outcome.REJECTED]
        assert ([end.request_id for end in ends], refused) == ([3, 1, 2, 4], [3, 4])
    else:
        assert ends == [Send((1,), 429, b"no")]
    assert (it.scheduler.depth(), len(it.keys)) == (0, 0)


def test_no_room_for_one_more_key_is_said():
    it = door(keys=KeyLedger(most=1))
    ask(it, 1)
    assert ask(it, 2, key=KEY._replace(text="k2")) == (End(2, Outcome.REJECTED, "too_many_keys"),)


def test_a_body_that_cannot_be_made_frees_the_key_and_tells_everybody():
    def raising(ticket: int, ended: Ended) -> tuple[int, bytes]:
        raise TypeError("no such field")

    it = door(render=raising)
    ask(it, 1)
    ask(it, 2)
    why = "no body for this outcome: TypeError: no such field"
    assert crosses(it, 0) == [End(1, Outcome.FAILED, why), End(2, Outcome.FAILED, why)]
    assert len(it.keys) == 0
    it.render = render
    ask(it, 3, 100 * MS)
    assert crosses(it, 100 * MS)[0].entry.body == b"3:out"


def test_a_scheduler_that_raises_frees_the_key():
    it = door()
    with pytest.raises(IndexError):
        it.submit([Request(1, tier=7)], KEY, SAME, 0)
    assert len(it.keys) == 0
    assert ask(it, 2) == ()


def test_a_journal_that_cannot_write_is_said_and_tried_again():
    it = door()
    ask(it, 1)
    (commit,) = crosses(it, 0)
    assert it.unstored(KEY) == (End(1, Outcome.FAILED, "ledger_failed"),)
    assert it.unstored(KEY) == ()
    assert ask(it, 2, 200 * MS) == (commit,)
    assert ask(it, 3, 200 * MS) == ()
    assert it.stored(KEY) == (Send((2, 3), 200, b"1:out"),)


def test_a_scheduler_that_is_given_up_leaves_no_key_stuck():
    it = door()
    ask(it, 1)
    ask(it, 2)
    ends = [End(ticket, Outcome.FAILED, "engine_stopped") for ticket in (1, 2)]
    assert it.abandon("engine_stopped", 5) == ends
    assert (len(it.keys), it.abandon("engine_stopped", 5)) == (0, [])


def test_a_gpu_that_dies_costs_a_second_computation_and_no_second_answer():
    it = door()
    ask(it, 1)
    it.advance(0)
    assert it.lose(0, 50 * MS) == []
    assert it.join(0, "ferry", 80 * MS) == []
    (commit,) = crosses(it, 80 * MS)
    assert commit.entry.body == b"1:out"


def test_closing_lets_what_is_recorded_replay():
    it = door()
    ask(it, 1)
    crosses(it, 0)
    it.stored(KEY)
    assert it.close(200 * MS) == ()
    assert ask(it, 2, 200 * MS) == (Send((2,), 200, b"1:out", replayed=True),)
    assert ask(it, 3, 200 * MS, key=KEY._replace(text="k2")) == [Send((3,), 429, b"no")]


def test_what_was_never_written_is_nobodys_outcome_once_its_time_is_over():
    it = door(keys=KeyLedger(keep_for=500 * MS))
    ask(it, 1)
    crosses(it, 0)
    it.unstored(KEY)
    assert ask(it, 2, 700 * MS) == ()
    assert ask(it, 3, 700 * MS) == ()
    (commit,) = crosses(it, 700 * MS)
    assert commit.entry.body == b"2:out"
    assert it.stored(KEY) == (Send((2, 3), 200, b"2:out"),)


def test_an_outcome_dropped_for_room_before_it_was_written_still_reaches_who_waits_for_it():
    it = door(keys=KeyLedger(most=1))
    ask(it, 1)
    crosses(it, 0)
    other = KEY._replace(text="k2")
    ask(it, 2, 100 * MS, key=other)
    crosses(it, 100 * MS)
    refused = (End(3, Outcome.REJECTED, "too_many_keys"),)
    assert ask(it, 3, 200 * MS, print=OTHER) == refused
    assert it.stored(KEY) == (Send((1,), 200, b"1:out"),)
    assert ask(it, 4, 200 * MS, print=OTHER) == ()


def remembered(it: Door) -> dict[str, int]:
    """How much the door holds in each of its own books."""
    return {
        name: len(held) for name, held in vars(it).items() if isinstance(held, dict | list) and held
    }


def test_a_door_that_has_told_everybody_remembers_nobody():
    it = door()
    for ticket, key in enumerate([KEY, KEY, KEY._replace(text="k2"), None]):
        ask(it, ticket, key=key)
    for now in (0, 100, 200):
        for said in crosses(it, now * MS):
            if isinstance(said, Commit):
                it.stored(said.key)
    assert remembered(it) == {}


def test_a_call_that_fails_or_is_cancelled_leaves_nothing_behind():
    it = door()
    ask(it, 1)
    it.cancel(1, 10 * MS)
    ask(it, 2, 20 * MS)
    (depart,) = it.advance(20 * MS)
    it.finish(depart.batch_id, BatchError("bad"), 120 * MS)
    it.stored(KEY)
    assert remembered(it) == {}


def test_a_call_that_could_not_be_made_leaves_no_unit_in_the_queue():
    gateway = Gateway(Settings(max_batch=2))
    it = Door(gateway, KeyLedger(), render)
    with pytest.raises(IndexError, match="tier 7"):
        it.submit([Request(1, "p", 0), Request(2, "p", 0, tier=7)], KEY, SAME, 0)
    assert gateway.depth() == 0
    assert remembered(it) == {}
    assert ask(it, 3) == ()


class Eager:
    """Sends each request off as it arrives, and knows no tier but the first."""

    def __init__(self) -> None:
        self.due_at = NEVER
        self.left: list[int] = []

    def arrive(self, request: Request, now: int) -> tuple[Depart, ...]:
        if request.tier:
            raise IndexError(f"tier {request.tier}")
        receipt = Receipt(Reason.FULL, 0, None, (), ())
        return (Depart(request.id, (0,), (request,), receipt),)

    def cancel(self, request_id: int, now: int) -> tuple[End, ...]:
        self.left.append(request_id)
        return (End(request_id, Outcome.CANCELLED, "client_left"),)

    def advance(self, now: int) -> tuple[End, ...]:
        return (End(9, Outcome.EXPIRED, "deadline_exceeded"),)


def test_a_scheduler_that_cannot_be_closed_is_not_asked_to():
    assert Door(Eager(), KeyLedger(), render).close(0) == ()


@pytest.mark.parametrize("key", [KEY, None])
def test_what_was_said_before_a_scheduler_raised_is_said_all_the_same(key):
    it = Door(Eager(), KeyLedger(), render)
    units = [Request(1), Request(2), Request(3, tier=1), Request(4)]
    with pytest.raises(IndexError, match="tier 1"):
        it.submit(units, key, SAME, 0)
    assert it.scheduler.left == [3, 1, 2]
    assert remembered(it) == {"_owed": 2}
    assert it.due_at <= 0
    *departs, end = it.advance(0)
    assert [depart.batch_id for depart in departs] == [1, 2]
    assert end.request_id == 9
    assert (it.due_at, remembered(it)) == (NEVER, {})


def test_a_failure_speaks_for_a_call_before_any_other_end():
    it = door(tiers=(TierRule("paid", 50 * MS), TierRule("free")))
    it.submit([Request(1, "p", 0), Request(2, "p", 0)], KEY, SAME, 0)
    (depart,) = it.advance(0)
    assert it.advance(50 * MS) == []
    assert it.finish(depart.batch_id, BatchError("bad"), 100 * MS) == [
        Commit(KEY, Entry(SAME, 1, 100 * MS, 422, b"no"))
    ]


def test_only_what_was_recorded_earlier_is_a_replay():
    it = door()
    ask(it, 1)
    crosses(it, 0)
    (first,) = it.stored(KEY)
    (again,) = ask(it, 2, 200 * MS)
    assert (first.replayed, again.replayed) == (False, True)


def test_only_the_first_under_a_key_is_computed():
    it = door()
    ask(it, 1)
    ask(it, 2)
    ask(it, 3, key=None)
    assert [it.computes(ticket) for ticket in (1, 2, 3)] == [True, False, False]
    crosses(it, 0)
    assert not it.computes(1)


def test_a_key_that_is_still_computed_is_not_stored():
    it = door()
    ask(it, 1)
    assert it.stored(KEY) == ()
    (commit,) = crosses(it, 0)
    assert it.stored(KEY) == (Send((1,), 200, commit.entry.body),)


def test_a_key_dropped_for_room_while_it_is_written_is_free_once_it_is():
    it = door(keys=KeyLedger(most=1))
    ask(it, 1)
    crosses(it, 0)
    other = KEY._replace(text="other")
    ask(it, 2, 200 * MS, key=other)
    crosses(it, 200 * MS)
    it.stored(other)
    assert ask(it, 3, 400 * MS) == (End(3, Outcome.REJECTED, "too_many_keys"),)
    assert len(it.keys) == 0
    assert it.stored(KEY) == (Send((1,), 200, b"1:out"),)
    assert ask(it, 4, 400 * MS) == ()
    assert crosses(it, 400 * MS)[0].entry.body == b"4:out"


def test_a_store_that_fails_for_good_does_not_fill_the_memory():
    it = door(keys=KeyLedger(most=2))
    for n in range(20):
        key = KEY._replace(text=f"k{n}")
        ask(it, n, n * 200 * MS, key=key)
        crosses(it, n * 200 * MS)
        assert it.unstored(key) == (End(n, Outcome.FAILED, "ledger_failed"),)
    assert len(it._unwritten) <= 4
    # The two that still stand are written when they are asked for again, not replayed.
    for n in (18, 19):
        (told,) = ask(it, 20 + n, 5_000 * MS, key=KEY._replace(text=f"k{n}"))
        assert isinstance(told, Commit)
