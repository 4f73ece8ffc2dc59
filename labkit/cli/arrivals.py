"""From the load options to requests with prompts that all differ."""

from collections.abc import Iterator
from itertools import count
from typing import Any

from labkit.cli.common import Load
from labkit.core.messages import Request

PROMPTS = 1_000
"""Different sentences; each prompt also carries its number, so that no two tags are alike."""


def arrivals_of(load: Load, skips: Any = None) -> Iterator[Request]:
    """Requests at instants from a seed or from a trace; lines that cannot be read go to `skips`."""
    from labkit.workload import (
        ferry_prompts,
        poisson,
        read_trace,
        requests,
        scale,
        slice,
        stream,
        trace_requests,
    )

    said = ferry_prompts(PROMPTS, stream(load.seed, "prompts"))
    if load.trace is None:
        assert load.rate is not None
        assert load.seconds is not None
        made = iter(requests(poisson(load.rate, load.seconds, stream(load.seed, "arrivals"))))
    else:
        rows = slice(scale(read_trace(load.trace, skips), load.trace_scale), 0.0, load.seconds)
        made = iter(trace_requests(rows))
    for number in count(1):
        request = next(made, None)
        if request is None:
            return
        request.prompt = f"{said[number % PROMPTS]} ({number})"
        yield request
