"""The dock as a widget: replays a trace, or puts its viewer in the place of the load."""

import threading
from collections.abc import Mapping
from typing import Any

import traitlets

from labkit.core.gateway import Gateway
from labkit.core.messages import Request
from labkit.core.settings import Settings
from labkit.core.trace import Trace
from labkit.core.units import NEVER, S
from labkit.viz.assets import script, sheet
from labkit.viz.dock_twin import dock_png
from labkit.viz.hand import HandShell, MakeGateway
from labkit.viz.moment import caption, telling_instant
from labkit.viz.picture import Picture
from labkit.viz.segments import OPEN, Segments, dock_segments
from labkit.viz.tokens import Theme
from labkit.viz.widget import Widget

MORNING = Settings(max_batch=6, max_wait=3 * S, batch_time=5 * S, budget=None)
"""The ferry at a pace at which a person can be the load."""

MOST_BOARDED = 300
"""Then the dock asks to start again: each press sends the whole picture anew."""


class Dock(Widget):
    """A ferry dock to watch: play, pause, step, scrub; starts paused.

    Give it a trace, a dict of title and trace (rules on the same arrivals, on one time axis), or
    segments already computed. `at` is the instant (microseconds) of the picture that stands in
    where no widget can: GitHub, a reopened notebook, `LABKIT_WIDGETS=static`.
    """

    _esm = script("base.js", "player.js", "load.js", "dock.js")
    _css = sheet("base.css", "dock.css")

    segments = traitlets.Dict().tag(sync=True)
    mode = traitlets.Unicode("replay").tag(sync=True)
    begin = traitlets.Int(0).tag(sync=True)
    origin = traitlets.Int(0).tag(sync=True)
    due_at = traitlets.Int(OPEN).tag(sync=True)

    def __init__(
        self,
        shown: Trace | Mapping[str, Trace] | Segments,
        at: int | None = None,
        theme: Theme = "light",
    ) -> None:
        # Segments are a dict as well; only theirs has this key, which no type can tell.
        given = isinstance(shown, dict) and "docks" in shown
        segments: Segments = shown if given else dock_segments(shown)  # type: ignore[assignment]
        super().__init__(segments=segments, begin=at or 0)
        self.at = telling_instant(segments) if at is None else at
        self.theme = theme

    def picture(self, at: int | None = None, theme: Theme | None = None) -> Picture:
        """The static twin, at an instant."""
        return dock_png(self.segments, self.at if at is None else at, theme or self.theme)

    def __repr__(self) -> str:
        return caption(self.segments, self.at)


class LoadDock(Dock):
    """You are the load: a press boards a real gateway, and what it decides is what moves.

    `gateway` makes the scheduler from the settings. `trace` holds what happened so far; hand it
    to `Dock` to watch it again.
    """

    def __init__(
        self, settings: Settings = MORNING, gpus: int = 1, gateway: MakeGateway = Gateway
    ) -> None:
        self._make = lambda: HandShell(settings, gpus, gateway)
        self._shell = self._make()
        self._lock = threading.Lock()
        super().__init__(self.trace, at=0)
        self.mode = "load"
        self.on_msg(self._told)

    @property
    def trace(self) -> Trace:
        """Everything that this dock's gateway was told."""
        return self._shell.trace

    def _told(self, _: Any, content: Mapping[str, Any], __: Any) -> None:
        """A press, a timer, or a wish to start again; `at` is the browser's clock."""
        with self._lock:
            kind = content.get("type")
            if kind == "again":
                self._shell, self.origin = self._make(), 0
            elif kind in ("board", "tick"):
                self._move(kind, int(content["at"]))
            self._publish()

    def _move(self, kind: str, clock: int) -> None:
        if not self.origin:
            self.origin = clock
        now = max(clock - self.origin, self._shell.now)
        count = sum(step.verb == "arrive" for step in self.trace.steps)
        if kind == "board" and count < MOST_BOARDED:
            self._shell.board([Request(count, arrived_at=now)], now)
        else:
            self._shell.until(now)

    def _publish(self) -> None:
        due_at = self._shell.due_at
        with self.hold_sync():
            self.due_at = OPEN if due_at == NEVER else due_at
            self.segments = dock_segments(self.trace, pace=S)
