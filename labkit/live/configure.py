"""From what a caller asks for to settings, a fleet and a loop."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from labkit.core.admission import fitted
from labkit.core.settings import SERVED, Settings
from labkit.core.units import MS
from labkit.extras import missing
from labkit.gpu import device
from labkit.live.errors import LiveError
from labkit.live.fleet import FakeFleet, Fleet
from labkit.live.timed import TimedFleet

GPUS = 8
OVERDUE_AFTER = 250 * MS


def live_settings(gpus: int = GPUS, **changes: Any) -> Settings:
    """Settings of a live front door: overdue after 250 ms, tier timeouts, a depth limit."""
    base = Settings(**{"tiers": SERVED, "overdue_after": OVERDUE_AFTER, **changes})
    if "depth_limit" in changes:
        return base
    return fitted(base, gpus)


def fleet_of(
    workers: str | Sequence[str] | Fleet,
    gpus: int,
    settings: Settings,
    options: Mapping[str, Any] | None = None,
) -> Fleet:
    """A fleet of one kind, of a kind for each GPU, or the fleet itself; see `Live`.

    Each GPU holds the batch time of the model that is dealt to it. `auto` is what `plan_workers`
    finds for this machine, perhaps fewer GPUs than asked for.
    """
    if not isinstance(workers, (str, Sequence)):
        return workers
    batch_time = [settings.of(model).batch_time for model in settings.models]
    if isinstance(workers, str):
        if gpus < 1:
            raise ValueError(f"gpus {gpus}: an engine needs at least 1")
        if workers == "fake":
            return FakeFleet(gpus, batch_time)
        if workers == "auto":
            workers, found = planned(device.plan_workers(gpus))
            options = {**found, **(options or {})}
        else:
            workers = [workers] * gpus
    if not workers:
        raise ValueError("workers is an empty list: name one kind a GPU")
    return TimedFleet(workers, batch_time, options)


def planned(plan: device.Fleet) -> tuple[list[str], dict[str, Any]]:
    """The kinds of a planned fleet, one a GPU, and the options that tell each its part."""
    return [worker.kind for worker in plan.workers], {"workers": plan.workers}


def loop_factory(uvloop: bool) -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes the engine's loop; raises `LiveError` when uvloop is asked for and missing."""
    if not uvloop:
        return asyncio.new_event_loop
    try:
        import uvloop as fast
    except ModuleNotFoundError as error:
        raise LiveError(f"{missing(error)}, or leave uvloop=False") from None
    make: Callable[[], asyncio.AbstractEventLoop] = fast.new_event_loop
    return make
