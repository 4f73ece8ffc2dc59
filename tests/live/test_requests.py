"""What becomes of requests, on fake GPUs: every reply gets one outcome, whatever callers do."""

import asyncio
import threading
import time
from concurrent.futures import CancelledError, Future, wait

import pytest

from labkit.core.messages import Request
from labkit.core.units import MS
from labkit.gpu.tag import carries
from labkit.live import Expired, FakeFleet, Fault, Live, LiveError, Rejected, live_settings
from labkit.workload.prompts import PromptError

pytestmark = pytest.mark.live

ANYTHING = ["", "plain", "ferry \N{FERRY}", "a\0b", "\ud800 alone", "\r\n\t", "é" * 4_096]


def fake(**changes) -> Live:
    return Live(live_settings(2, **changes), workers=FakeFleet(2))


def test_each_answer_is_the_one_for_its_prompt_in_order() -> None:
    with fake() as live:
        answers = live.ask([f"prompt {i}" for i in range(350)])
    assert answers == [f"prompt {i} #{answers[i][-8:]}" for i in range(350)]
    assert all(carries(answer, f"prompt {i}") for i, answer in enumerate(answers))


def test_a_batch_that_finishes_first_answers_its_own_requests() -> None:
    with Live(live_settings(2, max_batch=1, max_wait=0), workers=FakeFleet(2)) as live:
        live.straggle(0, 2.0)
        slow, quick = live.submit("on the first boat"), live.submit("on the second")
        assert carries(quick.result(5), "on the second")
        assert not slow.done()
        assert carries(slow.result(5), "on the first boat")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"tier": 2}, "arrival 1: tier 2: this engine has tiers 0 to 1; give one of them"),
        ({"model": "gpt"}, "arrival 1: model 'gpt': this engine serves ferry"),
        ({"model": 5}, "arrival 1: model 5: must be text; pass a string"),
    ],
)
def test_a_run_of_what_the_engine_does_not_have_is_refused_before_anything_runs(wrong, why) -> None:
    load, seen = [Request(0, "good"), Request(1, "bad", 1 * MS, **wrong)], []
    fleet = FakeFleet(
        1, batch_time=1 * MS, function=lambda prompts: seen.extend(prompts) or prompts
    )
    with Live(live_settings(1, max_wait=0), workers=fleet) as live:
        with pytest.raises(ValueError, match=f"^{why}$"):
            live.run(load)
        assert seen == []
        with pytest.raises(ValueError, match=f"^{why}$"):
            live.run(iter(load))
        assert live.run(load[:1]).report()["answered"] == 1


def test_a_fault_of_a_gpu_that_is_not_there_is_refused_before_anything_runs() -> None:
    with fake() as live:
        with pytest.raises(ValueError, match="GPU 2: this engine has GPUs 0 to 1"):
            live.run([Request(0, "good")], faults=[Fault(0.1, gpu=2)])
        with pytest.raises(ValueError, match="fault 'explode': choose kill, hang, straggle or"):
            Fault(0.1, "explode")
        assert live.run([Request(0, "good")]).report()["answered"] == 1


def test_an_answer_that_comes_after_the_end_of_all_is_no_second_outcome(until) -> None:
    with fake() as live:
        engine, reply = live._engine, live.submit("aboard")
        until(lambda: live.snapshot()["in_flight"] == 1)
        engine.call(engine.shell.end_all, "engine_stopped")
        until(lambda: engine.gateway.in_flight() == 0)
        assert reply.exception(5).code == "engine_stopped"
        assert live.submit("too late").exception(5).code == "engine_stopped"
        assert (engine.shell.unclaimed, engine.shell.open) == (0, {})


def test_who_cancels_in_the_middle_of_a_batch_leaves_the_others_aboard(until) -> None:
    with fake() as live:
        replies = [live.submit(f"p{i}") for i in range(4)]
        until(lambda: live.snapshot()["in_flight"] == 4)
        assert replies[1].cancel()
        assert [carries(replies[i].result(5), f"p{i}") for i in (0, 2, 3)] == [True] * 3
        assert replies[1].cancelled()
        assert carries(live.submit("next").result(5), "next")


def test_who_cancels_in_the_queue_takes_no_seat() -> None:
    seen: list[int] = []
    fleet = FakeFleet(1, function=lambda prompts: seen.append(len(prompts)) or list(prompts))
    with Live(live_settings(1), workers=fleet) as live:
        replies = [live.submit(f"p{i}") for i in range(90)]
        assert all(reply.cancel() for reply in replies[:30])
        done, _ = wait(replies, timeout=5)
    assert len(done) == 90
    assert seen == [60]


