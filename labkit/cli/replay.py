"""`labkit replay`: a saved trace once more, and whether the rulebook still decides the same."""

import json
import time
from pathlib import Path
from typing import Any

import click

from labkit.cli.common import Problem, Row, emit, explained, json_option
from labkit.cli.runs import book_rows
from labkit.core.books import Books
from labkit.core.gateway import Gateway
from labkit.core.messages import Depart, Stop
from labkit.core.trace import Trace, first_difference, read_jsonl
from labkit.core.trace import replay as tell_again
from labkit.core.units import S
from labkit.workload import stream


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--picture",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="Draw what every GPU did: an .svg, else a PNG.",
)
@json_option
@explained
def replay(file: Path, picture: Path | None, as_json: bool) -> None:
    """Replay FILE, a trace saved by labkit sim, live or faults, through the gateway.

    The gateway is told every verb again at its instant, without waiting. Exit code 1 if it then
    says anything else than it said when the trace was recorded.
    """
    report = _replayed(file, picture)
    emit(report, as_json, lambda: _rows(report))
    if not as_json:
        click.echo(_verdict(report))
    if report["equal"] is False:
        raise SystemExit(1)


def _replayed(file: Path, picture: Path | None) -> dict[str, Any]:
    began = time.perf_counter()
    _refuse_schedule(file)
    with file.open(encoding="utf-8", errors="replace") as lines:
        trace = read_jsonl(lines)
    if trace.dropped:
        raise Problem(
            f"{file}: its first {trace.dropped:,} steps were dropped while it was recorded, and a "
            "replay begins at the first; record a shorter run"
        )
    again = _told_again(file, trace)
    if picture is not None:
        from labkit.viz.lanes_segments import lane_segments
        from labkit.viz.lanes_twin import lanes_png

        lanes_png(lane_segments(again)).save(picture)
    differs = None if trace.said is None else _difference(trace, again)
    return {
        **_books(again, began),
        "file": str(file),
        "seed": trace.seed,
        "steps": len(again.steps),
        "equal": None if trace.said is None else differs is None,
        "differs": differs,
    }


def _refuse_schedule(file: Path) -> None:
    """Name the trace to replay when this is the schedule that `labkit faults --save` wrote."""
    if file.suffix != ".json":
        return
    try:
        holds = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return
    if isinstance(holds, dict) and "schedule" in holds:
        beside = sorted(file.parent.glob(f"{file.stem}*.jsonl"))
        remedy = f"labkit replay {beside[0]}" if beside else "labkit faults --save DIR writes both"
        raise Problem(f"{file} is the schedule of a failing run; its trace is replayed: {remedy}")


def _told_again(file: Path, trace: Trace) -> Trace:
    try:
        return tell_again(trace, Gateway(trace.settings, stream(trace.seed, "gateway")))
    except Exception as error:
        raise Problem(
            f"{file}: the gateway cannot be told this ({type(error).__name__}: {error}); the file "
            "was edited, or another version recorded it"
        ) from error


def _difference(trace: Trace, again: Trace) -> dict[str, Any] | None:
    number = first_difference(trace, again)
    if number is None:
        return None
    step = again.steps[number]
    told = [str(command)[:200] for command in step.commands]
    return {"step": number + 1, "at_s": step.now / S, "verb": step.verb, "says_now": told}


def _books(trace: Trace, began: float) -> dict[str, Any]:
    """The report of a simulation, with `gpus` and with how many requests never ended."""
    books, on_gpu, out, came = Books(), dict[int, int](), set[int](), 0

    def returned(batch_id: int, now: int) -> None:
        # Once only: the result of a batch that was given up may still come in.
        if batch_id in out:
            out.discard(batch_id)
            books.returned(batch_id, now)

    for step in trace.steps:
        came += step.verb == "arrive"
        if step.verb == "finish":
            returned(step.args[0], step.now)
        lost = [step.args[0]] if step.verb == "lose" else []
        lost += [command.gpu for command in step.commands if isinstance(command, Stop)]
        for gpu in lost:
            returned(on_gpu.pop(gpu, -1), step.now)
        for command in step.commands:
            books.note(command, step.now)
            if isinstance(command, Depart):
                out.add(command.batch_id)
                on_gpu.update(dict.fromkeys(command.gpus, command.batch_id))
    gpus = len({step.args[0] for step in trace.steps if step.verb == "join"})
    horizon = trace.steps[-1].now if trace.steps else 0
    report = books.report(gpus, horizon, time.perf_counter() - began)
    return {**report, "gpus": gpus, "open": came - report["requests"]}


def _rows(report: dict[str, Any]) -> list[Row]:
    rows: list[Row] = [
        ("steps", f"{report['steps']:,}", f"{report['horizon_s']:g} s of its time"),
        ("answered", f"{report['answered']:,}", f"on {report['gpus']} GPUs"),
        *book_rows(report),
    ]
    return [*rows, ("open", f"{report['open']:,}")] if report["open"] else rows


def _verdict(report: dict[str, Any]) -> str:
    differs = report["differs"]
    if report["equal"] is None:
        return "The file does not hold what was said then, so there is nothing to compare."
    if differs is None:
        return "Equal: the gateway says at every step what it said then."
    told = "; ".join(differs["says_now"]) or "nothing"
    return (
        f"DIFFERS first at step {differs['step']:,}, {differs['verb']} at {differs['at_s']:g} s: "
        f"now the gateway says {told}. The figures above are of what it says now."
    )
