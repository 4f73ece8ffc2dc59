"""A process beside the kernel that checks answers, so that no answer can harm the kernel.

The process stays warm and forks for each check, so that whatever an answer does to it (patches,
threads, memory, an exit) is gone with the fork. Where there is no fork it is replaced instead.
"""

import atexit
import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from queue import Empty, Queue
from types import ModuleType
from typing import IO, Any

import cloudpickle

from labkit.paths import home_dir
from labkit.teach.exercises import Mark, Verdict
from labkit.teach.exercises.child import ENDED, READY, late, read, write

SECONDS = 15
"""How long one check may take before its process is ended."""

START_SECONDS = 45
"""How long the process may take to start, besides: a cold disk, a busy machine."""

NOT_STARTED = "the process that checks answers did not start; `labkit doctor` says why"


class Bench:
    """One warm child process; ended and replaced when a check does not come back in time.

    `check` hands over an exercise id and the learner's answer by value, and returns the verdict.
    The child ends by itself when the kernel does: its input closes.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._child: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._verdicts: Queue[Any] = Queue()
        self._lock = threading.Lock()
        atexit.register(self.close)

    def check(self, exercise_id: str, answer: Any) -> Verdict:
        """The verdict on a function or a value, within `seconds`."""
        payload = packed(exercise_id, answer)
        if isinstance(payload, Verdict):
            return payload
        with self._lock:
            try:
                return self._asked(exercise_id, payload)
            except BaseException:
                # Interrupted: an answer that comes later must not be taken for the next one's.
                self.close()
                raise

    def _asked(self, exercise_id: str, payload: bytes) -> Verdict:
        child = self.start()
        try:
            if not self._ready and self._verdicts.get(timeout=START_SECONDS) != READY:
                self.close()
                return Verdict(exercise_id, Mark.RAISED, NOT_STARTED)
            self._ready = True
            write(child.stdin, pickle.dumps((self.seconds, payload)))
            answer = self._verdicts.get(timeout=self.seconds + 5)
        except OSError:
            answer = None
        except Empty:
            self.close()
            return late(exercise_id, self.seconds)
        if answer is None:
            self.close()
            return Verdict(exercise_id, Mark.RAISED, ENDED)
        if not hasattr(os, "fork"):
            self.close()
            self.start()
        verdict: Verdict = pickle.loads(answer)
        return verdict

    def start(self) -> "subprocess.Popen[bytes]":
        """The child, started if there is none: call early to hide its second of start-up."""
        if self._child is None or self._child.poll() is not None:
            self._verdicts, self._ready = Queue(), False
            own = {
                "PYTHONHASHSEED": "0",
                "HYPOTHESIS_STORAGE_DIRECTORY": str(home_dir() / "search"),
            }
            self._child = subprocess.Popen(
                [sys.executable, "-m", "labkit.teach.exercises.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **own},
                start_new_session=True,
            )
            listener = threading.Thread(
                target=_listen, args=(self._child.stdout, self._verdicts), daemon=True
            )
            listener.start()
        return self._child

    def close(self) -> None:
        """End the child, if there is one, and whatever it started."""
        child, self._child = self._child, None
        if child is not None:
            _end(child)
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def packed(exercise_id: str, answer: Any) -> bytes | Verdict:
    """An answer by value, or the verdict that it cannot be copied."""
    module = sys.modules.get(getattr(answer, "__module__", None) or "")
    own = module is not None and _is_learners(module)
    try:
        if own:
            cloudpickle.register_pickle_by_value(module)
        return cloudpickle.dumps((exercise_id, answer))
    except Exception as error:
        why = f"your answer holds something that cannot be copied ({error}); pass it in instead"
        return Verdict(exercise_id, Mark.RAISED, why)
    finally:
        if own:
            cloudpickle.unregister_pickle_by_value(module)


def _is_learners(module: ModuleType) -> bool:
    """Whether a module is a file of the learner's own, which the child may not find."""
    place = getattr(module, "__file__", None) or ""
    package = module.__name__.partition(".")[0]
    others = {"labkit", "__main__", *sys.stdlib_module_names}
    return bool(place) and "site-packages" not in place and package not in others


def _end(child: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            # The child leads a session of its own, so that a check it forked goes with it.
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()


def _listen(pipe: IO[bytes], verdicts: "Queue[Any]") -> None:
    """Pass every verdict on; None when the child has ended."""
    with contextlib.suppress(ValueError, OSError):
        while (answer := read(pipe)) is not None:
            verdicts.put(answer)
    verdicts.put(None)
