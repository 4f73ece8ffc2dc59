"""Imports run one way, and the simulating half of the lab needs nothing but SimPy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "labkit"

PROBE = """
import importlib, pkgutil, sys
blocked = set(sys.argv[1].split(","))

class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"{name} is walled off", name=name)

sys.meta_path.insert(0, Wall())
for name in sys.argv[2].split(","):
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(package, "__path__", []), name + "."):
        importlib.import_module(found.name)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def imported_by(packages: str, blocked: str = "") -> set[str]:
    """The top-level modules in an interpreter that imported every module of these packages."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, blocked, packages],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def imports_of(path: Path) -> set[str]:
    """The top-level modules that a file names in its import statements, wherever they stand."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def sleeps(path: Path) -> bool:
    """Whether a file names `sleep` in its code, whosever it is."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    named = {node.id for node in nodes if isinstance(node, ast.Name)}
    return "sleep" in named | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_the_import_contracts_hold():
    lint = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    done = subprocess.run(
        [sys.executable, "-c", lint], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_core_imports_the_standard_library_and_itself_alone():
    allowed = set(sys.stdlib_module_names) | {"labkit"}
    strangers = {
        path.name: imports_of(path) - allowed for path in sorted((PACKAGE / "core").rglob("*.py"))
    }
    assert {name: found for name, found in strangers.items() if found} == {}


SHELLS = ("shell", "keyed", "engine", "openloop", "fleet", "replies")


def test_no_rule_and_no_shell_sleeps():
    decide = [path for name in ("core", "sim") for path in (PACKAGE / name).rglob("*.py")]
    tell = [PACKAGE / "live" / f"{name}.py" for name in SHELLS]
    assert {path.name for path in [*decide, *tell] if sleeps(path)} == set()
    assert sleeps(PACKAGE / "gpu" / "pace.py")


@pytest.mark.parametrize("packages", ["labkit", "labkit.core"])
def test_importing_it_pulls_in_no_third_party_package(packages):
    if packages == "labkit":
        code = "import sys, labkit; print(*{n.partition('.')[0] for n in sys.modules})"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
        )
        found = set(done.stdout.split())
    else:
        found = imported_by(packages)
    assert found & {"numpy", "torch", "simpy", "matplotlib", "asyncio", "click"} == set()


def test_core_theory_workload_and_sim_work_where_numpy_and_torch_cannot_be_imported():
    packages = "labkit.core,labkit.theory,labkit.workload,labkit.sim"
    found = imported_by(packages, blocked="numpy,torch,scipy,matplotlib,ipywidgets,anywidget")
    assert found & {"numpy", "torch"} == set()


def test_the_help_page_imports_no_simulator_and_no_picture():
    code = (
        "import sys; from labkit.cli.main import main; main(['--help'], standalone_mode=False); "
        "print(*{n.partition('.')[0] for n in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = set(done.stderr.split())
    assert found & {"numpy", "torch", "simpy", "matplotlib", "jupyterlab"} == set()
