"""Answers that mean harm: a clear verdict, in bounded time, and the kernel lives on."""

import itertools
import os
import signal
import sys
import threading
import time

import pytest

from labkit.teach.exercises import EXERCISES, Mark
from labkit.teach.exercises.bench import Bench, packed
from labkit.teach.exercises.guard import CHARACTERS, Guarded, Raised

DUE_AT = EXERCISES["01.due_at"]


def right(waiting, max_batch, max_wait):
    """The rule."""
    return waiting[max_batch - 1] if len(waiting) >= max_batch else waiting[0] + max_wait


def judged(function):
    """Mark and line, judged in this process."""
    verdict = DUE_AT.judged(function)
    return verdict.mark, verdict.line


# -- in this process ------------------------------------------------------------------------------


def test_a_loop_without_end_is_counted_out_the_same_every_time():
    def forever(waiting, max_batch, max_wait):
        while True:
            pass

    said = "due_at((0,), 6, 50000) took 300,000 steps and was not done: does a loop in it ever end?"
    assert judged(forever) == (Mark.RAISED, said)
    assert judged(forever) == (Mark.RAISED, said)


def test_a_thousand_slow_calls_are_counted_together():
    def slow(waiting, max_batch, max_wait):
        for _ in range(40_000):
            pass
        return right(waiting, max_batch, max_wait)

    mark, line = judged(slow)
    assert mark is Mark.RAISED
    assert "does a loop in it ever end?" in line


def test_swallowing_every_exception_does_not_swallow_the_count():
    def stubborn(waiting, max_batch, max_wait):
        try:
            while True:
                pass
        except Exception:
            return 0

    assert judged(stubborn)[0] is Mark.RAISED


def test_printing_without_end_keeps_the_beginning():
    def loud(waiting, max_batch, max_wait):
        for i in range(1_000):
            print("line", i)
        return right(waiting, max_batch, max_wait)

    verdict = DUE_AT.judged(loud)
    assert verdict.printed.startswith("line 0\nline 1\n")
    assert "characters more" in verdict.printed
    assert len(verdict.printed) < CHARACTERS + 60


def test_what_a_passing_answer_printed_is_from_the_first_case_alone():
    def chatty(waiting, max_batch, max_wait):
        print(waiting)
        return right(waiting, max_batch, max_wait)

    verdict = DUE_AT.judged(chatty)
    assert verdict.passed
    assert {*verdict.printed.split("\n")} == {"(0,)", ""}


def test_changing_what_was_given_is_said_with_the_call():
    def take(waiting, seats):
        waiting.sort(key=lambda one: one.tier)
        return waiting[:seats]

    verdict = EXERCISES["01.take"].judged(take)
    assert verdict.mark is Mark.FAILED
    assert verdict.line == (
        "take([free 0, paid 1], 1) changed what it was given; build something new and return it"
    )

    def promote(waiting, seats):
        waiting[-1].tier = 0
        return waiting[:seats]

    assert "changed what it was given" in EXERCISES["01.take"].judged(promote).line


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("1 / 0", "due_at((0,), 6, 50000) raised ZeroDivisionError: division by zero"),
        ("sys.exit(3)", "due_at((0,), 6, 50000) raised SystemExit: 3"),
        ("due_at(waiting, 1, 2)", "due_at((0,), 6, 50000) raised RecursionError"),
        ("waiting[7]", "due_at((0,), 6, 50000) raised IndexError: tuple index out of range"),
    ],
)
def test_an_exception_is_said_with_the_call(body, said):
    source = f"import sys\ndef due_at(waiting, max_batch, max_wait):\n    return {body}\n"
    mark, line = judged(DUE_AT.compiled(source))
    assert mark is Mark.RAISED
    assert line.startswith(said)


class Hostile:
    """Its repr raises."""

    def __repr__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (float("nan"), "got nan (float), but an instant in microseconds is a whole number"),
        (50_000.0, "got 50000.0 (float)"),
        ("soon", "got 'soon' (str)"),
        (True, "got True (bool)"),
        ([1], "got [1] (list)"),
        (object(), "got <object object> (object)"),
        (Hostile(), "got a Hostile whose repr raises RuntimeError (Hostile)"),
        ("x" * 10_000, "xxx... (str)"),
    ],
)
def test_a_wrong_type_is_said_with_what_was_given(answer, said):
    mark, line = judged(lambda waiting, max_batch, max_wait: answer)
    assert mark is Mark.FAILED
    assert line.startswith("waiting since 0 ms: got ")
    assert said in line


def test_nothing_returned_asks_for_a_return():
    def forgot(waiting, max_batch, max_wait):
        waiting[0] + max_wait

    assert judged(forgot)[1].endswith("did you forget to return?")


def test_generators_and_coroutines_are_told_what_to_write():
    def generator(waiting, max_batch, max_wait):
        yield 0

    async def coroutine(waiting, max_batch, max_wait):
        return 0

    assert judged(generator)[1].endswith("`return` once in place of `yield`")
    assert judged(coroutine)[1].endswith("write `def`, not `async def`")


def test_functions_come_as_lambda_class_and_partial():
    from functools import partial

    class Rule:
        def __call__(self, waiting, max_batch, max_wait):
            return right(waiting, max_batch, max_wait)

    assert judged(Rule())[0] is Mark.PASSED
    assert judged(partial(lambda unit, *given: right(*given), 1))[0] is Mark.PASSED
    assert "(Rule)" in judged(lambda *_: Rule())[1]
    assert judged(Rule) == (
        Mark.RAISED,
        "due_at takes (waiting, max_batch, max_wait); yours takes other arguments",
    )
    assert judged(7) == (Mark.RAISED, "7 is not a function; define due_at and hand it over")


