"""What a card says about itself: clocks, throttling, temperature, errors.

Telemetry explains a straggler; it never finds one. Which GPU is least loaded is known from the
dispatcher's own books, and a slow one shows in the time of its batches. Read it once or twice a
second at most and never on the path of a request. NVML (the package nvidia-ml-py) is optional:
without it, or when a driver refuses a question, the answer is None.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

IDLE = 0x1
"""The throttle bit of a card with nothing to do: no reason to worry, so it is left out."""

REASONS = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability limit",
}
_UNCORRECTED, _VOLATILE, _REPLAY, _SM, _CORE = 1, 0, 0, 1, 0
_MOST_LINKS = 36


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at a card; None for what it does not tell.

    Clocks in MHz, temperature in degrees Celsius, power in watts, memory in bytes; `reasons` is
    why clocks are held down, without the idle bit; the counters count since the driver loaded.
    """

    clock: int | None = None
    top_clock: int | None = None
    reasons: tuple[str, ...] = ()
    temperature: int | None = None
    power: float | None = None
    memory_used: int | None = None
    ecc_errors: int | None = None
    link_replays: int | None = None

    @property
    def why_slow(self) -> str | None:
        """The sentence for a straggler's tooltip; None when the card looks healthy."""
        found = list(self.reasons)
        if self.ecc_errors:
            found.append(f"{self.ecc_errors} uncorrected memory errors")
        if self.link_replays:
            found.append(f"{self.link_replays} link replays")
        if not found:
            return None
        speed = f"{self.clock} of {self.top_clock} MHz: " if self.clock and self.top_clock else ""
        return speed + ", ".join(found)


class Telemetry(Protocol):
    """A source of readings for one fleet."""

    def read(self, uuid: str) -> Reading | None:
        """The card with this UUID now; None when nothing can be said."""


class Simulated:
    """Readings from a table, for machines without a card and for lessons: UUID to reading."""

    def __init__(self, readings: Mapping[str, Reading]) -> None:
        self.readings = dict(readings)

    def read(self, uuid: str) -> Reading | None:
        """The reading in the table."""
        return self.readings.get(uuid)


class Nvml:
    """Readings from the driver through an NVML module (`pynvml` of nvidia-ml-py).

    The module is handed in, or imported when the first reading is asked for.
    """

    def __init__(self, module: Any = None) -> None:
        self._nvml = module
        self._started = False
        self._broken = False

    def read(self, uuid: str) -> Reading | None:
        """The card now; None without the module, the driver or the card."""
        if not self._start():
            return None
        nvml = self._nvml
        card = self._ask(nvml.nvmlDeviceGetHandleByUUID, uuid)
        if card is None:
            return None
        milliwatts = self._ask(nvml.nvmlDeviceGetPowerUsage, card)
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, card)
        return Reading(
            clock=self._ask(nvml.nvmlDeviceGetClockInfo, card, _SM),
            top_clock=self._ask(nvml.nvmlDeviceGetMaxClockInfo, card, _SM),
            reasons=self._reasons(card),
            temperature=self._ask(nvml.nvmlDeviceGetTemperature, card, _CORE),
            power=None if milliwatts is None else milliwatts / 1000,
            memory_used=None if memory is None else int(memory.used),
            ecc_errors=self._ask(nvml.nvmlDeviceGetTotalEccErrors, card, _UNCORRECTED, _VOLATILE),
            link_replays=self._link_replays(card),
        )

    def _start(self) -> bool:
        if self._started or self._broken:
            return self._started
        try:
            self._nvml = self._nvml or importlib.import_module("pynvml")
        except ImportError:
            self._broken = True
            return False
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError:
            self._broken = True
        else:
            self._started = True
        return self._started

    def _ask(self, question: Callable[..., Any], *about: Any) -> Any:
        """The answer, or None when the driver refuses or does not know the question."""
        try:
            return question(*about)
        except self._nvml.NVMLError:
            return None

    def _reasons(self, card: Any) -> tuple[str, ...]:
        # Drivers before 535 know the question by its older name only.
        for name in ("ClocksEventReasons", "ClocksThrottleReasons"):
            question = getattr(self._nvml, f"nvmlDeviceGetCurrent{name}", None)
            bits = None if question is None else self._ask(question, card)
            if bits is not None:
                return reasons(bits)
        return ()

    def _link_replays(self, card: Any) -> int | None:
        total = None
        for link in range(_MOST_LINKS):
            if self._ask(self._nvml.nvmlDeviceGetNvLinkState, card, link) != 1:
                break
            count = self._ask(self._nvml.nvmlDeviceGetNvLinkErrorCounter, card, link, _REPLAY)
            if count is not None:
                total = (total or 0) + int(count)
        return total


def reasons(bits: int) -> tuple[str, ...]:
    """The reasons in a throttle mask, without the idle bit; an unknown bit gives its value."""
    bits &= ~IDLE
    named = [text for bit, text in REASONS.items() if bits & bit]
    unknown = bits & ~sum(REASONS)
    return (*named, f"reason {unknown:#x}") if unknown else tuple(named)
