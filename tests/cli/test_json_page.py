"""docs/json.md against what the commands print: every key is documented, and under its command."""

import re
from pathlib import Path

import click
import pytest

from labkit.cli.main import COMMANDS, main

PAGE = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
SHARED = (
    "requests",
    "answered",
    "rejected",
    "expired",
    "cancelled",
    "failed",
    "rejected_by",
    "latency_ms",
)
SHARED += ("wait_ms", "mean_batch", "batches", "utilization", "horizon_s", "wall_s")


def undocumented(report: dict, section: str) -> set[str]:
    """Keys of the report, and of the objects in it, that the section does not name."""
    named = set(re.findall(r"`([a-z0-9_]+)`", section))
    keys = set(report)
    for value in report.values():
        inner = value if isinstance(value, list) else [value]
        for part in inner:
            keys |= set(part) if isinstance(part, dict) else set()
    return keys - named


@pytest.mark.parametrize(
    "words",
    [
        "ferry",
        "capacity",
        "capacity --rate 100 --mode pull --cost-per-gpu-hour 2",
        "sim --rate 100 --seconds 1 --kill-at 0.5",
        "live --workers fake --rate 200 --gpus 2 --seconds 0.3 --kill-at 0.1",
    ],
)
def test_every_key_is_documented_under_its_command(labkit, words):
    command, *options = words.split()
    section = SECTIONS[command] + (SECTIONS["sim"] if command == "live" else "")
    assert undocumented(labkit(command, *options, "--json").report, section) == set()


def test_every_key_of_a_replay_is_documented(labkit, tmp_path):
    path = tmp_path / "run.jsonl"
    labkit("sim", "--rate", "100", "--seconds", "1", "--save-trace", str(path))
    path.write_text(path.read_text().replace('"max_batch": 100', '"max_batch": 2'))
    report = labkit("replay", str(path), "--json").report
    assert report["differs"] is not None
    assert undocumented(report, SECTIONS["replay"] + SECTIONS["sim"]) == set()


def test_every_key_of_the_doctor_is_documented(labkit):
    report = labkit("doctor", "--json").report
    assert set(report) <= set(re.findall(r"`([a-z0-9_]+)`", SECTIONS["doctor"]))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_prints_json_has_its_section(name: str):
    context = click.Context(main)
    command = main.get_command(context, name)
    inner = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
    prints = any(param.name == "as_json" for one in inner for param in one.params)
    assert prints == (name in SECTIONS)


def test_sim_and_live_begin_with_the_same_keys(labkit):
    sim = labkit("sim", "--rate", "100", "--seconds", "1", "--json").report
    words = ("--workers", "fake", "--rate", "100", "--seconds", "0.2", "--json")
    live = labkit("live", *words).report
    assert list(sim)[: len(SHARED)] == list(live)[: len(SHARED)] == list(SHARED)
    assert list(sim["latency_ms"]) == ["mean", "p50", "p95", "p99", "max"]


def test_a_missing_key_is_found():
    assert undocumented({"known": {"inner": 1}, "odd": [{"deep": 2}]}, "`known`") == {
        "inner",
        "odd",
        "deep",
    }