def test_when_all_cancel_no_gpu_is_asked_and_the_next_one_is_served(until) -> None:
    seen: list[int] = []
    fleet = FakeFleet(1, function=lambda prompts: seen.append(len(prompts)) or list(prompts))
    with Live(live_settings(1, depth_limit=None), workers=fleet) as live:
        for reply in [live.submit(f"p{i}") for i in range(1_000)]:
            reply.cancel()
        until(lambda: live.snapshot()["depth"] == 0)
        in_flight = live.snapshot()["in_flight"]
        assert live.submit("fresh").result(5) == "fresh"
    assert sum(seen) == in_flight + 1


def test_a_storm_of_cancels_leaves_nothing_behind(until) -> None:
    with fake(depth_limit=None) as live:
        for _ in range(20):
            for reply in [live.submit("gone") for _ in range(50)]:
                reply.cancel()
        until(lambda: live.snapshot()["depth"] == 0)
        assert live.snapshot()["open"] == 0
        asked = time.monotonic()
        assert carries(live.submit("fresh").result(5), "fresh")
        # 50 ms of window and 100 of batch; the rest is for a busy machine.
        assert time.monotonic() - asked < 1.0


def test_cancelling_twice_or_too_late_is_harmless() -> None:
    with fake() as live:
        reply = live.submit("p")
        assert reply.cancel()
        assert reply.cancel()
        with pytest.raises(CancelledError):
            reply.result()
        answered = live.submit("q")
        answered.result(5)
        assert not answered.cancel()


def test_a_cancelled_reply_wakes_whoever_waits_for_a_group() -> None:
    with fake() as live:
        replies: list[Future[str]] = [live.submit("a"), live.submit("b")]
        replies[0].cancel()
        assert wait(replies, timeout=5).not_done == set()


def test_a_slow_callback_delays_no_batch(until) -> None:
    with fake() as live:
        live.submit("slow reader").add_done_callback(lambda _: time.sleep(0.6))
        until(lambda: live.snapshot()["open"] == 0)
        batch = live.run([Request(1, "quick", 200 * MS)])
    assert batch.report()["latency_ms"]["max"] < 500


def test_a_callback_that_raises_costs_nobody_else_an_answer(caplog) -> None:
    with fake() as live:
        first = live.submit("a")
        first.add_done_callback(lambda _: 1 / 0)
        assert carries(live.submit("b").result(5), "b")
        assert carries(first.result(5), "a")
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    "exit_by", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit]
)
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_that_would_end_its_thread_costs_nobody_an_answer(exit_by, caplog) -> None:
    def leave(_: object) -> None:
        raise exit_by("from a callback")

    with fake() as live:
        first = live.submit("a")
        first.add_done_callback(leave)
        assert carries(first.result(5), "a")
        assert carries(live.submit("b").result(5), "b")
    assert "from a callback" in caplog.text


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tier": 2}, "tier 2: .* tiers 0 to 1"),
        ({"tier": -1}, "tier -1: .* tiers 0 to 1"),
        ({"tier": "paid"}, "tier 'paid': .* tiers 0 to 1"),
        ({"tier": 0.0}, "tier 0.0: .* tiers 0 to 1"),
        ({"tenant": ["a"]}, r"tenant \['a'\]: must be text"),
        ({"tenant": None}, "tenant None: must be text"),
        ({"model": ["ferry"]}, r"model \['ferry'\]: must be text"),
        ({"deadline_ms": float("nan")}, "deadline_ms nan: must be a number"),
        ({"deadline_ms": float("inf")}, "deadline_ms inf: must be a number"),
        ({"deadline_ms": "5"}, "deadline_ms '5': must be a number"),
    ],
)
def test_a_request_that_cannot_be_is_refused_and_the_engine_serves_on(wrong, said) -> None:
    with fake() as live:
        with pytest.raises(ValueError, match=said):
            live.submit("a", **wrong)
        assert carries(live.submit("b").result(5), "b")


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), -1, "1"])
def test_a_fault_that_cannot_be_is_refused_before_any_gpu_hears_of_it(amount) -> None:
    with fake() as live:
        with pytest.raises(ValueError, match=f"hang for {amount!r}: .* seconds"):
            live.hang(0, amount)
        with pytest.raises(ValueError, match=f"straggle by {amount!r}: .* factor"):
            live.straggle(0, amount)
        with pytest.raises(ValueError, match=r"GPU 0.5: this engine has GPUs 0 to 1"):
            live.kill(0.5)  # type: ignore[arg-type]
        assert carries(live.submit("b").result(5), "b")


def test_whoever_sends_while_it_stops_hears_something(until) -> None:
    live = fake().start()
    engine = live._engine
    live.stop()
    # The moment between the question whether it serves and the reply: the engine has stopped.
    late = engine.replies.new(7)
    engine.post((Request(7), late))
    assert late.exception(0).code == "engine_stopped"  # type: ignore[union-attr]
    assert engine.replies.open == 0


