"""Latency under four sliders: each move simulates anew, and the old shape stays behind in grey."""

import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import traitlets

from labkit.viz.assets import script, sheet
from labkit.viz.budget import budget_bar
from labkit.viz.latency_segments import latency_segments
from labkit.viz.latency_shape import Batches, Choice, Shape, shape_of
from labkit.viz.latency_twin import latency_png
from labkit.viz.picture import Picture
from labkit.viz.tokens import Theme
from labkit.viz.widget import Widget
from labkit.workload.arrivals import poisson
from labkit.workload.streams import stream

__all__ = ["Latency", "budget_bar"]

Simulate = Callable[..., Batches]

RATES = (20, 50, 100, 200, 300, 500, 700, 1_000, 1_500, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000,
         8_000, 9_000, 10_000, 11_000, 12_000, 15_000, 18_000, 20_000)  # fmt: skip
WINDOWS_MS = range(0, 205, 5)
BATCHES = (*range(1, 10), *range(10, 101, 5))
FEWEST_GPUS = 24
"""The slider of GPUs goes at least so far."""


class Latency(Widget):
    """How long requests take under four sliders: rate, window, GPUs, most a batch.

    `simulate(instants, gpus=, max_batch=, max_wait=)` (microseconds) hands back all batches of a
    run, as `labkit.sim.fast.crossings` does. `rate` is per second; the arrivals are Poisson for
    `seconds`, the same for one rate and seed. `budget`, `network_ms` and `reserve_ms`: the
    objective end to end, what of it lies outside the gateway, and what one retry needs.
    """

    _esm = script("base.js", "hatch.js", "budget.js", "latency.js")
    _css = sheet("base.css", "budget.css", "latency.css")

    segments = traitlets.Dict().tag(sync=True)
    sliders: traitlets.List[Any] = traitlets.List().tag(sync=True)
    choice = traitlets.Dict().tag(sync=True)
    answered = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        simulate: Simulate,
        *,
        rate: float,
        gpus: int,
        max_wait_ms: float = 50,
        max_batch: int = 100,
        seconds: float = 5,
        seed: int = 1,
        budget: float = 500,
        network_ms: float = 30,
        reserve_ms: float = 200,
        theme: Theme = "light",
    ) -> None:
        self._simulate, self._lock = simulate, threading.Lock()
        self._arrivals = lru_cache(maxsize=16)(
            lambda rate: poisson(rate, seconds, stream(seed, "arrivals"))
        )
        self._limits = (budget, network_ms, reserve_ms)
        self._old: Shape | None = None
        chosen = Choice(rate, gpus, max_wait_ms, max_batch)
        self._shape = self._run(chosen)
        super().__init__(sliders=sliders(chosen), **self._shown())
        self.theme = theme
        self.on_msg(self._told)

    def choose(self, **changes: float) -> None:
        """Move sliders by hand: `choose(gpus=12)`; the shape so far stays behind in grey."""
        with self._lock:
            self._move({**_plain(self._shape.choice), **changes}, fresh=True)

    def picture(self, theme: Theme | None = None) -> Picture:
        """The static twin of what the sliders show now."""
        return latency_png(self.segments, theme or self.theme)

    def __repr__(self) -> str:
        return str(self.segments["line"])

    # -- a slider moves ------------------------------------------------------------------------

    def _told(self, _: Any, content: Mapping[str, Any], __: Any) -> None:
        """Where a view's sliders stand; `view` and `ask` come back with the answer."""
        if content.get("type") != "set":
            return
        answer = {"view": content.get("view"), "ask": content.get("ask"), "error": ""}
        with self._lock, self.hold_sync():
            try:
                self._move(content["choice"], fresh=bool(content.get("fresh")))
            except Exception as error:
                answer["error"] = f"{type(error).__name__}: {error}"
            self.answered = answer

    def _move(self, values: Mapping[str, Any], *, fresh: bool) -> None:
        chosen = Choice(**values)
        if chosen == self._shape.choice:
            return
        new = self._run(chosen)
        if fresh or self._old is None:
            self._old = self._shape
        self._shape = new
        with self.hold_sync():
            for name, value in self._shown().items():
                setattr(self, name, value)

    def _run(self, choice: Choice) -> Shape:
        instants = self._arrivals(choice.rate)
        if not instants:
            raise ValueError(
                f"rate {choice.rate:g} a second: nobody came; use a higher rate or more seconds"
            )
        run = self._simulate(
            instants,
            gpus=choice.gpus,
            max_batch=choice.max_batch,
            max_wait=round(choice.max_wait_ms * 1000),
        )
        if not hasattr(run, "batches") or not hasattr(run, "returned_at"):
            raise TypeError(
                f"simulate handed back a {type(run).__name__} without its batches; "
                "pass labkit.sim.fast.crossings, or a function that returns what it returns"
            )
        return shape_of(choice, instants, run)

    def _shown(self) -> dict[str, Any]:
        segments = latency_segments(self._shape, self._old, *self._limits)
        return {"segments": segments, "choice": _plain(self._shape.choice)}


def sliders(choice: Choice) -> list[dict[str, Any]]:
    """The four sliders as lists of the values they stop at, the first choice among them."""
    most = max(FEWEST_GPUS, 2 * choice.gpus)
    stops = {
        "rate": ("requests a second", "", RATES),
        "gpus": ("GPUs", "", range(1, most + 1)),
        "max_wait_ms": ("window", "ms", WINDOWS_MS),
        "max_batch": ("most a batch", "", BATCHES),
    }
    return [
        {"name": name, "label": label, "unit": unit,
         "values": sorted({*values, getattr(choice, name)})}
        for name, (label, unit, values) in stops.items()
    ]  # fmt: skip


def _plain(choice: Choice) -> dict[str, float]:
    return {name: getattr(choice, name) for name in Choice.__slots__}