def test_an_answer_that_changes_its_mind_is_found_out():
    calls = itertools.count()
    mark, line = judged(
        lambda waiting, max_batch, max_wait: (
            right(waiting, max_batch, max_wait) + (next(calls) > 200)
        )
    )
    assert mark is not Mark.PASSED
    assert line


def test_a_guard_gives_the_tracing_back():
    before = sys.gettrace()
    guarded = Guarded(lambda: 1 / 0, "f")
    with pytest.raises(Raised, match=r"f\(\) raised ZeroDivisionError"):
        guarded()
    assert sys.gettrace() is before


# -- in the child ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bench():
    bench = Bench()
    bench.start()
    yield bench
    bench.close()


def test_the_bench_says_what_the_judge_says(bench):
    mutant = DUE_AT.compiled(DUE_AT.mutants[0])
    assert bench.check("01.due_at", mutant) == DUE_AT.judged(mutant)
    assert bench.check("01.due_at", right).passed
    assert bench.check("01.hunt", "d").passed


def test_values_and_stubs_come_through_as_well(bench):
    assert bench.check("03.sum_in_text", "18").mark is Mark.FAILED
    assert bench.check("01.due_at", ...).mark is Mark.NOT_ATTEMPTED


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork to keep its child")
def test_nothing_an_answer_does_outlives_its_check(bench):
    def rewrites(waiting, max_batch, max_wait):
        import labkit.core.batching as batching

        batching.FerryRule.due_at = lambda rule, bank: bank.oldest_at
        return waiting[0]

    def threads(waiting, max_batch, max_wait):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        return right(waiting, max_batch, max_wait)

    child = bench.start()
    verdict = bench.check("01.due_at", rewrites)
    assert verdict.mark is Mark.RAISED
    assert verdict.line.startswith("your code changed labkit.core.batching.FerryRule.due_at")
    assert bench.check("01.due_at", threads).mark in (Mark.PASSED, Mark.RAISED)
    assert bench.check("01.due_at", right).passed
    assert bench.start() is child


def test_what_writes_past_print_and_reads_the_pipe_disturbs_nobody(bench):
    def floods(waiting, max_batch, max_wait):
        os.write(1, b"x" * 100)
        os.write(2, b"x" * 100)
        return right(waiting, max_batch, max_wait)

    def asks(waiting, max_batch, max_wait):
        return input("when? ")

    assert bench.check("01.due_at", floods).passed
    assert "raised EOFError" in bench.check("01.due_at", asks).line


def test_leaving_the_process_is_said(bench):
    def leaves(waiting, max_batch, max_wait):
        os._exit(0)

    verdict = bench.check("01.due_at", leaves)
    assert verdict.line == "it ended the process that checks it (os._exit, or out of memory)"
    assert bench.check("01.due_at", right).passed


@pytest.mark.skipif(sys.platform != "linux", reason="only here is memory limited for sure")
def test_all_memory_is_refused(bench):
    def eats(waiting, max_batch, max_wait):
        return [0] * (1 << 40)

    assert bench.check("01.due_at", eats).line == "due_at((0,), 6, 50000) raised MemoryError"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there, the parent is the kernel")
def test_killing_the_parent_costs_one_check(bench):
    def kills(waiting, max_batch, max_wait):
        os.kill(os.getppid(), signal.SIGKILL)
        return 0

    assert bench.check("01.due_at", kills).mark is Mark.RAISED
    assert bench.check("01.due_at", right).passed


def test_what_cannot_be_copied_is_said():
    lock = threading.Lock()

    def holds(waiting, max_batch, max_wait):
        with lock:
            return 0

    verdict = packed("01.due_at", holds)
    assert verdict.mark is Mark.RAISED
    assert "cannot pickle '_thread.lock' object" in verdict.line


@pytest.fixture
def hasty():
    bench = Bench(seconds=1)
    yield bench
    bench.close()


def test_what_takes_no_steps_and_no_end_is_stopped_by_the_clock(hasty):
    def stubborn(waiting, max_batch, max_wait):
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass

    said = "it was not done after 1 s: does a loop in it ever end?"
    for endless in (lambda waiting, max_batch, max_wait: sum(itertools.count()), stubborn):
        verdict = hasty.check("01.due_at", endless)
        assert (verdict.mark, verdict.line) == (Mark.RAISED, said)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs an alarm")
def test_an_interrupted_check_leaves_nothing_for_the_next(bench):
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    bench.check("01.hunt", "d")
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            bench.check("01.due_at", lambda waiting, max_batch, max_wait: sum(itertools.count()))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert bench.check("01.hunt", "d").exercise_id == "01.hunt"


@pytest.mark.skipif(not os.path.exists("/bin/false"), reason="needs a program that fails")
def test_a_bench_that_cannot_start_says_so(monkeypatch):
    bench = Bench()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    verdict = bench.check("01.hunt", "d")
    assert verdict.mark is Mark.RAISED
    assert verdict.line.startswith("the process that checks answers did not start")


def test_a_closed_bench_leaves_no_process():
    bench = Bench()
    child = bench.start()
    bench.close()
    assert child.poll() is not None
