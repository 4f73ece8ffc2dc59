"""What a model weighs, what a token costs in memory, and how long weights travel."""

from dataclasses import dataclass
from math import ceil, log2

from labkit.theory.checks import above_zero, share, whole, zero_or_more


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder-only transformer with gated feed-forward blocks and untied embeddings."""

    name: str
    layers: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    vocabulary: int

    def __post_init__(self) -> None:
        for field in ("layers", "hidden", "feed_forward", "heads", "kv_heads", "vocabulary"):
            whole(field, getattr(self, field))

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden // self.heads

    @property
    def parameters(self) -> int:
        """Two embeddings, and per layer q, k, v, o, three feed-forward matrices and two norms."""
        attention = 2 * self.hidden**2 + 2 * self.hidden * self.kv_heads * self.head_dim
        layer = attention + 3 * self.hidden * self.feed_forward + 2 * self.hidden
        return 2 * self.vocabulary * self.hidden + self.layers * layer + self.hidden

    def weight_bytes(self, width: int = 2) -> int:
        """Bytes of all parameters at `width` bytes each."""
        return self.parameters * whole("width", width)

    def kv_bytes_per_token(self, width: int = 2) -> int:
        """Bytes of keys and values that one token keeps."""
        return kv_bytes_per_token(self.layers, self.kv_heads, self.head_dim, width)


LLAMA_2_7B = ModelShape("Llama-2-7B", 32, 4096, 11008, 32, 32, 32000)
LLAMA_2_13B = ModelShape("Llama-2-13B", 40, 5120, 13824, 40, 40, 32000)
LLAMA_2_70B = ModelShape("Llama-2-70B", 80, 8192, 28672, 64, 8, 32000)
LLAMA_3_8B = ModelShape("Llama-3-8B", 32, 4096, 14336, 32, 8, 128256)
LLAMA_3_70B = ModelShape("Llama-3-70B", 80, 8192, 28672, 64, 8, 128256)
OPT_13B_KV = (40, 40, 128)
"""Layers, KV heads and head width of OPT-13B, the model of the PagedAttention paper (SOSP 2023)."""


def kv_bytes_per_token(layers: int, kv_heads: int, head_dim: int, width: int = 2) -> int:
    """Bytes of keys and values a token keeps: 2 * layers * kv_heads * head_dim * width."""
    shape = whole("layers", layers) * whole("kv_heads", kv_heads) * whole("head_dim", head_dim)
    return 2 * shape * whole("width", width)


def kv_slots(memory_bytes: float, bytes_per_token: int) -> int:
    """Tokens whose keys and values fit."""
    return int(zero_or_more("memory_bytes", memory_bytes) // whole("bytes", bytes_per_token))


def reserved_sequences(slots: int, longest: int) -> int:
    """Sequences at once when each reserves its longest possible length."""
    return whole("slots", slots, least=0) // whole("longest", longest)


def paged_sequences(slots: int, mean_prompt: float, mean_output: float, use: float = 1.0) -> float:
    """Sequences at once when blocks are taken as tokens come: slots * use / mean length.

    `use` is the share of the slots that holds tokens (the rest is the ends of last blocks).
    """
    whole("slots", slots, least=0)
    length = zero_or_more("mean_prompt", mean_prompt) + zero_or_more("mean_output", mean_output)
    return slots * share("use", use) / above_zero("mean length", length)


def transfer_seconds(size_gb: float, gb_per_second: float) -> float:
    """Seconds to move so many GB over one link or from one disk."""
    return zero_or_more("size_gb", size_gb) / above_zero("gb_per_second", gb_per_second)


def gbit(gigabits: float) -> float:
    """A network's Gbit/s as GB/s."""
    return gigabits / 8


def origin_seconds(size_gb: float, replicas: int, gb_per_second: float) -> float:
    """The store sends every copy itself: R W / b."""
    return whole("replicas", replicas) * transfer_seconds(size_gb, gb_per_second)


def tree_seconds(size_gb: float, replicas: int, gb_per_second: float) -> float:
    """Whoever has a copy sends the next one: ceil(log2(R + 1)) W / b."""
    rounds = ceil(log2(whole("replicas", replicas) + 1))
    return rounds * transfer_seconds(size_gb, gb_per_second)


def chain_seconds(
    size_gb: float, replicas: int, gb_per_second: float, chunk_gb: float = 0.1
) -> float:
    """Each replica passes on what it receives, chunk by chunk: (W + (R - 1) chunk) / b."""
    behind = (whole("replicas", replicas) - 1) * min(zero_or_more("chunk_gb", chunk_gb), size_gb)
    return transfer_seconds(size_gb + behind, gb_per_second)
