"""What is written about the code: docstrings, the code map, the help, and no trace of a machine."""

import ast
import re
import shlex
import subprocess
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from labkit.cli.main import main
from tools.architecture import PAGE, READ_FIRST, WHOLE, page_with_map

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "labkit").rglob("*.py"))
LONGEST_MODULE = 250
LONGEST_FUNCTION = 30
LONGEST_PAGE = 150

# Split, so that this file does not find itself.
ONE_MACHINE = re.compile(
    "|".join(
        [
            "/ro" + r"ot/",
            "/wo" + r"rk/",
            r"\.pye" + "nv",
            re.escape(str(ROOT)),
            "pypi" + r"\.org",
            "python" + r"hosted\.org",
            "registry" + r"\.npmjs",
        ]
    )
)


def name_of(path: Path) -> str:
    """A path as the repository knows it."""
    return path.relative_to(ROOT).as_posix()


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Public classes, functions and methods with their dotted names; nested functions are not."""
    for node in body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, f"{prefix}{node.name}.")


def overrides(body: list[ast.stmt]) -> set[str]:
    """Dotted names of methods in classes that have a base: these may repeat a documented verb."""
    return {
        f"{node.name}.{method.name}"
        for node in body
        if isinstance(node, ast.ClassDef) and node.bases
        for method in node.body
        if isinstance(method, Definition)
    }


@cache
def documented() -> frozenset[str]:
    """The bare names of all methods that have a docstring somewhere in the package."""
    return frozenset(
        name.rpartition(".")[2]
        for path in MODULES
        for name, node in public(ast.parse(path.read_text(encoding="utf-8")).body)
        if "." in name and ast.get_docstring(node)
    )


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_public_name_has_a_docstring(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bare = [] if ast.get_docstring(tree) else ["the module"]
    inherited = {n for n in overrides(tree.body) if n.rpartition(".")[2] in documented()}
    bare += [
        name
        for name, node in public(tree.body)
        if not ast.get_docstring(node) and name not in inherited
    ]
    assert bare == [], f"{name_of(path)}: say in one sentence what each of these is"


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function, from `def` to its end, its docstring left out."""
    first = node.body[0]
    said = (first.end_lineno - first.lineno + 1) if ast.get_docstring(node) else 0
    return node.end_lineno - node.lineno + 1 - said


def test_modules_and_functions_stay_short():
    """Warns and never fails: a budget is a reason to look again, not to split what belongs."""
    over = []
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        if (lines := len(text.splitlines())) > LONGEST_MODULE:
            over.append(f"{name_of(path)} {lines}")
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if (lines := length(node)) > LONGEST_FUNCTION:
                over.append(f"{name_of(path)}:{node.name} {lines}")
    if over:
        warnings.warn(f"over budget: {', '.join(over)} lines", stacklevel=1)


@pytest.mark.parametrize(
    ("path", "packages"), [(PAGE, READ_FIRST), (WHOLE, None)], ids=["ARCHITECTURE", "code-map"]
)
def test_the_code_map_says_what_the_docstrings_say(path, packages):
    page = path.read_text(encoding="utf-8")
    assert page == page_with_map(page, packages), "run `make architecture`"


def test_the_architecture_fits_one_sitting():
    assert len(PAGE.read_text(encoding="utf-8").splitlines()) <= LONGEST_PAGE


def test_a_page_without_its_markers_is_refused():
    with pytest.raises(ValueError, match="around its code map"):
        page_with_map("# Architecture\n")


def test_make_help_has_a_line_for_every_target():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    helped = re.findall(r"^([a-z-]+):.*## \S", makefile, re.MULTILINE)
    assert targets == set(helped)
    assert phony
    assert set(phony[1].split()) == targets


def commands_of(page: str) -> list[list[str]]:
    """The words of each `labkit ...` line in a page's code blocks, its comment left out."""
    blocks = re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("labkit ")]


@pytest.mark.parametrize(
    "words", commands_of((ROOT / "README.md").read_text("utf-8")), ids=" ".join
)
def test_every_command_in_the_readme_exists_with_its_options(words):
    command: click.Command | None = main
    context = click.Context(main)
    rest = iter(words)
    while isinstance(command, click.Group):
        command = command.get_command(context, next(rest))
    assert command is not None
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known


def test_no_file_names_a_machine_or_a_registry():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout, so there is no list of what is in the tree")
    found = {}
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = ROOT / name
        if path.is_file() and (hit := ONE_MACHINE.search(path.read_text("utf-8", "ignore"))):
            found[name] = hit[0]
    assert found == {}
