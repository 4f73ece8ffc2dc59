"""Measuring with a simulator: independent replications, confidence intervals, comparisons, sweeps.

A single run is an anecdote. Latencies inside one run depend on each other, so an interval comes
from the spread between runs with independent seeds, never from the spread inside one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import cos, pi, sin, sqrt, tan
from statistics import fmean, stdev
from typing import Any, Self, TypeVar

from labkit.workload.streams import stream

V = TypeVar("V")
R = TypeVar("R")

Progress = Callable[[int], None]
"""Told how many runs are done."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean of `count` independent runs and its confidence interval, `mean` +- `half_width`.

    The half width is None for a single run, which says nothing about its own error.
    """

    mean: float
    half_width: float | None
    count: int
    confidence: float = 0.95

    @classmethod
    def of(cls, values: Sequence[float], confidence: float = 0.95) -> Self:
        """Student's interval of independent observations."""
        if not values:
            raise ValueError("no observations: an estimate needs at least 1 run")
        if len(values) == 1:
            return cls(values[0], None, 1, confidence)
        wide = student_t(confidence, len(values) - 1) * stdev(values) / sqrt(len(values))
        return cls(fmean(values), wide, len(values), confidence)

    @property
    def low(self) -> float:
        """The lower end; -inf for a single run."""
        return float("-inf") if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float:
        """The upper end; inf for a single run."""
        return float("inf") if self.half_width is None else self.mean + self.half_width

    def holds(self, value: float) -> bool:
        """Whether `value` lies inside the interval."""
        return self.low <= value <= self.high

    def as_dict(self) -> dict[str, float | int | None]:
        """Plain values, for JSON."""
        wide = self.half_width
        return {
            "mean": round(self.mean, 4),
            "half_width": None if wide is None else round(wide, 4),
            "confidence": self.confidence,
            "count": self.count,
        }


def replication_seeds(seed: int, count: int) -> list[int]:
    """Seeds of `count` independent replications; more of them do not change the first ones."""
    rng = stream(seed, "replications")
    return [int(rng.random() * (1 << 53)) for _ in range(count)]


def replicate(
    run: Callable[[int], Mapping[str, Any]],
    replications: int,
    *,
    seed: int = 0,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> dict[str, Estimate]:
    """Run `run(seed)` with independent seeds and estimate every number in the reports it returns.

    Nested reports get dotted names, such as `latency_ms.p95`. A number that is missing (None) in
    any run gets no estimate, since leaving out the bad runs would flatter it.
    """
    if replications < 1:
        raise ValueError(f"replications {replications}: must be 1 or more")
    reports = []
    for done, run_seed in enumerate(replication_seeds(seed, replications), 1):
        reports.append(flat(run(run_seed)))
        if progress is not None:
            progress(done)
    estimates = {}
    for name in reports[0]:
        values = [value for report in reports if (value := report.get(name)) is not None]
        if len(values) == len(reports):
            estimates[name] = Estimate.of(values, confidence)
    return estimates


def compare(
    ours: Callable[[int], float],
    theirs: Callable[[int], float],
    replications: int,
    *,
    seed: int = 0,
    confidence: float = 0.95,
) -> Estimate:
    """The mean of ours - theirs, paired by seed: the same arrivals meet both.

    Common random numbers cancel what both runs suffer alike, so the interval is narrower than
    that of two separate experiments. An interval without 0 in it is a difference.
    """
    seeds = replication_seeds(seed, replications)
    return Estimate.of([ours(one) - theirs(one) for one in seeds], confidence)


def sweep(
    values: Iterable[V], run: Callable[[V], R], progress: Progress | None = None
) -> list[tuple[V, R]]:
    """`run` at every value, in order; `progress` is told how many are done."""
    results = []
    for done, value in enumerate(values, 1):
        results.append((value, run(value)))
        if progress is not None:
            progress(done)
    return results


def flat(report: Mapping[str, Any], prefix: str = "") -> dict[str, float | None]:
    """The numbers of a nested report under dotted names; None stays, everything else is left."""
    numbers: dict[str, float | None] = {}
    for name, value in report.items():
        if isinstance(value, Mapping):
            numbers |= flat(value, f"{prefix}{name}.")
        elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            numbers[prefix + name] = value
    return numbers


def student_t(confidence: float, freedom: int) -> float:
    """The two-sided quantile of Student's t: P(-t < T < t) = `confidence`.

    The distribution for whole degrees of freedom is a finite sum in theta = atan(t / sqrt(nu))
    (Abramowitz and Stegun 26.7.3 and 26.7.4), solved here for theta by bisection.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence:g}: must be between 0 and 1, such as 0.95")
    if freedom < 1:
        raise ValueError(f"{freedom} degrees of freedom: an interval needs at least 2 runs")
    low, high = 0.0, pi / 2
    for _ in range(100):
        middle = (low + high) / 2
        if _central(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return tan(low) * sqrt(freedom)


def _central(theta: float, freedom: int) -> float:
    """P(-t < T < t) for t = sqrt(freedom) tan(theta)."""
    square = cos(theta) ** 2
    odd = freedom % 2
    total, term = 0.0, cos(theta) if odd else 1.0
    for step in range(freedom // 2):
        total += term
        term *= square * (2 * step + 1 + odd) / (2 * step + 2 + odd)
    part = sin(theta) * total
    return (theta + part) * 2 / pi if odd else part
