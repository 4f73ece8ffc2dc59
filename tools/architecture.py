"""Write the code map of ARCHITECTURE.md from the docstrings: `make architecture`."""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "ARCHITECTURE.md"
BEGIN = "<!-- code map: written by `make architecture` -->"
END = "<!-- end of the code map -->"
ORDER = ("core", "theory", "workload", "sim", "gpu", "live", "viz", "teach", "cli")


def first_sentence(path: Path) -> str:
    """The first sentence of a module's docstring, without its full stop."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return paragraph.split(". ")[0].removesuffix(".")


def code_map() -> list[str]:
    """One line a module, packages in the order in which they build on each other."""
    package = ROOT / "labkit"
    lines = [_line(path, package) for path in sorted(package.glob("*.py")) if path.stem[0] != "_"]
    folders = {path.parent for path in package.rglob("__init__.py")} - {package}
    for folder in sorted(folders, key=lambda f: _rank(f.relative_to(package))):
        name = folder.relative_to(package).as_posix()
        lines.append(f"- **`{name}/`** {first_sentence(folder / '__init__.py')}")
        modules = (path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py")
        lines += [_line(path, package) for path in modules]
    return lines


def _rank(folder: Path) -> tuple[int, str]:
    """The place of a package in the map; one that ORDER lacks comes last."""
    top = folder.parts[0]
    return (ORDER.index(top) if top in ORDER else len(ORDER), folder.as_posix())


def _line(path: Path, package: Path) -> str:
    """One module's line."""
    return f"- `{path.relative_to(package).as_posix()}` {first_sentence(path)}"


def page_with_map(page: str) -> str:
    """The page with its code map replaced; raises ValueError when a marker is missing."""
    before, marker, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not marker or not end:
        raise ValueError(f"{PAGE.name} needs the lines {BEGIN!r} and {END!r} around its code map")
    return "\n".join([before + BEGIN, *code_map(), END]) + after


def main() -> int:
    """Rewrite the page; the exit code."""
    PAGE.write_text(page_with_map(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
