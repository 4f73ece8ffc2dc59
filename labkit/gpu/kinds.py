"""The two kinds of worker that compute: `cpu` and `cuda`, built in the process that runs them.

A factory is given the setup of one worker, of which it reads `gpu` (its number) and `options`:

    workers  a `Worker` for each GPU, as `plan_workers` gives them; without it an even part of
             the cards or of the cores
    gpus     size of the fleet, for that even part; default 8
    plan     a `Plan` for all workers; default: the one this machine's workers agree on

What comes back computes a batch and does not wait: the shell around it keeps the contract's time.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, Protocol

from labkit.gpu import faults, worker_setup
from labkit.gpu.batchstring import BatchString, check
from labkit.gpu.calibrate import share_of
from labkit.gpu.device import MOST_WORKERS, Worker
from labkit.gpu.machine import cards, cores


class Setup(Protocol):
    """What a factory reads of a worker's setup."""

    @property
    def gpu(self) -> int:
        """The number of the GPU this worker plays."""

    @property
    def options(self) -> Mapping[str, Any]:
        """See the module."""


class Torch:
    """A batch function on one device, with the means to break it.

    Raises `PoisonedContext`, its only `fatal` error, when the device is lost: the process must
    end. `facts` are plain values to show beside the GPU.
    """

    fatal = (faults.PoisonedContext,)

    def __init__(self, function: BatchString, kind: str, card: str | None = None) -> None:
        self.function, self.device = function, function.decoder.device
        plan = function.plan
        self.facts = {
            "kind": kind,
            "device": card or self.device,
            "share": plan.share,
            "steps": plan.steps,
            "new_bytes": plan.new_bytes,
            "step_ms": round(plan.step_ms, 4),
            "ballast": plan.ballast,
            "fits": plan.fits,
        }

    def __call__(self, prompts: Sequence[str]) -> list[str]:
        """One output a prompt, in order, as soon as they are there."""
        check(prompts)
        try:
            return self.function.compute(prompts)
        except RuntimeError as error:
            if faults.is_fatal(error):
                raise faults.PoisonedContext(f"{self.device}: {error}") from error
            raise

    def poison(self) -> None:
        """Lose the device on purpose; raises the fatal error."""
        try:
            faults.poison(self.device)
        except RuntimeError as error:
            raise faults.PoisonedContext(f"{self.device}: {error}") from error

    def hang(self, seconds: float) -> None:
        """Keep the device busy with nothing, for a bounded time."""
        faults.hang(self.device, seconds)


def cpu(setup: Setup) -> Torch:
    """A worker that computes on one core, or on its part of one where there are more workers."""
    even = min(1.0, len(cores()) / setup.options.get("gpus", MOST_WORKERS))
    worker = _planned(setup) or Worker("cpu", even)
    return Torch(worker_setup.load(worker, setup.options.get("plan")), "cpu")


def cuda(setup: Setup) -> Torch:
    """A worker on its card, or on its part of one; raises RuntimeError where there is none."""
    worker = _planned(setup) or _on_an_even_part(setup)
    worker_setup.hide_other_cards(worker.card)
    return Torch(worker_setup.load(worker, setup.options.get("plan")), "cuda", worker.card)


def _planned(setup: Setup) -> Worker | None:
    workers: Sequence[Worker] = setup.options.get("workers") or ()
    return workers[setup.gpu] if workers else None


def _on_an_even_part(setup: Setup) -> Worker:
    found = cards()
    if not found:
        raise RuntimeError("no NVIDIA card: run `labkit doctor`, or start cpu or timer workers")
    crowd = ceil(setup.options.get("gpus", MOST_WORKERS) / len(found))
    return Worker("cuda", share_of(crowd), found[setup.gpu % len(found)].uuid)
