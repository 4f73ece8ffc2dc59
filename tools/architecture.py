"""Write the code maps from the docstrings, in ARCHITECTURE.md and docs/: `make architecture`."""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "ARCHITECTURE.md"
WHOLE = ROOT / "docs" / "code-map.md"
BEGIN = "<!-- code map: written by `make architecture` -->"
END = "<!-- end of the code map -->"
ORDER = ("core", "theory", "workload", "sim", "gpu", "live", "viz", "teach", "cli")
READ_FIRST = ("core", "sim", "live", "live/http")
"""The packages whose modules ARCHITECTURE.md lists: the rulebook, its two clocks and its door."""


def first_sentence(path: Path) -> str:
    """The first sentence of a module's docstring, without its full stop."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return paragraph.split(". ")[0].removesuffix(".")


def code_map(packages: tuple[str, ...] | None = None) -> list[str]:
    """One line a module, packages in the order in which they build on each other.

    Every package has its line; the modules of only these have theirs (None for all, and for those
    beside the packages).
    """
    package = ROOT / "labkit"
    lines = []
    if packages is None:
        lines += [_line(path) for path in sorted(package.glob("*.py")) if path.stem[0] != "_"]
    folders = {path.parent for path in package.rglob("__init__.py")} - {package}
    for folder in sorted(folders, key=_rank):
        name = folder.relative_to(package).as_posix()
        lines.append(f"- **`{name}/`** {first_sentence(folder / '__init__.py')}")
        if packages is None or name in packages:
            modules = (path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py")
            lines += [_line(path) for path in modules]
    return lines


def _rank(folder: Path) -> tuple[int, str]:
    """The place of a package in the map; one that ORDER lacks comes last."""
    path = folder.relative_to(ROOT / "labkit")
    top = path.parts[0]
    return (ORDER.index(top) if top in ORDER else len(ORDER), path.as_posix())


def _line(path: Path) -> str:
    """One module's line."""
    return f"- `{path.relative_to(ROOT / 'labkit').as_posix()}` {first_sentence(path)}"


def page_with_map(page: str, packages: tuple[str, ...] | None = None) -> str:
    """A page with its code map replaced; raises ValueError when a marker is missing."""
    before, marker, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not marker or not end:
        raise ValueError(f"the page needs the lines {BEGIN!r} and {END!r} around its code map")
    return "\n".join([before + BEGIN, *code_map(packages), END]) + after


def main() -> int:
    """Rewrite both pages; the exit code."""
    for path, packages in ((PAGE, READ_FIRST), (WHOLE, None)):
        page = page_with_map(path.read_text(encoding="utf-8"), packages)
        path.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
