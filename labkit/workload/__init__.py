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
from labkit.workload.streams import fork, stream

__all__ = [
    "PLAIN",
    "PROCESSES",
    "ArrivalError",
    "Mix",
    "MixError",
    "Tenant",
    "crowd",
    "diurnal",
    "fork",
    "gamma_renewal",
    "on_off",
    "on_off_cv",
    "poisson",
    "regular",
    "requests",
    "senders",
    "stream",
]
