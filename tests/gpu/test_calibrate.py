"""How much work fits a hundred milliseconds, and how the rest of them is waited out."""

from pathlib import Path

import pytest

from labkit.gpu.agreed import PATIENCE_S, agreed, remember, remembered
from labkit.gpu.calibrate import (
    Candidate,
    Plan,
    choose,
    plan,
    share_of,
    steps_in,
)
from labkit.gpu.grammar import LINE_BYTES
from labkit.gpu.pace import Timings, wait_until
from labkit.gpu.tokens import FULL_STEPS, WINDOW

GIB = 1 << 30


def test_steps_are_those_that_fit_the_share_of_95_ms() -> None:
    assert steps_in(0.4) == 237
    assert steps_in(0.5, share=0.1) == 19
    assert steps_in(95.0) == 1
    assert steps_in(95.1) == 0


def test_eight_on_one_card_plan_with_85_thousandths_each() -> None:
    assert share_of(1) == 1.0
    assert share_of(8) == pytest.approx(0.085)


def test_a_quick_device_writes_a_whole_line_and_stops() -> None:
    assert plan(1.0) == Plan(steps=FULL_STEPS, new_bytes=LINE_BYTES, step_ms=1.0)


def test_a_slow_device_writes_a_shorter_answer() -> None:
    assert plan(2.0) == Plan(steps=WINDOW + 32, new_bytes=32, step_ms=2.0)
    assert plan(2.5) == Plan(steps=WINDOW + 24, new_bytes=24, step_ms=2.5)


def test_workers_whose_steps_differ_a_little_write_the_same_length() -> None:
    assert {plan(step / 100).new_bytes for step in range(183, 215)} == {32}


def test_a_device_too_slow_for_the_shortest_answer_is_told_so() -> None:
    slow = plan(20.0)
    assert (slow.new_bytes, slow.steps, slow.fits) == (8, WINDOW + 8, False)
    assert plan(2.0).fits


def test_a_card_uses_up_its_time() -> None:
    assert plan(0.4, fill=True) == Plan(237, LINE_BYTES, 0.4)


SIZES = (Candidate("680M", 1_360_000_000, 0.39), Candidate("48M", 95_000_000, 0.15))


def test_the_largest_ballast_that_fits_time_and_memory_is_taken() -> None:
    assert choose(0.1, SIZES, free_bytes=100 * GIB).ballast == "680M"
    assert choose(0.1, SIZES, free_bytes=4 * GIB).ballast == "48M"
    too_slow = (Candidate("680M", 1_360_000_000, 0.4), SIZES[1])
    assert choose(0.1, too_slow, free_bytes=100 * GIB).ballast == "48M"


def test_ballast_may_take_a_quarter_of_the_free_memory_to_the_byte() -> None:
    one = (Candidate("48M", 1000, 0.1),)
    assert choose(0.1, one, free_bytes=4000).ballast == "48M"
    assert choose(0.1, one, free_bytes=3999).ballast is None


def test_ballast_never_costs_the_text() -> None:
    # A part of a card: 7.6 ms hold 19 steps of 0.39 ms, 50 of 0.15 ms and 76 of 0.1 ms.
    crowded = choose(0.1, SIZES, free_bytes=100 * GIB, share=0.08)
    assert crowded == Plan(76, LINE_BYTES, 0.1, 0.08, None)


def test_plans_are_remembered_a_device(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "calibration.json"
    remember(path, "T4", plan(0.3))
    remember(path, "H200", plan(0.1, 0.085, "9M", fill=True))
    assert remembered(path, "T4") == plan(0.3)
    assert remembered(path, "H200") == plan(0.1, 0.085, "9M", fill=True)
    assert remembered(path, "A100") is None


def test_a_broken_memory_is_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_text("{")
    assert remembered(path, "T4") is None
    path.write_text('{"T4": {"steps": 3}}')
    assert remembered(path, "T4") is None


def test_the_first_worker_measures_and_the_others_read(tmp_path: Path) -> None:
    path, measured = tmp_path / "calibration.json", []

    def measure() -> Plan:
        measured.append(path.with_suffix(".lock").exists())
        return plan(1.0)

    assert [agreed("T4", measure, path) for _ in range(3)] == [plan(1.0)] * 3
    assert measured == [True]
    assert not path.with_suffix(".lock").exists()


def test_a_worker_waits_for_the_one_that_measures(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.with_suffix(".lock").touch()
    naps = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            remember(path, "T4", plan(1.0))
            path.with_suffix(".lock").unlink()

    assert agreed("T4", lambda: plan(9.0), path, sleep) == plan(1.0)
    assert len(naps) == 3


def test_a_lock_left_by_a_dead_worker_is_waited_for_once(tmp_path: Path) -> None:
    path, naps = tmp_path / "calibration.json", []
    path.with_suffix(".lock").touch()
    assert agreed("T4", lambda: plan(1.0), path, naps.append) == plan(1.0)
    assert sum(naps) == pytest.approx(PATIENCE_S)
    assert agreed("H200", lambda: plan(1.0), path, naps.append) == plan(1.0)
    assert sum(naps) == pytest.approx(PATIENCE_S)


def test_where_nothing_can_be_written_each_measures_for_itself(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "calibration.json"
    assert agreed("T4", lambda: plan(1.0), path) == plan(1.0)


class Clock:
    """A clock that moves by `tick` seconds a look and by what is slept."""

    def __init__(self, tick: float) -> None:
        self.now, self.tick, self.slept = 0.0, tick, [0.0][:0]

    def __call__(self) -> float:
        self.now += self.tick
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_the_rest_is_slept_to_a_millisecond_before_and_then_spun() -> None:
    clock = Clock(tick=0.0001)
    wait_until(0.1, clock, clock.sleep)
    assert clock.slept == [pytest.approx(0.0989)]
    assert 0.1 <= clock.now < 0.1003


def test_less_than_a_millisecond_is_not_slept() -> None:
    clock = Clock(tick=0.0001)
    wait_until(0.0009, clock, clock.sleep)
    assert clock.slept == []


def test_an_instant_that_has_passed_is_not_waited_for() -> None:
    clock = Clock(tick=0.2)
    wait_until(0.1, clock, clock.sleep)
    assert clock.slept == []
    assert clock.now == pytest.approx(0.4)


def test_batches_over_the_contract_are_counted() -> None:
    timings = Timings()
    timings.note(60.0, 100.0)
    timings.note(100.0, 100.2)
    timings.note(131.0, 131.0)
    assert (timings.batches, timings.violations) == (3, 1)
    assert (timings.raw_ms, timings.padded_ms) == (131.0, 131.0)
