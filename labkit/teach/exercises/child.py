"""The process in which answers are judged: it reads, forks, judges, and answers."""

import contextlib
import os
import pickle
import select
import signal
import time
from typing import IO

from labkit.teach.exercises import EXERCISES, Mark, Verdict

MEMORY = 1 << 30
"""Bytes of address space that a check may use, where the system can limit them."""

READY = b"ready"
ENDED = "it ended the process that checks it (os._exit, or out of memory)"


def write(pipe: IO[bytes] | None, payload: bytes) -> None:
    """Send one message: its length, then itself."""
    assert pipe is not None
    pipe.write(len(payload).to_bytes(8, "big") + payload)
    pipe.flush()


def read(pipe: IO[bytes]) -> bytes | None:
    """The next message; None when the pipe has closed."""
    head = pipe.read(8)
    if len(head) < 8:
        return None
    return pipe.read(int.from_bytes(head, "big"))


def late(exercise_id: str, seconds: float) -> Verdict:
    """The verdict on what was not done in time."""
    why = f"it was not done after {seconds:g} s: does a loop in it ever end?"
    return Verdict(exercise_id, Mark.RAISED, why)


def main() -> None:
    """The child: read, judge, answer, until the input closes."""
    questions, verdicts = _own_pipes()
    write(verdicts, READY)
    while (question := read(questions)) is not None:
        seconds, payload = pickle.loads(question)
        if hasattr(os, "fork"):
            write(verdicts, _forked(payload, seconds))
        else:
            write(verdicts, _judged(payload))


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
            write(pipe, _judged(payload))
        os._exit(0)
    os.close(write_end)
    answer = _within(read_end, seconds)
    os.close(read_end)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if answer is None:
        return pickle.dumps(late(exercise_id, seconds))
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
