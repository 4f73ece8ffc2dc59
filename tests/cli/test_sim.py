"""`labkit sim` and `labkit bench sim`: stable keys, identical bytes, and errors with a remedy."""

import json
import math

import pytest
from click.testing import CliRunner, Result

from labkit.cli import sim as page
from labkit.cli.bench import contest
from labkit.cli.main import main
from labkit.core.trace import read_jsonl, replay
from labkit.sim.driver import gateway_for
from labkit.workload import PROCESSES

KEYS = [
    "requests",
    "answered",
    "rejected",
    "expired",
    "cancelled",
    "failed",
    "rejected_by",
    "latency_ms",
    "wait_ms",
    "mean_batch",
    "batches",
    "utilization",
    "horizon_s",
    "wall_s",
    "gpus",
    "seed",
    "trace_lines_skipped",
    "events",
]


def test_ten_thousand_a_second_on_eighteen_gpus():
    report = _report("--rate 10000 --gpus 18 --seconds 60 --seed 1")
    assert list(report) == KEYS
    latency = report["latency_ms"]
    assert latency["p50"] == pytest.approx(104.9, abs=0.3)
    assert latency["p95"] == pytest.approx(109.7, abs=0.3)
    assert latency["p99"] == pytest.approx(110.8, abs=0.3)
    assert report["requests"] == pytest.approx(600_000, rel=0.01)
    assert report["answered"] == report["requests"]


@pytest.mark.parametrize(("window", "p95"), [("50", 150.0), ("80", 180.0), ("100", 200.0)])
def test_a_hundred_a_second_on_two_gpus(window, p95):
    assert _report(f"--gpus 2 --max-wait-ms {window}")["latency_ms"]["p95"] == p95


@pytest.mark.parametrize(
    "options",
    [
        "--rate 3000 --gpus 5 --seconds 2",
        "--rate 3000 --gpus 5 --seconds 2 --service jitter --dispatch random --backlog inf",
        "--rate 3000 --gpus 5 --seconds 2 --tenants 9 --kill-at 1 --detect-ms 30 --replications 3",
    ],
)
def test_the_same_command_twice_prints_the_same_but_for_wall_time(options):
    first, again = ({**_report(options), "wall_s": None} for _ in range(2))
    assert json.dumps(first) == json.dumps(again)


def test_another_seed_is_another_day():
    assert _report("--seed 1")["latency_ms"] != _report("--seed 2")["latency_ms"]


def test_a_killed_gpu_is_told_with_its_story_and_nobody_is_lost():
    report = _report("--rate 1000 --gpus 8 --kill-at 5 --detect-ms 20")
    assert [(e["at_s"], e["what"]) for e in report["events"]] == [
        (5.0, "died"),
        (5.02, "reported lost"),
        (5.32, "back"),
    ]
    assert report["answered"] == report["requests"]


def test_a_hang_is_noticed_when_overdue():
    report = _report("--rate 1000 --gpus 8 --hang-at 5 --overdue-ms 250")
    assert "is overdue after 250 ms" in report["events"][0]["what"]
    assert report["answered"] == report["requests"]


def test_replications_add_intervals_and_leave_the_first_run_as_it_was():
    single, several = _report("--gpus 2"), _report("--gpus 2 --replications 5 --confidence 0.99")
    estimate = several["estimates"]["latency_ms.mean"]
    assert (estimate["count"], estimate["confidence"]) == (5, 0.99)
    assert 0 < estimate["half_width"] < 5
    assert "wall_s" not in several["estimates"]
    assert {name: several[name] for name in KEYS if name != "wall_s"} == {
        name: single[name] for name in KEYS if name != "wall_s"
    }


def test_a_straggler_and_slow_services_lengthen_the_tail():
    plain = _report("--gpus 2")["latency_ms"]["max"]
    assert _report("--gpus 2 --straggler 1:2")["latency_ms"]["max"] > plain + 99
    assert _report("--gpus 4 --service exponential")["latency_ms"]["max"] > plain
    assert _report("--gpus 2 --service affine --per-row-ms 1")["latency_ms"]["p95"] > 150


def test_tenants_bring_a_second_tier():
    report = _report("--rate 1500 --seconds 30 --gpus 1 --tenants 5 --expire --depth-limit none")
    assert report["expired"] > 0
    assert report["rejected"] == 0


def test_a_trace_is_sent_at_the_scale_that_was_asked_for(tmp_path):
    path = tmp_path / "azure.csv"
    rows = [f"2023-11-16 18:15:{second:02d}.0000000,374,44" for second in range(10, 30)]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows, "garbage"]))
    report = _report(f"--trace {path} --trace-scale 2 --gpus 2")
    assert report["answered"] == 20
    assert report["horizon_s"] == pytest.approx(9.65)
    assert report["trace_lines_skipped"] == 1


