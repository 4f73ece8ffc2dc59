"""Runs a learner's function so that nothing it does can hang, flood or take down the kernel."""

import copy
import dis
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from io import TextIOBase
from types import CodeType, FrameType, ModuleType
from typing import Any

from labkit.teach.exercises.answers import called

STEPS = 300_000
"""Bytecode steps of the learner's code that one call may take."""

ALL_STEPS = 3_000_000
"""Steps that all calls of one check may take together: a few seconds."""

CHARACTERS = 600
"""Printed characters that are kept; the rest is dropped."""


class OutOfSteps(BaseException):
    """The learner's code ran for too long; no `Exception`, so that `except Exception` misses it."""


class ChangedArgument(Exception):
    """The learner's code changed what it was given."""


class Raised(Exception):
    """The learner's code raised; `__cause__` is what it raised."""


@dataclass
class Printed(TextIOBase):
    """Keeps the first characters that are written and drops the rest."""

    kept: list[str] = field(default_factory=list)
    room: int = CHARACTERS
    dropped: int = 0

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, text: str) -> int:
        """Keep what there is room for."""
        kept = text[: self.room]
        if kept:
            self.kept.append(kept)
            self.room -= len(kept)
        self.dropped += len(text) - len(kept)
        return len(text)

    @property
    def text(self) -> str:
        """What was kept, and how much was not."""
        more = f"\n... and {self.dropped:,} characters more" if self.dropped else ""
        return "".join(self.kept) + more


class Guarded:
    """A learner's function that cannot run for ever, print without end, or change its arguments.

    The count of steps is exact, so that a verdict is the same on every run. What takes no steps,
    such as `sum(itertools.count())`, is stopped by the process that runs the check (`bench`).
    `printed` holds what it printed since `fresh` was called.
    """

    def __init__(
        self, function: Callable[..., Any], name: str = "your function", steps: int = STEPS
    ) -> None:
        self.function = function
        _import_for(getattr(function, "__code__", None))
        self.name = name
        self.steps = steps
        self.left = ALL_STEPS
        self.printed = Printed()

    def fresh(self) -> None:
        """Forget what was printed: another case begins."""
        self.printed = Printed()

    def __call__(self, *args: Any) -> Any:
        """Call it; raises `Raised`, `ChangedArgument` or `OutOfSteps`."""
        before = copy.deepcopy(args)
        with redirect_stdout(self.printed), redirect_stderr(self.printed):
            try:
                with self._counting(before):
                    result = self.function(*args)
            except NotImplementedError:
                return ...
            except (OutOfSteps, KeyboardInterrupt):
                raise
            except BaseException as error:
                said = f": {error}" if str(error) else ""
                what = f"{called(self.name, before)} raised {type(error).__name__}{said}"
                raise Raised(what) from error
        if args != before:
            raise ChangedArgument(
                f"{called(self.name, before)} changed what it was given; build something new and "
                "return it"
            )
        return result

    @contextmanager
    def _counting(self, args: tuple[Any, ...]) -> Iterator[None]:
        left = min(self.steps, self.left)
        at_first = left

        def count(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal left
            if event == "call":
                frame.f_trace_opcodes, frame.f_trace_lines = True, False
            left -= 1
            if left < 0:
                raise OutOfSteps(
                    f"{called(self.name, args)} took {at_first:,} steps and was not done: "
                    "does a loop in it ever end?"
                )
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            yield
        finally:
            sys.settrace(before)
            self.left -= at_first - left


def _import_for(written: object) -> None:
    """Import what a function imports: the steps of an import are not the learner's."""
    if not isinstance(written, CodeType):
        return
    for step in dis.get_instructions(written):
        if step.opname == "IMPORT_NAME" and step.argval not in sys.modules:
            # What cannot be imported raises again, and better, where it stands.
            with suppress(Exception, SystemExit):
                importlib.import_module(step.argval)
    for constant in written.co_consts:
        _import_for(constant)


def fingerprint() -> dict[str, int]:
    """Every name of the lab and of the language's built-ins, with the identity of its value."""
    found: dict[str, int] = {}
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and name.partition(".")[0] in ("labkit", "builtins"):
            for key, value in list(vars(module).items()):
                found[f"{name}.{key}"] = id(value)
                if isinstance(value, type) and value.__module__ == name != "builtins":
                    found |= {f"{name}.{key}.{k}": id(v) for k, v in list(vars(value).items())}
    return found


def tampered(before: dict[str, int]) -> str | None:
    """The first name that has another value than before; None when all is as it was.

    Names a module got meanwhile do not count: it may import on first use.
    """
    after = fingerprint()
    return next((name for name, value in before.items() if after.get(name, value) != value), None)
