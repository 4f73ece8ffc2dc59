"""The smallest shell keeps the contract: it tells, obeys, and moves only when told the time."""

import pytest

from labkit.core.gateway import Gateway
from labkit.core.messages import Answer, Depart, Request
from labkit.core.settings import Settings
from labkit.core.trace import replay
from labkit.core.units import MS, NEVER
from labkit.viz.hand import HandShell, run_by_hand

SIX = Settings(max_batch=6)


def departures(trace):
    return [(now, len(c.rows)) for now, c in trace.commands() if isinstance(c, Depart)]


def test_nothing_happens_before_it_is_told_the_time():
    shell = HandShell(SIX)
    shell.board([Request(0)], 0)
    assert shell.due_at == 50 * MS
    shell.until(49_999)
    assert departures(shell.trace) == []
    shell.until(50_000)
    assert departures(shell.trace) == [(50_000, 1)]


def test_whoever_arrives_at_the_due_instant_boards():
    assert departures(run_by_hand([0, 50 * MS], SIX)) == [(50 * MS, 2)]


def test_a_boat_is_back_before_the_arrival_of_the_same_instant():
    trace = run_by_hand([0] * 6 + [100 * MS] * 6, SIX)
    assert departures(trace) == [(0, 6), (100 * MS, 6)]


def test_a_late_call_is_told_every_instant_in_between():
    shell = HandShell(SIX)
    shell.board([Request(0)], 0)
    shell.until(1_000 * MS)
    assert [now for now, c in shell.trace.commands() if isinstance(c, Answer)] == [150 * MS]
    assert shell.due_at == NEVER


def test_a_clock_that_steps_back_counts_as_the_latest_instant():
    shell = HandShell(SIX)
    shell.board([Request(0, arrived_at=80 * MS)], 80 * MS)
    shell.board([Request(1, arrived_at=80 * MS)], 20 * MS)
    assert [step.now for step in shell.trace.steps][-1] == 80 * MS


def test_its_trace_replays_to_the_same_commands():
    trace = run_by_hand([0, 10 * MS, 70 * MS], SIX, gpus=2)
    again = replay(trace, Gateway(SIX))
    assert list(again.commands()) == list(trace.commands())


def test_a_dock_needs_a_gpu():
    with pytest.raises(ValueError, match="gpus 0: a dock needs at least 1"):
        HandShell(SIX, gpus=0)
