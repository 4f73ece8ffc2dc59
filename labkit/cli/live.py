"""`labkit live`: real load on real worker processes, and a GPU killed in the middle of it."""

from typing import Any

import click

from labkit.cli.arrivals import arrivals_of
from labkit.cli.common import (
    Load,
    Problem,
    Progress,
    Row,
    emit,
    explained,
    gateway_options,
    json_option,
    load_from,
    load_options,
    settings_from,
)
from labkit.cli.runs import (
    book_rows,
    check_faults,
    check_save_trace,
    hang_option,
    kill_option,
    save_trace_option,
    write_trace,
)

MOST_PROCESSES = 64
"""GPUs that are processes here; a fake one costs nothing."""

MOST_RATE = 200_000
MOST_STEPS = 10_000_000
"""A trace of more steps loses its beginning, and with it its replay."""


@click.command()
@load_options
@gateway_options(gpus="8", overdue_after="250")
@kill_option
@hang_option("Let a GPU hang for 5 seconds, alive and silent; may be given again.")
@click.option(
    "--workers",
    default="timer",
    show_default=True,
    help="timer, cpu, cuda, fake, auto (the best this machine has), or a factory as "
    "package.module:function.",
)
@click.option("--uvloop", is_flag=True, help="Use uvloop, if it is installed.")
@save_trace_option
@json_option
@explained
def live(as_json: bool, **options: Any) -> None:
    """Send requests to worker processes on a schedule, and account for every one.

    Each GPU is a process: timer workers wait, cpu and cuda workers compute. Latency counts from
    the instant a request was scheduled, so a late generator hides nothing. Exit code 1 if a request
    was lost, answered twice or answered with another's answer, or if a killed GPU did not come
    back.
    """
    load = load_from(options)
    _check(load, options)
    report = _run(load, options)
    emit(report, as_json, lambda: _rows(report))
    if not as_json:
        click.echo(verdict(report))
    if not all(report["verdict"][name] for name in ("exactly_once", "all_back")):
        raise SystemExit(1)


def _check(load: Load, options: dict[str, Any]) -> None:
    check_save_trace(options["save_trace"], load)
    gpus, workers = options["gpus"], options["workers"]
    if gpus > MOST_PROCESSES and workers != "fake":
        raise Problem(
            f"--gpus {gpus}: each is a process here, and {MOST_PROCESSES} is the most; lower it, "
            "use --workers fake, or use labkit sim"
        )
    if load.rate is not None and load.rate > MOST_RATE:
        raise Problem(
            f"--rate {load.rate:g}: no machine sends that many in real time; {MOST_RATE:,} is the "
            "most, and labkit sim has no such limit"
        )
    check_faults(load, options["kills"], options["hangs"])


def _run(load: Load, options: dict[str, Any]) -> dict[str, Any]:
    from labkit.core.settings import SERVED
    from labkit.live import Fault, Live, LiveError
    from labkit.live.kinds import UnknownKind
    from labkit.workload import Skips

    settings = settings_from(options, tiers=SERVED)
    workers, found, banner = _workers(options["workers"], options["gpus"])
    skips = Skips()
    arrivals = arrivals_of(load, skips)
    faults = [Fault(at, "hang", amount=5.0) for at in options["hangs"]]
    save = options["save_trace"]
    expected = 0.0 if load.rate is None or load.seconds is None else load.rate * load.seconds
    try:
        engine = Live(
            settings,
            gpus=options["gpus"],
            workers=workers,
            options=found,
            seed=load.seed,
            uvloop=options["uvloop"],
            trace=None if save is None else MOST_STEPS,
        )
        with engine, Progress(expected, "requests") as progress:
            run = engine.run(arrivals, kills=options["kills"], faults=faults, progress=progress.at)
    except (LiveError, UnknownKind) as error:
        raise Problem(str(error)) from error
    if save is not None and engine.trace is not None:
        write_trace(engine.trace, save)
    report = run.report()
    p95, budget = report["latency_ms"]["p95"], settings.budget
    return {
        **report,
        "workers": options["workers"],
        "banner": banner,
        "gpus": engine.gpus,
        **_timings(engine.fleet),
        "trace_lines_skipped": skips.count,
        "verdict": {
            "exactly_once": not (report["lost"] or report["duplicated"] or report["wrong_tag"]),
            "within_budget": None if None in (p95, budget) else p95 * 1_000 < budget,
            "all_back": report["not_back"] == 0,
        },
    }


