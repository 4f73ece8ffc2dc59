"""How much work fits into a hundred milliseconds: arithmetic, told every measurement.

    steps = floor(share * 95 ms / step)

The 5 ms kept back are the way in and out: seats to fill, text to read. `share` is the part of the
device's time that this worker may use. Standard library only; nothing here reads a clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

from labkit.gpu.grammar import LINE_BYTES
from labkit.gpu.tokens import FULL_STEPS, WINDOW

CONTRACT_MS = 100.0
USABLE_MS = 95.0
ALONE = 1.0
CROWD = 0.68
"""The part of a card that several processes on it may plan to use together: 0.085 for each of
eight. The rest pays for switching between them."""

CPU_PART = 0.5
"""The part of a core that a plan counts on: the dispatcher, whoever sends the load and the system
run there too, and a hundred milliseconds must hold all the same."""

LONGEST_STEP_MS = 0.4
"""A ballast whose step is longer makes a batch of few, coarse steps."""

RUNGS = (8, 16, 24, 32, LINE_BYTES)
"""Lengths of an answer in bytes. A few fixed lengths, so that two workers whose steps differ a
little still write the same text."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A size of ballast: `blocks` times two matrices of `width` by four times `width`."""

    name: str
    width: int
    blocks: int

    @property
    def parameters(self) -> int:
        """How many weights there are."""
        return 8 * self.width**2 * self.blocks

    @property
    def bytes(self) -> int:
        """How much memory they take, two bytes a weight; each step reads all of it."""
        return 2 * self.parameters


PRESETS = (Preset("9M", 384, 8), Preset("48M", 704, 12), Preset("680M", 2304, 16))
"""Smallest first. Each width is a multiple of the core's, whose rows are repeated to fit."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A ballast as measured: `step_ms` is one step with it, `bytes` what it occupies."""

    name: str
    bytes: int
    step_ms: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What one batch runs: `steps` of `step_ms`, of which `new_bytes` write text.

    `ballast` is a preset's name, or None. Workers of one fleet are given one plan, so that a
    batch retried elsewhere has the same answer.
    """

    steps: int
    new_bytes: int
    step_ms: float
    share: float = ALONE
    ballast: str | None = None

    @property
    def fits(self) -> bool:
        """Whether the steps fit the share; if not, the device is too slow and answers late."""
        return self.steps * self.step_ms <= self.share * USABLE_MS + 1e-9


def share_of(workers: int) -> float:
    """The time budget of each of several workers on one device."""
    return ALONE if workers == 1 else CROWD / workers


def steps_in(step_ms: float, share: float = ALONE) -> int:
    """Whole steps that fit the share of the usable time."""
    return floor(share * USABLE_MS / step_ms + 1e-9)


def plan(
    step_ms: float, share: float = ALONE, ballast: str | None = None, fill: bool = False
) -> Plan:
    """The longest answer that fits; with `fill`, further steps until the time is used.

    A device too slow even for the shortest answer gets that one, and `fits` is False.
    """
    fitting = steps_in(step_ms, share)
    rungs = [rung for rung in RUNGS if WINDOW + rung <= fitting]
    new_bytes = rungs[-1] if rungs else RUNGS[0]
    steps = max(fitting, WINDOW + new_bytes) if fill else WINDOW + new_bytes
    return Plan(steps, new_bytes, step_ms, share, ballast)


def may_carry(size: int, free_bytes: int) -> bool:
    """Whether a ballast of this size takes at most a quarter of the free memory."""
    return 4 * size <= free_bytes


def choose(
    core_step_ms: float, candidates: Sequence[Candidate], free_bytes: int, share: float = ALONE
) -> Plan:
    """The plan with the largest ballast that fits memory and time and still leaves a whole line."""
    for heavy in sorted(candidates, key=lambda candidate: -candidate.bytes):
        if (
            may_carry(heavy.bytes, free_bytes)
            and heavy.step_ms < LONGEST_STEP_MS
            and steps_in(heavy.step_ms, share) >= FULL_STEPS
        ):
            return plan(heavy.step_ms, share, heavy.name, fill=True)
    return plan(core_step_ms, share, fill=True)
