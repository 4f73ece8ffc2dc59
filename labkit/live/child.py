"""What runs inside a worker process: one batch at a time, for as long as the pipe is open."""

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from typing import Any

from labkit.core.messages import BatchError, Result, RowError
from labkit.core.units import S
from labkit.extras import missing
from labkit.live.kinds import Runner, Setup, build
from labkit.live.pipe import Channel

SPIN_S = 0.002 if os.name == "nt" else 0.0
"""The last stretch that is spun instead of slept: a POSIX sleep is 0.2 ms late, a Windows one 15.

Spinning on POSIX would gain 0.2 ms in 100 and take 1 % of a core for every worker.
"""

LONGEST_HANG_S = 30.0


class Poisoned(RuntimeError):
    """The device context is broken: everything after it in this process would fail too."""


def serve(conn: Channel, setup: Setup) -> None:
    """Serve batches until the other end of the pipe is gone; the whole life of a worker.

    An interrupt at the keyboard reaches every process of the terminal, so it is ignored here: the
    parent decides. The end of the parent, however violent, is the end of the pipe.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, OSError):
        try:
            worker = _Worker(conn, build(setup), setup.batch_time / S)
        except Exception as error:
            conn.send(("failed", missing(error) or f"{type(error).__name__}: {error}"))
            return
        worker.run()


class _Worker:
    """The loop, and the injected faults it obeys."""

    def __init__(self, conn: Channel, runner: Runner, batch_s: float) -> None:
        self.conn = conn
        self.runner = runner
        self.batch_s = batch_s
        self.factor = 1.0
        self.poisoned = False
        self.fatal: tuple[type[BaseException], ...] = (Poisoned, *getattr(runner, "fatal", ()))

    def run(self) -> None:
        """Say that the runner is built, then obey messages in order."""
        self.conn.send(("up", dict(getattr(self.runner, "facts", {}))))
        while True:
            verb, *arguments = self.conn.recv()
            if verb == "run":
                if not self._batch(*arguments):
                    return
            elif verb == "hang":
                hang: Any = getattr(self.runner, "hang", time.sleep)
                hang(min(arguments[0], LONGEST_HANG_S))
            elif verb == "straggle":
                self.factor = arguments[0]
            elif verb == "poison":
                self.poisoned = True

    def _batch(self, batch_id: int, prompts: list[str]) -> bool:
        """Compute, wait for the contract's time, answer; False when the process must end."""
        received = time.monotonic()
        try:
            result = self._compute(batch_id, prompts)
        except self.fatal as error:
            self.conn.send(("poisoned", f"{type(error).__name__}: {error}"))
            return False
        raw_us = round((time.monotonic() - received) * S)
        sleep_until(received + self.batch_s * self.factor)
        self.conn.send(("done", batch_id, result, raw_us))
        return True

    def _compute(self, batch_id: int, prompts: list[str]) -> Result:
        if self.poisoned:
            poison: Any = getattr(self.runner, "poison", None)
            if poison is not None:
                poison()
            raise Poisoned("injected: a device-side assertion failed")
        try:
            return checked(self._step(batch_id, prompts))
        except self.fatal:
            raise
        except Exception as error:
            return BatchError(f"{type(error).__name__}: {error}")

    def _step(self, batch_id: int, prompts: list[str]) -> Result:
        """All at once or, where the kind can, step by step, each piece told as it is there."""
        steps: Any = getattr(self.runner, "steps", None)
        if steps is None:
            return self.runner(prompts)
        said = [""] * len(prompts)
        for pieces in steps(prompts):
            said = [text + (piece or "") for text, piece in zip(said, pieces, strict=True)]
            self.conn.send(("pieces", batch_id, pieces))
        return said


def checked(result: Any) -> Result:
    """What a batch function returned, if it can be an answer at all; else an error that says why.

    How many outputs there are is for the scheduler to judge.
    """
    if not isinstance(result, Sequence) or isinstance(result, str | bytes):
        return BatchError(f"a batch function returns a list of texts, not {type(result).__name__}")
    return [output if isinstance(output, str | RowError) else _unsaid(output) for output in result]


def _unsaid(output: Any) -> RowError:
    return RowError(f"the output {str(output)[:40]!a} is a {type(output).__name__} and no text")


def sleep_until(instant: float) -> None:
    """Return at `instant` of the monotonic clock, or at once when it is past."""
    rest = instant - time.monotonic() - SPIN_S
    if rest > 0:
        time.sleep(rest)
    while SPIN_S and time.monotonic() < instant:
        pass
