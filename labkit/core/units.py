"""Time inside the lab: integer microseconds, converted once, at the border."""

from typing import Final

US: Final = 1
MS: Final = 1_000
S: Final = 1_000_000

NOW: Final = 0
"""An instant that is always past: "due already"."""

NEVER: Final = 1 << 62
"""An instant later than every other: "no work is due"."""


def from_ms(milliseconds: float) -> int:
    """Milliseconds as the nearest whole microsecond."""
    return round(milliseconds * MS)


def from_seconds(seconds: float) -> int:
    """Seconds as the nearest whole microsecond."""
    return round(seconds * S)


def to_ms(microseconds: float) -> float:
    """Microseconds as milliseconds, for people."""
    return microseconds / MS


def to_seconds(microseconds: float) -> float:
    """Microseconds as seconds, for people."""
    return microseconds / S


def show_ms(microseconds: float) -> str:
    """A duration as a person writes it: `50 ms`, `4.95 ms`."""
    return f"{microseconds / MS:g} ms"
