"""A picture that stands alone: a PNG, the same as SVG, and the sentence that says what it shows."""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Picture:
    """PNG bytes, the sentence used as text and as alternative text, the size in CSS pixels.

    `svg` draws the same once more, as text; None where nothing can. In a running notebook it is
    shown in the colours of the page, and the PNG is what the notebook keeps.
    """

    png: bytes
    line: str
    width: int
    height: int
    svg: Callable[[], str] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.line.strip():
            raise ValueError("a picture without a line of text: say in one sentence what it shows")

    def __repr__(self) -> str:
        return self.line

    def bundle(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a notebook stores: the text, the PNG, and its size and alternative text."""
        data = {"text/plain": self.line, "image/png": base64.b64encode(self.png).decode()}
        shown = {"width": self.width, "height": self.height, "alt": self.line}
        return data, {"image/png": shown}

    def _repr_mimebundle_(self, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.svg is None:
            return self.bundle()
        from labkit.viz.plate import Plate

        return Plate(self)._repr_mimebundle_(**more)

    def save(self, path: Path | str) -> Path:
        """Write it, as SVG where the name ends so and as PNG elsewhere; returns where."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() != ".svg":
            path.write_bytes(self.png)
            return path
        if self.svg is None:
            raise ValueError(f"{path}: this picture has no SVG; save it as .png")
        path.write_text(self.svg(), encoding="utf-8")
        return path