def test_prompts_may_be_any_text() -> None:
    with fake() as live:
        answers = live.ask(ANYTHING)
    assert [carries(answer, said) for answer, said in zip(answers, ANYTHING, strict=True)] == [
        True
    ] * len(ANYTHING)


def test_a_prompt_over_the_cap_is_refused_with_its_length() -> None:
    with Live(workers=FakeFleet(1), prompt_cap=10) as live:
        with pytest.raises(PromptError, match=r"11 characters, over the cap of 10"):
            live.submit("x" * 11)
        with pytest.raises(PromptError, match="must be text, not int"):
            live.submit(3)  # type: ignore[arg-type]
        assert live.snapshot()["open"] == 0


def test_whoever_comes_over_the_depth_limit_is_rejected_at_once() -> None:
    with fake(max_batch=10, depth_limit=13) as live:
        replies = [live.submit(f"p{i}") for i in range(200)]
        wait(replies, timeout=10)
    errors = [reply.exception() for reply in replies]
    assert {type(error) for error in errors} == {type(None), Rejected}
    assert {error.code for error in errors if isinstance(error, Rejected)} == {"queue_full"}


def test_a_caller_who_never_collects_is_told_so() -> None:
    with Live(live_settings(2), workers=FakeFleet(2), most_open=5) as live:
        replies = [live.submit(f"p{i}") for i in range(7)]
        codes = [getattr(reply.exception(5), "code", None) for reply in replies]
    assert codes == [None] * 5 + ["too_many_open"] * 2


def test_ask_sends_no_more_than_may_wait() -> None:
    with fake(max_batch=10, depth_limit=13) as live:
        assert len(live.ask(f"p{i}" for i in range(100))) == 100


def test_who_waits_past_its_deadline_expires(until) -> None:
    with fake() as live:
        live.hang(0, 1.0)
        live.hang(1, 1.0)
        first = [live.submit(f"p{i}") for i in range(200)]
        until(lambda: live.snapshot()["in_flight"] == 200)
        with pytest.raises(Expired, match="waited too long"):
            live.submit("hurry", deadline_ms=20).result(5)
        assert all(carries(reply.result(5), f"p{i}") for i, reply in enumerate(first))


def test_closing_answers_everybody_and_lets_nobody_in(until) -> None:
    live = fake().start()
    replies = [live.submit(f"p{i}") for i in range(150)]
    until(lambda: live.snapshot()["in_flight"] + live.snapshot()["depth"] == 150)
    closing = threading.Thread(target=live.close)
    closing.start()
    until(lambda: live.state == "closing")
    late = live.submit("too late")
    closing.join()
    assert [reply.done() for reply in replies] == [True] * 150
    assert all(carries(reply.result(), f"p{i}") for i, reply in enumerate(replies))
    assert late.exception().code == "draining"  # type: ignore[union-attr]


def test_stopping_gives_every_open_reply_an_outcome() -> None:
    live = fake().start()
    replies = [live.submit(f"p{i}") for i in range(150)]
    live.stop()
    assert {reply.exception(0).code for reply in replies} == {"engine_stopped"}  # type: ignore[union-attr]
    with pytest.raises(LiveError, match="the engine is stopped"):
        live.submit("p")


def test_an_engine_that_broke_says_so_to_everybody(until, monkeypatch, caplog) -> None:
    with fake() as live:
        reply = live.submit("aboard")
        until(lambda: live.snapshot()["in_flight"] == 1)
        # What cannot happen: the scheduler's own code fails.
        monkeypatch.setattr(live._engine.gateway, "finish", None)
        assert reply.exception(5).code == "engine_broke"  # type: ignore[union-attr]
        with pytest.raises(LiveError, match="the engine broke"):
            live.submit("p")
    assert "TypeError" in caplog.text


def test_a_reply_can_be_awaited_in_a_coroutine() -> None:
    async def both(live: Live) -> list[str]:
        waiting = [asyncio.wrap_future(live.submit(said)) for said in ("a", "b")]
        return await asyncio.gather(*waiting)

    with fake() as live:
        answers = asyncio.run(both(live))
    assert [carries(answer, said) for answer, said in zip(answers, "ab", strict=True)] == [True] * 2


def test_the_ring_keeps_the_last_verb_calls() -> None:
    with Live(live_settings(2), workers=FakeFleet(2), trace=5) as live:
        live.ask(["a", "b", "c"])
        trace = live.trace
    assert trace is not None
    assert len(trace.steps) == 5
    assert "finish" in {step.verb for step in trace.steps}


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), -1.0])
def test_a_fault_without_a_sensible_amount_is_refused_where_it_is_made(amount: float) -> None:
    with pytest.raises(ValueError, match="give seconds or a factor, 0 or more"):
        Fault(1.0, "hang", 0, amount)
