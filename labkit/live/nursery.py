"""A small process that has imported everything already and forks workers from itself.

It never has a second thread, so that forking it is safe; its parent never forks. It ends, with all
its workers, when the pipe to its parent closes, whatever closed it.
"""

import contextlib
import importlib
import os
import signal
import socket
from collections.abc import Sequence
from multiprocessing.connection import Connection

from labkit.live.child import serve
from labkit.live.kinds import Setup
from labkit.live.pipe import Pipe


def main(control_fd: int, preload: Sequence[str]) -> None:
    """Obey `("launch", setup)` and `("reap", pid)` until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in preload:
        # A module that fails here fails again in the worker, which can say so.
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    control = Connection(control_fd)
    workers: set[int] = set()
    try:
        while True:
            verb, argument = control.recv()
            if verb == "launch":
                pid = _launch(control, argument)
                workers.add(pid)
                control.send(pid)
            else:
                control.send(_reap(argument, workers))
    except (EOFError, OSError):
        pass
    finally:
        for pid in workers:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _launch(control: Connection, setup: Setup) -> int:
    """Fork one worker that serves the socket which follows the message; its pid."""
    with socket.socket(fileno=os.dup(control.fileno())) as channel:
        _, (fd,), _, _ = socket.recv_fds(channel, 1, 1)
    pid = os.fork()
    if pid:
        os.close(fd)
        return pid
    status = 1
    try:
        control.close()
        serve(Pipe(fd), setup)
        status = 0
    finally:
        os._exit(status)


def _reap(pid: int, workers: set[int]) -> int | None:
    """The exit code of a worker that has ended (minus the signal); None while it has not.

    Until it is reaped its pid cannot be given to another process, so the parent may signal it.
    """
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0
    if not ended:
        return None
    workers.discard(pid)
    return os.waitstatus_to_exitcode(status)
