"""How a worker process is started, ended and buried; one way where there is fork, one elsewhere."""

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar

from labkit.live.child import serve
from labkit.live.kinds import Setup
from labkit.live.pipe import Channel, Pipe, Rest

BURIAL_S = 10.0
"""How long a killed process may take to give its memory back."""

LAUNCH_S = 120.0
"""How long a first worker may take to be forked: the imports before it take many seconds."""

_BOOT = (
    "import sys; fd, count, *rest = sys.argv[1:]; sys.path[:] = rest[:int(count)]; "
    "from labkit.live.nursery import main; main(int(fd), rest[int(count):])"
)


End = TypeVar("End", Connection, Pipe)

_ends: "weakref.WeakSet[Connection | Pipe | socket.socket]" = weakref.WeakSet()
_making = threading.Lock()


def _pipe(kind: type[End]) -> tuple[End, socket.socket]:
    """Our end of a pipe to another process, and the end for it; a fork of this one has neither.

    The end of a pipe is how a worker learns that its parent died. A child that the caller forks
    (`os.fork`, `multiprocessing`) would hold every pipe open, and with it every worker alive.
    """
    with _making:
        ours, theirs = socket.socketpair()
        conn = kind(ours.detach())
        _ends.update((conn, theirs))
    return conn, theirs


def _let_go() -> None:
    """In a forked child: close its copies, before any of its own code runs."""
    global _making
    _making = threading.Lock()
    for end in list(_ends):
        with contextlib.suppress(OSError):
            end.close()
    _ends.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _making.acquire(),
        after_in_parent=lambda: _making.release(),
        after_in_child=_let_go,
    )


@contextlib.contextmanager
def _as_socket(conn: Connection) -> Iterator[socket.socket]:
    """The same file, not a copy of it, which a fork at this moment would keep."""
    channel = socket.socket(fileno=conn.fileno())
    try:
        yield channel
    finally:
        channel.detach()


class Process(Protocol):
    """A worker process: the pipe to it, and what else becomes readable when it dies."""

    pid: int
    conn: Channel
    sentinel: int | None

    def offer(self, message: Any) -> Rest | None:
        """Send a message as far as that needs no waiting, and return what is left to do."""

    def kill(self) -> None:
        """End it at once; harmless when it has ended."""

    def bury(self) -> int | None:
        """Wait until it is really gone, memory and all; its exit code if that is known."""


class Launcher(Protocol):
    """Starts worker processes; used from several threads."""

    def launch(self, setup: Setup) -> Process:
        """A new process that serves `setup`; raises OSError."""

    def close(self) -> None:
        """Leave nothing behind."""


def launcher_for(targets: Sequence[str]) -> Launcher:
    """The launcher of this platform, ready for factories named `module:function`."""
    if hasattr(os, "fork") and hasattr(socket, "send_fds"):
        return Nursery(sorted({target.partition(":")[0] for target in targets}))
    return Spawner()


