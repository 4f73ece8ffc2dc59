"""`labkit storm`: kills and hangs on real processes under load, and every request accounted for."""

from pathlib import Path
from typing import Any

import click

from labkit.cli.common import Problem, Progress, Row, check_size, emit, explained, json_option
from labkit.cli.params import Count, Rate

MOST_RATE = 20_000
SHORTEST_S = 2.0


class Pace(Rate):
    """As `Rate`, and 0 for never."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number, 0 or more."""
        return 0.0 if str(value) in ("0", "0.0") else super().convert(value, param, ctx)


@click.command()
@click.option(
    "--seconds", type=Rate("60", "seconds"), default="20", show_default=True, help="How long."
)
@click.option(
    "--rate", type=Rate("1000"), default="500", show_default=True, help="Requests a second."
)
@click.option(
    "--kills-per-s",
    type=Pace("1"),
    default="1",
    show_default=True,
    help="SIGKILLs of GPUs at work; a hang comes with every fourth.",
)
@click.option("--gpus", type=Count(1, 64), default="8", show_default=True)
@click.option("--seed", type=Count(0), default="1", show_default=True)
@click.option(
    "--workers", default="timer", show_default=True, help="A kind, as labkit live takes it."
)
@click.option(
    "--ledger",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="File of the journal.  [default: in memory; with --crash one that goes again]",
)
@click.option("--crash", is_flag=True, help="Kill the dispatcher's own process too.")
@click.option(
    "--crashes",
    type=Count(1, 1_000),
    default=None,
    help="How often with --crash.  [default: once in 10 s]",
)
@json_option
@explained
def storm(as_json: bool, crash: bool, crashes: int | None, **options: Any) -> None:
    """Break a service under load, and account for every request by its tag.

    Each client has a key. Some ask again while they wait, some hang up first, some ask for what
    they have heard. With --crash the process that holds the dispatcher and its ledger is killed,
    begins again from the ledger, and its clients ask again. Exit code 1 if a request was lost,
    answered in two ways or with another's answer, or if anything did not come back.
    """
    _check(options, crash, crashes)
    report = _run(options, crashes or max(round(options["seconds"] / 10), 1) if crash else 0)
    emit(report, as_json, lambda: _rows(report))
    if not as_json:
        click.echo(_verdict(report))
    if not (report["verdict"]["exactly_once"] and report["verdict"]["all_back"]):
        raise SystemExit(1)


def _check(options: dict[str, Any], crash: bool, crashes: int | None) -> None:
    rate, seconds = options["rate"], options["seconds"]
    check_size(rate, seconds)
    if rate > MOST_RATE:
        raise Problem(f"--rate {rate:g}: clients here are made of Python; give at most {MOST_RATE}")
    if seconds < SHORTEST_S:
        raise Problem(f"--seconds {seconds:g} is too short to hurt; give at least {SHORTEST_S:g}")
    if crashes is not None and not crash:
        raise Problem(f"--crashes {crashes} without --crash: add --crash")
    if crash and options["workers"] == "fake":
        raise Problem("--workers fake with --crash: there is no process to kill; use timer")


def _run(options: dict[str, Any], crashes: int) -> dict[str, Any]:
    from labkit.live.errors import LiveError
    from labkit.live.storm import storm as blow
    from labkit.live.storm_crash import crash_storm

    rate, seconds, kills = options["rate"], options["seconds"], options["kills_per_s"]
    given = {name: options[name] for name in ("gpus", "seed", "workers", "ledger")}
    try:
        with Progress(rate * seconds, "requests") as progress:
            if not crashes:
                return blow(rate, seconds, kills, **given, progress=progress.at)
            return crash_storm(
                rate, seconds, crashes=crashes, kills_per_s=kills, **given, progress=progress.at
            )
    except LiveError as error:
        raise Problem(str(error)) from error


def _rows(report: dict[str, Any]) -> list[Row]:
    latency = report["latency_ms"]
    rows: list[Row] = [
        ("offered", f"{report['offered']:,}", f"{report['retries']:,} asked again"),
        ("answered", f"{report['answered']:,}", f"{report['replayed']:,} replayed"),
        ("kills", f"{report['kills']:,}"),
    ]
    if "hangs" in report:
        rows += [
            ("hangs", f"{report['hangs']:,}"),
            _span("death noticed", report["detection_ms"]),
            _span("hang noticed", report["hang_detection_ms"]),
        ]
    else:
        rows += [("crashes", f"{report['crashes']:,}"), _span("restart", report["restart_ms"])]
    if latency["p50"] is not None:
        shown = " / ".join(f"{latency[name]:.0f}" for name in ("p50", "p95", "p99"))
        rows.append(("latency", f"{shown} ms", f"P50 / P95 / P99; max {latency['max']:.0f}"))
    left = report["processes_left"], report["handles_left"]
    if None not in left:
        rows.append(("left behind", f"{left[0]} / {left[1]}", "processes / open files"))
    return rows


def _span(name: str, times: dict[str, float | None]) -> Row:
    if times["p50"] is None:
        return (name, "-")
    return (name, f"{times['p50']:.1f} ms", f"P50; max {times['max']:.1f}")


def _verdict(report: dict[str, Any]) -> str:
    if report["verdict"]["exactly_once"]:
        return (
            f"Every one of {report['offered']:,} requests has one outcome, its own, and every "
            "replay equals the first answer."
        )
    return (
        f"NOT exactly once: {report['lost']:,} lost, {report['duplicated']:,} answered in two "
        f"ways, {report['wrong_tag']:,} with another's answer."
    )
