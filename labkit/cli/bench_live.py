"""`labkit bench live`: our live dispatch beside a public batcher, in the same run."""

from typing import Any

import click

from labkit.cli.common import Problem, Row, emit, explained, json_option
from labkit.cli.params import Count, Rate


@click.command()
@click.option(
    "--seconds", type=Rate("2", "seconds"), default="2", show_default=True, help="Of one trial."
)
@click.option("--seed", type=Count(0), default="1", show_default=True)
@click.option("--rounds", type=Count(1, 100), default="5", show_default=True, help="Median of.")
@json_option
@explained
def live(as_json: bool, **load: Any) -> None:
    """Our live dispatch against async-batcher's, by rate sustained.

    Same arrivals and fake GPUs for both; latency from the schedule; rounds
    interleaved; medians. Some minutes. The peer is installed under build/peers on
    the first run.
    """
    from labkit.cli.bench import contest

    measure = contest("live")
    try:
        report = measure(**load)
    except ValueError as error:
        # The benchmark lives outside the package, so its error class cannot be named here.
        if type(error).__name__ != "PeerMissing":
            raise
        raise Problem(str(error)) from error
    emit(report, as_json, lambda: _rows(report))


def _rows(report: dict[str, Any]) -> list[Row]:
    limit = report["load"]["p95_limit_ms"]
    rows: list[Row] = [
        (name, f"{rate:,}", f"requests a second with P95 under {limit:g} ms")
        for name, rate in report["sustained_per_s"].items()
    ]
    rows += [(name, f"{ratio:g} x") for name, ratio in report["ratios"].items()]
    for label, found in report.items():
        if label.startswith("at_"):
            at = label.removeprefix("at_").removesuffix("_per_s")
            rows += [
                (name, f"{f['p95_ms']:g} ms", f"P95 at {int(at):,} a second, {f['cores']:g} core")
                for name, f in found.items()
            ]
    return rows
