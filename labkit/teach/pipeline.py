'''From one solved source to the notebooks people open: the learner's and the solved one.

A source is `notebooks/src/NN_name.py`, in jupytext's percent format, solved from top to bottom.
`labkit notebooks build` writes `notebooks/NN_name.ipynb` (stubs) and the same under `solved/`, both
executed; nothing else writes a notebook, and `labkit notebooks check` finds one that differs.

A cell's first line says what it is, after `# %%`:

- `[markdown]`: prose.
- `exercise="01.due_at"`: the learner writes this one. Inside it, `# solution` opens what only the
  solved notebook shows, `# stub` opens what the learner sees instead (commented out, so that the
  source runs), and `# end` closes both; without `# stub` the learner sees `...`:

      # %% exercise="01.due_at"
      def due_at(queue):
          """The instant at which the boat must leave."""
          # solution
          return queue[0].arrived_at + MAX_WAIT
          # stub
          # return ...  # when does the first aboard lose patience?

- `tags=["parameters"]`: literals that `labkit run NAME -p key=value` may replace.
- `tags=["answer"]`: answers a prediction; its outputs are folded in the learner's notebook.
- `tags=["nbval-ignore-output"]`, `["raises-exception"]`, `["live"]`, `["gpu-extra"]`: how it is
  tested. The cell that calls `start("NN")` names this machine, so its output is never compared.
- `extras="http"`, on the cell that calls `start`: what the setup cell installs beside `lab`.
- `only="learner"` or `only="solved"`: in one of the two notebooks alone.
'''

import re
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import jupytext
import nbformat
from nbformat import NotebookNode

from labkit.paths import checkout_dir
from labkit.teach.execution import KERNEL, LANGUAGE, execute
from labkit.teach.lints import tidy_problems

Build = Literal["learner", "solved"]
BUILDS: tuple[Build, ...] = ("learner", "solved")
TAGS = {"parameters", "answer", "nbval-ignore-output", "raises-exception", "live", "gpu-extra"}


SETUP = """\
# On Colab or Kaggle this installs the lab from its wheel, uploaded beside the notebook, and what is
# missing with it. Where the lab is installed it does nothing.
from importlib.util import find_spec

if find_spec("labkit") is None:
    import subprocess
    import sys
    from pathlib import Path

    wheel = next(Path().glob("labkit-*.whl"), None)
    assert wheel, "upload the file that `pip wheel --no-deps .` makes in a checkout of the lab"
    subprocess.check_call([sys.executable, "-m", "pip", "install", "-q", f"{wheel}[EXTRAS]"])
"""
"""The first code of a notebook that calls `start`, folded away; such machines bring a torch.

EXTRAS stands for `lab` and what else the notebook needs.
"""


class SourceError(ValueError):
    """A source that cannot become a notebook: says the file, the cell, and the remedy."""


# -- where things are ------------------------------------------------------------------------------


def notebooks_dir() -> Path:
    """The folder of the notebooks: the checkout's, else `notebooks` where one stands."""
    root = checkout_dir() or Path.cwd()
    folder = root / "notebooks"
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is missing: run this from a checkout of the lab")
    return folder


def sources(folder: Path, names: tuple[str, ...] = ()) -> list[Path]:
    """The sources in order, all or the named ones; a name may be `01` or `01_ferry_rule`."""
    every = sorted((folder / "src").glob("[0-9][0-9]_*.py"))
    if not names:
        return every
    chosen = []
    for name in names:
        found = [path for path in every if path.stem == name or path.stem[:2] == name]
        if not found:
            known = ", ".join(path.stem for path in every) or "none yet"
            raise SourceError(f"no notebook {name!r} in {folder / 'src'}; there are: {known}")
        chosen += found
    return chosen


def target(folder: Path, source: Path, build: Build) -> Path:
    """Where a build of this source lies."""
    return (folder / "solved" if build == "solved" else folder) / f"{source.stem}.ipynb"


# -- the un-executed form --------------------------------------------------------------------------


def notebook(source: Path, build: Build) -> NotebookNode:
    """The notebook that this source stands for, not yet executed; the same bytes every time."""
    read = jupytext.reads(source.read_text(encoding="utf-8"), fmt="py:percent")
    cells, heading, seen = [], source.stem[:2], Counter[str]()
    for cell in read.cells:
        only = cell.metadata.get("only", build)
        if only not in BUILDS:
            raise SourceError(f"{source.name}: only={only!r}; use 'learner' or 'solved'")
        if cell.cell_type == "markdown":
            heading = _slug(cell.source) or heading
        seen[heading] += 1
        if only == build:
            cells.append(_cell(cell, f"{heading}-{seen[heading]}", build, source.name))
    starting = [cell for cell in read.cells if _starts_lab(cell)]
    if starting:
        cells.insert(1, _setup_cell(starting[0].metadata.get("extras")))
    metadata = {"kernelspec": KERNEL, "language_info": LANGUAGE}
    own = {"source": f"src/{source.name}", "build": build}
    return NotebookNode(
        cells=cells,
        metadata=nbformat.from_dict({**metadata, "labkit": own}),
        nbformat=4,
        nbformat_minor=5,
    )


def _starts_lab(cell: NotebookNode) -> bool:
    return cell.cell_type == "code" and bool(re.search(r"^start\(", cell.source, re.MULTILINE))


