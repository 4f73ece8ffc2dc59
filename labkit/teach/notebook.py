"""What a notebook's first cell calls, and how it shows a picture."""

from collections.abc import Mapping
from typing import Any

from labkit import __version__
from labkit.core.trace import Trace
from labkit.gpu.device import plan_workers
from labkit.teach.diagnostic import diagnostic as diagnostic
from labkit.teach.interview.cards import cards as cards
from labkit.teach.progress import progress as progress
from labkit.teach.use import exercise as exercise
from labkit.teach.use import use as use
from labkit.viz.dock import Dock
from labkit.viz.picture import Picture
from labkit.viz.segments import Segments
from labkit.viz.style import use_style


def start(number: str) -> None:
    """Set the style and say in one line what this machine answers with; works alone.

    That is what `Live(workers="auto")` starts, found without importing torch: a kernel that never
    touches CUDA cannot lose it.
    """
    if not (len(number) == 2 and number.isdecimal()):
        raise ValueError(f"start({number!r}): give the notebook's two digits, such as start('01')")
    use_style()
    print(f"notebook {number} · labkit {__version__} · live: {plan_workers().banner}")


def dock(shown: Trace | Mapping[str, Trace] | Segments, at: int | None = None) -> Dock:
    """A dock to play; where widgets do not run, the same dock stands still at `at`."""
    return Dock(shown, at=at)


def still(shown: Any, at: int | None = None) -> Picture:
    """The static twin of a dock (or of what one would show), to stand beside or instead of it."""
    return (shown if isinstance(shown, Dock) else Dock(shown)).picture(at)
