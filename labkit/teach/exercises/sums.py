"""Reads a capacity sum written as plain text: which step is there, missing, or wrong."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import add, mul, truediv

from labkit.theory.capacity import at_target, floor_gpus, full_load

_NUMBER = re.compile(
    r"(?<![\w.,])(\d{1,3}(?:[,' \u00a0\u202f]\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"\s*(k\b)?\s*(ms|milliseconds?|s\b|sec(?:onds?)?\b|%|percent|(?:req\w*|r)?\s*/\s*s\w*|rps)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of the text: its value, its unit (`s`, `%`, `/s` or none), as written, where."""

    value: float
    unit: str
    written: str
    at: int


def figures(text: str) -> list[Figure]:
    """All numbers in order; milliseconds become seconds, percents shares, `10k` 10,000."""
    found = []
    for match in _NUMBER.finditer(text.replace("\u2009", " ")):
        digits, thousand, unit = match[1], match[2], (match[3] or "").lower().replace(" ", "")
        value = float(re.sub(r"[,' \u00a0\u202f]", "", digits)) * (1000 if thousand else 1)
        kind = ""
        if unit.startswith(("ms", "milli")):
            value, kind = value / 1000, "s"
        elif unit in ("%", "percent"):
            value, kind = value / 100, "%"
        elif "/" in unit or unit == "rps":
            kind = "/s"
        elif unit:
            kind = "s"
        found.append(Figure(value, kind, match[0].strip(), match.start()))
    return found


@dataclass(frozen=True, slots=True)
class Contract:
    """What the sum is about; `batch_time` in seconds."""

    rate: float = 10_000
    max_batch: int = 100
    batch_time: float = 0.1
    target: float = 0.65
    spares: int = 2


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its name, how it reads, the value it must have, and the steps it follows.

    `units`: what may stand behind the number. `loose`: how far off a rounded figure may be.
    """

    name: str
    reads: str
    value: float
    after: tuple[str, ...] = ()
    units: tuple[str, ...] = ("",)
    loose: float = 1e-9

    def is_met_by(self, figure: Figure) -> bool:
        """Whether this number is the step's."""
        return figure.unit in self.units and abs(figure.value - self.value) <= self.loose


def steps(contract: Contract) -> list[Step]:
    """The sum from the contract to the answer, in the order in which it is said."""
    each = contract.max_batch / contract.batch_time
    milliseconds = contract.batch_time * 1000
    load = full_load(contract.rate, contract.max_batch, milliseconds)
    least = floor_gpus(contract.rate, contract.max_batch, milliseconds)
    busy = load / contract.target
    target = at_target(load, contract.target)
    answer = at_target(load, contract.target, contract.spares)
    share = f"{contract.target * 100:g} %"
    return [
        Step("batch", f"{contract.max_batch} a batch", contract.max_batch),
        Step("batch time", f"{milliseconds:g} ms", contract.batch_time, units=("s", "")),
        Step(
            "one GPU",
            f"{contract.max_batch} / {contract.batch_time:g} s = {each:,.0f} req/s",
            each,
            ("batch", "batch time"),
            ("", "/s"),
        ),
        Step("rate", f"{contract.rate:,.0f} req/s", contract.rate, units=("", "/s")),
        Step(
            "floor",
            f"{contract.rate:,.0f} / {each:,.0f} = {load:g}"
            + (f" -> {least}" if load != least else ""),
            least,
            ("one GPU", "rate"),
        ),
        Step("target", share, contract.target, units=("%", "")),
        Step(
            "at the target",
            f"{load:g} / {contract.target:g} = {busy:.1f}",
            busy,
            ("floor", "target"),
            loose=0.051,
        ),
        Step("rounded up", f"{busy:.1f} -> {target}", target, ("at the target",)),
        Step("spares", f"+ {contract.spares}", contract.spares),
        Step("answer", f"{target} + {contract.spares} = {answer}", answer, ("rounded up",)),
    ]


@dataclass(frozen=True, slots=True)
class Found:
    """One step beside the number that stands for it; `instead` is one that stands in its place."""

    step: Step
    figure: Figure | None
    instead: Figure | None = None


def read_sum(text: str, contract: Contract) -> list[Found]:
    """Each step with its number in the text, after those it follows; None where it is missing."""
    numbers = figures(text)
    taken: dict[str, Figure] = {}
    for step in steps(contract):
        begin = max((taken[name].at for name in step.after if name in taken), default=-1)
        used = {figure.at for figure in taken.values()}
        fits = [n for n in numbers if n.at > begin and n.at not in used and step.is_met_by(n)]
        if fits:
            # The batch comes before its time; a sum that ends in 18 may say it again, later.
            taken[step.name] = fits[0]
    return list(_with_strangers(text, numbers, taken, contract))


_OPERATORS: dict[str, Callable[[float, float], float]] = {
    "/": truediv,
    "÷": truediv,
    "×": mul,
    "*": mul,
    "+": add,
}


def slip(text: str) -> str | None:
    """The first `a / b = c` in the text that is not so, in words; None when all are."""
    text = text.replace("\u2009", " ")
    numbers = figures(text)
    for a, b, c in zip(numbers, numbers[1:], numbers[2:], strict=False):
        sign = re.sub(r"[\s\w%()]", "", text[a.at + len(a.written) : b.at])
        equals = re.sub(r"[\s\w%()]", "", text[b.at + len(b.written) : c.at])
        if sign not in _OPERATORS or equals != "=" or (sign == "/" and not b.value):
            continue
        result = _OPERATORS[sign](a.value, b.value)
        if abs(result - c.value) > max(0.051, 1e-6 * abs(result)):
            shown = f"{a.written} {sign} {b.written}"
            return f"{shown} is {round(result, 2):,g}, not {c.written}"
    return None


def _with_strangers(
    text: str, numbers: list[Figure], taken: dict[str, Figure], contract: Contract
) -> Iterator[Found]:
    """A number that is no step's, where a missing step should stand, is that step gone wrong."""
    known = steps(contract)
    used = {figure.at for figure in taken.values()}
    right = [(step.value, step.units) for step in known]
    strangers = [
        n
        for n in numbers
        if n.at not in used
        and not any(abs(n.value - value) < 1e-9 and n.unit in units for value, units in right)
    ]
    for step in known:
        figure = taken.get(step.name)
        if figure is not None:
            yield Found(step, figure)
            continue
        begin = max((taken[name].at for name in step.after if name in taken), default=-1)
        later = [taken[s.name].at for s in known if step.name in s.after and s.name in taken]
        end = min(later, default=len(text))
        instead = next((n for n in strangers if begin < n.at < end and _could_be(n, step)), None)
        if instead is not None:
            strangers.remove(instead)
        yield Found(step, None, instead)


def _could_be(figure: Figure, step: Step) -> bool:
    """Of the same kind and within a factor of a thousand: a slip, not another quantity."""
    if "s" in step.units:
        return figure.unit == "s"
    if "%" in step.units:
        return figure.unit == "%" or (not figure.unit and figure.value < 1)
    return figure.unit in step.units and step.value / 100 <= figure.value <= step.value * 1000