def _setup_cell(extras: str | None) -> NotebookNode:
    text = SETUP.rstrip().replace("EXTRAS", ",".join(filter(None, ("lab", extras))))
    return nbformat.from_dict(
        {
            "cell_type": "code",
            "id": "setup",
            "metadata": {"jupyter": {"source_hidden": True}},
            "source": text,
            "execution_count": None,
            "outputs": [],
        }
    )


def _cell(cell: NotebookNode, cell_id: str, build: Build, where: str) -> NotebookNode:
    tags = list(cell.metadata.get("tags", []))
    if _starts_lab(cell):
        tags = sorted({*tags, "nbval-ignore-output"})
    if unknown := set(tags) - TAGS:
        raise SourceError(
            f"{where}, cell {cell_id}: unknown tag {', '.join(sorted(unknown))}; "
            f"one of {', '.join(sorted(TAGS))}"
        )
    metadata: dict[str, Any] = {"tags": tags} if tags else {}
    text = cell.source
    if exercise := cell.metadata.get("exercise"):
        metadata["exercise"] = exercise
        text = solve(text, build, f"{where}, exercise {exercise}")
    if build == "learner" and "answer" in tags:
        metadata["jupyter"] = {"outputs_hidden": True}
    shared = {"id": cell_id, "metadata": metadata, "source": text}
    if cell.cell_type == "code":
        shared |= {"execution_count": None, "outputs": []}
    return nbformat.from_dict({"cell_type": cell.cell_type, **shared})


def solve(text: str, build: Build, where: str) -> str:
    """An exercise cell as one build shows it: with its solution, or with its stub."""
    shown: list[str] = []
    part, stubbed, indent = "both", True, ""
    for line in text.splitlines():
        word = line.strip()
        if word == "# solution":
            part, stubbed, indent = "solution", False, line[: line.index("#")]
        elif word == "# stub":
            part, stubbed = "stub", True
        elif word == "# end":
            shown += _dots(stubbed, build, indent)
            part, stubbed = "both", True
        elif part == "both" or (part == "solution" and build == "solved"):
            shown.append(line)
        elif part == "stub" and build == "learner":
            shown.append(_uncommented(line, where))
    if "# solution" not in (line.strip() for line in text.splitlines()):
        raise SourceError(f"{where}: no `# solution` line; mark what the learner is to write")
    return "\n".join(shown + _dots(stubbed, build, indent))


def _dots(stubbed: bool, build: Build, indent: str) -> list[str]:
    return [] if stubbed or build == "solved" else [f"{indent}..."]


def _uncommented(line: str, where: str) -> str:
    found = re.fullmatch(r"(\s*)# ?(.*)", line)
    if not found and line.strip():
        raise SourceError(f"{where}: {line.strip()!r} after `# stub` is not commented out")
    return (found[1] + found[2]).rstrip() if found else ""


def _slug(markdown: str) -> str:
    """The heading of a prose cell as an id, at most 48 characters; empty without a heading."""
    found = re.search(r"^#+ +(.+)$", markdown, re.MULTILINE)
    words = re.findall(r"[a-z0-9]+", found[1].lower()) if found else []
    return "-".join(words)[:48].strip("-")


# -- the executed form -----------------------------------------------------------------------------


def build(source: Path, folder: Path, run: bool = True) -> list[Path]:
    """Write both notebooks of a source; refuses to write one that is not fit to be shown."""
    written = []
    for kind in BUILDS:
        nb = notebook(source, kind)
        path = target(folder, source, kind)
        if run:
            execute(nb, folder)
            if problems := tidy_problems(nb):
                raise SourceError(f"{path.name} ({kind}): " + "; ".join(problems))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(nbformat.writes(nb) + "\n", encoding="utf-8")
        written.append(path)
    return written


# -- drift -----------------------------------------------------------------------------------------


def drift(folder: Path) -> list[str]:
    """What in the committed notebooks does not come from the sources; empty when all is well."""
    problems, expected = [], set()
    for source in sources(folder):
        for kind in BUILDS:
            path = target(folder, source, kind)
            expected.add(path)
            problems += _differences(path, notebook(source, kind), folder)
    for path in [*folder.glob("*.ipynb"), *(folder / "solved").glob("*.ipynb")]:
        if path not in expected:
            problems.append(f"{path.relative_to(folder)} has no source in src/: remove it")
    return problems


def _differences(path: Path, fresh: NotebookNode, folder: Path) -> list[str]:
    name = path.relative_to(folder)
    if not path.is_file():
        return [f"{name} is missing: labkit notebooks build {path.stem}"]
    kept = nbformat.read(path, as_version=4)
    mine, theirs = _inputs(fresh), _inputs(kept)
    if mine == theirs and kept.metadata == fresh.metadata:
        return []
    changed = [cell["id"] for cell in fresh.cells if _input(cell) not in theirs]
    which = f"cell {changed[0]}" if changed else "its order or metadata"
    return [
        f"{name} differs from src/{path.stem}.py in {which}: labkit notebooks build {path.stem}"
    ]


def _inputs(nb: NotebookNode) -> list[tuple[Any, ...]]:
    return [_input(cell) for cell in nb.cells]


def _input(cell: NotebookNode) -> tuple[Any, ...]:
    return (cell.id, cell.cell_type, cell.source, cell.metadata)
