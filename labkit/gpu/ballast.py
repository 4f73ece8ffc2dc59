"""Ballast: random blocks that stand in for the rest of a real model.

The tiny model alone would leave a large card idle. Each step also pushes the same rows through
`blocks` feed-forward blocks of random half-precision weights and throws the result away, so that a
step reads as many bytes as a model of that size does. There is no attention in it: the one
key-value head of the core is little traffic, and a full set of heads at 100 rows would make the
step grow with the length, which is a lesson of its own and not this one. A CPU carries none.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from labkit.gpu.calibrate import Preset


def half_type(capability: tuple[int, int]) -> torch.dtype:
    """bf16 from compute capability 8.0 on, else fp16.

    `torch.cuda.is_bf16_supported` also says yes to a card that only emulates bf16 (a T4), slowly.
    """
    return torch.bfloat16 if capability >= (8, 0) else torch.float16


class Ballast:
    """The random weights of one preset on one device."""

    def __init__(self, preset: Preset, device: str, dtype: torch.dtype) -> None:
        self.preset, self.dtype = preset, dtype
        wide, scale = 4 * preset.width, preset.width**-0.5
        like = {"device": device, "dtype": dtype}
        self.up = [torch.randn(wide, preset.width, **like) * scale for _ in range(preset.blocks)]
        self.down = [
            torch.randn(preset.width, wide, **like) * (scale / 4) for _ in range(preset.blocks)
        ]

    def push(self, rows: Tensor) -> Tensor:
        """Carry rows [B, core width] through every block; norms keep random sums finite."""
        x = rows.to(self.dtype).repeat(1, self.preset.width // rows.shape[1])
        for up, down in zip(self.up, self.down, strict=True):
            x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, x.shape[1:]), up)), down)
        return x