def test_rows_of_a_trace_that_cannot_be_read_are_told_with_their_lines(labkit, tmp_path):
    path = tmp_path / "azure.csv"
    good = "2023-11-16 18:15:10.0000000,374,44"
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", good, "x,y,z", good]))
    said = labkit("sim", "--trace", path, "--json")
    assert said.report["answered"] == 2
    assert f"{path}: 1 lines skipped (line 3: " in said.err
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", good]))
    assert labkit("sim", "--trace", path).err == ""


def test_a_saved_trace_replays_to_the_same_answers(tmp_path):
    path = tmp_path / "run.jsonl"
    report = _report(f"--rate 500 --gpus 2 --seconds 2 --save-trace {path} --kill-at 1")
    trace = read_jsonl(path.read_text().splitlines())
    again = replay(trace, gateway_for(trace.settings, trace.seed))
    answered = [c for _, c in again.commands() if type(c).__name__ == "Answer"]
    assert sum(len(answer.rows) for answer in answered) == report["answered"]


def test_the_page_offers_every_arrival_process_without_importing_one():
    assert set(page.PROCESSES) == set(PROCESSES)


def test_people_get_a_table():
    result = _invoke("sim --gpus 2")
    assert result.exit_code == 0
    assert "P50 / P95 / P99" in result.output
    assert "mean batch" in result.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--rate -1", "-1 is not above 0"),
        ("--rate nan", "'nan' is not a finite number"),
        ("--rate 1e9", "1e+09 requests a second for 10 s is 10,000,000,000 requests"),
        ("--gpus 0", "0 is out of range"),
        ("--max-batch 0", "0 is out of range; give 1 to 100"),
        ("--max-batch 101", "101 is out of range; give 1 to 100"),
        ("--max-wait-ms 300", "= 600 ms, over the budget of 500 ms"),
        ("--trace nowhere.csv", "nowhere.csv: no such file"),
        ("--straggler 9:2", "Straggler of GPU 9: the 2 GPUs have the numbers 0 to 1"),
        ("--straggler slow", "'slow' is no straggler; give GPU:FACTOR"),
        ("--service jitter --sigma 4", "sigma 4: must be from 0 to 0.3"),
        ("--hang-at 5", "without --overdue-ms: nobody would ever notice"),
        ("--kill-at 100", "--kill-at 100 is after the end, 10 s"),
        ("--hang-at 11 --overdue-ms 250", "--hang-at 11 is after the end, 10 s"),
        ("--sigma 0.2", "--sigma with --service fixed changes nothing; add --service jitter"),
        ("--per-row-ms 2", "--per-row-ms with --service fixed changes nothing"),
        ("--warm-up 10", "--warm-up 10 leaves nothing of 10 s"),
        ("--replications 3 --confidence 1", "only an endless interval is certain"),
        ("--paid-share 2", "paid_share 2: must be from 0 to 1"),
        ("--save-trace nowhere/run.jsonl", "nowhere/run.jsonl"),
    ],
)
def test_bad_input_is_refused_with_the_value_and_no_traceback(options, said):
    result = _invoke(f"sim {options}")
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_a_trace_of_garbage_is_refused(tmp_path):
    path = tmp_path / "garbage.csv"
    path.write_text("this\nis no trace\n")
    result = _invoke(f"sim --trace {path}")
    assert result.exit_code == 2
    assert "garbage.csv: line 1" in result.output


def test_replications_of_a_trace_are_refused(tmp_path):
    path = tmp_path / "some.csv"
    path.write_text("x")
    result = _invoke(f"sim --trace {path} --replications 2")
    assert result.exit_code == 2
    assert "a trace is one past" in " ".join(result.output.split())


def test_the_benchmark_measures_all_contestants_on_the_same_arrivals():
    report = json.loads(_invoke("bench sim --seconds 1 --rounds 1 --json").output)
    speeds = report["requests_per_s"]
    assert {"gateway", "fast", "naive_simpy"} <= speeds.keys()
    assert all(math.isfinite(speed) and speed > 0 for speed in speeds.values())
    waits = report["p95_ms"]
    assert waits["gateway"] == waits["fast"] == waits["naive_simpy"]
    ratio = speeds["gateway"] / speeds["naive_simpy"]
    assert report["ratios"]["gateway/naive_simpy"] == pytest.approx(ratio, abs=0.06)


def test_a_benchmark_that_is_not_there_says_where_benchmarks_run():
    with pytest.raises(Exception, match="benchmarks run from a checkout"):
        contest("no_such_contest")


def _report(options: str) -> dict:
    result = _invoke(f"sim {options} --json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def _invoke(line: str) -> Result:
    return CliRunner().invoke(main, line.split())


def test_a_saved_trace_never_overwrites_the_one_that_is_read(tmp_path):
    path = tmp_path / "azure.csv"
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
    path.write_text(text)
    (tmp_path / "again.csv").hardlink_to(path)
    for name in ("azure.csv", "again.csv"):
        asked = ["sim", "--trace", str(path), "--save-trace", str(tmp_path / name)]
        result = CliRunner().invoke(main, asked)
        assert result.exit_code == 2
        assert "would overwrite what is read; give another name" in " ".join(result.output.split())
        assert path.read_text() == text
