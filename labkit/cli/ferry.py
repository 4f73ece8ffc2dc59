"""`labkit ferry`: what the ferry rule does to fill, wait and load, in closed form."""

from math import inf
from typing import Any

import click

from labkit.cli.common import Row, emit, explained, json_option
from labkit.cli.params import Count, Rate, Span
from labkit.theory.dock import Dock


@click.command()
@click.option("--rate", type=Rate(), default="100", show_default=True, help="Requests a second.")
@click.option(
    "--max-wait-ms",
    "max_wait",
    type=Span(infinite=True),
    default="50",
    show_default=True,
    help="How long the first aboard waits at most; 0, or inf for full batches only.",
)
@click.option(
    "--max-batch", type=Count(1), default=100, show_default=True, help="Seats in a batch."
)
@click.option(
    "--batch-ms",
    "batch_time",
    type=Span(above_zero=True),
    default="100",
    show_default=True,
    help="GPU time of a batch.",
)
@json_option
@explained
def ferry(rate: float, max_wait: float, max_batch: int, batch_time: float, as_json: bool) -> None:
    """The ferry rule in closed form: a batch leaves when it is full, or when the
    first aboard has waited --max-wait-ms.

    Poisson arrivals, and a GPU for every batch at once; `labkit sim` shows what a
    pool of GPUs adds.
    """
    dock = Dock(rate, max_wait, max_batch, batch_time)
    report = ferry_report(dock)
    emit(report, as_json, lambda: _rows(dock, report))


def ferry_report(dock: Dock) -> dict[str, Any]:
    """The stable keys of `labkit ferry --json`."""
    return {
        "rate": dock.rate,
        "max_wait_ms": None if dock.max_wait == inf else dock.max_wait,
        "max_batch": dock.max_batch,
        "batch_ms": dock.batch_time,
        "mean_batch": dock.mean_batch,
        "mean_batch_seen": dock.mean_batch_seen,
        "batches_per_s": dock.batch_rate,
        "p_full": dock.p_full,
        "load_erlang": dock.load,
        "mean_wait_ms": dock.mean_wait,
        **{f"p{p}_wait_ms": dock.wait_percentile(p) for p in (50, 95, 99)},
        "p_waits_whole_window": dock.p_waits_whole_window,
    }


def _rows(dock: Dock, report: dict[str, Any]) -> list[Row]:
    """The same for people."""
    window = "only full ones" if dock.max_wait == inf else f"or after {dock.max_wait:g} ms"
    waits = " / ".join(f"{report[f'p{p}_wait_ms']:.2f}" for p in (50, 95, 99))
    return [
        ("requests", f"{dock.rate:,.10g} /s", f"batches of {dock.max_batch}, {window}"),
        ("mean batch", f"{dock.mean_batch:.2f}", f"{dock.p_full:.1%} of batches leave full"),
        ("batch a request sees", f"{dock.mean_batch_seen:.2f}", "large batches carry more riders"),
        ("mean wait", f"{dock.mean_wait:.2f} ms", "at the dock, before any GPU"),
        ("P50 / P95 / P99 wait", waits, f"ms; {dock.p_waits_whole_window:.1%} wait it all"),
        ("batches", f"{dock.batch_rate:,.2f} /s", ""),
        ("load", f"{dock.load:.3f} Erlang", f"GPUs at work, {dock.batch_time:g} ms a batch"),
    ]
