"""Pin in requirements.txt what is installed here and needed by pyproject.toml: `make lock`."""

import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
HEADER = """\
# Exact versions of the whole development set, by `make lock`; pyproject.toml has the ranges.
# torch is pinned because a bare `torch` takes gigabytes of CUDA where no GPU may be.
"""
# Packages that need another operating system or Python are left to pip.


def declared() -> list[Requirement]:
    """The base and every extra of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    return [Requirement(line) for lines in (project["dependencies"], *extras) for line in lines]


def closure(wanted: list[Requirement]) -> dict[str, str]:
    """Name and installed version of everything these requirements bring, by the canonical name."""
    pins: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *sorted(requirement.extras)):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            found = distribution(name)
            pins[name] = found.version.partition("+")[0]
            needed = (Requirement(line) for line in found.requires or ())
            wanted += [n for n in needed if not n.marker or n.marker.evaluate({"extra": extra})]
    return pins


def main() -> int:
    """Write the pins; the exit code."""
    try:
        pins = closure(declared())
    except PackageNotFoundError as absent:
        print(f"{absent.name} is not installed; pip install it, then run again", file=sys.stderr)
        return 2
    markers = {canonicalize_name(r.name): f"; {r.marker}" for r in declared() if r.marker}
    lines = [f"{name}=={pins[name]}{markers.get(name, '')}\n" for name in sorted(pins)]
    (ROOT / "requirements.txt").write_text(HEADER + "".join(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
