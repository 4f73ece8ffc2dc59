"""What the commands share: gateway and load options, and errors that say the remedy."""

import errno
import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from labkit.cli.output import Row as Row
from labkit.cli.output import emit as emit
from labkit.cli.output import json_option as json_option
from labkit.cli.params import (
    BacklogParam,
    Choice,
    Count,
    LimitParam,
    Milliseconds,
    Rate,
    ShareParam,
)
from labkit.cli.progress import Progress as Progress
from labkit.core.settings import (
    CONTRACT_MAX_BATCH,
    DISPATCHES,
    PATIENT,
    RULES,
    ConfigError,
    Settings,
    TierRule,
)

MOST_REQUESTS = 50_000_000
"""More arrivals than this nobody waits for: minutes of work and gigabytes of memory."""

MOST_SECONDS = 366 * 86_400
MOST_GPUS = 10_000
_MENDABLE = {
    "labkit.core.trace": ("TraceFormatError",),
    "labkit.theory.checks": ("OutOfDomain",),
    "labkit.workload": ("ArrivalError", "MixError", "PromptError", "TraceError"),
    "labkit.live.kinds": ("UnknownKind",),
}
F = TypeVar("F", bound=Callable[..., Any])


class Problem(click.UsageError):
    """What is wrong, which value, and what to do; printed without a traceback, exit code 2."""


def explained(command: F) -> F:
    """Turn the errors that a caller can mend into a `Problem`; every other error stays a bug."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except FileNotFoundError as error:
            raise Problem(f"{error.filename}: no such file; check the path") from error
        except (IsADirectoryError, PermissionError) as error:
            raise Problem(f"{error.filename}: {error.strerror}; give a file to read") from error
        except OSError as error:
            # Without a name it is about a socket, a process or a pipe: no path was mistyped.
            if error.filename is None and error.errno != errno.ENOSPC:
                raise
            place = error.filename or "standard output"
            raise Problem(f"{place}: {error.strerror}; check the path and the disk") from error
        except ValueError as error:
            if isinstance(error, _mendable()):
                raise Problem(str(error)) from error
            raise

    return cast(F, run)


def _mendable() -> tuple[type[ValueError], ...]:
    """The error classes whose message is written for the person who typed the command.

    A class whose module was never imported was never raised, so no module is imported here.
    """
    found: list[type[ValueError]] = [ConfigError]
    for module, names in _MENDABLE.items():
        if module in sys.modules:
            found += [getattr(sys.modules[module], name) for name in names]
    return tuple(found)


def _decorate(
    options: Mapping[str, Callable[[Any], Any]], command: F | None, defaults: Mapping[str, Any]
) -> Any:
    """Apply the options in order, with some defaults replaced; usable with or without a call."""
    unknown = defaults.keys() - options.keys()
    if unknown:
        raise TypeError(f"no such option: {', '.join(sorted(unknown))}")

    def apply(target: F) -> F:
        for name, build in reversed(list(options.items())):
            target = build(defaults.get(name))(target)
        return target

    return apply if command is None else apply(command)


def _option(flag: str, name: str, kind: click.ParamType, default: Any, text: str) -> Any:
    """A click option whose default a command may replace; None keeps this default."""

    def build(replaced: Any) -> Any:
        chosen = default if replaced is None else replaced
        return click.option(
            flag, name, type=kind, default=chosen, show_default=chosen is not None, help=text
        )

    return build


_GATEWAY = {
    "gpus": _option("--gpus", "gpus", Count(1, MOST_GPUS), 2, "GPUs in the pool."),
    "max_batch": _option(
        "--max-batch",
        "max_batch",
        Count(1, CONTRACT_MAX_BATCH),
        CONTRACT_MAX_BATCH,
        "Most requests in a batch.",
    ),
    "max_wait": _option(
        "--max-wait-ms", "max_wait", Milliseconds(), "50", "Window of the oldest request."
    ),
    "batch_time": _option(
        "--batch-ms", "batch_time", Milliseconds(above_zero=True), "100", "GPU time of a batch."
    ),
    "rule": _option("--rule", "rule", Choice(RULES), "ferry", "When a batch leaves."),
    "dispatch": _option(
        "--dispatch", "dispatch", Choice(DISPATCHES), "least-loaded", "How a GPU is chosen."
    ),
    "backlog": _option(
        "--backlog", "backlog", BacklogParam(), "0", "Unstarted batches a GPU may hold: 0 is pull."
    ),
    "depth_limit": _option(
        "--depth-limit",
        "depth_limit",
        LimitParam(),
        "auto",
        "Requests that may wait; none, or auto: what the budget can still serve.",
    ),
    "tier_shares": lambda replaced: click.option(
        "--tier-share",
        "tier_shares",
        type=ShareParam(),
        multiple=True,
        help="Percent of the depth limit that a tier may fill, as free=80; again for another.",
    ),
    "overdue_after": _option(
        "--overdue-ms",
        "overdue_after",
        Milliseconds(above_zero=True, optional=True),
        "none",
        "A batch out for longer has lost its GPU.",
    ),
    "budget": _option(
        "--budget-ms",
        "budget",
        Milliseconds(above_zero=True, optional=True),
        "500",
        "The objective, end to end.",
    ),
    "reserve": _option(
        "--reserve-ms", "reserve", Milliseconds(), "200", "Part of the budget kept for a retry."
    ),
}


def gateway_options(command: Any = None, /, **defaults: Any) -> Any:
    """Add the options a `Settings` is built from, named as its fields, and `gpus`.

    `@gateway_options` or `@gateway_options(overdue_after="250")`: a default is written as a
    person would type it.
    """
    return _decorate(_GATEWAY, command, defaults)


def settings_from(options: Mapping[str, Any], **fixed: Any) -> Settings:
    """The gateway's constants from the options of `gateway_options`; `fixed` fields win."""
    from labkit.core.admission import fitted

    fields = {name: options[name] for name in _GATEWAY if name not in ("gpus", "tier_shares")}
    fields |= fixed
    fields["tiers"] = _with_shares(fixed.get("tiers", PATIENT), options["tier_shares"])
    if fields["depth_limit"] == "auto":
        return fitted(Settings(**{**fields, "depth_limit": None}), options["gpus"])
    return Settings(**fields)


