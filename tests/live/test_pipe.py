"""The pipe to a worker: whole messages, in order, however the bytes come."""

import os
import pickle
import socket
import threading

import pytest

from labkit.live.pipe import ONE_READ, Pipe


@pytest.fixture
def ends():
    """A pipe, and the bare socket at its other end."""
    ours, theirs = socket.socketpair()
    pipe = Pipe(ours.detach())
    yield pipe, theirs
    pipe.close()
    theirs.close()


def framed(message) -> bytes:
    payload = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return len(payload).to_bytes(4, "big") + payload


def test_messages_that_came_together_are_read_together(ends):
    pipe, theirs = ends
    theirs.sendall(framed(("done", 1, ["a"], 5)) + framed(("done", 2, [], 6)))
    assert pipe.read() == [("done", 1, ["a"], 5), ("done", 2, [], 6)]


def test_a_pipe_says_whether_the_next_message_came_with_the_last(ends):
    pipe, theirs = ends
    theirs.sendall(framed("pieces") + framed("done"))
    assert not pipe.holds_more
    assert pipe.recv() == "pieces"
    assert pipe.holds_more
    assert pipe.recv() == "done"
    assert not pipe.holds_more


def test_a_message_is_told_when_its_last_byte_is_there(ends):
    pipe, theirs = ends
    data = framed("late")
    for byte in data[:-1]:
        theirs.sendall(bytes([byte]))
        assert pipe.read() == []
    theirs.sendall(data[-1:] + framed("next")[:2])
    assert pipe.read() == ["late"]
    theirs.sendall(framed("next")[2:])
    assert pipe.recv() == "next"


def test_one_read_takes_no_more_than_its_measure_and_the_next_goes_on(ends):
    pipe, theirs = ends
    long = "x" * (3 * ONE_READ)
    other = Pipe(theirs.detach())
    writer = threading.Thread(target=other.send, args=(long,))
    writer.start()
    assert pipe.read() == []
    assert pipe.recv() == long
    writer.join()
    other.close()


def test_the_end_of_the_pipe_is_an_end_and_not_a_message(ends):
    pipe, theirs = ends
    theirs.sendall(framed("last"))
    theirs.close()
    assert pipe.read() == ["last"]
    with pytest.raises(EOFError):
        pipe.read()
    with pytest.raises(EOFError):
        pipe.recv()


def test_what_there_is_no_room_for_is_left_and_nobody_waits(ends):
    pipe, theirs = ends
    long = "y" * 4_000_000
    rest = pipe.offer(long)
    assert rest is not None
    sent = os.read(theirs.fileno(), 1 << 20)
    assert 0 < len(sent) < len(long)
    theirs.setblocking(False)
    while True:
        try:
            sent += os.read(theirs.fileno(), 1 << 20)
        except BlockingIOError:
            break
    # The rest begins exactly where the first part ended.
    assert framed(long).startswith(sent)
    assert rest.args[0] == framed(long)[len(sent) :]


def test_a_small_message_leaves_nothing(ends):
    pipe, theirs = ends
    assert pipe.offer(("run", 1, ["a"])) is None
    other = Pipe(theirs.detach())
    assert other.recv() == ("run", 1, ["a"])
    other.close()


def test_the_process_own_time_limit_for_sockets_is_not_the_pipes(ends):
    socket.setdefaulttimeout(0.01)
    try:
        ours, theirs = socket.socketpair()
        pipe = Pipe(ours.detach())
        assert pipe._socket.gettimeout() is None
    finally:
        socket.setdefaulttimeout(None)
        pipe.close()
        theirs.close()


def test_a_closed_end_says_so_and_closing_twice_is_once(ends):
    pipe, _ = ends
    pipe.close()
    pipe.close()
    with pytest.raises(OSError, match="closed"):
        pipe.fileno()
