"""Runs a learner's function so that nothing it does can hang, flood or take down the kernel."""

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import TextIOBase
from types import FrameType
from typing import Any

STEPS = 1_000_000
"""Bytecode steps of the learner's code that one call may take."""

CHARACTERS = 2_000
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
    """

    def __init__(self, function: Callable[..., Any], steps: int = STEPS) -> None:
        self.function = function
        self.name = getattr(function, "__name__", "your function")
        self.steps = steps
        self.printed = Printed()

    def __call__(self, *args: Any) -> Any:
        """Call it; raises `Raised`, `ChangedArgument` or `OutOfSteps`."""
        before = copy.deepcopy(args)
        with redirect_stdout(self.printed), redirect_stderr(self.printed):
            try:
                with self._counting():
                    result = self.function(*args)
            except NotImplementedError:
                return ...
            except Exception as error:
                raise Raised(f"{self.name} raised {type(error).__name__}: {error}") from error
            except (SystemExit, KeyboardInterrupt) as error:
                if isinstance(error, KeyboardInterrupt) and not error.args:
                    raise
                raise Raised(f"{self.name} raised {type(error).__name__}") from error
        if args != before:
            raise ChangedArgument(
                f"{self.name} changed what it was given; build something new and return it"
            )
        return result

    @contextmanager
    def _counting(self) -> Iterator[None]:
        left = self.steps

        def count(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal left
            if event == "call":
                frame.f_trace_opcodes, frame.f_trace_lines = True, False
            left -= 1
            if left < 0:
                raise OutOfSteps(f"{self.name} took {self.steps:,} steps and was not done")
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            yield
        finally:
            sys.settrace(before)
