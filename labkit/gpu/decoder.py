"""A hundred seats on one device, and the one step that all of them take together."""

from collections.abc import Sequence

import torch

from labkit.gpu import model, weights
from labkit.gpu.ballast import Ballast
from labkit.gpu.launch import Graph, Loop
from labkit.gpu.model import Seats, Shape, Weights
from labkit.gpu.tokens import FIRST, decode, encode

SEATS = 100


class Decoder:
    """Weights, seats and perhaps ballast on one device (`cpu` or `cuda:0`).

    `run_ms` is what the device took for the last run.
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
        self.run_ms = 0.0
        self._empty = encode("")
        self._inlet = torch.tensor([self._empty] * seats)
        self._launch: Loop | Graph = Loop(self.once)
        if device.startswith("cuda"):
            self._inlet = self._inlet.pin_memory()
            self._launch = Graph(self.once, device)

    @torch.inference_mode()
    def once(self) -> None:
        """One step of every seat, empty ones too; the very function that is captured on CUDA."""
        model.step(self.weights, self.shape, self.seats)
        if self.ballast is not None:
            self.ballast.push(self.seats.hidden)

    def board(self, prompts: Sequence[str]) -> None:
        """Seat the prompts in order; the seats left over get the empty prompt."""
        rows = [encode(prompt) for prompt in prompts]
        rows += [self._empty] * (len(self._inlet) - len(rows))
        self._inlet.copy_(torch.tensor(rows))
        self.seats.fill(self._inlet)

    def run(self, steps: int) -> None:
        """Take this many steps and wait for them."""
        self.run_ms = self._launch.run(steps)

    def lines(self, count: int, new_bytes: int) -> list[str]:
        """The texts of the first `count` seats, at most `new_bytes` bytes each."""
        written = self.seats.tokens[:count, FIRST : FIRST + new_bytes].tolist()
        return [decode(row) for row in written]
