"""One request, one fleet, lived through in the real gateway: the numbers of notebook 02."""

from labkit.core.messages import Answer, Depart, Request
from labkit.core.settings import Settings
from labkit.core.trace import Trace
from labkit.core.units import from_ms, to_ms
from labkit.teach.exercises.world import run, with_ferry
from labkit.teach.rig import Fate, Plan

CLOSE = 1e-6
"""Milliseconds that two answers may differ by."""

LONGEST = 10_000.0
"""Milliseconds of a window that is still worth playing on the dock."""


def retried(max_wait: float, batch_time: float, detection: float) -> Trace:
    """One request whose GPU dies as its batch is about to return; all in milliseconds.

    The real gateway, two GPUs: the death is noticed `detection` later, and the other GPU runs it.
    """
    settings = Settings(
        max_batch=100,
        max_wait=from_ms(max_wait),
        batch_time=from_ms(batch_time),
        budget=None,
    )
    again = Fate("ok", from_ms(batch_time))
    fates = (Fate("die", from_ms(batch_time) + from_ms(detection)), again)
    plan = Plan(settings, 2, (Request(0, "passenger 0", 0),), fates, back_after=None)
    return run(plan, with_ferry(plan))


def answered_after(trace: Trace) -> float:
    """When the last answer left the gateway, in milliseconds."""
    return to_ms(max(now for now, command in trace.commands() if isinstance(command, Answer)))


def unlucky(max_wait: float, batch_time: float, gpus: int) -> Trace:
    """The real gateway under arrivals as unlucky as can be; durations in milliseconds.

    Each request comes just after a boat has left, so that boats leave a window apart.
    """
    window, service = from_ms(max_wait), from_ms(batch_time)
    settings = Settings(max_wait=window, batch_time=service, budget=None)
    arrivals = tuple(Request(i, f"passenger {i}", i * (window + 1)) for i in range(2 * gpus + 2))
    plan = Plan(settings, gpus, arrivals, tuple(Fate("ok", service) for _ in arrivals))
    return run(plan, with_ferry(plan))


def longest_wait(trace: Trace) -> float:
    """The longest that anybody waited at the dock, in milliseconds."""
    left = [c.receipt.oldest_age for _, c in trace.commands() if isinstance(c, Depart)]
    return to_ms(max(left))


def ms(value: float) -> str:
    """Milliseconds as a person writes them."""
    return f"{round(value, 3):g} ms"
