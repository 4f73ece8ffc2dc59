"""The life of a contestant's server: started, asked, and ended with every process it started."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.http_contestants import CONTESTANTS, ROOT, Contestant, peer_python
from labkit.live.census import PROC, Census

KEYED = 0.1
"""Of our requests so many carry an idempotency key."""

END_WITHIN_S = 6.0
SAMPLE = "a prompt of about the length of those that the load consists of (12345)"


class NotStarted(ValueError):
    """A server did not come up: says which, and its last words."""


@dataclass(slots=True)
class Running:
    """A server that answers; `answer_size` is that of one answer's body in bytes."""

    contestant: Contestant
    census: Census
    port: int
    keys: tuple[str, ...]
    started_s: float = 0.0
    answer_size: int = 0
    killed: int = 0

    def cpu_s(self) -> float | None:
        """Processor time of all its processes so far, in seconds; None where nobody counts it."""
        if self.census.handles() is None:
            return None
        return sum(_cpu_s(pid) for pid in self.census.marked())

    def load(self, **load: Any) -> dict[str, Any]:
        """What `http_load` is asked, on standard input, for this server."""
        contestant = self.contestant
        return {
            "url": f"http://127.0.0.1:{self.port}",
            "path": contestant.path,
            "listed": contestant.listed,
            "tagged": contestant.tagged,
            "keys": self.keys,
            "keyed": KEYED if self.keys[0] else 0.0,
            **load,
        }

    def ask(self, timeout: float = 5.0) -> tuple[int, bytes]:
        """One request on a connection of its own: status and body; raises `OSError`."""
        contestant = self.contestant
        body = {"prompts": [SAMPLE]} if contestant.listed else {"model": "ferry", "prompt": SAMPLE}
        headers = {"content-type": "application/json"}
        if self.keys[0]:
            headers["authorization"] = f"Bearer {self.keys[0]}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("POST", contestant.path, json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, response.read()
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()


@contextmanager
def serving(name: str, workers: int, size: int, folder: Path, within: float) -> Iterator[Running]:
    """A server from its start to the end of every process it started.

    Its temporary files and its words lie in `folder`; `within` seconds it must answer.
    """
    contestant = CONTESTANTS[name]
    log = folder / "words"
    with Census() as census, log.open("wb") as words:
        began = time.monotonic()
        port = _free_port()
        process = subprocess.Popen(
            _command(contestant, workers, size, port),
            stdout=subprocess.PIPE if not contestant.pins else words,
            stderr=words,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)},
            # Ctrl-C is for us, who then end it in order.
            start_new_session=True,
        )
        running = None
        try:
            port, keys = _introduced(process, port)
            running = Running(contestant, census, port, keys)
            running.answer_size = _until_answered(running, process, began + within, log)
            running.started_s = round(time.monotonic() - began, 1)
            yield running
        finally:
            killed = end(process, census)
            if running is not None:
                running.killed = killed


def _command(contestant: Contestant, workers: int, size: int, port: int) -> list[str]:
    if contestant.name == "labkit":
        serve = ["-m", "labkit", "serve", "--json", "--port", "0", "--workers", "timer"]
        return [sys.executable, *serve, "--gpus", str(workers)]
    if not contestant.pins:
        command = [sys.executable, "-m", contestant.module, "--size", str(size)]
        return command if contestant.name == "constant" else [*command, f"--{contestant.name}"]
    python = str(peer_python(contestant, install=False))
    return [python, "-m", contestant.module, "--port", str(port), "--workers", str(workers)]


def _introduced(process: "subprocess.Popen[bytes]", port: int) -> tuple[int, tuple[str, ...]]:
    """Ours say on their first line where they listen and who may come in; peers are told."""
    if process.stdout is None:
        return port, ("",)
    line = process.stdout.readline()
    if not line:
        return port, ("",)
    told = json.loads(line)
    if "port" in told:
        return told["port"], ("",)
    return int(told["url"].rpartition(":")[2]), (told["keys"]["paid"], told["keys"]["free"])


def _until_answered(
    running: Running, process: "subprocess.Popen[bytes]", deadline: float, log: Path
) -> int:
    """The size of its first right answer; raises `NotStarted`."""
    last = "it did not listen"
    while time.monotonic() < deadline and process.poll() is None:
        try:
            status, body = running.ask()
        except OSError as error:
            last = str(error)
        else:
            if status == 200:
                return len(body)
            last = f"status {status}"
        time.sleep(0.1)
    told = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [last]
    raise NotStarted(f"{running.contestant.label} did not start: {told[-1][:200]}")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def end(process: "subprocess.Popen[bytes]", census: Census) -> int:
    """End the server and everything it started; how many had to be told one by one."""
    _tell([process.pid], signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_WITHIN_S)
    told = 0
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            _tell([process.pid], number)
        left = census.marked() if census.processes(within=1.0) else []
        told = told or len(left)
        _tell(left, number)
        census.processes(within=END_WITHIN_S)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
    return told


def _cpu_s(pid: int) -> float:
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _tell(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
