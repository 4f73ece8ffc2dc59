"""Pictures: computed once in Python from a trace, drawn by a script and by their static twins."""

from importlib import import_module
from typing import Any

_HOME = {
    "Dock": "dock",
    "Lanes": "lanes",
    "Latency": "latency",
    "LoadDock": "dock",
    "HandShell": "hand",
    "Picture": "picture",
    "budget_bar": "budget",
    "budget_line": "style",
    "dock_png": "dock_twin",
    "dock_segments": "segments",
    "load_picture": "loads",
    "run_by_hand": "hand",
    "use_style": "style",
}
"""Each name and its module, imported when the name is first asked for: matplotlib takes long."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
