"""Change the core in one small way at a time, and see whether tests/core notices.

    python tools/mutants.py                     every module of labkit/core
    python tools/mutants.py queues batching     some of them
    python tools/mutants.py --minutes 10 --json at most so long, and for machines
    python tools/mutants.py --argued docs/mutants.md

With --argued each survivor is printed with the letter of the argument that the page's list gives
it, `?` where there is none; what the page lists and the tests kill is told too.

A mutant is the module's syntax tree with one node changed: a comparison moved by one, a sum turned
into a difference, a condition held true or false, a statement left out. Each is judged in a forked
process by the module's own tests first, then by the rest of tests/core, the laws last; a mutant
that none of them notices has survived, and is either a missing test or a line that does nothing.
A mutant that hangs or eats memory counts as noticed.

Ready-made tools were tried: mutmut leaves decorated classes alone, which here are the settings and
the mapping's batches, and neither it nor cosmic-ray judges in stages, which is what makes a mutant
cost about a second.

Exit code 1 when the score is below --at-least (percent of all mutants judged) or, with --argued,
when a survivor has no argument.
"""

import argparse
import ast
import json
import os
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.util import spec_from_loader
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "labkit" / "core"
TESTS = ROOT / "tests" / "core"
SECONDS, MEMORY = 60, 3 << 30
"""What one judgement may take before the mutant counts as hanging."""

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
}
NAMES = {
    "min": "max",
    "max": "min",
    "append": "appendleft",
    "appendleft": "append",
    "popleft": "pop",
    "extend": "append",
    "any": "all",
    "all": "any",
}


@dataclass(frozen=True)
class Mutant:
    """One change: where it is, what stood there, and what stands there now.

    `where` is a function, which stays when lines move; of equal changes in one function `number`
    tells which.
    """

    module: str
    where: str
    was: str
    now: str
    number: int = 1

    def __str__(self) -> str:
        again = f" ({self.number})" if self.number > 1 else ""
        return f"{self.module} {self.where}{again}: {self.was}  ->  {self.now}"


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Every small change of one node, each a new node."""
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            if type(op) in SWAPS:
                changed = deepcopy(node)
                changed.ops[i] = SWAPS[type(op)]()  # type: ignore[call-overload]
                yield changed
    elif isinstance(node, ast.BoolOp | ast.BinOp | ast.AugAssign) and type(node.op) in SWAPS:
        changed = deepcopy(node)
        changed.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
        yield changed
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
        yield ast.Constant(not node.value if type(node.value) is bool else node.value + 1)
    elif isinstance(node, ast.Name) and node.id in ("min", "max", "any", "all"):
        yield ast.Name(NAMES[node.id], node.ctx)
    elif isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield ast.Attribute(node.value, NAMES[node.attr], node.ctx)
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        for held in (True, False):
            if not (held and isinstance(node, ast.While)):
                changed = deepcopy(node)
                changed.test = ast.Constant(held)
                yield changed
    if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.Delete | ast.Break):
        yield ast.Pass()


def skipped(node: ast.AST) -> bool:
    """What says nothing at run time: docstrings, annotations, protocols, slots."""
    if isinstance(node, ast.ClassDef):
        return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__slots__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


Site = tuple[ast.AST, Callable[[ast.AST], None], str]
"""A node that may change, the way to put another in its place, and the name of where it is."""


def sites(tree: ast.Module) -> Iterator[Site]:
    """Every one of a module."""

    def walk(node: ast.AST, where: str) -> Iterator[Site]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            where = f"{where}.{node.name}" if where else node.name
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_comment"):
                continue
            if isinstance(value, list):
                for i, child in enumerate(value):
                    if isinstance(child, ast.AST) and not skipped(child):
                        yield child, lambda new, at=value, i=i: at.__setitem__(i, new), where
                        yield from walk(child, where)
            elif isinstance(value, ast.AST):
                yield value, lambda new, of=node, name=name: setattr(of, name, new), where
                yield from walk(value, where)

    yield from walk(tree, "")


def shown(node: ast.AST) -> str:
    """A node on one line, as it is written."""
    text = ast.unparse(node).splitlines()
    return text[0][:90] + (" ..." if len(text) > 1 else "")


def mutants(module: str) -> Iterator[tuple[Mutant, ast.Module]]:
    """Every mutant of a module, with its tree; the tree is good until the next one is asked."""
    tree = ast.parse((CORE / f"{module}.py").read_text())
    seen: Counter[Mutant] = Counter()
    for node, put, where in sites(tree):
        if not hasattr(node, "lineno"):
            continue
        for changed in changes(node):
            put(ast.fix_missing_locations(ast.copy_location(changed, node)))
            mutant = Mutant(module, where or "itself", shown(node), shown(changed))
            seen[mutant] += 1
            yield replace(mutant, number=seen[mutant]), tree
            put(node)


class Disguise(MetaPathFinder, SourceLoader):
    """Imports one module from a changed tree, and leaves all others alone."""

    def __init__(self, module: str, tree: ast.Module) -> None:
        self.name, self.file = f"labkit.core.{module}", str(CORE / f"{module}.py")
        self.code = compile(tree, self.file, "exec")

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        """This loader for the one module; None for any other."""
        return spec_from_loader(name, self, origin=self.file) if name == self.name else None

    def get_code(self, _: str):  # type: ignore[no-untyped-def]
        """The changed code."""
        return self.code

    def get_filename(self, _: str) -> str:
        """Where the unchanged source is."""
        return self.file

    def get_data(self, path: str | bytes) -> bytes:
        """The unchanged source, for tracebacks."""
        return Path(os.fsdecode(path)).read_bytes()


def stages(module: str) -> list[list[str]]:
    """Which tests judge, in order: its own, all the others, the laws."""
    own, laws = TESTS / f"test_{module}.py", TESTS / "test_laws.py"
    rest = [str(path) for path in sorted(TESTS.glob("test_*.py")) if path not in (own, laws)]
    return [stage for stage in ([str(own)] if own.exists() else [], rest, [str(laws)]) if stage]


def passes(tests: list[str], disguise: Disguise | None) -> bool:
    """Whether these tests pass, judged in a forked process; a hang is a failure."""
    child = os.fork()
    if child == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        if disguise is not None:
            sys.meta_path.insert(0, disguise)
        import pytest

        quiet = ["-x", "-q", "--assert=plain", "--noconftest", "-p", "no:cacheprovider"]
        try:
            code = int(pytest.main([*quiet, *tests]))
        except BaseException:
            code = 99
        os._exit(code)
    _, status = os.waitpid(child, 0)
    return status == 0


def survives(mutant: Mutant, tree: ast.Module, with_laws: bool) -> bool:
    """Whether no stage notices."""
    disguise = Disguise(mutant.module, tree)
    asked = stages(mutant.module)
    return all(passes(tests, disguise) for tests in (asked if with_laws else asked[:-1]))


def judge(modules: list[str], minutes: float, with_laws: bool, sample: float) -> dict[str, Any]:
    """Judge mutants until all are judged or the time is up."""
    ends_at = time.monotonic() + 60 * minutes
    judged, survivors, skipped_count, rng = 0, [], 0, Random(1)
    for module in modules:
        for mutant, tree in mutants(module):
            if time.monotonic() > ends_at or rng.random() >= sample:
                skipped_count += 1
                continue
            judged += 1
            if survives(mutant, tree, with_laws):
                survivors.append(mutant)
                print(f"survived  {mutant}", file=sys.stderr, flush=True)
    return {
        "judged": judged,
        "killed": judged - len(survivors),
        "score": round(100 * (1 - len(survivors) / judged), 1) if judged else None,
        "not_judged": skipped_count,
        "survivors": [asdict(mutant) for mutant in survivors],
    }


def argued(page: Path) -> dict[str, str]:
    """The letters that a page's list gives to survivors, by what they are."""
    listed = re.findall(r"^([A-Z]) (\w+ [^\s:]+(?: \(\d+\))?: .*)$", page.read_text(), re.MULTILINE)
    return {what: letter for letter, what in listed}


