"""A saved trace, whoever recorded it, says on replay what it said then, or where it does not."""

import json
from pathlib import Path

import pytest

from labkit.core.gateway import Gateway
from labkit.core.messages import Request, RowError
from labkit.core.settings import Settings
from labkit.core.trace import Recorder, write_jsonl
from labkit.core.units import MS


def sim_trace(labkit, path: Path, *more: str) -> dict:
    words = ("--rate", "300", "--gpus", "3", "--seconds", "2", "--kill-at", "1", *more)
    return labkit("sim", *words, "--json", "--save-trace", str(path)).report


@pytest.mark.parametrize("dispatch", ["least-loaded", "two-choices", "random", "round-robin"])
def test_a_simulation_replays_equal_with_its_figures(labkit, tmp_path: Path, dispatch: str):
    path = tmp_path / "run.jsonl"
    ran = sim_trace(labkit, path, "--dispatch", dispatch, "--seed", "5")
    report = labkit("replay", str(path), "--json").report
    assert (report["equal"], report["differs"], report["open"]) == (True, None, 0)
    same = ("requests", "answered", "batches", "mean_batch", "latency_ms", "wait_ms", "gpus")
    assert {name: report[name] for name in same} == {name: ran[name] for name in same}


def test_a_live_run_replays_equal(labkit, tmp_path: Path):
    path = tmp_path / "live.jsonl"
    words = ("--workers", "fake", "--gpus", "3", "--rate", "500", "--seconds", "0.6")
    ran = labkit("live", *words, "--kill-at", "0.3", "--json", "--save-trace", str(path)).report
    report = labkit("replay", str(path), "--json").report
    assert report["equal"] is True
    assert (report["requests"], report["answered"]) == (ran["offered"], ran["answered"])


def test_a_shrunk_failure_replays_and_the_sound_gateway_says_where_it_differs(
    labkit, tmp_path: Path
):
    words = ("--runs", "200", "--bug", "retry_the_dead", "--save", str(tmp_path))
    labkit("faults", *words, "--json")
    (path,) = tmp_path.glob("*.jsonl")
    done = labkit("replay", str(path))
    assert done.code == 1
    assert "DIFFERS first at step " in done.out
    assert " s: now the gateway says " in done.out


def test_the_first_step_that_differs_is_named_with_what_is_said_now(labkit, tmp_path: Path):
    path = tmp_path / "run.jsonl"
    sim_trace(labkit, path)
    header, *steps = path.read_text().splitlines()
    told = json.loads(header)
    number = next(n for n, said in enumerate(told["said"]) if said)
    told["said"][number] ^= 1
    path.write_text("\n".join([json.dumps(told), *steps]))
    report = labkit("replay", str(path), "--json").report
    assert report["equal"] is False
    assert report["differs"]["step"] == number + 1
    assert report["differs"]["says_now"][0].startswith("Depart(batch_id=1, ")


def test_another_rulebook_says_something_else(labkit, tmp_path: Path):
    path = tmp_path / "run.jsonl"
    sim_trace(labkit, path)
    path.write_text(path.read_text().replace('"max_batch": 100', '"max_batch": 3'))
    done = labkit("replay", str(path))
    assert (done.code, "DIFFERS first at step" in done.out) == (1, True)


def test_a_file_without_what_was_said_is_replayed_and_not_judged(labkit, tmp_path: Path):
    path = tmp_path / "run.jsonl"
    sim_trace(labkit, path)
    header, *steps = path.read_text().splitlines()
    told = json.loads(header)
    del told["said"]
    path.write_text("\n".join([json.dumps(told), *steps]))
    assert labkit("replay", str(path), "--json").report["equal"] is None
    assert "nothing to compare" in labkit("replay", str(path)).out


@pytest.mark.parametrize("name", ["lanes.png", "lanes.svg"])
def test_it_draws_what_every_gpu_did(labkit, tmp_path: Path, name: str):
    sim_trace(labkit, tmp_path / "run.jsonl")
    labkit("replay", str(tmp_path / "run.jsonl"), "--picture", str(tmp_path / name))
    begins = (tmp_path / name).read_bytes()[:200]
    assert begins.startswith(b"\x89PNG") or b"<svg" in begins or b"<?xml" in begins


def recorded(path: Path, ring: int | None = None) -> None:
    settings = Settings(max_batch=2)
    door = Recorder(Gateway(settings), settings, ring=ring)
    door.join(0, "ferry", 0)
    for number in range(2):
        door.arrive(Request(number, f"p{number}"), 0)
    door.advance(0)
    door.finish(1, ["a", RowError("too long")], 100 * MS)
    with path.open("w", encoding="utf-8") as file:
        write_jsonl(door.trace, file)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda text: "", "is not the header of a labkit trace"),
        (lambda text: "\x7fELF" + text, "is not the header of a labkit trace"),
        (lambda text: "[" * 100_000, "is not the header of a labkit trace"),
        (lambda text: text + "[" * 100_000, "line 7: "),
        (lambda text: text.rpartition("\n[")[0], "4 steps of 5; the file was cut"),
        (lambda text: text.replace('"lose"', "").replace("[0, 0, ", '["a", '), "said is no list"),
        (lambda text: text.replace('"ferry"]', '"no such model"]'), "the gateway cannot be told"),
    ],
)
def test_what_is_no_trace_is_refused_with_the_reason(labkit, tmp_path: Path, change, why: str):
    path = tmp_path / "run.jsonl"
    recorded(path)
    path.write_text(change(path.read_text()), encoding="utf-8")
    done = labkit("replay", str(path))
    assert done.code == 2
    assert why in done.err


def test_a_trace_that_lost_its_beginning_is_refused(labkit, tmp_path: Path):
    recorded(tmp_path / "run.jsonl", ring=2)
    done = labkit("replay", str(tmp_path / "run.jsonl"))
    assert done.code == 2
    assert "its first 3 steps were dropped" in done.err


@pytest.mark.parametrize("command", ["sim", "live"])
def test_a_trace_is_not_written_over_what_is_read_nor_into_no_folder(
    labkit, tmp_path: Path, command: str
):
    done = labkit(command, "--save-trace", str(tmp_path / "none" / "x.jsonl"))
    assert done.code == 2
    assert "no folder" in done.err
    trace = tmp_path / "arrivals.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 1, "output_length": 1}\n')
    done = labkit(command, "--trace", str(trace), "--save-trace", str(trace))
    assert done.code == 2
    assert "would overwrite what is read" in done.err
