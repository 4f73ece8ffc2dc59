"""`labkit sim`: the gateway under a virtual clock, with faults and intervals if asked."""

from typing import Any

import click

from labkit.cli.common import (
    Problem,
    Row,
    emit,
    explained,
    gateway_options,
    json_option,
    load_options,
)
from labkit.cli.params import Choice, Count, Fraction, Milliseconds, Rate
from labkit.cli.runs import book_rows, hang_option, kill_option, save_trace_option
from labkit.cli.simulation import plan_from, replicated, single

PROCESSES = ("poisson", "gamma", "on_off", "diurnal", "regular")
SERVICES = ("fixed", "jitter", "exponential", "affine")
MOST_REPLICATIONS = 1_000


class Slow(click.ParamType):
    """A GPU and how many times as long it takes, as in `3:1.5`."""

    name = "gpu:factor"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, float]:
        """The number and the factor."""
        gpu, colon, factor = str(value).partition(":")
        if not colon or not gpu.isdecimal():
            self.fail(f"{value!r} is no straggler; give GPU:FACTOR, such as 3:1.5", param, ctx)
        return int(gpu), Rate("1.5").convert(factor, param, ctx)


@click.command()
@load_options
@click.option(
    "--arrivals",
    "process",
    type=Choice(PROCESSES),
    default="poisson",
    show_default=True,
    help="How they come at --rate.",
)
@gateway_options
@click.option(
    "--expire", is_flag=True, help="Requests give up in the queue: paid after 2 s, free 10 s."
)
@click.option(
    "--tenants", type=Count(1, 10_000), default="1", show_default=True, help="Tenants in a tier."
)
@click.option(
    "--paid-share",
    type=float,
    default=None,
    help="Part of the requests that is paid, 0 to 1.  [default: 1, or 0.5 with --tenants]",
)
@click.option(
    "--service",
    type=Choice(SERVICES),
    default="fixed",
    show_default=True,
    help="Distribution of the GPU time of a batch, with mean --batch-ms.",
)
@click.option(
    "--sigma", type=float, default=0.1, show_default=True, help="Of jitter: share of the mean."
)
@click.option(
    "--per-row-ms",
    "per_row",
    type=Milliseconds(),
    default="1",
    show_default=True,
    help="Of affine: a batch takes --batch-ms and this much a request.",
)
@click.option(
    "--straggler",
    "stragglers",
    type=Slow(),
    multiple=True,
    metavar="GPU:FACTOR",
    help="A slow GPU; may be given again.",
)
@kill_option
@hang_option("Let a batch never come back; --overdue-ms notices. May be given again.")
@click.option(
    "--detect-ms",
    "detect",
    type=Milliseconds(),
    default="0",
    show_default=True,
    help="How long a killed GPU goes unnoticed.",
)
@click.option(
    "--back-ms",
    "back",
    type=Milliseconds(optional=True),
    default="300",
    show_default=True,
    help="When a killed GPU is back after that; none for never.",
)
@click.option(
    "--warm-up",
    type=click.FloatRange(0, 1e9),
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="Leave earlier requests out of latency.",
)
@click.option(
    "--replications",
    type=Count(1, MOST_REPLICATIONS),
    default="1",
    show_default=True,
    help="Runs with independent seeds; over 1 adds confidence intervals.",
)
@click.option(
    "--confidence",
    type=Fraction(),
    default="0.95",
    show_default=True,
    help="Of the intervals.",
)
@save_trace_option
@click.option("--replay", "replayed", hidden=True, default=None)
@json_option
@explained
def sim(as_json: bool, replayed: str | None, **options: Any) -> None:
    """Simulate the gateway: the very code that serves, under a virtual clock.

    The same seed prints the same numbers, wall_s apart. Nothing expires unless --expire;
    what waits at the end is still served.
    """
    if replayed is not None:
        raise Problem(f"--replay is a command of its own: labkit replay {replayed}")
    plan = plan_from(options)
    report = single(plan)
    if options["replications"] > 1:
        report["confidence"] = options["confidence"]
        report["estimates"] = replicated(plan)
    emit(report, as_json, lambda: _rows(report))


# -- for people -----------------------------------------------------------------------------------


def _rows(report: dict[str, Any]) -> list[Row]:
    wall = report["wall_s"]
    speed = f"{report['requests'] / wall:,.0f} a second of real time" if wall else ""
    rows: list[Row] = [
        ("requests", f"{report['requests']:,}", speed),
        ("answered", f"{report['answered']:,}", f"on {report['gpus']} GPUs"),
    ]
    rows += book_rows(report)
    rows += [(f"at {e['at_s']:.3f} s", _who(e["gpu"]), e["what"]) for e in report["events"]]
    for name, estimate in report.get("estimates", {}).items():
        if name in ("latency_ms.mean", "latency_ms.p95", "mean_batch", "utilization"):
            told = f"{estimate['mean']:g} +- {estimate['half_width']:g}"
            rows.append((name, told, f"{report['confidence']:.0%}, {estimate['count']} runs"))
    return rows


def _who(gpu: int | None) -> str:
    return "all" if gpu is None else f"GPU {gpu}"
