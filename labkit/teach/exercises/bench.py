"""A process beside the kernel that checks answers, so that no answer can harm the kernel."""

import atexit
import contextlib
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from queue import Empty, Queue
from typing import IO, Any

import cloudpickle

from labkit.teach.exercises import EXERCISES, Mark, Verdict

SECONDS = 15
"""How long one check may take before its process is ended."""

MEMORY = 4 << 30
"""Bytes of address space that a check may use, where the system can limit them."""


class Bench:
    """One warm child process; ended and replaced when a check does not come back in time.

    `check` hands over an exercise id and the learner's function by value, and returns the verdict.
    The child ends by itself when the kernel does: its input closes.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._child: subprocess.Popen[bytes] | None = None
        self._verdicts: Queue[Any] = Queue()
        self._lock = threading.Lock()
        atexit.register(self.close)

    def check(self, exercise_id: str, function: Callable[..., Any]) -> Verdict:
        """The verdict on a function, within `seconds`."""
        try:
            payload = cloudpickle.dumps((exercise_id, function))
        except Exception as error:
            why = (
                f"your function holds something that cannot be copied ({error}); pass it in instead"
            )
            return Verdict(exercise_id, Mark.RAISED, why)
        with self._lock:
            child = self.start()
            try:
                _write(child.stdin, payload)
                answer = self._verdicts.get(timeout=self.seconds)
            except OSError:
                answer = None
            except Empty:
                self.close()
                why = f"it was not done after {self.seconds:g} s"
                return Verdict(exercise_id, Mark.RAISED, why)
            if answer is None:
                self.close()
                why = "it ended the process that checks it (os._exit, or out of memory)"
                return Verdict(exercise_id, Mark.RAISED, why)
        verdict: Verdict = pickle.loads(answer)
        return verdict

    def start(self) -> "subprocess.Popen[bytes]":
        """The child, started if there is none: call early to hide its second of start-up."""
        if self._child is None or self._child.poll() is not None:
            self._verdicts = Queue()
            self._child = subprocess.Popen(
                [sys.executable, "-m", "labkit.teach.exercises.bench"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            listener = threading.Thread(
                target=_listen, args=(self._child.stdout, self._verdicts), daemon=True
            )
            listener.start()
        return self._child

    def close(self) -> None:
        """End the child, if there is one."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def _write(pipe: IO[bytes] | None, payload: bytes) -> None:
    assert pipe is not None
    pipe.write(len(payload).to_bytes(8, "big") + payload)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes | None:
    head = pipe.read(8)
    if len(head) < 8:
        return None
    return pipe.read(int.from_bytes(head, "big"))


def _listen(pipe: IO[bytes], verdicts: "Queue[Any]") -> None:
    """Pass every verdict on; None when the child has ended."""
    with contextlib.suppress(ValueError, OSError):
        while (answer := _read(pipe)) is not None:
            verdicts.put(answer)
    verdicts.put(None)


def main() -> None:
    """The child: read, judge, answer, until the input closes."""
    verdicts, sys.stdout = sys.stdout.buffer, sys.stderr
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    while (payload := _read(sys.stdin.buffer)) is not None:
        exercise_id, function = pickle.loads(payload)
        verdict = EXERCISES[exercise_id].judged(function)
        _write(verdicts, pickle.dumps(verdict))


if __name__ == "__main__":
    main()
