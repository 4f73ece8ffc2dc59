"""Rows K, R7, B10, B11 and B15: keys, and what must not take its neighbours along."""

from dataclasses import dataclass, field

import pytest

from labkit.core.door import Commit, Door, Ended, Send
from labkit.core.gateway import Gateway
from labkit.core.idempotency import Key, KeyLedger
from labkit.core.messages import Answer, BatchError, Depart, End, Outcome, Request, Stop
from labkit.core.settings import Settings, TierRule
from labkit.core.units import MS

KEY = Key("acme", "POST /v1/completions", "k1")


def render(ticket: int, ended: Ended) -> tuple[int, bytes]:
    """The statuses of the front door."""
    if not isinstance(ended, End):
        return 200, f"{ticket}:{'|'.join(ended)}".encode()
    status = {Outcome.FAILED: 422, Outcome.REJECTED: 429, Outcome.EXPIRED: 504}
    return status.get(ended.outcome, 503), ended.detail.encode()


@dataclass
class Desk:
    """A door with a journal that stores at once, G GPUs of 100 ms; answers by ticket."""

    door: Door
    statuses: dict[int, int] = field(default_factory=dict)
    bodies: dict[int, bytes] = field(default_factory=dict)
    replayed: list[int] = field(default_factory=list)
    ends: dict[int, str] = field(default_factory=dict)
    batches: list[list[int]] = field(default_factory=list)
    on_gpu: dict[int, Depart] = field(default_factory=dict)
    stops: list[int] = field(default_factory=list)

    def hear(self, commands) -> None:
        for command in commands:
            if isinstance(command, Commit):
                self.hear(self.door.stored(command.key))
            elif isinstance(command, Send):
                for ticket in command.tickets:
                    assert ticket not in self.statuses, "answered twice"
                    self.statuses[ticket], self.bodies[ticket] = command.status, command.body
                    self.replayed += [ticket] * command.replayed
            elif isinstance(command, End):
                assert command.request_id not in self.ends, "ended twice"
                self.ends[command.request_id] = command.detail
            elif isinstance(command, Answer):
                for row, output in zip(command.rows, command.outputs, strict=True):
                    self.statuses[row.id], self.bodies[row.id] = 200, output.encode()
            elif isinstance(command, Stop):
                self.stops.append(command.gpu)
            else:
                self.batches.append([row.id for row in command.rows])
                self.on_gpu[command.gpus[0]] = command

    def ask(self, *tickets: int, now: int, key: Key | None = KEY, prompt: str = "p") -> None:
        for ticket in tickets:
            request = Request(ticket, prompt, now)
            self.hear(self.door.submit([request], key, prompt.encode(), now))

    def advance(self, now: int) -> None:
        self.hear(self.door.advance(now))

    def back(self, gpu: int, now: int, result=None) -> None:
        depart = self.on_gpu.pop(gpu)
        outputs = [f"<{row.prompt}>" for row in depart.rows] if result is None else result
        self.hear(self.door.finish(depart.batch_id, outputs, now))


def desk(gpus: int = 1, render=render, **settings) -> Desk:
    """Cap 100, window 50."""
    made = Desk(Door(Gateway(Settings(**settings)), KeyLedger(), render))
    for gpu in range(gpus):
        made.door.join(gpu, "ferry", 0)
    return made


def test_k1_fifty_at_once_with_one_key_are_one_execution_and_fifty_equal_answers():
    it = desk()
    it.ask(*range(50), now=0)
    it.advance(50 * MS)
    it.back(0, 150 * MS)
    assert it.batches == [[0]]
    assert it.bodies == dict.fromkeys(range(50), b"0:<p>")


def test_k1_also_when_they_come_from_before_the_batch_to_after_its_answer():
    it = desk()
    it.ask(1, now=0)
    it.advance(50 * MS)
    it.ask(2, now=80 * MS)
    it.back(0, 150 * MS)
    it.ask(3, now=151 * MS)
    assert it.batches == [[1]]
    assert it.bodies == dict.fromkeys((1, 2, 3), b"1:<p>")
    assert it.replayed == [3]


def test_k3_the_loser_of_the_race_gets_the_winners_answer_and_no_503():
    it = desk()
    it.ask(1, 2, now=0)
    it.advance(50 * MS)
    it.back(0, 150 * MS)
    assert it.statuses == {1: 200, 2: 200}


def test_k3_or_a_409_when_it_will_wait_no_longer():
    it = desk()
    it.ask(1, 2, now=0)
    it.hear(it.door.wait_over(2, 40 * MS))
    assert it.ends == {2: "idempotency_in_flight"}
    it.advance(50 * MS)
    it.back(0, 150 * MS)
    it.ask(3, now=200 * MS)
    assert (it.statuses, it.bodies[3]) == ({1: 200, 3: 200}, b"1:<p>")


def test_k4_a_429_frees_the_key_and_the_next_try_runs():
    it = desk(depth_limit=100)
    it.ask(*range(100), now=0, key=None)
    it.ask(100, now=0)
    assert it.statuses == {100: 429}
    it.advance(0)
    it.ask(101, now=10 * MS)
    it.back(0, 100 * MS)
    it.advance(100 * MS)
    it.back(0, 200 * MS)
    assert it.bodies[101] == b"101:<p>"


