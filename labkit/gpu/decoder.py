"""A hundred seats and the one step they share: called in a loop on a CPU, replayed on CUDA.

On CUDA the step is captured once in a CUDA graph; after that a batch is `steps` replays between
two events, with one copy in and one copy out. Reviewed against the public API of torch 2.4 to
2.15: `torch.cuda.graph(stream=, capture_error_mode=)`, `CUDAGraph.replay`, `Event.elapsed_time`.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from labkit.gpu import model, weights
from labkit.gpu.ballast import Ballast
from labkit.gpu.model import Seats, Shape, Weights
from labkit.gpu.tokens import FIRST, decode, encode

SEATS = 100
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


class Decoder:
    """Weights, seats and perhaps ballast on one device (`cpu` or `cuda:0`).

    `run_ms` after a run is what the device took: between two events on CUDA, on the clock else.
    """

    def __init__(
        self,
        device: str = "cpu",
        loaded: tuple[Weights, Shape] | None = None,
        ballast: Ballast | None = None,
        seats: int = SEATS,
    ) -> None:
        self.device, self.ballast = device, ballast
        self.weights, self.shape = loaded or weights.load(device=device)
        self.seats = Seats(self.shape, seats, device)
        self.on_cuda = device.startswith("cuda")
        self.run_ms = 0.0
        self._empty = encode("")
        self._inlet = torch.tensor([self._empty] * seats)
        if self.on_cuda:
            self._inlet = self._inlet.pin_memory()
            self._began, self._ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._graph = self._capture()

    @torch.no_grad()
    def once(self) -> None:
        """One step of every seat, empty ones too; the very function that is captured on CUDA."""
        model.step(self.weights, self.shape, self.seats)
        if self.ballast is not None:
            self.ballast.push(self.seats.hidden)

    def _capture(self) -> "torch.cuda.CUDAGraph":
        """Record one step. Warming up on the capturing stream makes its handles beforehand."""
        with torch.cuda.device(self.device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UPS):
                    self.once()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                self.once()
        return graph

    def board(self, prompts: Sequence[str]) -> None:
        """Seat the prompts in order; the seats left over get the empty prompt."""
        rows = [encode(prompt) for prompt in prompts]
        rows += [self._empty] * (len(self._inlet) - len(rows))
        self._inlet.copy_(torch.tensor(rows))
        self.seats.fill(self._inlet)

    def run(self, steps: int) -> None:
        """Take this many steps and wait for them."""
        if self.on_cuda:
            with torch.cuda.device(self.device):
                self._began.record()
                for _ in range(steps):
                    self._graph.replay()
                self._ended.record()
                self._ended.synchronize()
            self.run_ms = self._began.elapsed_time(self._ended)
            return
        began = time.perf_counter()
        with one_thread():
            for _ in range(steps):
                self.once()
        self.run_ms = 1000 * (time.perf_counter() - began)

    def lines(self, count: int, new_bytes: int) -> list[str]:
        """The texts of the first `count` seats, at most `new_bytes` bytes each."""
        written = self.seats.tokens[:count, FIRST : FIRST + new_bytes].tolist()
        return [decode(row) for row in written]
