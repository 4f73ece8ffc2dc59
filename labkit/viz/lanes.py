"""The lanes as a widget: what each GPU does over time, and what idle time and waiting add up to."""

from collections.abc import Mapping

import traitlets

from labkit.core.trace import Trace
from labkit.viz.assets import script, sheet
from labkit.viz.lanes_moment import caption
from labkit.viz.lanes_segments import Segments, lane_segments
from labkit.viz.lanes_twin import lanes_png
from labkit.viz.picture import Picture
from labkit.viz.tokens import Theme
from labkit.viz.widget import Widget


class Lanes(Widget):
    """One lane a GPU, time from left to right: play, pause, step, scrub, zoom; starts paused.

    Give it a trace, a dict of title and trace (on one time axis), or segments already computed.
    `at` is the instant (microseconds) at which it starts and that its picture shows, the end by
    default; `window` the first and last instant that show.
    """

    _esm = script("base.js", "hatch.js", "player.js", "lanes.js")
    _css = sheet("base.css", "lanes.css")

    segments = traitlets.Dict().tag(sync=True)
    at = traitlets.Int(0).tag(sync=True)

    def __init__(
        self,
        shown: Trace | Mapping[str, Trace] | Segments,
        at: int | None = None,
        theme: Theme = "light",
        window: tuple[int, int] | None = None,
    ) -> None:
        # Segments are a dict as well; only theirs has this key, which no type can tell.
        given = isinstance(shown, dict) and "panels" in shown
        segments: Segments = shown if given else lane_segments(shown, window)  # type: ignore[assignment]
        super().__init__(segments=segments, at=segments["horizon"] if at is None else at)
        self.theme = theme

    def picture(self, at: int | None = None, theme: Theme | None = None) -> Picture:
        """The static twin, at an instant."""
        return lanes_png(self.segments, self.at if at is None else at, theme or self.theme)

    def __repr__(self) -> str:
        return caption(self.segments, self.at)
