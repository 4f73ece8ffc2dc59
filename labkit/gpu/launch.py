"""Two ways to take a step many times: a loop on a CPU, replays of one captured graph on CUDA.

Reviewed against the public API of torch 2.4 to 2.15: `torch.cuda.graph(stream=,
capture_error_mode=)`, `CUDAGraph.replay`, `Event.elapsed_time`.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

WARM_UPS = 3


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: with more, the order of a sum and so its last bit may differ."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Loop:
    """Calls the step itself, on one thread."""

    def __init__(self, once: Callable[[], None]) -> None:
        self._once = once

    def run(self, steps: int) -> float:
        """Take the steps; milliseconds on the clock."""
        began = time.perf_counter()
        with one_thread():
            for _ in range(steps):
                self._once()
        return 1000 * (time.perf_counter() - began)


class Graph:
    """Records the step once and replays it: one launch a step in place of some fifty.

    The step must work in buffers that stay where they are and must bring no value to the host.
    """

    def __init__(self, once: Callable[[], None], device: str) -> None:
        self._device = device
        self._began, self._ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.device(device):
            self._graph = self._captured(once)

    @staticmethod
    def _captured(once: Callable[[], None]) -> "torch.cuda.CUDAGraph":
        # Libraries make their handles a stream: warm up on the very stream that captures.
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                once()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # Other threads of a worker (its pipe, its heartbeat) must not break the capture.
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            once()
        return graph

    def run(self, steps: int) -> float:
        """Replay the steps and wait for them; milliseconds between two events on the device."""
        with torch.cuda.device(self._device):
            self._began.record()
            for _ in range(steps):
                self._graph.replay()
            self._ended.record()
            self._ended.synchronize()
        return self._began.elapsed_time(self._ended)
