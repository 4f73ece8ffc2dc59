"""The scripts and style sheets of the widgets, read from the files beside this one."""

from importlib.resources import files

from labkit.viz import tokens


def script(*names: str) -> str:
    """These files as one ES module: the shared parts first, the one that exports last."""
    return "\n".join(_read(name) for name in names)


def sheet(*names: str) -> str:
    """The tokens as CSS variables, then these style sheets."""
    font = f".labkit {{ --lk-font: var(--jp-ui-font-family, {tokens.FONT}); }}"
    return "\n".join([tokens.css(), font, *(_read(name) for name in names)])


def _read(name: str) -> str:
    return files("labkit.viz").joinpath(name).read_text(encoding="utf-8")
