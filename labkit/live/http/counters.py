"""What is counted at the door, as plain integers, and how Prometheus reads them."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram, in seconds; 0.5 is the objective."""


class Histogram:
    """How long calls took, from the last byte of the request; seconds."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def note(self, seconds: float) -> None:
        """Enter one."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as Prometheus wants them."""
        names = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
        return list(zip(names, map(float, accumulate(self.counts)), strict=True))


class Counters:
    """The books of the door: a response counts once, by route and status, and a call by outcome.

    `answer` and `first_piece` are by tier and model.
    """

    def __init__(self) -> None:
        self.responses: Counter[tuple[str, int]] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.answer: dict[tuple[str, str], Histogram] = defaultdict(Histogram)
        self.first_piece: dict[tuple[str, str], Histogram] = defaultdict(Histogram)
        self.in_flight = 0
        self.streams_broken = 0
        self.replays = 0
        self.retries = 0
        self.unknown_keys = 0


Gauges = Callable[[], Iterable[Metric]]


def exposition(counters: Counters, gauges: Gauges) -> Callable[[], bytes]:
    """A function that writes everything as Prometheus text; `gauges()` adds what is read live."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(counters, gauges))
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)


def gauge(name: str, text: str, value: float) -> Metric:
    """One number that goes up and down."""
    return GaugeMetricFamily(f"labkit_{name}", text, value=value)


def gauges(name: str, text: str, label: str, values: dict[str, float]) -> Metric:
    """The same, one for each value of a label."""
    family = GaugeMetricFamily(f"labkit_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def count(name: str, text: str, value: float) -> Metric:
    """One number that only grows."""
    return CounterMetricFamily(f"labkit_{name}", text, value=value)


def counts(name: str, text: str, labels: list[str], values: dict[Any, int]) -> Metric:
    """The same, one for each combination of labels."""
    family = CounterMetricFamily(f"labkit_{name}", text, labels=labels)
    for key, value in values.items():
        words = key if isinstance(key, tuple) else (key,)
        family.add_metric([str(word) for word in words], value)
    return family


def _histograms(name: str, text: str, values: dict[tuple[str, str], Histogram]) -> Metric:
    """Durations by tier and model."""
    family = HistogramMetricFamily(f"labkit_{name}_seconds", text, labels=["tier", "model"])
    for labels, histogram in values.items():
        family.add_metric(list(labels), histogram.buckets(), histogram.sum)
    return family


class _Collector:
    def __init__(self, counters: Counters, gauges: Gauges) -> None:
        self.counters = counters
        self.gauges = gauges

    def collect(self) -> Iterator[Metric]:
        own = self.counters
        yield counts(
            "http_responses",
            "Responses, by route and status; 499: the client left before one.",
            ["route", "status"],
            own.responses,
        )
        yield counts(
            "calls", "Calls for an answer, by tier and outcome.", ["tier", "outcome"], own.calls
        )
        yield _histograms("answer", "From the last byte of a request to its answer.", own.answer)
        yield _histograms(
            "first_piece", "The same to the first piece of a stream.", own.first_piece
        )
        yield gauge("in_flight_calls", "Calls without a response yet.", own.in_flight)
        yield count("streams_broken", "Streams that ended in an error event.", own.streams_broken)
        yield count("idempotent_replays", "Recorded outcomes sent again.", own.replays)
        yield count("client_retries", "Calls that say they are a retry.", own.retries)
        yield count("unknown_keys", "Requests with a key nobody has.", own.unknown_keys)
        yield from self.gauges()
