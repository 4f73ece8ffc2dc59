"""What every widget of the lab is: a script to watch and, beside it, a picture and its line."""

import os
from typing import Any

import anywidget

from labkit.viz.picture import Picture
from labkit.viz.tokens import Theme

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


class Widget(anywidget.AnyWidget):
    """A widget with a static twin, which stands in wherever widgets do not run.

    `theme` is that of the twin; the script follows the page's.
    """

    theme: Theme = "light"

    def picture(self) -> Picture:
        """The static twin."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The widget, and beside it the picture and its line for whoever cannot run widgets."""
        data, metadata = self.picture().bundle()
        if os.environ.get("LABKIT_WIDGETS") != "static":
            view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
            data[WIDGET_VIEW] = view
        return data, metadata
