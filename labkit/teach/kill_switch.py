"""A row of buttons, one a GPU, each of which kills the process in its place."""

from typing import Any

import ipywidgets

from labkit.teach.served import Served, ServeError


class KillSwitch:
    """The buttons, and beneath them what the last click did."""

    def __init__(self, server: Served) -> None:
        self._server = server
        self.said = ipywidgets.Label("Nothing killed yet.")
        self.buttons = [self._button(row["gpu"]) for row in server.gpus()]
        self._box = ipywidgets.VBox([ipywidgets.HBox(self.buttons), self.said])

    def _button(self, gpu: int) -> ipywidgets.Button:
        button = ipywidgets.Button(description=f"Kill GPU {gpu}", tooltip=f"SIGKILL to GPU {gpu}")
        button.on_click(lambda _: self._kill(gpu))
        return button

    def _kill(self, gpu: int) -> None:
        try:
            aboard = self._server.gpus()[gpu]["aboard"]
            self._server.kill(gpu)
        except ServeError as error:
            self.said.value = str(error)
            return
        self.said.value = f"GPU {gpu} is dead, with {aboard} aboard."

    def __repr__(self) -> str:
        names = ", ".join(button.description for button in self.buttons)
        return f"Buttons, in a running notebook: {names}."

    def _repr_mimebundle_(self, **more: Any) -> dict[str, Any]:
        """The buttons; without widgets, their names."""
        shown: Any = self._box._repr_mimebundle_(**more)
        return {**(shown or {}), "text/plain": repr(self)}
