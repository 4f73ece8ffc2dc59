"""`labkit bench serve`: its parts at a hundredth of their size, and its tables."""

import json

import pytest
from click.testing import CliRunner

from benchmarks.serve import PARTS, least_ms, trial
from labkit.cli.bench_serve import NAMES, tables
from labkit.cli.main import main
from labkit.teach.served import served
from tests.cli.test_json_page import SECTIONS, undocumented


def bench(*words: str) -> dict:
    """The report of a short run."""
    words = ("bench", "serve", "--seconds", "0.6", "--rounds", "1", *words, "--json")
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 0, told.output
    return json.loads(told.stdout)


def test_the_command_knows_every_part():
    assert NAMES == PARTS


def test_the_least_a_stream_can_take_is_its_wait_for_a_batch_and_the_batch():
    # So few that hardly two share a batch: whoever opens one waits for the whole window.
    least = least_ms(10, 1.0, 1, 1_000, 20)
    assert (least["p50"], least["max"]) == (1_050.0, 1_050.0)


@pytest.mark.live
def test_a_gpu_is_lost_in_the_middle_of_its_streams_and_nothing_is_started_again():
    report = bench("--only", "lost", "--scale", "0.02")
    lost = report["lost"]
    assert (lost["one"]["streams"], lost["hundred"]["streams"]) == (1, 100)
    assert (lost["broken"], lost["started_again"]) == (101, 0)
    assert undocumented(report, SECTIONS["bench"]) == set()


@pytest.mark.live
def test_a_trial_asks_the_client_and_the_server():
    with served(2, "--workers", "timer") as server:
        row = trial(server, rate=50, seconds=0.4, seed=1, keyed=0.5)
    assert row["answered_once"]
    assert row["offered"] == row["answered"] > 0
    assert 0 < row["keys_kept"] < row["offered"]
    assert row["cpu_us"] > 0
    assert undocumented(row, SECTIONS["bench"]) - {"200"} == set()
    found = {"one": row, "other": row}
    versus = {"rate": 50, "medians": found, "cpu_ratio": 1.0, "rounds": {}}
    torch = {"rates": [row | {"restarts": 1, "held": True}], "highest_held": 50}
    streams = row | {"least": {"p50": 100.0, "p95": 150.0}, "over_p95": 0.02}
    report = {
        "rates": [row | {"rss_at_rest_mb": 40.0, "gpus": 2}],
        "memory": {"rate": 50, "requests": 20, "rss_mb": [40.0, 40.0], "grown_mb": 0.0},
        **dict.fromkeys(("collector", "log", "carrier"), versus),
        "torch": torch,
        "streams": {"begun": {"stream_ms": 1_000, "over_p95": 0.02, "rounds": [streams]}},
        "lost": {"promise_ms": 50.0, "one": {"streams": 1, "p50_ms": 0.3, "max_ms": 0.3}},
    }
    shown = list(tables(report))
    assert len(shown) == 6
    for title, head, rows in shown:
        assert {len(cells) for cells in rows} == {len(head)}, title
