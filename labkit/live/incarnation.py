"""One incarnation of a GPU: a process, a pipe, and a thread for its birth and its burial.

What it says is read on the loop, where a loop can read a pipe. A thread for that would wait for
the interpreter's lock longer than for the message.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import wait
from queue import SimpleQueue
from typing import Any

from labkit.gpu.tag import carries
from labkit.live.kinds import Setup
from labkit.live.launch import Launcher, Process
from labkit.live.pipe import Pipe, Rest

START_WITHIN_S = 120.0
"""How long a worker may take to its first answer; torch and a GPU context take many seconds."""

SELF_TEST = "self-test"
ENDED = "its process ended"
SAID = ("done", "pieces")
"""What a worker says and goes on; anything else is its last word."""


class Worker:
    """One incarnation of one GPU. `tell(event, worker, *arguments)` is called on its own thread.

    Events in order: `up(facts)` once it has answered a self-test batch; for each batch perhaps
    `pieces(batch_id, pieces)`, then `done(batch_id, result, raw_us)`; `down(why)` the moment its
    pipe ends; `buried(exit_code)` when the process, and so its memory, is really gone. Between `up`
    and `buried` nothing is told of a worker that `is_read_on_loop`: `read` says it, until `over` is
    set. `doomed`: it was ended on purpose.
    """

    def __init__(self, setup: Setup, launcher: Launcher, tell: Callable[..., None]) -> None:
        self.setup = setup
        self.pid: int | None = None
        self._launcher = launcher
        self._tell = tell
        self._process: Process | None = None
        self.doomed = False
        self.over = threading.Event()
        self._reading = threading.Lock()
        # One is held for an instant, by whoever sends; the other while a full pipe is waited for.
        self._sending = threading.Lock()
        self._writing = threading.Lock()
        self._outbox: SimpleQueue[Rest | None] | None = None
        self._writer: threading.Thread | None = None
        self.thread = threading.Thread(
            target=self._live, name=f"labkit-gpu-{setup.gpu}", daemon=True
        )

    def send(self, *message: Any) -> None:
        """Hand a message over without ever blocking; what a dead worker would get is dropped."""
        with suppress(OSError), self._sending:
            if self._outbox is not None:
                self._outbox.put(partial(self._send, message))
            elif self._process is not None:
                rest = self._process.offer(message)
                if rest is not None:
                    self._begin_outbox(rest)

    def _begin_outbox(self, rest: Rest) -> None:
        """From the first message on for which there is no room a thread writes: all in order."""
        self._outbox = SimpleQueue()
        self._outbox.put(rest)
        self._writer = threading.Thread(
            target=self._write_outbox,
            args=(self._outbox,),
            name=f"{self.thread.name}-out",
            daemon=True,
        )
        self._writer.start()

    def kill(self) -> None:
        """End the process at once, even if it is still starting."""
        self.doomed = True
        if self._process is not None:
            self._process.kill()

    @property
    def is_read_on_loop(self) -> bool:
        """Whether a loop can wait for its pipe, and the end of that alone tells of its death."""
        return self._process is not None and isinstance(self._process.conn, Pipe)

    def fileno(self) -> int:
        """Of the pipe; raises OSError when it is buried."""
        process = self._process
        if process is None:
            raise OSError("its pipe is closed")
        return process.conn.fileno()

    def read(self) -> list[tuple[str, list[Any]]]:
        """What it has said, as events with their arguments, the last perhaps `down`.

        Waits when there is nothing, so that it is for whoever knows that there is something.
        """
        told: list[tuple[str, list[Any]]] = []
        try:
            with self._reading:
                conn = None if self._process is None else self._process.conn
                messages = conn.read() if isinstance(conn, Pipe) else []
            for verb, *arguments in messages:
                if verb not in SAID:
                    return [*told, ("down", [str(arguments[0])])]
                told.append((verb, arguments))
        except (EOFError, OSError):
            told.append(("down", [ENDED]))
        except Exception as error:
            told.append(("down", [unreadable(error)]))
        return told

    def _send(self, message: Any) -> None:
        if self._process is not None:
            self._process.conn.send(message)

    def _write_outbox(self, outbox: SimpleQueue[Rest | None]) -> None:
        while (write := outbox.get()) is not None:
            with suppress(OSError), self._writing:
                write()

    def _live(self) -> None:
        """Launch, converse until the pipe ends, bury: the whole life of the thread."""
        try:
            process = self._launcher.launch(self.setup)
        except OSError as error:
            self._tell("down", self, f"could not start: {error}")
            self._tell("buried", self, None)
            return
        self.pid, self._process = process.pid, process
        if self.doomed:
            process.kill()
        why: str | None = ENDED
        try:
            why = self._converse(process)
        except TimeoutError as error:
            why = str(error)
        except (EOFError, OSError):
            pass
        except Exception as error:
            why = unreadable(error)
        if why is not None:
            self._tell("down", self, why)
        process.kill()
        exit_code = process.bury()
        with self._reading, self._sending, self._writing:
            self._process = None
            process.conn.close()
        if self._outbox is not None and self._writer is not None:
            self._outbox.put(None)
            self._writer.join()
        self._tell("buried", self, exit_code)

    def _converse(self, process: Process) -> str | None:
        """Pass on what the worker says until it says why it stops; None where the loop does that.

        Raises EOFError at the end of the pipe.
        """
        facts = self._self_test(process)
        if isinstance(facts, str):
            return facts
        self._tell("up", self, facts)
        if self.is_read_on_loop:
            self.over.wait()
            return None
        while True:
            verb, *arguments = self._receive(process)
            if verb not in SAID:
                return str(arguments[0])
            self._tell(verb, self, *arguments)

    def _self_test(self, process: Process) -> dict[str, Any] | str:
        """The worker's facts once it has answered one real batch rightly, else what is wrong."""
        deadline = time.monotonic() + START_WITHIN_S
        verb, facts = self._receive(process, deadline)
        if verb != "up":
            return str(facts)
        self.send("run", 0, [SELF_TEST])
        verb = "pieces"
        while verb == "pieces":
            verb, *arguments = self._receive(process, deadline)
        if verb != "done":
            return str(arguments[0])
        result = arguments[1]
        # Sentences below are for whoever writes a kind of worker.
        if not isinstance(result, (list, tuple)) or len(result) != 1:
            return f"self-test: {result!r}; a worker must return one output per prompt, in order"
        if not isinstance(result[0], str) or not carries(result[0], SELF_TEST):
            return f"self-test: {result[0]!r} does not end in the tag of its prompt; stamp it"
        return dict(facts)

    def _receive(self, process: Process, deadline: float | None = None) -> Any:
        """The next message; raises EOFError at the end of the pipe, OSError past the deadline."""
        conn = process.conn
        if isinstance(conn, Pipe) and conn.holds_more:
            return conn.recv()
        sources: list[Any] = [conn]
        if process.sentinel is not None:
            sources.append(process.sentinel)
        rest = None if deadline is None else max(deadline - time.monotonic(), 0)
        ready = wait(sources, rest)
        if conn in ready:
            return conn.recv()
        if ready:
            raise EOFError
        raise TimeoutError(f"no answer within {START_WITHIN_S:g} s of its start")


def unreadable(error: Exception) -> str:
    """Why a worker is given up that sent something else than messages."""
    return f"it sent what cannot be read: {type(error).__name__}: {error}"