class Nursery:
    """Starts workers by fork from a process that imported what they need (`labkit.live.nursery`).

    Unlike a fork server of `multiprocessing` it never runs the caller's script again, takes its
    imports when it is made, and leaves no tracker process behind. It starts with the first worker
    and again if somebody kills it.
    """

    def __init__(self, preload: Sequence[str] = ()) -> None:
        self._preload = list(preload)
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._control: Connection | None = None
        self._closed = False

    def launch(self, setup: Setup) -> Process:
        """Fork one worker; about 20 ms with torch imported."""
        ours, theirs = _pipe(Pipe)
        try:
            with self._lock, theirs:
                pid = self._order(setup, theirs)
        except EOFError as error:
            ours.close()
            raise ConnectionError("the process that starts workers ended; see stderr") from error
        except BaseException:
            ours.close()
            raise
        return _Forked(pid, ours, self)

    def _order(self, setup: Setup, theirs: socket.socket) -> int:
        control = self._connected()
        control.send(("launch", setup))
        with _as_socket(control) as channel:
            socket.send_fds(channel, [b"\0"], [theirs.fileno()])
        pid: int = self._answer(LAUNCH_S)
        return pid

    def _answer(self, within: float) -> Any:
        """What the nursery says; one that says nothing is ended, so that nothing waits for it."""
        assert self._control is not None
        if not self._control.poll(within):
            self._kill()
            raise EOFError
        return self._control.recv()

    def _connected(self) -> Connection:
        if self._closed:
            raise ConnectionError("the engine is stopping; no new worker")
        if self._server is not None and self._server.poll() is not None:
            self._end()
        if self._control is None:
            ours, theirs = _pipe(Connection)
            with theirs:
                self._server = subprocess.Popen(
                    [
                        *(sys.executable, "-c", _BOOT, str(theirs.fileno())),
                        *(str(len(sys.path)), *sys.path, *self._preload),
                    ],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    # Ctrl-C is for the parent to obey, even while this one is still importing.
                    process_group=0,
                    # A worker that prints must not write into the caller's --json.
                    stdout=2,
                )
            self._control = ours
        return self._control

    def reap(self, pid: int) -> int | None:
        """Wait for a worker that was killed; its exit code, None if it cannot be known."""
        deadline = time.monotonic() + BURIAL_S
        while time.monotonic() < deadline:
            with self._lock:
                if self._control is None:
                    return None
                try:
                    self._control.send(("reap", pid))
                    code: int | None = self._answer(BURIAL_S)
                except (EOFError, OSError):
                    return None
            if code is not None:
                return code
            time.sleep(0.002)
        return None

    def close(self) -> None:
        """End the nursery, and with it every worker it still has."""
        with self._lock:
            self._closed = True
            self._end()

    def _end(self) -> None:
        if self._control is not None:
            # Closing alone would not end the pipe while a child has it that no hook was run in.
            with contextlib.suppress(OSError), _as_socket(self._control) as channel:
                channel.shutdown(socket.SHUT_RDWR)
            self._control.close()
            self._control = None
        if self._server is not None:
            try:
                self._server.wait(BURIAL_S)
            except subprocess.TimeoutExpired:
                self._kill()
            self._server = None

    def _kill(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()


class _Forked:
    """A worker forked by a nursery; its death is the end of its pipe."""

    sentinel: int | None = None

    def __init__(self, pid: int, conn: Pipe, nursery: Nursery) -> None:
        self.pid = pid
        self.conn: Channel = conn
        self.offer = conn.offer
        self._hang_up = conn.hang_up
        self._nursery = nursery
        self._buried = False

    def kill(self) -> None:
        if not self._buried:
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)

    def bury(self) -> int | None:
        code = self._nursery.reap(self.pid)
        self._buried = True
        # A process that the worker forked may have its end still.
        self._hang_up()
        return code


class Spawner:
    """Starts each worker in a fresh interpreter; for platforms without fork.

    The caller's script is imported again by each worker, so it needs `if __name__ == "__main__":`.
    """

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")

    def launch(self, setup: Setup) -> Process:
        """Start one interpreter; a second or more."""
        ours, theirs = self._context.Pipe()
        _ends.update((ours, theirs))
        process = self._context.Process(target=serve, args=(theirs, setup), daemon=True)
        try:
            process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return _Spawned(process, ours)

    def close(self) -> None:
        """Nothing to end: a spawned worker has no server."""


class _Spawned:
    """A worker started by `multiprocessing`, which keeps its own sentinel."""

    def __init__(self, process: Any, conn: Connection) -> None:
        self.pid: int = process.pid
        self.conn: Channel = conn
        self.sentinel: int | None = process.sentinel
        self._process = process

    def offer(self, message: Any) -> Rest | None:
        return partial(self.conn.send, message)

    def kill(self) -> None:
        with contextlib.suppress(ValueError):
            self._process.kill()

    def bury(self) -> int | None:
        self._process.join(BURIAL_S)
        code: int | None = self._process.exitcode
        if code is not None:
            self._process.close()
        return code
