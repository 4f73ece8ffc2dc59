"""`labkit serve` as a process: its first line, its signals, and what is left when it is gone."""

import gc
import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from labkit.live.collector import THRESHOLDS
from labkit.live.keys import KeyFile
from tests.cli.test_json_page import SECTIONS, undocumented

from .conftest import until

pytestmark = pytest.mark.live


class Process:
    """A server that was started by its command."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "labkit", "serve", "--port", "0", "--json", *words]
        self.popen = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line, self.popen.stderr and self.popen.stderr.read()
        self.said = json.loads(line)
        self.port = int(self.said["url"].rsplit(":", 1)[1])

    def line(self, prompt: str = "x", key: str = "paid", head: str = "") -> socket.socket:
        """A connection on which one completion was asked for."""
        body = json.dumps({"model": "ferry", "prompt": prompt}).encode()
        line = socket.create_connection(("127.0.0.1", self.port), 20)
        line.sendall(
            f"POST /v1/completions HTTP/1.1\r\nhost: here\r\nauthorization: Bearer "
            f"{self.said['keys'].get(key, key)}\r\ncontent-type: application/json\r\n{head}"
            f"content-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        return line

    def status_of(self, line: socket.socket) -> tuple[int, bytes]:
        """The response on this line."""
        response = http.client.HTTPResponse(line)
        response.begin()
        return response.status, response.read()

    def get(self, path: str) -> tuple[int, bytes]:
        """The status and the body of a page."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("GET", path)
        response = connection.getresponse()
        told = response.status, response.read()
        connection.close()
        return told

    def gauge(self, name: str) -> float:
        """One number of /metrics."""
        text = self.get("/metrics")[1].decode()
        return float(text.split(f"\n{name} ")[1].split("\n")[0])

    def end(self, number: int = signal.SIGTERM) -> int:
        """Signal it; its exit code, and no word on stderr."""
        self.popen.send_signal(number)
        code = self.popen.wait(20)
        assert self.popen.stderr is not None
        assert self.popen.stderr.read() == ""
        return code


@pytest.fixture
def start() -> Iterator:
    """`start(*words)`: a server process, ended with the test."""
    started: list[Process] = []

    def begin(*words: str) -> Process:
        started.append(Process(*words))
        return started[-1]

    yield begin
    for process in started:
        if process.popen.poll() is None:
            process.popen.kill()
            process.popen.wait()
        for stream in (process.popen.stdout, process.popen.stderr):
            stream.close()


def test_a_signal_answers_everybody_first_and_leaves_nothing(start):
    server = start("--gpus", "2", "--max-wait-ms", "2000", "--budget-ms", "none")
    children = psutil.Process(server.said["pid"]).children(recursive=True)
    lines = [server.line(f"{number}") for number in range(30)]
    until(lambda: server.gauge("labkit_in_flight_calls") == 30)
    began = time.monotonic()
    assert server.end() == 0
    # The queue is let go at once, not after the window of two seconds.
    assert time.monotonic() - began < 2.0
    assert [server.status_of(line)[0] for line in lines] == [200] * 30
    for line in lines:
        line.close()
    assert [child for child in children if child.is_running()] == []


def test_who_comes_while_it_drains_is_told_when_to_return(start):
    server = start(
        "--gpus", "1", "--batch-ms", "1500", "--budget-ms", "none", "--overdue-ms", "none"
    )
    first = server.line()
    until(lambda: server.gauge("labkit_on_gpu_requests") == 1)
    late = socket.create_connection(("127.0.0.1", server.port), 20)
    server.popen.send_signal(signal.SIGTERM)
    until(lambda: server.get("/readyz")[0] == 503)
    with server.line() as second:
        status, body = server.status_of(second)
    assert (status, json.loads(body)["error"]["code"]) == (503, "draining")
    assert server.status_of(first)[0] == 200
    assert server.popen.wait(20) == 0
    first.close()
    late.close()


