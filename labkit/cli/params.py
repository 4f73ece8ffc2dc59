"""The option types of the command line: what each takes, and what it says to anything else."""

from collections.abc import Callable
from math import inf, isfinite
from typing import Any, Literal

import click

from labkit.core.settings import CONTRACT_MAX_BATCH, ModelRule
from labkit.core.units import from_ms

LEAST, MOST = 1e-6, 1e12
MOST_MS = 86_400_000


def _number(value: Any, fail: Callable[[str], Any], remedy: str) -> float:
    """`value` as a finite float, or `fail` with the value and the remedy."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        fail(f"{value!r} is not a number; {remedy}")
        raise AssertionError from None
    if not isfinite(number):
        fail(f"{value!r} is not a finite number; {remedy}")
    return number


class Rate(click.ParamType):
    """A number above 0 that somebody might mean: requests a second, seconds, or a factor.

    `name` is what the help page calls it.
    """

    def __init__(self, example: str = "100", name: str = "rate") -> None:
        self.example = example
        self.name = name

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number; 0, negative, nan and inf are refused with the value."""
        remedy = f"give a number above 0, such as {self.example}"
        number = _number(value, lambda text: self.fail(text, param, ctx), remedy)
        if number <= 0:
            self.fail(f"{value} is not above 0; {remedy}", param, ctx)
        if not LEAST <= number <= MOST:
            self.fail(f"{value} is beyond {LEAST:g} to {MOST:g}; {remedy}", param, ctx)
        return number


class Fraction(click.ParamType):
    """A share, above 0 and at most 1."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The share; a percentage such as 65 is refused with the share it stands for."""
        number = _number(
            value, lambda text: self.fail(text, param, ctx), "give a share such as 0.65"
        )
        if 1 < number <= 100:
            self.fail(f"{value} is over 1; for {value} % give {number / 100:g}", param, ctx)
        if not 0 < number <= 1:
            self.fail(f"{value} is not between 0 and 1; give a share such as 0.65", param, ctx)
        return number


class Span(click.ParamType):
    """Milliseconds as people write them, handed on as a float: for the formulas.

    `above_zero` refuses 0; `infinite` admits `inf`.
    """

    name = "ms"

    def __init__(self, above_zero: bool = False, infinite: bool = False) -> None:
        self.above_zero = above_zero
        self.infinite = infinite

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Milliseconds, at most a day unless infinite."""
        if self.infinite and str(value).lower() == "inf":
            return inf
        remedy = "give milliseconds, such as 50" + (", or inf" if self.infinite else "")
        number = _number(value, lambda text: self.fail(text, param, ctx), remedy)
        if number < 0 or (self.above_zero and from_ms(number) == 0):
            bound = "more than 0" if self.above_zero else "0 or more"
            self.fail(f"{value} ms must be {bound}; {remedy}", param, ctx)
        if number > MOST_MS:
            self.fail(f"{value} ms is over a day; {remedy}", param, ctx)
        return number


class Milliseconds(Span):
    """Milliseconds as people write them, handed on as whole microseconds: for the core.

    `optional` admits `none`.
    """

    def __init__(self, above_zero: bool = False, optional: bool = False) -> None:
        super().__init__(above_zero)
        self.optional = optional

    def convert(  # type: ignore[override]
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        """Whole microseconds; None for `none` where the option allows it."""
        if self.optional and str(value).lower() == "none":
            return None
        return from_ms(super().convert(value, param, ctx))


class Count(click.ParamType):
    """A whole number between two bounds."""

    name = "count"

    def __init__(self, least: int, most: int | None = None) -> None:
        self.least = least
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; anything else is refused with the bounds."""
        bounds = f"{self.least} or more" if self.most is None else f"{self.least} to {self.most}"
        try:
            number = int(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a whole number; give {bounds}", param, ctx)
        if number < self.least or (self.most is not None and number > self.most):
            self.fail(f"{value} is out of range; give {bounds}", param, ctx)
        return number


class BacklogParam(click.ParamType):
    """Batches a GPU may hold unstarted: a whole number, or `inf` (None) for push without bound."""

    name = "backlog"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        """None for `inf`."""
        if str(value).lower() == "inf":
            return None
        if not str(value).isdecimal():
            self.fail(f"{value!r} is no backlog; give 0 (pull), 1, 2, ... or inf", param, ctx)
        return int(value)


class LimitParam(click.ParamType):
    """How many requests may wait: a whole number, `none` (None), or `auto` from the budget."""

    name = "limit"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | Literal["auto"] | None:
        """None for `none`, the word itself for `auto`."""
        word = str(value).lower()
        if word == "none":
            return None
        if word == "auto":
            return "auto"
        if not word.isdecimal() or not int(word):
            self.fail(
                f"{value!r} is no limit; give a whole number above 0, none, or auto", param, ctx
            )
        return int(word)


class ShareParam(click.ParamType):
    """A tier and the percent of the depth limit that it may fill, as `free=80`."""

    name = "tier=percent"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """The tier's name and the percent."""
        if isinstance(value, tuple):
            return value
        tier, _, percent = str(value).partition("=")
        if not tier or not percent.isdecimal() or not 1 <= int(percent) <= 100:
            self.fail(f"{value!r}: give a tier and its percent, 1 to 100, as free=80", param, ctx)
        return tier, int(percent)


class ModelParam(click.ParamType):
    """A model by name, perhaps of its own size: `barge,max-batch=8,batch-ms=40,max-wait-ms=10`."""

    name = "model"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> ModelRule:
        """The name and the numbers that differ from the gateway's."""
        if isinstance(value, ModelRule):
            return value
        name, *parts = str(value).split(",")
        own: dict[str, int | None] = {}
        for part in parts:
            word, _, number = part.partition("=")
            if word not in _OF_A_MODEL:
                self.fail(f"{part!r}: give {', '.join(_OF_A_MODEL)}, as max-batch=8", param, ctx)
            field, kind = _OF_A_MODEL[word]
            own[field] = kind.convert(number, param, ctx)
        if not name:
            self.fail(f"{value!r} has no name; give one, as barge,max-batch=8", param, ctx)
        return ModelRule(name, **own)


_OF_A_MODEL: dict[str, tuple[str, Count | Milliseconds]] = {
    "max-batch": ("max_batch", Count(1, CONTRACT_MAX_BATCH)),
    "batch-ms": ("batch_time", Milliseconds(above_zero=True)),
    "max-wait-ms": ("max_wait", Milliseconds()),
}


class Choice(click.ParamType):
    """One of the core's names, written with hyphens on the command line."""

    name = "name"

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.shown = "|".join(name.replace("_", "-") for name in names)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """The choices, for the help page."""
        return f"[{self.shown}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The core's own spelling."""
        name = str(value).lower().replace("-", "_")
        if name not in self.names:
            self.fail(f"{value!r} is unknown; choose one of {self.shown}", param, ctx)
        return name
