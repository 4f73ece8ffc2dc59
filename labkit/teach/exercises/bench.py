"""A process beside the kernel that checks answers, so that no answer can harm the kernel.

The process stays warm and forks for each check, so that whatever an answer does to it (patches,
threads, memory, an exit) is gone with the fork. Where there is no fork it is replaced instead.
"""

import atexit
import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from queue import Empty, Queue
from types import ModuleType
from typing import IO, Any

import cloudpickle

from labkit.paths import home_dir
from labkit.teach.exercises import EXERCISES, Mark, Verdict

SECONDS = 15
"""How long one check may take before its process is ended."""

START_SECONDS = 45
"""How long the process may take to start, besides: a cold disk, a busy machine."""

MEMORY = 1 << 30
"""Bytes of address space that a check may use, where the system can limit them."""

READY = b"ready"
ENDED = "it ended the process that checks it (os._exit, or out of memory)"


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
            if not self._ready:
                self._ready = self._verdicts.get(timeout=START_SECONDS) == READY
            _write(child.stdin, pickle.dumps((self.seconds, payload)))
            answer = self._verdicts.get(timeout=self.seconds + 5)
        except OSError:
            answer = None
        except Empty:
            self.close()
            return _late(exercise_id, self.seconds)
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
                [sys.executable, "-m", "labkit.teach.exercises.bench"],
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


def _late(exercise_id: str, seconds: float) -> Verdict:
    why = f"it was not done after {seconds:g} s: does a loop in it ever end?"
    return Verdict(exercise_id, Mark.RAISED, why)


def _end(child: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            # The child leads a session of its own, so that a check it forked goes with it.
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()


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


# -- the child ------------------------------------------------------------------------------------


def main() -> None:
    """The child: read, judge, answer, until the input closes."""
    questions, verdicts = _own_pipes()
    _write(verdicts, READY)
    while (question := _read(questions)) is not None:
        seconds, payload = pickle.loads(question)
        if hasattr(os, "fork"):
            _write(verdicts, _forked(payload, seconds))
        else:
            _write(verdicts, _judged(payload))


def _own_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Keep the pipes to the kernel where an answer's own printing and reading cannot reach them."""
    questions = os.fdopen(os.dup(0), "rb")
    verdicts = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for place in (0, 1, 2):
        os.dup2(nowhere, place)
    return questions, verdicts


def _judged(payload: bytes) -> bytes:
    exercise_id = _id_of(payload)
    try:
        exercise_id, answer = pickle.loads(payload)
        return pickle.dumps(EXERCISES[exercise_id].judged(answer))
    except BaseException as error:
        why = f"it could not be checked ({type(error).__name__}: {error})"
        return pickle.dumps(Verdict(exercise_id, Mark.RAISED, why))


def _forked(payload: bytes, seconds: float) -> bytes:
    """Judge in a fork with limits; end it when it takes too long."""
    exercise_id = _id_of(payload)
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        _limit(seconds)
        with os.fdopen(write_end, "wb") as pipe:
            _write(pipe, _judged(payload))
        os._exit(0)
    os.close(write_end)
    answer = _within(read_end, seconds)
    os.close(read_end)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if answer is None:
        return pickle.dumps(_late(exercise_id, seconds))
    whole = len(answer) >= 8 and len(answer) == 8 + int.from_bytes(answer[:8], "big")
    return answer[8:] if whole else pickle.dumps(Verdict(exercise_id, Mark.RAISED, ENDED))


def _id_of(payload: bytes) -> str:
    """The exercise's id, without loading the answer: it stands first."""
    return next((name for name in EXERCISES if name.encode() in payload[:200]), "?")


def _limit(seconds: float) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with contextlib.suppress(AttributeError, ValueError):
        signal.alarm(round(seconds) + 5)


def _within(pipe: int, seconds: float) -> bytes | None:
    """All that comes through a pipe until it closes; None when that takes too long."""
    until, pieces = time.monotonic() + seconds, list[bytes]()
    while (left := until - time.monotonic()) > 0:
        if not select.select([pipe], [], [], left)[0]:
            break
        piece = os.read(pipe, 1 << 20)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        held = b"".join(pieces[:1])
        if len(held) >= 8 and sum(map(len, pieces)) >= 8 + int.from_bytes(held[:8], "big"):
            return b"".join(pieces)
    return None


if __name__ == "__main__":
    main()
