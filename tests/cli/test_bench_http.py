"""The HTTP contest: its search, its load, its tables, and the end of whatever it started."""

import json
import subprocess
import sys
from itertools import islice

import pytest

from benchmarks import http_servers
from benchmarks.http import FINE, OURS, search
from benchmarks.http_contestants import CONTESTANTS, Contestant, PeerMissing, peer_python
from benchmarks.http_load import Asked, letters
from benchmarks.http_report import Plan, Round, held, report_of
from benchmarks.http_servers import end
from labkit.cli.bench_http import NAMES, as_markdown, as_text
from labkit.gpu.tag import tag
from labkit.live.census import PROC, Census
from tests.cli.test_json_page import SECTIONS, undocumented

PLAN = Plan(
    workers=2, rounds=3, seconds=1.0, limit_ms=300.0, common_rate=100.0, seed=1, clients=(50,)
)


def trial(rate: float, **found) -> dict:
    """What the load reports of a trial in which all went well, but for what is given."""
    well = {"rate": rate, "offered": 1_000, "answered": 1_000, "p50_ms": 125.0, "p95_ms": 150.0}
    return well | {"cpu_us": 50.0} | found


def a_round(rate: float, p50_ms: float = 125.0) -> Round:
    """One round in which this rate was the highest that held."""
    common = trial(100.0, p50_ms=p50_ms)
    closed = [{"clients": 50, "per_s": 2 * rate, "statuses": {"200": 9}}]
    return Round(rate, closed, common, [trial(rate)], 1.0, 313)


@pytest.mark.parametrize("start", [10.0, 700.0, 1_000.0, 30_000.0])
def test_the_search_ends_just_below_what_does_not_hold(start):
    best = search(lambda rate: rate <= 1_000, start, 1.5, 40)
    assert 1_000 / FINE <= best <= 1_000


def test_the_search_makes_no_more_trials_than_it_may():
    asked: list[float] = []
    best = search(lambda rate: asked.append(rate) or True, 100.0, 1.5, 3)
    assert asked == [100.0, 150.0, 225.0]
    assert best == 225.0


def test_a_server_that_holds_no_rate_scores_nothing():
    assert search(lambda rate: False, 100.0, 1.5, 40) == 0.0


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({"answered": 999}, True),
        ({"answered": 998}, False),
        ({"p95_ms": 300.0}, True),
        ({"p95_ms": 300.1}, False),
        ({"answered": 0, "p95_ms": None}, False),
    ],
)
def test_a_rate_is_held_when_nearly_all_are_answered_in_time(change, holds):
    assert held(trial(100.0, **change), 300.0) is holds


def test_every_letter_differs_and_can_be_proved():
    asked = Asked("http://127.0.0.1:1", "/v1/completions", 1.0, keys=("a", "b"), keyed=0.1)
    made = list(islice(letters(asked), 1_000))
    assert len({letter.payload for letter in made}) == 1_000
    assert [b"Bearer a" in letter.payload for letter in made[:3]] == [True, False, True]
    assert 60 < sum(b"idempotency-key: " in letter.payload for letter in made) < 140
    head, _, body = made[0].payload.partition(b"\r\n\r\n")
    assert b"content-length: %d\r\n" % len(body) in head + b"\r\n"
    assert made[0].proof == tag(json.loads(body)["prompt"]).encode()


def test_a_server_that_wants_a_list_gets_a_list_of_the_same_prompt():
    plain = next(letters(Asked("http://h:1", "/", 1.0)))
    listed = next(letters(Asked("http://h:1", "/", 1.0, listed=True)))
    prompt = json.loads(plain.payload.partition(b"\r\n\r\n")[2])["prompt"]
    assert json.loads(listed.payload.partition(b"\r\n\r\n")[2]) == {"prompts": [prompt]}
    assert listed.proof == plain.proof


def test_the_report_takes_medians_and_divides_ours_by_theirs():
    rounds = {
        "labkit": [a_round(9_000, 120.0), a_round(12_000, 121.0), a_round(10_000, 130.0)],
        "mosec": [a_round(8_000)] * 3,
        "constant": [a_round(20_000)] * 3,
    }
    report = report_of(PLAN, rounds, {"bentoml": "no index"}, 60.0, 0.1)
    assert report["sustained_per_s"] == {"labkit": 10_000, "mosec": 8_000, "constant": 20_000}
    assert report["ratios"] == {"labkit/mosec": 1.25, "labkit/constant": 0.5}
    assert report["at_100_per_s"]["labkit"] == {"p50_ms": 121.0, "p95_ms": 150.0, "held": True}
    assert report["closed_per_s"]["mosec"] == 16_000
    assert report["cpu_us"]["labkit"] == 50.0


def test_the_tables_name_who_was_left_out_and_why():
    report = report_of(PLAN, {"labkit": [a_round(9_000)]}, {"bentoml": "no index"}, 60.0, 0.1)
    page = as_markdown(report)
    row = "| `labkit serve` | 0.1.0 | 9,000 |  | 18,000 | 125.0 / 150.0 ms | 50 us |"
    assert row in page.splitlines()
    assert "| BentoML | 1.4.40 | not measured: no index |" in page
    assert "metrics, validation of the body" in page
    assert "not measured: no index" in " ".join(as_text(report).split())


def test_a_ceiling_is_told_as_a_share():
    rounds = {"labkit": [a_round(9_000)], "constant": [a_round(18_000)]}
    page = as_markdown(report_of(PLAN, rounds, {}, 60.0, 0.1))
    assert "With everything on, ours holds 50% of the rate of a constant answer." in page


def test_the_command_and_the_contest_know_the_same_names():
    assert set(NAMES) == set(CONTESTANTS)
    assert set(OURS) < set(NAMES)


def test_a_peer_that_is_not_installed_is_named_with_the_way_to_install_it():
    nobody = Contestant("nobody", "Nobody", "", ("nobody==1",), "benchmarks.peers.nobody")
    with pytest.raises(PeerMissing, match=r"nobody==1 is not installed .* run: labkit bench http"):
        peer_python(nobody, install=False)


STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not PROC.exists(), reason="processes are found by /proc")
def test_whoever_ignores_the_request_to_end_is_ended_with_its_children(monkeypatch):
    monkeypatch.setattr(http_servers, "END_WITHIN_S", 0.2)
    with Census() as census:
        process = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert end(process, census) == 2
        assert census.marked() == []


@pytest.mark.slow
@pytest.mark.live
def test_a_quick_contest_measures_ours_and_the_constant_answer(labkit):
    report = labkit("bench", "http", "--quick", "--json").report
    assert report["skipped"] == {}
    assert set(report["sustained_per_s"]) == {"labkit", "constant"}
    assert min(report["closed_per_s"].values()) > 0
    assert report["at_100_per_s"]["labkit"]["p50_ms"] >= 100
    plain = dict.fromkeys(set(report) - {"at_100_per_s"})
    assert undocumented(plain, SECTIONS["bench"]) == set()
    trials = report["rounds"]["labkit"][0]["trials"]
    assert {status for found in trials for status in found["statuses"]} == {"200"}
