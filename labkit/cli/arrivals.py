"""From the load options to requests: when they come, whose they are, and what they say."""

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

from labkit.cli.common import Load
from labkit.core.messages import Request

if TYPE_CHECKING:
    from labkit.workload import Mix

PROMPTS = 1_000
"""Different sentences; each prompt also carries its number, so that no two tags are alike."""


def requests_of(
    load: Load, skips: Any = None, process: str = "poisson", mix: "Mix | None" = None
) -> Iterator[Request]:
    """Requests without prompts, at instants from a seed or from a trace.

    Lines of the trace that cannot be read go to `skips`.
    """
    from labkit.workload import (
        PLAIN,
        PROCESSES,
        read_trace,
        requests,
        scale,
        slice,
        stream,
        trace_requests,
    )

    mix, who = mix or PLAIN, stream(load.seed, "mix")
    if load.trace is not None:
        rows = slice(scale(read_trace(load.trace, skips), load.trace_scale), 0.0, load.seconds)
        return iter(trace_requests(rows, mix, who))
    assert load.rate is not None
    assert load.seconds is not None
    instants = PROCESSES[process](load.rate, load.seconds, stream(load.seed, "arrivals"))
    return iter(requests(instants, mix, who))


def arrivals_of(load: Load, skips: Any = None) -> Iterator[Request]:
    """The same with prompts that all differ."""
    from labkit.workload import ferry_prompts, stream

    said = ferry_prompts(PROMPTS, stream(load.seed, "prompts"))
    for number, request in zip(count(1), requests_of(load, skips)):
        request.prompt = f"{said[number % PROMPTS]} ({number})"
        yield request
