"""`labkit bench`: our speed beside that of other people's tools, measured in the same run."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from labkit.cli.bench_http import http
from labkit.cli.bench_live import live
from labkit.cli.bench_serve import serve
from labkit.cli.common import Problem, Row, emit, explained, json_option
from labkit.cli.params import Count, Rate


@click.group()
def bench() -> None:
    """Measure against peers in the same run; what counts is the ratio."""


bench.add_command(http)
bench.add_command(live)
bench.add_command(serve)


def contest(name: str) -> Callable[..., dict[str, Any]]:
    """`measure` of benchmarks/NAME.py, which lives in a checkout and not in the package."""
    path = Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
    if not path.exists():
        raise Problem(f"{path}: no such file; benchmarks run from a checkout of the repository")
    spec = importlib.util.spec_from_file_location(f"labkit_benchmarks_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    measure: Callable[..., dict[str, Any]] = module.measure
    return measure


@bench.command()
@click.option("--rate", type=Rate(), default="10000", show_default=True, help="Requests a second.")
@click.option("--gpus", type=Count(1, 10_000), default="18", show_default=True)
@click.option(
    "--seconds",
    type=Rate("20", "seconds"),
    default="20",
    show_default=True,
    help="Virtual length of a run.",
)
@click.option("--seed", type=Count(0), default="1", show_default=True)
@click.option("--rounds", type=Count(1, 100), default="5", show_default=True, help="Median of.")
@json_option
@explained
def sim(as_json: bool, **load: Any) -> None:
    """Our simulator against a naive SimPy model and ciw.

    The naive model has a process for each request. Same arrivals for all, made
    beforehand; rounds interleaved; medians. About a minute.
    """
    report = contest("sim")(**load)
    emit(report, as_json, lambda: _sim_rows(report))


def _sim_rows(report: dict[str, Any]) -> list[Row]:
    rows: list[Row] = [
        (name, f"{speed:,}", f"requests a processor second, P95 {report['p95_ms'][name]:.1f} ms")
        for name, speed in report["requests_per_s"].items()
    ]
    rows += [(name, f"{ratio:g} x", "") for name, ratio in report["ratios"].items()]
    rows += [(name, "skipped", why) for name, why in report["skipped"].items()]
    return rows
