"""The access log: its lines are the client's own books, and its disk may fail."""

import json
import os
import sys

import pytest

from labkit.core.units import MS
from labkit.live.errors import LiveError
from labkit.live.http.access import AccessLog

from .conftest import QUICK, until

KEYS = (
    *("time", "id", "method", "path", "route", "status", "tenant", "tier", "model", "prompts"),
    *("stream", "keyed", "replayed", "queue_ms", "total_ms", "bytes", "outcome", "code"),
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "access.jsonl"


def lines_of(path) -> list[dict]:
    """Every line, each a whole JSON object."""
    text = path.read_text()
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_the_lines_are_the_clients_own_books(serve, path):
    place = serve(access=AccessLog(str(path)))
    heard = [
        place.complete("a"),
        place.complete(["a", "b"], key="free"),
        place.complete("a b", stream=True),
        place.complete("k", Idempotency_Key="one"),
        place.complete("k", Idempotency_Key="one"),
        place.complete("other", Idempotency_Key="one"),
        place.complete("x", model="canoe"),
        place.complete("x", key="nobody"),
        place.ask("/nowhere?key=secret", key=None),
        place.ask("/healthz", method="HEAD", key=None),
    ]
    place.server.close()
    lines = lines_of(path)
    assert [tuple(line) for line in lines] == [KEYS] * 10
    assert [line["status"] for line in lines] == [answer.status for answer in heard]
    assert [line["bytes"] for line in lines] == [len(answer.body) for answer in heard]
    assert [line["id"] for line in lines] == [a.headers.get("x-request-id") for a in heard]
    assert [line["replayed"] for line in lines] == [
        "idempotent-replayed" in answer.headers for answer in heard
    ]
    assert [line["code"] for line in lines] == [
        answer.error["code"] if answer.status >= 400 else None for answer in heard
    ]
    assert [line["prompts"] for line in lines] == [1, 2, 1, 1, 1, 1, None, None, None, None]
    assert [line["tier"] for line in lines] == ["paid", "free"] + ["paid"] * 5 + [None] * 3
    assert [line["keyed"] for line in lines] == [False] * 3 + [True] * 3 + [False] * 4
    assert [line["stream"] for line in lines[:3]] == [False, False, True]
    answered = [line["outcome"] for line in lines]
    assert answered == ["answered"] * 5 + ["rejected"] + [None] * 4
    # Computed are the first four; a replay, and what is refused at once, never went aboard.
    assert [line["queue_ms"] is None for line in lines] == [False] * 4 + [True] * 6
    assert all(5 <= line["queue_ms"] < line["total_ms"] for line in lines[:4])
    text = path.read_text()
    assert not any(secret in text for secret in [*place.keys.values(), "nobody", "secret"])
    assert place.server.engine.shell.boarded == {}


def test_who_leaves_before_a_status_is_sent_is_in_the_log_with_499(serve, path):
    place = serve(QUICK.with_(max_wait=200 * MS, budget=None), access=AccessLog(str(path)))
    line = place.line(place.request(b'{"model": "ferry", "prompt": "x"}'))
    until(lambda: place.server.engine.gateway.depth() == 1)
    line.close()
    until(lambda: place.server.front.counters.in_flight == 0)
    until(lambda: path.exists() and path.read_text() != "")
    (told,) = lines_of(path)
    assert (told["status"], told["outcome"], told["code"]) == (499, "cancelled", "client_left")
    assert (told["bytes"], told["queue_ms"]) == (0, None)


def test_lines_are_on_disk_while_it_still_serves(serve, path):
    place = serve(access=AccessLog(str(path)))
    place.complete()
    until(lambda: len(lines_of(path)) == 1, seconds=5)


def test_a_file_that_was_moved_away_is_made_again(serve, path, tmp_path):
    place = serve(access=AccessLog(str(path)))
    place.complete("before")
    until(lambda: len(lines_of(path)) == 1)
    path.rename(tmp_path / "access.1")
    place.complete("after")
    until(lambda: path.exists() and len(lines_of(path)) == 1)
    assert len(lines_of(tmp_path / "access.1")) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_told_once_and_breaks_no_answer(serve, caplog):
    place = serve(access=AccessLog("/dev/full"))
    for number in range(3):
        assert place.complete(f"{number}").status == 200
        until(lambda number=number: place.server.access.lost == number + 1)
    assert place.metrics()["labkit_access_log_lost_lines_total"] == 3
    (record,) = [record for record in caplog.records if record.name == "labkit.http"]
    assert "access log /dev/full: No space left on device" in record.getMessage()
    place.server.close()
    caplog.clear()


def test_a_line_that_a_disk_tore_does_not_spoil_the_next(path, monkeypatch):
    log, real, room = AccessLog(str(path)), os.write, [40]
    log.open()
    line = _line()

    def write(fd, data):
        if fd != log._fd:
            return real(fd, data)
        if not room[0]:
            raise OSError(28, "No space left on device")
        taken = real(fd, bytes(data)[: room[0]])
        room[0] -= taken
        return taken

    monkeypatch.setattr(os, "write", write)
    log.note(line)
    log.flush()
    until(lambda: log.lost == 1)
    room[0] = 10_000
    log.note(line)
    log.close()
    torn, whole = path.read_text().splitlines()
    assert len(torn) == 40
    assert json.loads(whole)["path"] == "/v1/models"


def test_a_disk_that_hangs_costs_lines_and_no_memory(path, monkeypatch):
    monkeypatch.setattr("labkit.live.http.access.MOST_PENDING", 2)
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 4_096)
    except BlockingIOError:
        os.set_blocking(write, True)
    log = AccessLog("-")
    monkeypatch.setattr(sys, "stdout", os.fdopen(write, "w"))
    log.open()
    for _ in range(5):
        log.note(_line())
        log.flush()
    assert log.lost == 2
    os.set_blocking(read, False)
    until(lambda: _drained(read) and log._settled == 3)
    log.close()
    os.close(read)
    sys.stdout.close()


def _drained(read: int) -> bool:
    try:
        return os.read(read, 1 << 20) == b""
    except BlockingIOError:
        return True


def test_a_log_that_cannot_be_opened_is_told_before_it_serves(serve, tmp_path):
    with pytest.raises(LiveError, match=r"access log .*No such file or directory; give a file"):
        serve(access=AccessLog(str(tmp_path / "none" / "access.jsonl")))


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_pipe_that_nobody_reads_is_refused_and_holds_up_nobody(serve, pipe):
    with pytest.raises(LiveError, match=r"access log .*pipe: nobody reads it; give a file"):
        serve(access=AccessLog(str(pipe)))


def test_a_pipe_with_a_reader_gets_the_lines(serve, pipe):
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    place = serve(access=AccessLog(str(pipe)))
    place.complete("hello")
    place.server.close()
    (line,) = os.read(reader, 10_000).decode().splitlines()
    os.close(reader)
    assert json.loads(line)["status"] == 200


def test_a_pipe_put_in_the_files_place_costs_lines_and_holds_up_nobody(path, pipe, caplog):
    log = AccessLog(str(path))
    log.open()
    pipe.rename(path)
    log.note(_line())
    log.close()
    assert log.lost == 1
    assert "nobody reads it; lines are lost" in caplog.text
    caplog.clear()


def _line():
    from labkit.live.http.access import plain_line
    from labkit.live.http.exchange import Exchange

    class Plain(Exchange):
        respond = begin = push = end = cut = None

    exchange = Plain(b"GET", b"/v1/models", {}, b"", "127.0.0.1", 0.0)
    return plain_line(exchange, "models", None, 200, 17, None)
