"""The live engine with keys: one computation a key, and an outcome that outlives the engine."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from labkit.core.messages import Request, RowError
from labkit.gpu.tag import carries
from labkit.live import Expired, Failed, FakeFleet, Rejected, live_settings
from labkit.live.keyed import KeyedLive, fingerprint
from labkit.live.ledger import SqliteJournal


def computing() -> tuple[FakeFleet, list[str]]:
    """Two fake GPUs of 10 ms, and every prompt they compute."""
    seen: list[str] = []

    def function(prompts: list[str]) -> list[str]:
        seen.extend(prompts)
        return [f"{prompt}!" for prompt in prompts]

    return FakeFleet(2, batch_time=10_000, function=function), seen


def test_fifty_calls_with_one_key_are_one_computation():
    fleet, seen = computing()
    with KeyedLive(workers=fleet) as live:
        replies = [live.submit("hello", key="k1") for _ in range(50)]
        assert {reply.result(5) for reply in replies} == {"hello!"}
        assert live.submit("hello", key="k1").result(5) == "hello!"
    assert seen == ["hello"]


def test_other_keys_other_tenants_and_no_key_are_computed_each():
    fleet, seen = computing()
    with KeyedLive(workers=fleet) as live:
        replies = [live.submit("hi", key="k1"), live.submit("hi", key="k2"), live.submit("hi")]
        replies.append(live.submit("hi", key="k1", tenant="other"))
        assert [reply.result(5) for reply in replies] == ["hi!"] * 4
    assert seen == ["hi"] * 4


def test_another_prompt_under_the_key_is_refused():
    fleet, _ = computing()
    with KeyedLive(workers=fleet) as live:
        live.submit("hello", key="k1").result(5)
        with pytest.raises(Rejected, match="idempotency_key_reuse"):
            live.submit("goodbye", key="k1").result(5)


@pytest.mark.parametrize(
    "wrong",
    [{"tier": 9}, {"tenant": 5}, {"model": 5}, {"deadline_ms": float("nan")}, {"key": b"k1"}],
)
def test_what_the_scheduler_or_the_journal_could_not_bear_is_refused_to_its_caller(wrong: dict):
    fleet, seen = computing()
    with KeyedLive(workers=fleet) as live:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            live.submit("hello", **{"key": "k1", **wrong})
        assert live.submit("hi", key="k2").result(5) == "hi!"
    assert seen == ["hi"]


@pytest.mark.parametrize("body", [b"plain", b"[]", b'{"outputs": []}', b"\xff"])
def test_a_body_of_another_make_fails_its_call_and_leaves_nobody_waiting(body: bytes):
    fleet, _ = computing()
    with KeyedLive(workers=fleet, render=lambda ticket, ended: (200, body)) as live:
        for _ in range(2):
            with pytest.raises(Failed, match="no output in the body kept under this key"):
                live.submit("hello", key="k1").result(5)
        assert live.submit("hello").result(5) == "hello!"


def test_whoever_gives_up_leaves_the_others_their_answer(until: Callable):
    fleet, seen = computing()
    with KeyedLive(workers=fleet) as live:
        first, second = live.submit("hello", key="k1"), live.submit("hello", key="k1")
        assert first.cancel()
        assert second.result(5) == "hello!"
        alone = live.submit("alone", key="k2")
        assert alone.cancel()
        until(lambda: live.keys.in_flight() == 0)
    assert seen == ["hello"]


def test_a_key_outlives_the_engine_that_computed_it(tmp_path: Path):
    first, _ = computing()
    with KeyedLive(workers=first, journal=SqliteJournal(tmp_path / "ledger")) as live:
        live.submit("hello", key="k1").result(5)
    second, seen = computing()
    with KeyedLive(workers=second, journal=SqliteJournal(tmp_path / "ledger")) as live:
        assert live.submit("hello", key="k1").result(5) == "hello!"
    assert seen == []


def test_a_request_that_fails_by_itself_fails_again_without_being_computed():
    calls: list[int] = []

    def function(prompts: list[str]):
        calls.append(len(prompts))
        return [RowError("no such word") for _ in prompts]

    with KeyedLive(workers=FakeFleet(1, batch_time=10_000, function=function)) as live:
        for _ in range(2):
            with pytest.raises(Failed, match="no such word"):
                live.submit("bad", key="k1").result(5)
    assert calls == [1]


def test_a_journal_that_cannot_write_is_said_and_the_engine_serves_on(tmp_path: Path):
    class Full(SqliteJournal):
        def _write(self, group):
            raise OSError("no space left on device")

    fleet, _ = computing()
    with KeyedLive(workers=fleet, journal=Full(tmp_path / "ledger")) as live:
        with pytest.raises(Failed, match="ledger_failed"):
            live.submit("hello", key="k1").result(5)
        assert live.submit("hello").result(5) == "hello!"


def test_who_waits_for_anothers_work_is_told_at_its_own_deadline():
    with KeyedLive(live_settings(1, overdue_after=None), workers=FakeFleet(1)) as live:
        live.straggle(0, 100)
        first = live.submit("hello", key="k1")
        second = live.submit("hello", key="k1", deadline_ms=80)
        with pytest.raises(Expired):
            second.result(5)
        assert not first.done()
        first.cancel()


def test_while_it_closes_what_is_recorded_is_replayed_and_what_is_new_is_refused(until: Callable):
    fleet, seen = computing()
    live = KeyedLive(live_settings(2, overdue_after=None), workers=fleet).start()
    live.submit("hello", key="k1").result(5)
    for gpu in range(2):
        live.straggle(gpu, 50)
    slow = live.submit("slow", key="k2")
    closed = threading.Thread(target=live.close)
    closed.start()
    until(lambda: live._engine.gateway.closing)
    replayed, fresh = live.submit("hello", key="k1"), live.submit("new", key="k3")
    assert replayed.result(5) == "hello!"
    with pytest.raises(Rejected, match="closing and lets nobody in"):
        fresh.result(5)
    assert slow.result(5) == "slow!"
    closed.join()
    assert seen == ["hello", "slow"]


def test_stopping_at_once_leaves_no_key_in_flight():
    live = KeyedLive(workers=FakeFleet(1)).start()
    reply = live.submit("hello", key="k1")
    live.stop()
    with pytest.raises(Failed, match="engine stopped"):
        reply.result(5)
    assert live.keys.in_flight() == 0


def test_after_the_end_of_all_only_what_is_recorded_is_heard():
    fleet, seen = computing()
    with KeyedLive(workers=fleet) as live:
        live.submit("hello", key="k1").result(5)
        pending = live.submit("pending", key="k2")
        live.call_on_loop(live.shell.end_all, "engine_stopped")
        with pytest.raises(Failed, match="engine stopped"):
            pending.result(5)
        assert live.submit("hello", key="k1").result(5) == "hello!"
        for key in ("k3", None):
            with pytest.raises((Failed, Rejected), match=r"engine stopped|lets nobody in"):
                live.submit("new", key=key).result(5)
        assert live.shell.open == {}
        assert live.shell.unclaimed == 0
    assert "new" not in seen


def test_a_fingerprint_does_not_depend_on_the_order_of_fields():
    assert fingerprint({"a": 1, "b": "é"}) == fingerprint({"b": "é", "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})


@pytest.mark.live
def test_a_killed_gpu_answers_a_key_once():
    with KeyedLive(gpus=2) as live:
        replies = [live.submit(f"p{i}", key=f"k{i}") for i in range(20) for _ in range(2)]
        live.kill(0)
        live.kill(1)
        answers = [reply.result(10) for reply in replies]
    assert all(carries(answer, f"p{i // 2}") for i, answer in enumerate(answers))
    assert answers[::2] == answers[1::2]


def test_a_call_that_cannot_be_made_costs_only_itself():
    fleet, _ = computing()
    with KeyedLive(workers=fleet) as live:
        request = Request(10_000, "p", tier=7)
        with pytest.raises(IndexError):
            live.call_on_loop(live.shell.call, [request], None, b"", lambda *_: None)
        assert live.shell.open == {}
        assert live.submit("hello", key="k1").result(5) == "hello!"
