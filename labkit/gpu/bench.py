"""What every measurement shares: a device, its ceilings so far, and honest timing of one call."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from labkit.gpu.ceilings import FASTEST_CORE, Ceilings, stated
from labkit.gpu.launch import one_thread
from labkit.gpu.machine import cpu_name


@dataclass(slots=True)
class Bench:
    """Where and how thoroughly to measure; `dry` takes tiny sizes and two samples."""

    device: str
    dry: bool = False
    ceilings: Ceilings = field(default_factory=lambda: stated("CPU core"))

    @property
    def on_cuda(self) -> bool:
        """Whether the device is a card."""
        return self.device.startswith("cuda")

    def floor_ms(self, flops: float, size: float) -> float:
        """The floor under a time; the kinder of the measured ceilings and those of the maker.

        A busy moment while the ceilings were measured must not make a later figure impossible.
        """
        believed = stated(device_name(self.device)) if self.on_cuda else FASTEST_CORE
        return min(self.ceilings.floor_ms(flops, size), believed.floor_ms(flops, size))

    @property
    def samples(self) -> int:
        """How many samples a figure is made of."""
        return 2 if self.dry else 20

    def size(self, cuda: int, cpu: int, dry: int) -> int:
        """A size that suits the device."""
        return dry if self.dry else cuda if self.on_cuda else cpu

    def wide_type(self) -> torch.dtype:
        """The type large matrices have here: half precision on a card, fp32 on a CPU."""
        from labkit.gpu.ballast import half_type

        if not self.on_cuda:
            return torch.float32
        return half_type(torch.cuda.get_device_capability(self.device))

    def time_ms(self, call: Callable[[], object], calls: int = 1) -> list[float]:
        """Samples of the time of one call, each averaged over `calls` in a row.

        Between two events on CUDA, with one synchronisation a sample; on the clock and one
        thread on a CPU. Three samples warm up and are not counted.
        """
        take = self._on_events if self.on_cuda else self._on_clock
        with one_thread():
            taken = [take(call, calls) for _ in range((1 if self.dry else 3) + self.samples)]
        return taken[-self.samples :]

    def _on_events(self, call: Callable[[], object], calls: int) -> float:
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.device(self.device):
            began.record()
            for _ in range(calls):
                call()
            ended.record()
            ended.synchronize()
        return began.elapsed_time(ended) / calls

    @staticmethod
    def _on_clock(call: Callable[[], object], calls: int) -> float:
        began = time.perf_counter()
        for _ in range(calls):
            call()
        return 1000 * (time.perf_counter() - began) / calls


def device_name(device: str) -> str:
    """The name a record is filed under."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return cpu_name()


def fastest(samples: list[float]) -> float:
    """The sample that a ceiling is taken from: the quickest, since noise only ever adds."""
    return min(samples)