def main() -> int:
    """Read the options, judge, print."""
    known = sorted(path.stem for path in CORE.glob("*.py") if path.stem != "__init__")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", help=f"of {', '.join(known)}; all by default")
    parser.add_argument("--minutes", type=float, default=60, help="stop judging after so long")
    parser.add_argument("--sample", type=float, default=1, help="judge this share of them")
    parser.add_argument("--at-least", type=float, default=0, help="the lowest score that passes")
    parser.add_argument("--no-laws", action="store_true", help="leave the slowest judge out")
    parser.add_argument("--argued", type=Path, help="the page that argues for survivors")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if unknown := set(options.modules) - set(known):
        parser.error(f"no module {', '.join(sorted(unknown))} in labkit/core: {', '.join(known)}")
    os.chdir(ROOT)
    # Imported once, before any fork; labkit itself must not be, or no disguise would be seen.
    __import__("hypothesis.strategies")
    __import__("pytest")
    modules = options.modules or known
    for module in modules:
        if not all(passes(tests, None) for tests in stages(module)[:-1]):
            parser.error(f"tests/core fails without any mutant (asked for {module}): mend it first")
    report = judge(modules, options.minutes, not options.no_laws, options.sample)
    if options.json:
        print(json.dumps(report))
    else:
        print("{judged} mutants judged, {killed} killed: {score} %".format(**report))
        print("{not_judged} not judged".format(**report))
    score = report["score"]
    missing = bool(options.argued) and not _all_argued(options.argued, modules, report)
    return int(missing or (isinstance(score, float) and score < options.at_least))


def _all_argued(page: Path, modules: list[str], report: dict[str, Any]) -> bool:
    """Print the survivors with their letters; whether each has one."""
    letters = argued(page)
    survivors = [str(Mutant(**values)) for values in report["survivors"]]
    for what in survivors:
        print(letters.get(what, "?"), what)
    if not report["not_judged"]:
        for what in letters.keys() - set(survivors):
            if what.split()[0] in modules:
                print(f"listed, and killed or gone: {what}")
    return letters.keys() >= set(survivors)


if __name__ == "__main__":
    sys.exit(main())
