"""What `labkit sim` runs: its command line read and checked, one run, and replications."""

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from labkit.cli.arrivals import requests_of
from labkit.cli.common import (
    MOST_REQUESTS,
    Load,
    Problem,
    Progress,
    load_from,
    settings_from,
)
from labkit.cli.runs import check_faults, check_save_trace, write_trace
from labkit.core.messages import Request
from labkit.core.settings import PATIENT, SERVED, Settings
from labkit.core.units import S, from_seconds

if TYPE_CHECKING:
    from labkit.sim.driver import Run
    from labkit.sim.faults import Fault
    from labkit.sim.service import ServiceTime


@dataclass(frozen=True, slots=True)
class Plan:
    """The command line of `labkit sim`, read and checked."""

    load: Load
    settings: Settings
    options: dict[str, Any]
    service: "ServiceTime"
    faults: "tuple[Fault, ...]"


def plan_from(options: dict[str, Any]) -> Plan:
    """Refuse what contradicts itself, with the value and the remedy."""
    from labkit.sim.faults import FaultError, FaultPlan
    from labkit.sim.service import ServiceError

    load = load_from(options)
    settings = settings_from(options, tiers=SERVED if options["expire"] else PATIENT)
    check_save_trace(options["save_trace"], load)
    if options["replications"] > 1 and load.trace is not None:
        raise Problem(
            f"--replications {options['replications']} with --trace {load.trace}: a trace is one "
            "past, and its runs would not be independent; use --rate, or drop --replications"
        )
    if options["hangs"] and settings.overdue_after is None:
        raise Problem(
            f"--hang-at {options['hangs'][0]:g} without --overdue-ms: nobody would ever notice; "
            "add --overdue-ms 250"
        )
    check_faults(load, options["kills"], options["hangs"])
    if load.seconds is not None and options["warm_up"] >= load.seconds:
        raise Problem(
            f"--warm-up {options['warm_up']:g} leaves nothing of {load.seconds:g} s; "
            "lower it, or raise --seconds"
        )
    try:
        faults = tuple(_faults(options))
        FaultPlan(faults, options["gpus"])
        return Plan(load, settings, options, _service(options), faults)
    except (FaultError, ServiceError) as error:
        raise Problem(str(error)) from error


def _service(options: dict[str, Any]) -> "ServiceTime":
    from labkit.sim.service import Affine, Exponential, Fixed, Jittered

    mean: int = options["batch_time"]
    for flag, name, service in (
        ("--sigma", "sigma", "jitter"),
        ("--per-row-ms", "per_row", "affine"),
    ):
        source = click.get_current_context().get_parameter_source(name)
        if source is ParameterSource.COMMANDLINE and options["service"] != service:
            raise Problem(
                f"{flag} with --service {options['service']} changes nothing; "
                f"add --service {service}, or drop {flag}"
            )
    if options["service"] == "jitter":
        return Jittered(mean, options["sigma"])
    if options["service"] == "exponential":
        return Exponential(mean)
    if options["service"] == "affine":
        return Affine(mean, options["per_row"])
    return Fixed(mean)


def _faults(options: dict[str, Any]) -> "list[Fault]":
    from labkit.sim.faults import Death, Hang, Straggler

    back = options["back"]
    return [
        *(Straggler(gpu, factor) for gpu, factor in options["stragglers"]),
        *(Death(None, from_seconds(at), options["detect"], back) for at in options["kills"]),
        *(Hang(at=from_seconds(at), back_after=back) for at in options["hangs"]),
    ]


# -- running --------------------------------------------------------------------------------------


def single(plan: Plan) -> dict[str, Any]:
    """The run with the seed that was given."""
    from labkit.workload import Skips

    skips = Skips()
    arrivals = _arrivals(plan, plan.load.seed, skips)
    if skips.count:
        click.echo(f"{plan.load.trace}: {skips}", err=True)
    end_s = plan.load.seconds or (arrivals[-1].arrived_at / S if arrivals else 0.0)
    save = plan.options["save_trace"]
    with Progress(end_s, "virtual seconds") as progress:
        run = _simulate(plan, arrivals, plan.load.seed, save is not None, progress)
    if save is not None:
        assert run.trace is not None
        write_trace(run.trace, save)
    return {
        **run.report(),
        "gpus": run.gpus,
        "seed": plan.load.seed,
        "trace_lines_skipped": skips.count,
        "events": [
            {"at_s": event.at / S, "gpu": event.gpu, "what": event.what} for event in run.events
        ],
    }


def replicated(plan: Plan) -> dict[str, Any]:
    """Estimates of every number of the report but the wall time."""
    from labkit.sim.experiment import replicate

    confidence, count = plan.options["confidence"], plan.options["replications"]

    def run(seed: int) -> dict[str, Any]:
        report = _simulate(plan, _arrivals(plan, seed, None), seed).report()
        del report["wall_s"]
        return report

    if confidence >= 1:
        raise Problem("--confidence 1: only an endless interval is certain; give 0.99")
    with Progress(count, "runs") as progress:
        estimates = replicate(
            run,
            count,
            seed=plan.load.seed,
            confidence=confidence,
            progress=progress.at,
        )
    return {name: estimate.as_dict() for name, estimate in estimates.items()}


def _simulate(
    plan: Plan,
    arrivals: list[Request],
    seed: int,
    trace: bool = False,
    progress: Progress | None = None,
) -> "Run":
    from labkit.sim.driver import simulate

    return simulate(
        plan.settings,
        arrivals,
        gpus=plan.options["gpus"],
        service=plan.service,
        faults=plan.faults,
        seed=seed,
        trace=trace,
        warm_up=from_seconds(plan.options["warm_up"]),
        horizon=from_seconds(plan.load.seconds or 0),
        progress=None if progress is None else lambda now: progress.at(now / S),
    )


def _arrivals(plan: Plan, seed: int, skips: Any) -> list[Request]:
    """Requests at the instants that `labkit live` uses for this seed, or of a trace."""
    from labkit.workload import crowd

    tenants, share = plan.options["tenants"], plan.options["paid_share"]
    share = (1.0 if tenants == 1 else 0.5) if share is None else share
    load = replace(plan.load, seed=seed)
    came = requests_of(load, skips, plan.options["process"], crowd(tenants, share))
    made = list(islice(came, MOST_REQUESTS + 1))
    if len(made) > MOST_REQUESTS:
        raise Problem(f"--trace {load.trace}: over {MOST_REQUESTS:,} rows; use --seconds")
    return made
