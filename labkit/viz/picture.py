"""A picture that stands alone: a PNG and the one sentence that says what it shows."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Picture:
    """PNG bytes, the sentence used as text and as alternative text, the size in CSS pixels."""

    png: bytes
    line: str
    width: int
    height: int

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

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.bundle()

    def save(self, path: Path | str) -> Path:
        """Write the PNG; returns where."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.png)
        return path
