"""Change the core in one small way at a time, and see whether tests/core notices.

    python tools/mutants.py                     every module of labkit/core
    python tools/mutants.py queues batching     some of them
    python tools/mutants.py --minutes 10 --json at most so long, and for machines

A mutant is the module's syntax tree with one node changed: a comparison moved by one, a sum turned
into a difference, a condition held true or false, a statement left out. Each is judged in a forked
process by the module's own tests first, then by the rest of tests/core, the laws last; a mutant
that none of them notices has survived, and is either a missing test or a line that does nothing.
A mutant that hangs or eats memory counts as noticed.

Ready-made tools were tried: mutmut leaves decorated classes alone, which here are the settings and
the mapping's batches, and neither it nor cosmic-ray judges in stages, which is what makes a mutant
cost about a second.

Exit code 1 when the score is below --at-least (percent of all mutants judged).
"""

import argparse
import ast
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.util import spec_from_loader
from pathlib import Path
from random import Random

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
    """One change: where it is, what stood there, and what stands there now."""

    module: str
    line: int
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.module}.py:{self.line}: {self.was}  ->  {self.now}"


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


def sites(tree: ast.Module) -> Iterator[tuple[ast.AST, Callable[[ast.AST], None]]]:
    """Every node that may change, with the way to put another in its place."""

    def walk(node: ast.AST) -> Iterator[tuple[ast.AST, Callable[[ast.AST], None]]]:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_comment"):
                continue
            if isinstance(value, list):
                for i, child in enumerate(value):
                    if isinstance(child, ast.AST) and not skipped(child):
                        yield child, lambda new, at=value, i=i: at.__setitem__(i, new)
                        yield from walk(child)
            elif isinstance(value, ast.AST):
                yield value, lambda new, of=node, name=name: setattr(of, name, new)
                yield from walk(value)

    yield from walk(tree)


def shown(node: ast.AST) -> str:
    """A node on one line, as it is written."""
    text = ast.unparse(node).splitlines()
    return text[0][:90] + (" ..." if len(text) > 1 else "")


def mutants(module: str) -> Iterator[tuple[Mutant, ast.Module]]:
    """Every mutant of a module, with its tree; the tree is good until the next one is asked."""
    tree = ast.parse((CORE / f"{module}.py").read_text())
    for node, put in sites(tree):
        if not hasattr(node, "lineno"):
            continue
        for changed in changes(node):
            put(ast.fix_missing_locations(ast.copy_location(changed, node)))
            yield Mutant(module, node.lineno, shown(node), shown(changed)), tree
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


def judge(modules: list[str], minutes: float, with_laws: bool, sample: float) -> dict[str, object]:
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


def main() -> int:
    """Read the options, judge, print."""
    known = sorted(path.stem for path in CORE.glob("*.py") if path.stem != "__init__")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", help=f"of {', '.join(known)}; all by default")
    parser.add_argument("--minutes", type=float, default=60, help="stop judging after so long")
    parser.add_argument("--sample", type=float, default=1, help="judge this share of them")
    parser.add_argument("--at-least", type=float, default=0, help="the lowest score that passes")
    parser.add_argument("--no-laws", action="store_true", help="leave the slowest judge out")
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
    return int(isinstance(score, float) and score < options.at_least)


if __name__ == "__main__":
    sys.exit(main())
