"""Storms on real processes: every request has one outcome, and nothing is left behind."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from labkit.live.census import PROC, Census
from labkit.live.ledger import SqliteJournal
from labkit.live.storm import faults, storm
from labkit.live.storm_crash import crash_storm

pytestmark = [pytest.mark.live, pytest.mark.slow]

NOTHING_LEFT = (0, 0) if PROC.exists() else (None, None)


def rows(path: Path) -> int:
    journal = SqliteJournal(path)
    kept = journal.open(lambda: 0, lambda group, error: None)
    journal.close()
    return len(kept)


def test_a_storm_of_kills_and_hangs_loses_nobody_and_answers_nobody_twice(tmp_path: Path):
    report = storm(200, 6, kills_per_s=1, ledger=tmp_path / "ledger")
    assert report["offered"] == report["answered"] > 1_000
    assert (report["lost"], report["duplicated"], report["wrong_tag"]) == (0, 0, 0)
    assert report["verdict"]["exactly_once"]
    assert report["verdict"]["all_back"]
    assert report["kills"] == 5
    assert report["hangs"] == 1
    # The end of a pipe is noticed long before a deadline; a hang only by it.
    assert report["detection_ms"]["max"] < 250 <= report["hang_detection_ms"]["p50"]
    # Somebody asked again, in flight and after the answer; each key was computed for one record.
    assert report["retries"] > report["replayed"] > 0
    assert report["recorded"] == report["answered"] == rows(tmp_path / "ledger")
    assert (report["processes_left"], report["handles_left"]) == NOTHING_LEFT
    json.dumps(report, allow_nan=False)


def test_a_killed_dispatcher_begins_again_from_its_ledger(tmp_path: Path):
    report = crash_storm(100, 3, crashes=1, kills_per_s=1, gpus=4, ledger=tmp_path / "ledger")
    assert report["offered"] == report["answered"] > 200
    assert (report["lost"], report["duplicated"], report["wrong_tag"]) == (0, 0, 0)
    assert report["checked"] == report["answered"]
    assert report["replayed"] >= report["checked"]
    assert report["restart_ms"]["max"] is not None
    assert report["restart_latency_ms"]["max"] >= report["latency_ms"]["p50"]
    assert (report["verdict"]["exactly_once"], report["verdict"]["all_back"]) == (True, True)
    assert rows(tmp_path / "ledger") == report["answered"]
    assert (report["processes_left"], report["handles_left"]) == NOTHING_LEFT
    json.dumps(report, allow_nan=False)


def test_a_storm_on_fake_gpus_is_over_when_all_have_heard():
    report = storm(300, 2, kills_per_s=0, workers="fake")
    assert report["answered"] == report["offered"]
    assert report["kills"] == report["hangs"] == 0
    assert report["detection_ms"] == {"p50": None, "max": None}
    assert report["verdict"]["exactly_once"]


def test_faults_come_at_an_even_pace_and_leave_the_end_calm():
    kinds = [(fault.at, fault.how) for fault in faults(6, 1)]
    kills = [(at, "kill") for at in (0.5, 1.5, 2.5, 3.5, 4.5)]
    assert kinds == sorted([*kills, (1.0, "hang")])
    assert faults(6, 0) == faults(1, 1) == []


@pytest.mark.skipif(not PROC.exists(), reason="needs /proc to look into other processes")
def test_a_census_finds_what_was_left(until: Callable[..., None]):
    with Census() as census, psutil.Popen(["sleep", "60"]) as child:
        try:
            with open(os.devnull):
                # A process this young may not show its words yet.
                until(lambda: census.processes(within=0) == 1)
                assert census.handles() == 1
        finally:
            child.send_signal(signal.SIGKILL)
        child.wait()
    assert (census.processes(), census.handles()) == (0, 0)
