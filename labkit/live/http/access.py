"""The access log: one JSON line for every exchange that is over, written off the loop's thread."""

import errno
import logging
import os
import stat
import sys
import threading
import time
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING

import msgspec

from labkit.core.messages import Outcome
from labkit.core.units import MS
from labkit.live.errors import LiveError
from labkit.live.http.exchange import Exchange

if TYPE_CHECKING:
    from labkit.live.http.call import Call

log = logging.getLogger("labkit.http")

GROUP = 1_000
"""Lines that are handed to the writer at once, when they come faster than a tick."""

LONGEST_PATH = 256
"""Bytes of a path that are kept: anybody may send one of any length."""

MOST_PENDING = 100_000
"""Lines that may wait for a slow disk; more are lost, and counted."""

CLOSE_WITHIN_S = 5.0


class Line(msgspec.Struct, gc=False):
    """One exchange; None where there is no such thing. The key is never part of it.

    `time`: when it was over. `id`: the `x-request-id` that its client got. `route`: the name by
    which it is counted. `queue_ms`: from its arrival until its last batch left. `total_ms`: from
    the last byte of the request until the last byte of the response was handed over. `bytes`: of
    the response's body. `code`: why it was refused, or how a stream broke.
    """

    time: datetime
    id: str | None
    method: str
    path: str
    route: str
    status: int
    tenant: str | None
    tier: str | None
    model: str | None
    prompts: int | None
    stream: bool | None
    keyed: bool
    replayed: bool
    queue_ms: float | None
    total_ms: float
    bytes: int
    outcome: str | None
    code: str | None


def plain_line(
    exchange: Exchange, route: str, tier: str | None, status: int, size: int, code: str | None
) -> Line:
    """The line of an exchange that asked for no answer, or came to no call."""
    account = exchange.account
    return Line(
        time=datetime.now(UTC),
        id=None,
        method=exchange.method.decode("latin-1"),
        path=_path(exchange),
        route=route,
        status=status,
        tenant=None if account is None else account.tenant,
        tier=tier,
        model=None,
        prompts=None,
        stream=None,
        keyed=False,
        replayed=False,
        queue_ms=None,
        total_ms=_since(exchange),
        bytes=0 if exchange.method == b"HEAD" else size,
        outcome=None,
        code=code,
    )


def call_line(call: "Call", tier: str, status: int, outcome: Outcome, code: str | None) -> Line:
    """The line of a call for answers."""
    exchange, asked = call.exchange, call.writer.asked
    waited = call.boarded_at - call.arrived_at
    return Line(
        time=datetime.now(UTC),
        id=call.writer.id,
        method=exchange.method.decode("latin-1"),
        path=_path(exchange),
        route=call.route,
        status=status,
        tenant=call.account.tenant,
        tier=tier,
        model=asked.model,
        prompts=len(asked.prompts),
        stream=asked.stream,
        keyed=call.keyed,
        replayed=call.replayed,
        queue_ms=round(waited / MS, 3) if call.boarded_at else None,
        total_ms=_since(exchange),
        bytes=call.size,
        outcome=outcome.value,
        code=code,
    )


def _path(exchange: Exchange) -> str:
    return exchange.path[:LONGEST_PATH].decode("latin-1")


def _since(exchange: Exchange) -> float:
    return round((time.monotonic() - exchange.started_at) * 1_000, 3)


class AccessLog:
    """Lines are noted on the loop and written by a thread of its own; `-` is standard output.

    A file that was moved away is made again with the next lines, so rotation needs no signal. A
    disk that fails is told to the log once; its lines are `lost`, and nobody's answer is.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.lost = 0
        self._lines: list[Line] = []
        self._handed = self._settled = 0
        self._groups: SimpleQueue[list[Line] | None] = SimpleQueue()
        self._encode = msgspec.json.Encoder().encode_lines
        self._thread: threading.Thread | None = None
        self._fd = -1
        self._complained = self._torn = False

    def open(self) -> None:
        """Begin to write; raises `LiveError` where that cannot be."""
        try:
            self._fd = self._opened()
        except OSError as error:
            raise LiveError(
                f"the access log {self.target}: {error.strerror}; give a file in a folder that "
                "can be written, or - for standard output"
            ) from error
        self._thread = threading.Thread(target=self._write_on, name="labkit-access", daemon=True)
        self._thread.start()

    def note(self, line: Line) -> None:
        """An exchange is over; on the loop."""
        self._lines.append(line)
        if len(self._lines) >= GROUP:
            self.flush()

    def flush(self) -> None:
        """Hand over what was noted; on the loop, several times a second."""
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        if self._handed - self._settled > MOST_PENDING:
            self.lost += len(lines)
            return
        self._handed += len(lines)
        self._groups.put(lines)

    def close(self) -> None:
        """Write what is left, unless the disk takes too long; call when the loop has ended."""
        if self._thread is None:
            return
        self.flush()
        self._groups.put(None)
        self._thread.join(CLOSE_WITHIN_S)
        if not self._thread.is_alive():
            self._let_go()
        self._thread = None

    # -- the writer's thread ----------------------------------------------------------------------

    def _write_on(self) -> None:
        while (lines := self._groups.get()) is not None:
            try:
                self._follow()
                self._write(lines)
            except OSError as error:
                self.lost += len(lines)
                self._complain(error)
            self._settled += len(lines)

    def _write(self, lines: list[Line]) -> None:
        payload = self._encode(lines)
        if self._torn:
            # A line of which a full disk took only a part must not spoil the next one.
            payload = b"\n" + payload
        view = memoryview(payload)
        while view:
            written = os.write(self._fd, view)
            self._torn = view[written - 1] != ord("\n")
            view = view[written:]

    def _follow(self) -> None:
        """Open the file anew when another has its name, or none."""
        if self.target == "-":
            return
        try:
            there, ours = os.stat(self.target), os.fstat(self._fd)
            if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
                return
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EBADF):
                raise
        fresh = self._opened()
        self._let_go()
        self._fd, self._torn = fresh, False

    def _opened(self) -> int:
        if self.target == "-":
            return sys.stdout.fileno()
        # Without the flag a pipe that nobody reads would hold up whoever opens it, for ever.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY
        try:
            fd = os.open(self.target, flags, 0o640)
        except OSError as error:
            if error.errno == errno.ENXIO:
                raise OSError(errno.ENXIO, "nobody reads it") from None
            raise
        if stat.S_ISBLK(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "a disk and no file")
        os.set_blocking(fd, True)
        return fd

    def _let_go(self) -> None:
        if self.target != "-" and self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            log.warning(
                "the access log %s: %s; lines are lost until that is mended, answers are not",
                self.target,
                error.strerror,
            )
