"""A tiny byte-level decoder: rotary positions, one key-value head, and one step for every device.

`forward` computes all positions of a sequence at once (training, and the reference in tests);
`step` computes one position of a fixed number of seats in buffers that never move, so the very
function that runs on a CPU can be captured once in a CUDA graph and replayed. fp32, no biases, no
gains. Shapes: B seats, T positions, H query heads, D = width of a head.
"""

from dataclasses import dataclass
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor

from labkit.gpu.tokens import COLUMNS, FIRST, POSITIONS, VOCABULARY

Weights = dict[str, Tensor]

SPEED, BASE = 1.5, 30.0
"""How fast the pairs of a rotary position turn, in radians a position."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model; `heads` query heads share one key-value head of width `head`."""

    width: int = 64
    layers: int = 2
    heads: int = 4
    head: int = 16
    feed: int = 128


@dataclass(frozen=True, slots=True)
class Tables:
    """What depends on the position only: `rotation` [T, D, D] and `mask` [T, T] (0 or -inf)."""

    rotation: Tensor
    mask: Tensor


def initial(shape: Shape, generator: torch.Generator) -> Weights:
    """Random weights; matrices are [outputs, inputs]."""

    def normal(outputs: int, inputs: int, scale: float) -> Tensor:
        return torch.randn(outputs, inputs, generator=generator) * scale

    width, inner = shape.width, shape.heads * shape.head
    weights = {"embed": normal(VOCABULARY, width, 0.1)}
    for layer in range(shape.layers):
        weights[f"{layer}.qkv"] = normal(inner + 2 * shape.head, width, width**-0.5)
        weights[f"{layer}.out"] = normal(width, inner, 0.5 * inner**-0.5)
        weights[f"{layer}.up"] = normal(shape.feed, width, width**-0.5)
        weights[f"{layer}.down"] = normal(width, shape.feed, 0.5 * shape.feed**-0.5)
    return weights


def tables(shape: Shape, positions: int = POSITIONS) -> Tables:
    """Rotary positions as one rotation matrix a position, and the causal mask.

    Su et al. 2021, RoFormer: pair i turns by position * speed * base^(-2i/D). The slowest pair
    turns about once in the longest sequence, so that all pairs help to tell neighbours apart.
    """
    half = shape.head // 2
    angles = torch.arange(positions).unsqueeze(1) * SPEED * BASE ** (-torch.arange(half) / half)
    cos, sin = torch.diag_embed(angles.cos()), torch.diag_embed(angles.sin())
    rotation = torch.cat([torch.cat([cos, sin], -1), torch.cat([-sin, cos], -1)], -2)
    later = torch.ones(positions, positions, dtype=torch.bool).triu(1)
    return Tables(rotation, torch.zeros(positions, positions).masked_fill(later, float("-inf")))


def forward(weights: Weights, shape: Shape, tokens: Tensor, table: Tables) -> Tensor:
    """Logits [B, T, vocabulary] of tokens [B, T], every position at once, without a cache."""
    length = tokens.shape[1]
    x = weights["embed"][tokens]
    for layer in range(shape.layers):
        mixed = F.linear(_norm(x), weights[f"{layer}.qkv"])
        parts = mixed.unflatten(-1, (shape.heads + 2, shape.head))
        turned = parts[:, :, : shape.heads + 1] @ table.rotation[:length]
        query, key = turned[:, :, : shape.heads], turned[:, :, shape.heads]
        scores = torch.einsum("bthd,bsd->bhts", query, key) / sqrt(shape.head)
        share = torch.softmax(scores + table.mask[:length, :length], -1)
        heads = torch.einsum("bhts,bsd->bthd", share, parts[:, :, shape.heads + 1])
        x = x + F.linear(heads.flatten(-2), weights[f"{layer}.out"])
        x = x + _feed(weights, layer, x)
    return F.linear(_norm(x), weights["embed"])


class Seats:
    """The buffers of one batch, made once: every address stays, as a captured graph needs.

    `tokens` [B, COLUMNS], `at` [1] the position of the next step, `keys` and `values` [B, T, D]
    for each layer, `hidden` [B, width] and `logits` [B, vocabulary] of the last step.
    """

    def __init__(self, shape: Shape, count: int, device: str = "cpu") -> None:
        table = tables(shape)
        self.table = Tables(table.rotation.to(device), table.mask.to(device))
        self.tokens = torch.zeros(count, COLUMNS, dtype=torch.int64, device=device)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)
        cache = (count, POSITIONS, shape.head)
        self.keys = [torch.zeros(cache, device=device) for _ in range(shape.layers)]
        self.values = [torch.zeros(cache, device=device) for _ in range(shape.layers)]
        self.hidden = torch.zeros(count, shape.width, device=device)
        self.logits = torch.zeros(count, VOCABULARY, device=device)

    def fill(self, prompts: Tensor) -> None:
        """Seat new prompts, [B, FIRST] tokens; what the last batch left behind is masked."""
        self.tokens[:, :FIRST].copy_(prompts, non_blocking=True)
        self.at.zero_()


def step(weights: Weights, shape: Shape, seats: Seats) -> None:
    """One position of every seat: read its token, attend to the cache, write the next token.

    Inside the window the next token is the prompt's own; after it, the most likely one. At the
    last position further steps repeat the same work and the same answer, so a device may run as
    many as its time allows. No value leaves the device.
    """
    at = seats.at
    rotation = seats.table.rotation.index_select(0, at)[0]
    mask = seats.table.mask.index_select(0, at)
    x = weights["embed"].index_select(0, seats.tokens.index_select(1, at)[:, 0])
    for layer in range(shape.layers):
        mixed = F.linear(_norm(x), weights[f"{layer}.qkv"])
        parts = mixed.view(-1, shape.heads + 2, shape.head)
        turned = parts[:, : shape.heads + 1] @ rotation
        keys = seats.keys[layer].index_copy_(1, at, turned[:, shape.heads :])
        values = seats.values[layer].index_copy_(1, at, parts[:, shape.heads + 1 :])
        query = turned[:, : shape.heads]
        # One call for product, scale and mask: on a CPU a step is as much launching as computing.
        scores = torch.baddbmm(mask, query, keys.transpose(1, 2), alpha=1 / sqrt(shape.head))
        heads = torch.bmm(torch.softmax(scores, -1), values)
        x = x + F.linear(heads.flatten(-2), weights[f"{layer}.out"])
        x = x + _feed(weights, layer, x)
    seats.hidden.copy_(x)
    seats.logits.copy_(F.linear(_norm(x), weights["embed"]))
    following = at + 1
    given = seats.tokens.index_select(1, following)
    chosen = seats.logits.argmax(-1, keepdim=True)
    seats.tokens.index_copy_(1, following, torch.where(following < FIRST, given, chosen))
    at.copy_(following.clamp(max=POSITIONS - 1))


def count(weights: Weights) -> int:
    """How many parameters there are."""
    return sum(tensor.numel() for tensor in weights.values())


def _norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _feed(weights: Weights, layer: int, x: Tensor) -> Tensor:
    # relu: at this size a smoother curve costs a tenth of the step on a CPU and buys nothing.
    inner = torch.relu(F.linear(_norm(x), weights[f"{layer}.up"]))
    return F.linear(inner, weights[f"{layer}.down"])
