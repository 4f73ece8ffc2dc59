"""`labkit capacity`: the capacity sum, and what timers, batchers and money add to it."""

from dataclasses import dataclass
from typing import Any

import click

from labkit.cli.common import Row, emit, explained, json_option
from labkit.cli.params import Count, Fraction, Rate, Span
from labkit.theory import capacity as theory
from labkit.theory.dock import Dock, PullDock
from labkit.theory.poisson import at_least


@dataclass(frozen=True, slots=True)
class Sum:
    """The capacity sum of one service; `rate` a second, `batch_time` in milliseconds."""

    rate: float
    max_batch: int
    batch_time: float
    slots: int
    target: float
    spares: int

    @property
    def load(self) -> float:
        """Servers at work when every batch is full."""
        return theory.full_load(self.rate, self.max_batch, self.batch_time, self.slots)

    @property
    def floor(self) -> int:
        """Servers when they are never idle and every batch is full."""
        return theory.floor_gpus(self.rate, self.max_batch, self.batch_time, self.slots)

    @property
    def needed(self) -> int:
        """Servers at the target, and spares."""
        return theory.at_target(self.load, self.target, self.spares)


@click.command()
@click.option("--rate", type=Rate(), default="10000", show_default=True, help="Requests a second.")
@click.option(
    "--max-batch",
    type=Count(1),
    default=100,
    show_default=True,
    help="Requests in a batch; what is achieved, if that is less.",
)
@click.option(
    "--batch-ms",
    "batch_time",
    type=Span(above_zero=True),
    default="100",
    show_default=True,
    help="GPU time of a batch.",
)
@click.option(
    "--slots", type=Count(1), default=1, show_default=True, help="Batches a server runs at once."
)
@click.option(
    "--target", type=Fraction(), default="0.65", show_default=True, help="How busy a GPU may be."
)
@click.option(
    "--spares", type=Count(0), default=2, show_default=True, help="GPUs beyond that, for failures."
)
@click.option(
    "--max-wait-ms",
    "max_wait",
    type=Span(infinite=True),
    default="50",
    show_default=True,
    help="The longest a batch waits to fill.",
)
@click.option(
    "--mode",
    type=click.Choice(["push", "pull"]),
    default="push",
    show_default=True,
    help="A batch is bound to a GPU when it leaves, or an idle GPU takes it.",
)
@click.option(
    "--gateways",
    type=Count(1),
    default=1,
    show_default=True,
    help="Split the traffic over so many batchers.",
)
@click.option("--cost-per-gpu-hour", "cost", type=Rate("2.50", "money"), help="Add the money.")
@json_option
@explained
def capacity(as_json: bool, **options: Any) -> None:
    """How many GPUs a request rate needs: the floor, and the answer to give.

    The first figures take every batch for full; those under the timer do not.
    """
    asked = ("rate", "max_batch", "batch_time", "slots", "target", "spares")
    total = Sum(**{name: options[name] for name in asked})
    report = capacity_report(total)
    dock = _dock(total, options["max_wait"], options["gateways"])
    report["timer"] = timer_report(total, dock, options["mode"], options["gateways"])
    if options["cost"] is not None:
        gpus = report.get("timer", report)["needed"]
        report["cost"] = cost_report(gpus, options["cost"], total.rate)
    emit(report, as_json, lambda: _rows(report))


def capacity_report(total: Sum) -> dict[str, Any]:
    """The stable keys of `labkit capacity --json`."""
    return {
        "rate": total.rate,
        "max_batch": total.max_batch,
        "batch_ms": total.batch_time,
        "slots": total.slots,
        "target": total.target,
        "spares": total.spares,
        "load_erlang": total.load,
        "floor": total.floor,
        "at_target": theory.at_target(total.load, total.target),
        "needed": total.needed,
        "utilization_at_needed": total.load / total.needed,
    }


def _dock(total: Sum, max_wait: float, gateways: int) -> Dock:
    """One gateway's dock."""
    return Dock(total.rate / gateways, max_wait, total.max_batch, total.batch_time)


