"""The colours of every picture, in one place: light and dark, for SVG and for matplotlib."""

from dataclasses import asdict, dataclass
from typing import Literal

Theme = Literal["light", "dark"]


@dataclass(frozen=True, slots=True)
class Palette:
    """One theme's colours, as `#rrggbb`.

    `teal` is the one-GPU model and "in time", `purple` the eight-GPU model (always hatched),
    `orange` the batcher, its timer and "now", `red` loss alone. `paper` lies under a picture that
    cannot see the page it is on, and is the colour of text on a filled shape.
    """

    ink: str
    muted: str
    line: str
    paper: str
    teal: str
    purple: str
    orange: str
    red: str


LIGHT = Palette(
    ink="#1f2937",
    muted="#6b7280",
    line="#d1d5db",
    paper="#ffffff",
    teal="#0f766e",
    purple="#6d28d9",
    orange="#c2410c",
    red="#b91c1c",
)
DARK = Palette(
    ink="#e5e7eb",
    muted="#9ca3af",
    line="#4b5563",
    paper="#111827",
    teal="#2dd4bf",
    purple="#a78bfa",
    orange="#fb923c",
    red="#f87171",
)

FONT = '"DejaVu Sans", Verdana, system-ui, sans-serif'
TEXT_PX = 13
SMALL_PX = 12


def palette(theme: Theme) -> Palette:
    """The colours of a theme; refuses any other name."""
    if theme == "light":
        return LIGHT
    if theme == "dark":
        return DARK
    raise ValueError(f"theme {theme!r}: choose 'light' or 'dark'")


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, 1 to 21 (WCAG 2.2, relative luminance)."""
    brighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    def linear(channel: float) -> float:
        return channel / 12.92 if channel <= 0.03928 else ((channel + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(int(colour[i : i + 2], 16) / 255) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def css(root: str = ".labkit") -> str:
    """The tokens as CSS variables on a widget's root element.

    The text colours follow JupyterLab's theme where it has them; the script sets `data-theme`.
    """
    return "\n".join(
        f'{root}[data-theme="{theme}"] {{ '
        + " ".join(f"--{name}: {_follow(name, value)};" for name, value in asdict(p).items())
        + f" color-scheme: {theme}; }}"
        for theme, p in (("light", LIGHT), ("dark", DARK))
    )


def _follow(name: str, value: str) -> str:
    """Only paper and ink are the page's own; accents keep their tested contrast."""
    jupyter = {"ink": "--jp-content-font-color1", "paper": "--jp-layout-color0"}.get(name)
    return f"var({jupyter}, {value})" if jupyter else value
