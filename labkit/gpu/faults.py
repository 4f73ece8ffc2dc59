"""Breaking a GPU on purpose: a poisoned context and a hang. Called inside a worker only.

Each does on CUDA what really happens there, and on a CPU the nearest thing. Neither is for ever: a
hang ends by itself, so that a forgotten one leaves no process behind.
"""

import time

import torch

from labkit.gpu.pace import Sleep

LONGEST_HANG_S = 30.0
_CYCLES_A_SECOND = 1_500_000_000
_NAP_CYCLES = _CYCLES_A_SECOND // 20


class PoisonedContext(RuntimeError):
    """The device no longer answers: every further call in this process fails: exit."""


def poison(device: str) -> None:
    """Fail an assertion on the device; raises, and leaves the CUDA context lost for good.

    On a CPU there is no context to lose, so the error alone is raised.
    """
    if device.startswith("cuda"):
        with torch.cuda.device(device):
            torch._assert_async(torch.zeros(1, device=device))
            torch.cuda.synchronize()
    raise PoisonedContext(f"{device}: context poisoned on purpose; this worker must be replaced")


def is_fatal(error: BaseException) -> bool:
    """Whether an error means that this process has lost its device.

    torch 2.8 and later raise `torch.AcceleratorError`; earlier ones a RuntimeError whose text
    begins with `CUDA error`. Running out of memory is neither.
    """
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return False
    named = getattr(torch, "AcceleratorError", PoisonedContext)
    return isinstance(error, (PoisonedContext, named)) or (
        isinstance(error, RuntimeError) and str(error).startswith("CUDA error")
    )


def hang(device: str, seconds: float, sleep: Sleep = time.sleep) -> None:
    """Keep the device busy with nothing for a bounded time, at most `LONGEST_HANG_S`.

    The process lives and can still report; only work does not return. On CUDA the wait is queued
    in short kernels, so that the card's other processes get their turns.
    """
    if not 0 < seconds <= LONGEST_HANG_S:
        raise ValueError(
            f"a hang of {seconds:g} s: give more than 0 and at most {LONGEST_HANG_S:g} s"
        )
    if not device.startswith("cuda"):
        sleep(seconds)
        return
    ends = time.monotonic() + seconds
    with torch.cuda.device(device):
        while time.monotonic() < ends:
            torch.cuda._sleep(_NAP_CYCLES)
            torch.cuda.synchronize()