def timer_report(total: Sum, dock: Dock, mode: str, gateways: int) -> dict[str, Any]:
    """The keys under `timer`: batches as the timer makes them, not full ones.

    Pull lets batches grow while all GPUs are busy, so it is stable as soon as full batches are.
    """
    load = gateways * dock.load / total.slots
    window = theory.Window(dock, total.target, total.spares)
    alone = gateways * total.slots == 1
    report = {
        "mode": mode,
        "max_wait_ms": None if dock.max_wait == float("inf") else dock.max_wait,
        "gateways": gateways,
        "mean_batch": dock.mean_batch,
        "load_erlang": load,
        "stable": theory.more_than(load if mode == "push" else total.load),
        "no_batch_queue": window.no_queue if alone else None,
        "at_target": theory.at_target(load, total.target),
        "needed": theory.at_target(load, total.target, total.spares),
        "latency_ms": {"mean": window.latency_mean, "p95": window.latency_percentile()},
        "retry_p95_ms": window.retry_percentile(),
        "largest_detection_ms": window.largest_detection(),
    }
    if mode == "pull" and alone:
        report["one_gpu"] = _one_gpu(total, dock.max_wait)
    return report


def _one_gpu(total: Sum, max_wait: float) -> dict[str, Any] | None:
    """A single GPU that pulls; None where its batches would outgrow the cap."""
    longest = max(max_wait, total.batch_time)
    if at_least(total.max_batch, total.rate * longest / 1000) > 1e-6:
        return None
    dock = PullDock(total.rate, max_wait, total.batch_time)
    return {
        "mean_batch": dock.mean_batch,
        "utilization": dock.utilization,
        "latency_ms": {
            "mean": dock.mean_wait + total.batch_time,
            "p95": dock.wait_percentile(95) + total.batch_time,
        },
    }


def cost_report(gpus: int, per_hour: float, rate: float) -> dict[str, float]:
    """The keys under `cost`, in the currency of the price."""
    return {
        "gpus": gpus,
        "per_gpu_hour": per_hour,
        "per_hour": per_hour * gpus,
        "per_million_requests": theory.cost_per_million(gpus, per_hour, rate),
    }


def _rows(report: dict[str, Any]) -> list[Row]:
    """The same for people."""
    slots = "" if report["slots"] == 1 else f" / {report['slots']} slots"
    work = f"{report['rate']:,.10g} /s x {report['batch_ms']:g} ms / {report['max_batch']}{slots}"
    rows: list[Row] = [
        ("work", f"{report['load_erlang']:.2f}", f"GPUs: {work}"),
        ("floor", f"{report['floor']:,}", "never idle, always full: queues grow"),
        (
            f"at {100 * report['target']:g} % busy",
            f"{report['at_target']:,}",
            "room for bursts and fill",
        ),
        ("needed", f"{report['needed']:,}", f"with {report['spares']} spare"),
        ("busy at that", f"{report['utilization_at_needed']:.1%}", "while all are up"),
    ]
    if "timer" in report:
        rows += _timer_rows(report["timer"], report["target"])
    if "cost" in report:
        million = report["cost"]["per_million_requests"]
        paid = f"for {report['cost']['gpus']:,} GPUs, busy or not"
        rows.append(("a million requests", f"{million:,.2f}", paid))
    return rows


def _timer_rows(timer: dict[str, Any], target: float) -> list[Row]:
    """What the timer changes, for people."""
    wait = "no timer" if timer["max_wait_ms"] is None else f"{timer['max_wait_ms']:g} ms timer"
    batchers = "" if timer["gateways"] == 1 else f", {timer['gateways']} batchers"
    free = "no number: flushes may coincide" if timer["no_batch_queue"] is None else "GPUs in turn"
    latency = timer["latency_ms"]
    rows: list[Row] = [
        ("", "", ""),
        ("batch", f"{timer['mean_batch']:.2f}", f"{timer['mode']}, {wait}{batchers}"),
        ("work", f"{timer['load_erlang']:.2f}", "GPUs, with batches of that size"),
        ("stable from", f"{timer['stable']:,}", "fewer fall behind for ever"),
        ("no batch queues from", f"{timer['no_batch_queue'] or '-'}", free),
        (
            f"at {100 * target:g} % busy",
            f"{timer['at_target']:,}",
            f"{timer['needed']:,} with spares",
        ),
        ("latency mean / P95", f"{latency['mean']:.1f} / {latency['p95']:.1f}", "ms"),
        ("P95 of a retry", f"{timer['retry_p95_ms']:.0f}", "ms, and the time to notice the death"),
        ("time to notice", f"{timer['largest_detection_ms']:.0f}", "ms at most, for 500 ms in all"),
    ]
    if timer.get("one_gpu"):
        one = timer["one_gpu"]
        pair = f"{one['latency_ms']['mean']:.1f} / {one['latency_ms']['p95']:.1f}"
        rows.append(
            ("one GPU that pulls", pair, f"ms mean / P95, batches of {one['mean_batch']:.1f}")
        )
    return rows