def _with_shares(
    tiers: tuple[TierRule, ...], shares: Iterable[tuple[str, int]]
) -> tuple[TierRule, ...]:
    """The tiers with what --tier-share says of some of them."""
    found = {tier.name: tier for tier in tiers}
    for name, share in shares:
        if name not in found:
            raise Problem(
                f"--tier-share {name}={share}: no such tier; there are {', '.join(found)}"
            )
        found[name] = replace(found[name], share=share)
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Load:
    """What arrives: a rate for some seconds, or a trace (`rate` is None).

    `seconds` is None for a whole trace; `trace_scale` multiplies the trace's rate.
    """

    rate: float | None
    seconds: float | None
    seed: int
    trace: Path | None
    trace_scale: float


_LOAD = {
    "rate": _option("--rate", "rate", Rate(), None, "Requests a second.  [default: 100]"),
    "seconds": _option(
        "--seconds",
        "seconds",
        Rate("10", "seconds"),
        None,
        "How long.  [default: 10, or the whole trace]",
    ),
    "seed": _option("--seed", "seed", Count(0), "1", "Same seed, same arrivals."),
    "trace": _option(
        "--trace",
        "trace",
        click.Path(path_type=Path),
        None,
        "Arrivals from a public trace file in place of --rate.",
    ),
    "trace_scale": _option(
        "--trace-scale",
        "trace_scale",
        Rate("2", "factor"),
        None,
        "Multiply the trace's rate.  [default: 1]",
    ),
}


def load_options(command: Any = None, /) -> Any:
    """Add --rate --seconds --seed --trace --trace-scale; read them with `load_from`."""
    return _decorate(_LOAD, command, {})


def load_from(options: Mapping[str, Any], rate: float = 100.0, seconds: float = 10.0) -> Load:
    """What the options of `load_options` ask for; `rate` and `seconds` stand in when not given."""
    trace: Path | None = options["trace"]
    scale: float | None = options["trace_scale"]
    if trace is not None:
        if options["rate"] is not None:
            raise Problem(
                f"--rate {options['rate']:g} and --trace {trace}: a trace brings its own arrivals; "
                "drop one of them, or change the trace's rate with --trace-scale"
            )
        if not trace.exists():
            raise Problem(f"--trace {trace}: no such file; check the path")
        if trace.is_dir():
            raise Problem(f"--trace {trace} is a folder; give one file in it")
        return Load(None, options["seconds"], options["seed"], trace, scale or 1.0)
    if scale is not None:
        raise Problem(f"--trace-scale {scale:g} without --trace: give a trace, or use --rate")
    asked = Load(options["rate"] or rate, options["seconds"] or seconds, options["seed"], None, 1.0)
    check_size(cast(float, asked.rate), cast(float, asked.seconds))
    return asked


def check_size(rate: float, seconds: float) -> None:
    """Refuse more requests than a machine can hold, with the arithmetic."""
    if seconds > MOST_SECONDS:
        raise Problem(f"--seconds {seconds:g} is over a year; give at most {MOST_SECONDS:,}")
    if rate * seconds > MOST_REQUESTS:
        raise Problem(
            f"{rate:g} requests a second for {seconds:g} s is {rate * seconds:,.0f} requests, over "
            f"{MOST_REQUESTS:,}; lower --rate to {MOST_REQUESTS / seconds:g} or --seconds to "
            f"{MOST_REQUESTS / rate:g}"
        )
