"""What `/metrics` says: the counters of the door and the state of the engine, for Prometheus."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest

from labkit.live.desk import DeskEngine
from labkit.live.http.access import AccessLog
from labkit.live.http.counters import Counters, Histogram
from labkit.live.http.patience import DrainMeter


def exposition(
    counters: Counters,
    engine: DeskEngine,
    drain: Mapping[str, DrainMeter],
    access: AccessLog | None,
) -> Callable[[], bytes]:
    """A function that writes everything as Prometheus text; `drain` is by model."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(counters, engine, drain, access))
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)


class _Collector:
    def __init__(
        self,
        counters: Counters,
        engine: DeskEngine,
        drain: Mapping[str, DrainMeter],
        access: AccessLog | None,
    ) -> None:
        self.counters = counters
        self.engine = engine
        self.drain = drain
        self.access = access

    def collect(self) -> Iterator[Metric]:
        yield from self._door()
        yield from self._engine()
        if self.access is not None:
            yield _count("access_log_lost_lines", "Lines no disk would take.", self.access.lost)

    def _door(self) -> Iterator[Metric]:
        own = self.counters
        yield _counts(
            "http_responses",
            "Responses, by route and status; 499: the client left before one.",
            ["route", "status"],
            own.responses,
        )
        yield _counts(
            "calls", "Calls for an answer, by tier and outcome.", ["tier", "outcome"], own.calls
        )
        yield _histograms("answer", "From the last byte of a request to its answer.", own.answer)
        yield _histograms(
            "first_piece", "The same to the first piece of a stream.", own.first_piece
        )
        yield _gauge("in_flight_calls", "Calls without a response yet.", own.in_flight)
        yield _count("streams_broken", "Streams that ended in an error event.", own.streams_broken)
        yield _count("idempotent_replays", "Recorded outcomes sent again.", own.replays)
        yield _count("client_retries", "Calls that say they are a retry.", own.retries)
        yield _count("unknown_keys", "Requests with a key nobody has.", own.unknown_keys)

    def _engine(self) -> Iterator[Metric]:
        shell, gateway, models = self.engine.shell, self.engine.gateway, tuple(self.drain)
        yield _gauges(
            "queue_depth", "Requests that wait.", "model", {m: gateway.depth(m) for m in models}
        )
        yield _gauge("on_gpu_requests", "Requests on a GPU.", gateway.in_flight())
        yield _gauges(
            "gpus_ready", "GPUs in service.", "model", {m: len(gateway.gpus(m)) for m in models}
        )
        now = self.engine.loop.time()
        rates = {model: meter.rate(now) or 0.0 for model, meter in self.drain.items()}
        yield _gauges("drained_rows_per_second", "Answers while a queue waits.", "model", rates)
        yield _gauge("streamed_prompts", "Prompts of streams not at their end.", len(shell.streams))
        yield _gauge("idempotency_keys", "Keys in flight or kept.", len(shell.door.keys))
        yield _counts("batches", "Batches that departed.", ["model", "reason"], dict(shell.reasons))
        yield _count("batch_rows", "Requests aboard them.", shell.aboard)
        yield _count("returned_rows", "Requests that came back from a GPU.", shell.returned.total())
        yield _counts("refused_requests", "Not let in.", ["code"], dict(gateway.refused))
        yield _count("late_results", "Results of lost GPUs, dropped.", gateway.late)
        yield _count("contract_violations", "Batches computed too slowly.", shell.violations)


def _gauge(name: str, text: str, value: float) -> Metric:
    """One number that goes up and down."""
    return GaugeMetricFamily(f"labkit_{name}", text, value=value)


def _gauges(name: str, text: str, label: str, values: dict[str, float]) -> Metric:
    """The same, one for each value of a label."""
    family = GaugeMetricFamily(f"labkit_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _count(name: str, text: str, value: float) -> Metric:
    """One number that only grows."""
    return CounterMetricFamily(f"labkit_{name}", text, value=value)


def _counts(name: str, text: str, labels: list[str], values: dict[Any, int]) -> Metric:
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