def _workers(workers: str, gpus: int) -> tuple[str | list[str], dict[str, Any], str | None]:
    """What to start, the options it needs, and for `auto` the sentence that says what it is."""
    if workers != "auto":
        return workers, {}, None
    from labkit.gpu.device import plan_workers
    from labkit.live.configure import planned

    plan = plan_workers(gpus)
    click.echo("; ".join([plan.banner, *plan.notes]), err=True)
    return *planned(plan), plan.banner


def _timings(fleet: Any) -> dict[str, Any]:
    """What computing took, and the whole batch; null for GPUs that are no process."""
    timings = getattr(fleet, "timings", None)
    return {"raw_ms": None, "padded_ms": None} if timings is None else timings()


def _rows(report: dict[str, Any]) -> list[Row]:
    fleet = report["banner"] or f"{report['workers']} workers"
    rows: list[Row] = [
        ("offered", f"{report['offered']:,}", f"{report['gpus']} GPUs, {fleet}"),
        ("answered", f"{report['answered']:,}"),
    ]
    rows += book_rows(report)
    raw, padded = report["raw_ms"], report["padded_ms"]
    if raw is not None and raw["p50"] is not None:
        rows += [
            ("computing", f"{raw['p50']:.1f} / {raw['p99']:.1f} ms", "P50 / P99 of a batch, raw"),
            ("a batch", f"{padded['p50']:.1f} / {padded['p99']:.1f} ms", "the same, padded"),
        ]
    lag = report["generator_lag_ms"]
    if lag["p50"] is not None:
        rows.append(("lag", f"{lag['p50']:.1f} ms", f"of the generator; max {lag['max']:.1f}"))
    return rows


def verdict(report: dict[str, Any]) -> str:
    """The run in a few sentences, for people."""
    found = report["verdict"]
    if found["exactly_once"]:
        lines = [f"Every one of {report['offered']:,} requests has exactly one outcome."]
        lines.append("Every answer carries the tag of its own prompt.")
    else:
        lines = [
            f"NOT exactly once: {report['lost']:,} lost, {report['duplicated']:,} answered twice, "
            f"{report['wrong_tag']:,} with another's answer."
        ]
    p95 = report["latency_ms"]["p95"]
    if found["within_budget"] is not None:
        kept = "within" if found["within_budget"] else "OVER"
        lines.append(f"P95 {p95:.1f} ms is {kept} the budget.")
    lines += [_story(fault) for fault in report["faults"]]
    if report["late_dropped"]:
        lines.append(f"{report['late_dropped']} late batches of fenced GPUs were dropped.")
    if report["contract_violations"]:
        lines.append(
            f"{report['contract_violations']} batches took longer to compute than the contract "
            "allows."
        )
    return "\n".join(lines)


def _story(fault: dict[str, Any]) -> str:
    verb = {"kill": "was killed", "hang": "hung", "poison": "was poisoned"}.get(fault["how"], "")
    told = f"GPU {fault['gpu']} {verb} at {fault['at_ms'] / 1_000:.2f} s"
    told += f" with {fault['aboard']} requests aboard"
    if fault["detection_ms"] is None:
        return f"{told}, and nobody noticed."
    told += f"; noticed after {fault['detection_ms']:.1f} ms"
    if fault["back_ms"] is None:
        return f"{told}; it did NOT come back."
    return f"{told}, back after {fault['back_ms']:.0f} ms."
