"""The board: a running service in live numbers, from its clients to its GPUs, and a kill switch."""

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

import traitlets

from labkit.viz.assets import script, sheet
from labkit.viz.board_twin import board_png, board_words
from labkit.viz.picture import Picture
from labkit.viz.tokens import Theme
from labkit.viz.widget import Widget

EVERY_S = 0.25


class Gpu(TypedDict):
    """One GPU: its number, its state in a word, how many are aboard, how often it was replaced."""

    gpu: int
    state: str
    aboard: int
    restarts: int


class Moment(TypedDict):
    """What the board shows at one instant, all of it counts.

    `sent`, `ended` and `on_the_way` are the clients' own; `answered` and `refused` are calls by
    the door's, `depth` is who waits, `again` who went down with a GPU and out again.
    """

    sent: int
    ended: int
    on_the_way: int
    answered: int
    refused: int
    depth: int
    again: int
    most: int
    gpus: list[Gpu]


class Board(Widget):
    """Asks `look` for a `Moment` four times a second, and calls `kill` with the GPU pressed.

    `kill` says in a sentence what it did. `look` says None when the service is gone; that is the
    end of it.
    """

    _esm = script("base.js", "board.js")
    _css = sheet("base.css", "board.css")

    now = traitlets.Dict().tag(sync=True)
    over = traitlets.Bool(False).tag(sync=True)
    told = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        look: Callable[[], Moment | None],
        kill: Callable[[int], str],
        theme: Theme = "light",
        every_s: float = EVERY_S,
    ) -> None:
        self._look, self._kill = look, kill
        first = look()
        super().__init__(now=first or {}, over=first is None)
        self.theme = theme
        self.on_msg(self._pressed)
        if first is not None:
            watching = (weakref.ref(self), every_s, threading.Event())
            weakref.finalize(self, watching[2].set)
            threading.Thread(target=_watch, args=watching, name="board", daemon=True).start()

    def update(self) -> bool:
        """Look once; false when there is nothing to look at any more."""
        seen = self._look()
        if seen is not None:
            self.now = dict(seen)
        self.over = seen is None
        return not self.over

    def press(self, gpu: int) -> str:
        """What the button of this GPU does; what came of it."""
        return self._kill(gpu)

    def picture(self, theme: Theme | None = None) -> Picture:
        """The static twin of what it shows now."""
        return board_png(self.now, theme or self.theme)

    def _repr_mimebundle_(self, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Shown anew, its static twin is of this moment and not of the last look."""
        if not self.over:
            self.update()
        return super()._repr_mimebundle_(**more)

    def __repr__(self) -> str:
        return board_words(self.now)

    def _pressed(self, _: Any, content: Mapping[str, Any], __: Any) -> None:
        if content.get("type") == "kill":
            words = self.press(int(content["gpu"]))
            self.told = {"ask": content.get("ask"), "words": words}


def _watch(board: "weakref.ref[Board]", every_s: float, gone: threading.Event) -> None:
    """Until the service or the board is gone; holds neither of them between two looks."""
    while not gone.wait(every_s):
        one = board()
        if one is None or not one.update():
            return
        del one
