"""Closed forms: what the numbers should be, before anything is simulated or measured."""

from labkit.theory.capacity import AfterLoss, Window, defend, floor_gpus, needed_gpus, split_load
from labkit.theory.checks import OutOfDomain
from labkit.theory.dock import Dock, PullDock, greedy_latency, stale_timer_batch

__all__ = [
    "AfterLoss",
    "Dock",
    "OutOfDomain",
    "PullDock",
    "Window",
    "defend",
    "floor_gpus",
    "greedy_latency",
    "needed_gpus",
    "split_load",
    "stale_timer_batch",
]