def test_k4_so_does_a_request_that_expired():
    it = desk(tiers=(TierRule("paid", 90 * MS), TierRule("free")))
    it.ask(*range(100), now=0, key=None)
    it.advance(0)
    it.ask(100, now=5 * MS)
    it.advance(95 * MS)
    assert it.statuses == {100: 504}
    it.ask(101, now=96 * MS)
    assert it.door.keys.in_flight() == 1


def test_k6_a_client_that_leaves_gives_the_key_back():
    it = desk()
    it.ask(1, now=0)
    it.hear(it.door.cancel(1, 10 * MS))
    assert (it.ends, len(it.door.keys)) == ({1: "client_left"}, 0)
    it.ask(2, now=20 * MS)
    it.advance(70 * MS)
    assert it.batches == [[2]]


def test_k6_so_does_one_that_leaves_while_the_gpu_computes():
    it = desk(gpus=2)
    it.ask(1, now=0)
    it.advance(50 * MS)
    it.hear(it.door.cancel(1, 60 * MS))
    it.ask(2, now=70 * MS)
    it.advance(120 * MS)
    it.back(0, 150 * MS)
    assert it.statuses == {}
    it.back(1, 220 * MS)
    assert it.bodies == {2: b"2:<p>"}


def test_k6_after_a_crash_between_reserve_and_finish_the_key_is_free():
    it = desk()
    it.ask(1, now=0)
    it.advance(50 * MS)
    again = desk()
    again.door.keys.restore([], 60 * MS)  # nothing of it was ever written
    again.ask(2, now=60 * MS)
    again.advance(110 * MS)
    assert again.batches == [[2]]


def test_r7_a_client_that_times_out_and_asks_again_takes_one_seat():
    it = desk()
    it.ask(1, now=0)
    it.ask(2, now=30 * MS)
    it.hear(it.door.cancel(1, 31 * MS))
    it.advance(50 * MS)
    it.back(0, 150 * MS)
    assert (it.batches, it.bodies) == ([[1]], {2: b"1:<p>"})


def test_r7_a_gpu_that_dies_between_them_costs_a_second_crossing_and_no_second_answer():
    it = desk(gpus=2)
    it.ask(1, now=0)
    it.advance(50 * MS)
    it.hear(it.door.lose(0, 90 * MS))
    it.ask(2, now=90 * MS)
    it.advance(90 * MS)
    it.back(1, 190 * MS)
    assert (it.batches, it.bodies) == ([[1], [1]], dict.fromkeys((1, 2), b"1:<p>"))


def test_b10_one_bad_item_fails_alone_and_every_key_has_its_own_outcome():
    it = desk()
    for ticket in range(100):
        key = KEY._replace(text=str(ticket))
        it.ask(ticket, now=0, key=key, prompt="bad" if ticket == 37 else f"p{ticket}")
    now = 0
    while it.door.due_at <= now:
        it.advance(now)
        now += 100 * MS
        bad = 37 in it.batches[-1]
        it.back(0, now, BatchError("no such word") if bad else None)
    assert len(it.batches) <= 15
    assert [ticket for ticket, status in it.statuses.items() if status != 200] == [37]
    assert it.statuses[37] == 422
    assert all(it.bodies[t] == f"{t}:<p{t}>".encode() for t in range(100) if t != 37)
    it.ask(100, now=now, key=KEY._replace(text="37"), prompt="bad")
    assert (it.statuses[100], it.replayed) == (422, [100])


def test_b11_too_few_outputs_record_nothing_and_the_retry_records_once():
    it = desk(gpus=2)
    for ticket in range(100):
        it.ask(ticket, now=0, key=KEY._replace(text=str(ticket)), prompt=f"p{ticket}")
    it.advance(0)
    it.back(0, 100 * MS, ["<p1>"] * 99)
    assert (it.statuses, it.stops, it.door.keys.in_flight()) == ({}, [0], 100)
    it.advance(100 * MS)
    it.back(1, 200 * MS)
    assert it.batches == [list(range(100))] * 2
    assert it.bodies == {t: f"{t}:<p{t}>".encode() for t in range(100)}


def test_b15_a_callback_that_raises_costs_only_its_own_request():
    def picky(ticket: int, ended: Ended) -> tuple[int, bytes]:
        if ticket == 1:
            raise ValueError("cost(None)")
        return render(ticket, ended)

    it = desk(render=picky)
    for ticket in range(3):
        it.ask(ticket, now=0, key=KEY._replace(text=str(ticket)))
    it.advance(50 * MS)
    it.back(0, 150 * MS)
    assert it.bodies == {0: b"0:<p>", 2: b"2:<p>"}
    assert it.ends == {1: "no body for this outcome: ValueError: cost(None)"}
    it.ask(3, now=151 * MS, key=KEY._replace(text="1"))
    it.advance(201 * MS)
    it.back(0, 301 * MS)
    assert it.bodies[3] == b"3:<p>"


@pytest.mark.parametrize("key", [KEY, None])
def test_b15_a_scheduler_that_raises_at_the_door_costs_only_its_own_request(key: Key | None):
    it = desk()
    it.ask(0, now=0, key=KEY._replace(text="before"))
    with pytest.raises(IndexError):
        it.door.submit([Request(1, tier=9)], key, b"p", 1 * MS)
    it.ask(2, now=2 * MS)
    it.advance(50 * MS)
    it.back(0, 150 * MS)
    assert it.bodies == {0: b"0:<p>", 2: b"2:<p>"}
