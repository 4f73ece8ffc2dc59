"""Ten thousand connections that say nothing, and more connections than there may be files."""

import contextlib
import resource
import socket
from collections.abc import Iterator

import pytest

from tools.fuzzing.server import Served

from .conftest import until

pytestmark = pytest.mark.slow

CROWD = 10_000
PER_ADDRESS = 2_500
MOST_BYTES_EACH = 8_192
"""Of the server's memory for one idle connection that was answered once; about 3,700 it is."""

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: here\r\n\r\n"


@pytest.fixture
def files() -> Iterator[int]:
    """How many connections this process may hold open, its own files left out."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CROWD + 500
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    yield max(soft, most) - 500
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def crowd(port: int, number: int) -> Iterator[list[socket.socket]]:
    """So many connections, from as many addresses of this machine as their ports need."""
    lines: list[socket.socket] = []
    try:
        for n in range(number):
            source = (f"127.0.0.{2 + n // PER_ADDRESS}", 0)
            lines.append(socket.create_connection(("127.0.0.1", port), 20, source))
        yield lines
    finally:
        for line in lines:
            line.close()


def answered(line: socket.socket) -> bool:
    """Whether a request on this line is answered now."""
    line.sendall(HEALTH)
    return line.recv(4_096).startswith(b"HTTP/1.1 200 ")


def test_ten_thousand_idle_connections_disturb_nobody_and_leave_nothing(files):
    number = min(CROWD, files)
    if number < CROWD:
        print(f"only {number} connections: this process may open no more files")
    with Served() as served:
        before, open_before = served.watched.memory_info().rss, served.watched.num_fds()
        with crowd(served.port, number) as lines:
            assert all(answered(line) for line in lines)
            assert served.watched.num_fds() >= open_before + number - 1
            assert served.ask() is None
            grown = served.watched.memory_info().rss - before
            assert grown / number < MOST_BYTES_EACH
            assert all(answered(line) for line in lines[::100])
        until(lambda: served.watched.num_fds() <= open_before)
        assert served.finding() is None


@pytest.mark.parametrize("loop", ["--uvloop", "--no-uvloop"])
def test_a_flood_over_the_limit_is_turned_away_and_costs_no_file(loop):
    with Served(loop, files=600) as served:
        with crowd(served.port, 400) as inside:
            assert all(answered(line) for line in inside)
            with crowd(served.port, 1_500) as outside:
                heard = {first_word(line) for line in outside}
                assert heard <= {b"HTTP/1.1 503", b""}
                assert b"HTTP/1.1 503" in heard
                assert all(answered(line) for line in inside)
        until(lambda: served.watched.num_fds() < 50)
        assert served.finding() is None


def first_word(line: socket.socket) -> bytes:
    """The first of a response; nothing from a server that hangs up."""
    try:
        return line.recv(4_096)[:12]
    except ConnectionError:
        return b""
