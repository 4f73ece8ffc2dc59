"""What sim, live and replay share: what breaks in a run, where its trace is kept, its books."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from labkit.cli.common import Load, Problem, Row
from labkit.cli.params import Rate
from labkit.core.trace import Trace, write_jsonl

F = TypeVar("F", bound=Callable[..., Any])


def kill_option(command: F) -> F:
    """Add --kill-at, handed over as `kills`, in seconds."""
    text = "Kill a GPU that is in the middle of a batch; may be given again."
    return _instants("--kill-at", "kills", text)(command)


def hang_option(text: str) -> Callable[[F], F]:
    """Add --hang-at, handed over as `hangs`, in seconds; `text` says what a hang is here."""
    return _instants("--hang-at", "hangs", text)


def _instants(flag: str, name: str, text: str) -> Callable[[F], F]:
    return click.option(flag, name, type=Rate("5"), multiple=True, metavar="SECONDS", help=text)


def check_faults(load: Load, kills: Iterable[float], hangs: Iterable[float]) -> None:
    """Refuse what would break after the end."""
    if load.seconds is None:
        return
    for flag, instants in (("--kill-at", kills), ("--hang-at", hangs)):
        for at in instants:
            if at >= load.seconds:
                raise Problem(
                    f"{flag} {at:g} is after the end, {load.seconds:g} s; give an earlier second, "
                    "or a larger --seconds"
                )


def save_trace_option(command: F) -> F:
    """Add --save-trace; write with `write_trace`, check first with `check_save_trace`."""
    return click.option(
        "--save-trace",
        type=click.Path(path_type=Path, dir_okay=False),
        default=None,
        help="Write the (first) run's trace as JSON Lines, for labkit replay.",
    )(command)


def book_rows(report: dict[str, Any]) -> list[Row]:
    """What the books of a run say to people: outcomes without an answer, times, batches, GPUs."""
    names = ("rejected", "expired", "cancelled", "failed")
    rows: list[Row] = [(name, f"{report[name]:,}") for name in names if report[name]]
    latency = report["latency_ms"]
    if latency["p50"] is not None:
        rows += [
            ("latency", _three(latency), f"ms, P50 / P95 / P99; max {latency['max']:.1f}"),
            ("wait", _three(report["wait_ms"]), "ms, until the last departure"),
        ]
    if report["batches"]:
        rows.append(("mean batch", f"{report['mean_batch']:.1f}", f"{report['batches']:,} batches"))
    if report["utilization"] is not None:
        rows.append(("utilization", f"{report['utilization']:.1%}", ""))
    return rows


def _three(summary: dict[str, float]) -> str:
    return " / ".join(f"{summary[name]:.1f}" for name in ("p50", "p95", "p99"))


def check_save_trace(save: Path | None, load: Load) -> None:
    """Refuse, before anything runs, a file that is read or cannot be written."""
    if save is None:
        return
    if load.trace is not None and save.exists() and save.samefile(load.trace):
        raise Problem(
            f"--save-trace {save} is the file of --trace, and would overwrite what is read; "
            "give another name"
        )
    if not save.parent.is_dir():
        raise Problem(f"--save-trace {save}: no folder {save.parent}; make it, or check the path")


def write_trace(trace: Trace, save: Path) -> None:
    """As JSON Lines."""
    with save.open("w", encoding="utf-8") as file:
        write_jsonl(trace, file)
