"""What the formulas refuse, said with the value and the remedy."""

from math import isfinite, isnan


class OutOfDomain(ValueError):
    """A number for which a formula has no answer."""


def above_zero(name: str, value: float) -> float:
    """`value` when it is a finite number above 0."""
    if not isfinite(value) or value <= 0:
        raise OutOfDomain(f"{name} {value}: must be a finite number above 0")
    return value


def zero_or_more(name: str, value: float, infinite: bool = False) -> float:
    """`value` when it is 0 or more; infinity only where the formula has a limit there."""
    if isnan(value) or value < 0 or (value == float("inf") and not infinite):
        remedy = "0 or more, or inf" if infinite else "a finite number, 0 or more"
        raise OutOfDomain(f"{name} {value}: must be {remedy}")
    return value


def whole(name: str, value: int, least: int = 1) -> int:
    """`value` when it is a whole number of at least `least`."""
    if value != value or value in (float("inf"), float("-inf")) or int(value) != value:
        raise OutOfDomain(f"{name} {value}: must be a whole number, {least} or more")
    if value < least:
        raise OutOfDomain(f"{name} {value}: must be {least} or more")
    return int(value)


def share(name: str, value: float, one: bool = True) -> float:
    """`value` when it lies above 0 and is at most 1 (below 1 when `one` is false)."""
    if not 0 < value <= 1 or (value == 1 and not one):
        bound = "at most 1" if one else "below 1"
        raise OutOfDomain(f"{name} {value}: must be above 0 and {bound}")
    return value