def test_what_cannot_be_answered_in_time_still_gets_an_outcome(start):
    server = start(
        *("--gpus", "1", "--batch-ms", "30000", "--budget-ms", "none", "--overdue-ms", "none"),
        *("--drain-s", "0.3", "--workers", "fake"),
    )
    line = server.line()
    until(lambda: server.gauge("labkit_on_gpu_requests") == 1)
    assert server.end() == 0
    status, body = server.status_of(line)
    assert (status, json.loads(body)["error"]["code"]) == (503, "draining")
    line.close()


def test_a_recorded_outcome_survives_kill_nine(start, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    key, _ = KeyFile().add("acme")
    words = ("--gpus", "1", "--ledger", str(tmp_path / "ledger.db"))
    head = "idempotency-key: order-1\r\n"
    server = start(*words)
    assert server.said["keys"] == {}
    assert undocumented(server.said, SECTIONS["serve"]) == set()
    line = server.line("pay", key, head)
    status, body = server.status_of(line)
    line.close()
    assert status == 200
    server.popen.kill()
    server.popen.wait()
    again = start(*words)
    line = again.line("pay", key, head)
    assert again.status_of(line) == (200, body)
    line.close()
    assert again.gauge("labkit_batch_rows_total") == 0
    assert again.end() == 0


def test_a_revoked_key_stops_working_soon(start, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    key, account = KeyFile().add("acme")
    KeyFile().add("other")
    server = start("--gpus", "1", "--workers", "fake")

    def status():
        with server.line(key=key) as line:
            return server.status_of(line)[0]

    assert status() == 200
    KeyFile().revoke(account.id)
    until(lambda: status() == 401)
    assert server.end(signal.SIGINT) == 0


def caught(pid: int) -> bool:
    """Whether this process has its own way of ending by now."""
    with open(f"/proc/{pid}/status") as status:
        (mask,) = [line.split()[1] for line in status if line.startswith("SigCgt")]
    return bool(int(mask, 16) & 1 << (signal.SIGTERM - 1))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("number", "after", "code"),
    [
        (signal.SIGTERM, "caught", 0),
        (signal.SIGTERM, "nursery", 0),
        (signal.SIGTERM, "workers", 0),
        (signal.SIGINT, "caught", 130),
        (signal.SIGINT, "nursery", 130),
    ],
)
def test_a_signal_before_it_is_ready_ends_it_cleanly(number, after, code):
    # A worker of this kind takes a minute to build, so the server is never ready.
    words = ("--port", "0", "--json", "--gpus", "2", "--workers", "worker_kinds:sleepy")
    server = subprocess.Popen(
        [sys.executable, "-m", "labkit", "serve", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "live")},
    )
    process, children = psutil.Process(server.pid), []

    def reached():
        children[:] = process.children(recursive=True)
        wanted = {"caught": 0, "nursery": 1, "workers": 2}[after]
        return caught(server.pid) and len(children) >= wanted

    try:
        until(reached, 60)
        os.killpg(server.pid, number)
        said, complained = server.communicate(timeout=60)
    finally:
        server.kill()
        server.communicate()
    assert (server.returncode, said, complained) == (code, "", "")
    assert psutil.wait_procs(children, timeout=5)[1] == []


def test_it_says_which_gpus_were_dealt_to_which_model():
    words = ("--port", "0", "--gpus", "3", "--workers", "fake", "--model", "ferry")
    server = subprocess.Popen(
        [sys.executable, "-m", "labkit", "serve", *words, "--model", "barge"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert server.stdout is not None
    try:
        said = list(itertools.islice(server.stdout, 4))
    finally:
        server.terminate()
        server.communicate(timeout=60)
    assert said[2:] == ["  ferry: GPUs 0, 2\n", "  barge: GPUs 1\n"]


def test_the_collector_is_tuned_unless_it_is_to_be_left_alone(serve):
    before = gc.get_threshold()
    serve(tunes_collector=False)
    assert gc.get_threshold() == before
    serve()
    assert gc.get_threshold() == THRESHOLDS
