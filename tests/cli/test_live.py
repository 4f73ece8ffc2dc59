"""`labkit live`: what it prints, what it refuses, and its exit codes."""

import json

import pytest
from click.testing import CliRunner, Result

from labkit.cli.live import live, verdict
from labkit.core.books import Books
from labkit.live import Run

pytestmark = pytest.mark.live


def call(*arguments: str) -> Result:
    return CliRunner().invoke(live, arguments)


def test_it_prints_what_the_simulator_prints_and_what_befell_the_gpus() -> None:
    told = call(*["--rate", "300", "--gpus", "3", "--seconds", "1.5", "--kill-at", "0.6", "--json"])
    assert told.exit_code == 0, told.output
    report = json.loads(told.stdout)
    simulated = Books().report(gpus=3, horizon=1, wall_s=0.0)
    assert list(report)[: len(simulated)] == list(simulated)
    assert report["offered"] == report["answered"] == report["requests"]
    assert (report["lost"], report["duplicated"], report["wrong_tag"]) == (0, 0, 0)
    assert report["kills"] == 1
    assert report["detection_ms"]["p50"] > 0
    assert report["verdict"]["exactly_once"] is True
    assert report["verdict"]["all_back"] is True


def test_for_people_it_ends_in_a_verdict() -> None:
    told = call(*["--rate", "100", "--seconds", "0.5", "--workers", "fake", "--kill-at", "0.2"])
    assert told.exit_code == 0, told.output
    assert "requests has exactly one outcome." in told.stdout
    assert "was killed at 0." in told.stdout


def test_a_trace_crosses_at_its_own_pace_or_faster(tmp_path) -> None:
    trace = tmp_path / "azure.csv"
    lines = [f"2023-11-16 18:15:{second:02d}.0,10,5" for second in range(0, 40, 2)]
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]))
    told = call("--trace", str(trace), "--trace-scale", "40", "--workers", "fake", "--json")
    assert told.exit_code == 0, told.output
    report = json.loads(told.stdout)
    assert report["answered"] == 20
    assert 0.9 < report["horizon_s"] < 2.0


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("--rate -1", "-1 is not above 0"),
        ("--rate nan", "nan"),
        ("--gpus 0", "0"),
        ("--gpus 65", "each is a process here, and 64 is the most"),
        ("--rate 1000000 --seconds 1", "200,000 is the most"),
        ("--seconds 5 --kill-at 5", "--kill-at 5 is after the end, 5 s"),
        ("--max-batch 101", "101"),
        ("--overdue-ms 90", "every batch would count as lost"),
        ("--workers tmier", "choose one of timer, cpu, cuda"),
        ("--trace nowhere.csv", "no such file"),
    ],
)
def test_what_cannot_be_is_refused_with_the_value_and_the_remedy(arguments, why) -> None:
    told = call(*arguments.split())
    assert told.exit_code == 2, told.output
    assert why in " ".join(told.output.split())


def test_a_verdict_says_what_went_wrong() -> None:
    run = Run(gpus=2, offered=3, lost=1, duplicated=2, wrong_tag=0)
    report = run.report() | {
        "verdict": {"exactly_once": False, "within_budget": None, "all_back": True}
    }
    assert verdict(report) == (
        "NOT exactly once: 1 lost, 2 answered twice, 0 with another's answer."
    )
