"""What comes to the door: arrivals, tenants and prompts, made from a seed or read from a trace."""

from labkit.workload.arrivals import (
    PROCESSES,
    ArrivalError,
    diurnal,
    gamma_renewal,
    on_off,
    on_off_cv,
    poisson,
    regular,
)
from labkit.workload.mix import PLAIN, Mix, MixError, Tenant, crowd, requests, senders
from labkit.workload.prompts import (
    PROMPT_CAP,
    PromptError,
    check_prompt,
    ferry_prompt,
    ferry_prompts,
    prompt_of,
)
from labkit.workload.streams import fork, stream
from labkit.workload.trace_lines import TraceError
from labkit.workload.trace_statistics import Lengths, TraceStatistics, statistics
from labkit.workload.traces import (
    Skip,
    Skips,
    TraceRow,
    TraceWarning,
    read_trace,
    scale,
    slice,
    trace_requests,
)

__all__ = [
    "PLAIN",
    "PROCESSES",
    "PROMPT_CAP",
    "ArrivalError",
    "Lengths",
    "Mix",
    "MixError",
    "PromptError",
    "Skip",
    "Skips",
    "Tenant",
    "TraceError",
    "TraceRow",
    "TraceStatistics",
    "TraceWarning",
    "check_prompt",
    "crowd",
    "diurnal",
    "ferry_prompt",
    "ferry_prompts",
    "fork",
    "gamma_renewal",
    "on_off",
    "on_off_cv",
    "poisson",
    "prompt_of",
    "read_trace",
    "regular",
    "requests",
    "scale",
    "senders",
    "slice",
    "statistics",
    "stream",
    "trace_requests",
]
