"""What crosses the border of the core: requests in, commands out; all are values."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from labkit.core.units import NEVER


class Tier(IntEnum):
    """Who boards first: a lower number boards before a higher one."""

    PAID = 0
    FREE = 1


class Outcome(StrEnum):
    """How a request ends; each request has exactly one."""

    ANSWERED = "answered"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Reason(StrEnum):
    """Why a batch left when it did."""

    FULL = "full"
    TIMER = "timer"
    RETURNED = "returned"
    DRAIN = "drain"
    GANG = "gang"


@dataclass(slots=True)
class Request:
    """One prompt that waits for one answer; instants in microseconds.

    An id is used once and never again. `deadline` is the instant at which a request that is
    still queued expires, besides its tier's timeout. Treated as immutable; it is not frozen only
    because a frozen one costs three times as much to make.
    """

    id: int
    prompt: str = ""
    arrived_at: int = 0
    tier: int = Tier.PAID
    tenant: str = "default"
    model: str = "ferry"
    deadline: int = NEVER


Output = str


@dataclass(frozen=True, slots=True)
class RowError:
    """Stands in the place of one output: this row alone failed."""

    detail: str


@dataclass(frozen=True, slots=True)
class BatchError:
    """Stands in the place of all outputs: the function raised, and the GPU lives."""

    detail: str


Result = Sequence[Output | RowError] | BatchError


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was known when a batch left; durations in microseconds.

    `oldest_age`: age of the oldest request aboard. `slack`: what is left of the budget for that
    one after the GPU's time, None without a budget. `stayed`: how many stayed behind, by tier;
    `first_stayed`: the id of the first of them, by tier.
    """

    reason: Reason
    oldest_age: int
    slack: int | None
    stayed: tuple[int, ...]
    first_stayed: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Depart:
    """Start this batch now on these GPUs."""

    batch_id: int
    gpus: tuple[int, ...]
    rows: tuple[Request, ...]
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Answer:
    """Fan out: `outputs[i]` answers `rows[i]`."""

    batch_id: int
    rows: tuple[Request, ...]
    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """One piece of a streamed answer."""

    request_id: int
    piece: str


@dataclass(frozen=True, slots=True)
class End:
    """A request ends without an answer.

    `detail` is a code for the door and, for a failed request, the sentence that says why. The
    gateway's codes: a request is rejected as `unknown_model`, `draining`, `queue_full` (as many
    wait as any tier may fill) or `tier_quota` (as many as this tier may fill); others end by
    `deadline_exceeded`, `client_left`. The door and the engine have codes of their own.
    """

    request_id: int
    outcome: Outcome
    detail: str


@dataclass(frozen=True, slots=True)
class Load:
    """Load this version's weights on these GPUs; `join` says when they are ready."""

    gpus: tuple[int, ...]
    version: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Fence this GPU and end its process; `join` says when it is back."""

    gpu: int
    why: str


Command = Depart | Answer | Chunk | End | Load | Stop
