"""`labkit faults`: thousands of seeded runs full of faults, with every law at every step."""

import time
from pathlib import Path
from typing import Any

import click

from labkit.cli.common import Problem, Progress, Row, emit, explained, json_option
from labkit.cli.params import Count

MOST_RUNS = 10_000_000


@click.command()
@click.option(
    "--runs",
    type=Count(1, MOST_RUNS),
    default="1000",
    show_default=True,
    help="Runs; each is about 270 events.",
)
@click.option("--seed", type=Count(0), default="1", show_default=True, help="Same seed, same runs.")
@click.option(
    "--save",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Keep failing runs here, shrunk: a schedule, and traces for the dock.",
)
@click.option(
    "--bug", default=None, metavar="NAME", help="Plant this fault and see it caught; `list` lists."
)
@json_option
@explained
def faults(as_json: bool, runs: int, seed: int, folder: Path | None, bug: str | None) -> None:
    """Let a whole service live through deaths, hangs, restarts and impatient clients.

    A run is a schedule drawn from its seed and number alone: clients with keys who ask again,
    change their minds and leave; GPUs that die, hang, come back late or answer wrongly; a
    dispatcher that is killed and begins again from its journal. Exit code 1 if any run breaks a
    law, or if a planted fault is not caught.
    """
    if bug == "list":
        _list()
        return
    report = _run(runs, seed, folder, bug)
    emit(report, as_json, lambda: _rows(report))
    if not as_json:
        for one in report["failures"][:5]:
            click.echo(f"run {one['run']}: {one['what']}")
            for name in one.get("files", ()):
                click.echo(f"wrote {folder / name if folder else name}")
    if (report["violations"] == 0) != (bug is None):
        raise SystemExit(1)


def _run(runs: int, seed: int, folder: Path | None, bug: str | None) -> dict[str, Any]:
    from labkit.teach.campaign import campaign

    parts = None if bug is None else _planted(bug)
    began = time.perf_counter()
    with Progress(runs, "runs") as progress:
        report = campaign(runs, seed, parts, folder, progress.at, stop_at_first=bug is not None)
    wall_s = time.perf_counter() - began
    speed = round(report["runs"] / wall_s * 60)
    return {**report, "bug": bug, "runs_per_minute": speed, "wall_s": round(wall_s, 3)}


def _planted(bug: str) -> Any:
    from labkit.teach.planted import PLANTED

    if bug not in PLANTED:
        raise Problem(f"--bug {bug}: no such planted fault; `labkit faults --bug list` names all")
    return PLANTED[bug].parts


def _list() -> None:
    from labkit.teach.planted import PLANTED
    from labkit.teach.zoo import ZOO

    for name, fault in PLANTED.items():
        click.echo(f"{name:22} {fault.title}")
    rest = len(set(ZOO) - set(PLANTED))
    click.echo(
        f"{rest} more, of batching, queues and dispatch, show only under a rule or a window of "
        "their own; the hunts of the notebooks hold them (labkit.teach.zoo)."
    )


def _rows(report: dict[str, Any]) -> list[Row]:
    return [
        ("runs", f"{report['runs']:,}", f"{report['runs_per_minute']:,} a minute"),
        ("events", f"{report['steps']:,}", "each followed by every law"),
        ("violations", f"{report['violations']:,}"),
        *((f"run {one['run']}", f"{one['steps']} events", one["law"]) for one in _some(report)),
    ]


def _some(report: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = report["failures"]
    return found[:5]
