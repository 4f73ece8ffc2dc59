"""A server for a notebook: `labkit serve` in a process of its own, gone when the kernel is."""

import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from labkit.core.settings import CONTRACT_MAX_BATCH

if TYPE_CHECKING:
    from labkit.live.loadtest_books import Outcome
    from labkit.viz.board import Board, Moment

START_WITHIN_S = 60.0
END_WITHIN_S = 15.0
DRAIN_S = 3.0
ASK_WITHIN_S = 20.0


class ServeError(RuntimeError):
    """The server did not come up, or is gone: says why, and the remedy."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One response, read to its end; the names of `headers` are in lower case."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.text)


class Served:
    """A running server: where it listens, its keys, and what may be asked of it.

    `keys` has `paid`, `free` and `admin`; they end with the server, and so does everything else.
    """

    def __init__(self, process: "subprocess.Popen[str]", said: dict[str, Any]) -> None:
        self.url: str = said["url"]
        self.pid: int = said["pid"]
        self.keys: dict[str, str] = said["keys"]
        self._process = process
        self._crowd: Outcome | None = None
        # Also when the name is bound anew in a notebook, and when the interpreter ends.
        self._end = weakref.finalize(self, _end, process)

    def __repr__(self) -> str:
        state = "ended" if self._process.poll() is not None else f"on {self.url}"
        return f"<a server, process {self.pid}, {state}>"

    @property
    def admin_key(self) -> str:
        """The key that may break GPUs."""
        return self.keys["admin"]

    # -- asking -----------------------------------------------------------------------------------

    def ask(
        self,
        path: str,
        body: Any = None,
        *,
        key: str = "paid",
        method: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        """One request, whatever its status; `key` is a name in `keys`, or a key.

        Raises `ServeError` when nobody answers.
        """
        told = {"authorization": f"Bearer {self.keys.get(key, key)}", **(headers or {})}
        sent = None if body is None else json.dumps(body).encode()
        if sent is not None:
            told["content-type"] = "application/json"
        request = Request(self.url + path, sent, told, method=method)
        try:
            with _OPENER.open(request, timeout=ASK_WITHIN_S) as response:
                return _reply(response.status, response)
        except HTTPError as refused:
            with refused:
                return _reply(refused.code, refused)
        except OSError as error:
            raise ServeError(f"{self!r} does not answer ({error}); start one: serve()") from error

    def counters(self) -> dict[str, float]:
        """What /metrics says, by name and labels, without the prefix and the histogram's bars."""
        counted = {}
        for line in self.ask("/metrics").text.splitlines():
            name, _, value = line.rpartition(" ")
            if not line.startswith("#") and "_bucket{" not in name:
                counted[name.removeprefix("labkit_")] = float(value)
        return counted

    def within(self, budget_s: float) -> dict[str, float]:
        """The share of answers within the budget (s), by tier; see `answered_within`."""
        return answered_within(self.ask("/metrics").text, budget_s)

    def gpus(self) -> list[dict[str, Any]]:
        """Each GPU: its state, how many are aboard, its process and its restarts."""
        return self._lab("gpus")["gpus"]

    def receipts(self) -> list[dict[str, Any]]:
        """Why the last batches left when they did, the latest last."""
        return self._lab("receipts")["receipts"]

    def kill(self, gpu: int) -> None:
        """SIGKILL to the process in the place of this GPU; raises `ServeError` if there is none."""
        self._lab(f"gpus/{gpu}/kill", "POST")

    def _lab(self, path: str, method: str = "GET") -> Any:
        reply = self.ask(f"/lab/{path}", key="admin", method=method)
        if reply.status != 200:
            raise ServeError(f"/lab/{path}: {reply.status}, {reply.json['error']['message']}")
        return reply.json

    # -- load -------------------------------------------------------------------------------------

    def offer(
        self, rate: float, seconds: float, *, keyed: float = 0.0, seed: int = 16
    ) -> "Future[Outcome]":
        """Start an open-loop load (requests a second) on a thread of its own; its books, later.

        A kernel has a loop of its own in its main thread, which stays free for the next cell.
        """
        from labkit.core.messages import Request as Passenger
        from labkit.live.loadtest import LoadTest, Target
        from labkit.workload import poisson, stream

        target = Target(self.url, (self.keys["paid"], self.keys["free"]), keyed=keyed)
        # Everybody's prompt differs, so that a mix-up of answers would show.
        arrivals = [
            Passenger(number, f"passenger {number}", at)
            for number, at in enumerate(poisson(rate, seconds, stream(seed, "arrivals")))
        ]
        test = LoadTest(target, arrivals, seed=seed, uvloop=False)
        test.outcome.labels = ("paid", "free")
        self._crowd = test.outcome
        books: Future[Outcome] = Future()

        def run() -> None:
            try:
                books.set_result(test.run())
            except BaseException as error:
                books.set_exception(error)

        threading.Thread(target=run, name="load", daemon=True).start()
        return books

    # -- watching ---------------------------------------------------------------------------------

    def board(self) -> "Board":
        """This server in live numbers, with a button for each GPU that kills its process."""
        from labkit.viz.board import Board

        # A widget lives as long as the kernel, and a server no longer than its last reference.
        found = weakref.ref(self)

        def look() -> "Moment | None":
            server = found()
            return None if server is None else server.moment()

        def kill(gpu: int) -> str:
            server = found()
            return "The server is gone." if server is None else server.strike(gpu)

        return Board(look, kill)

    def moment(self) -> "Moment | None":
        """What a board shows now; None when the server is gone."""
        try:
            gpus, counted = self.gpus(), self.counters()
        except ServeError:
            return None

        def total(name: str, label: str = "") -> int:
            mine = (
                value for one, value in counted.items() if one.startswith(name) and label in one
            )
            return round(sum(mine))

        answered = total("calls_total", '"answered"')
        sunk = total("batch_rows_total") - total("returned_rows_total") - total("on_gpu_requests")
        crowd = self._crowd
        sent, ended, lost = (crowd.offered, len(crowd.took), crowd.lost) if crowd else (0, 0, 0)
        return {
            "sent": sent,
            "ended": ended,
            "on_the_way": sent - ended - lost,
            "answered": answered,
            "refused": total("calls_total") - answered,
            "depth": total("queue_depth"),
            "again": max(sunk, 0),
            "most": CONTRACT_MAX_BATCH,
            "gpus": [
                {
                    "gpu": row["gpu"],
                    "state": row["state"],
                    "aboard": row["aboard"],
                    "restarts": row["restarts"],
                }
                for row in gpus
            ],
        }

    def strike(self, gpu: int) -> str:
        """Kill this GPU's process, and say how many were aboard, or why it cannot be done."""
        try:
            aboard = sum(row["aboard"] for row in self.gpus() if row["gpu"] == gpu)
            self.kill(gpu)
        except ServeError as error:
            return str(error)
        return f"GPU {gpu} is dead, with {aboard} aboard."

    # -- the end ----------------------------------------------------------------------------------

    def stop(self) -> int:
        """Answer whoever waits, then end; the exit code. A second call does no harm."""
        self._end()
        return self._process.returncode


def serve(gpus: int = 4, *options: str) -> Served:
    """Start a server on a free port of this machine; `options` as `labkit serve` takes them.

    It ends with `stop`, with the last reference to it, and with this process, however that ends.
    Raises `ServeError` when it does not come up.
    """
    # No file has this name, so the keys are the demonstration's and never the person's own.
    keys = Path(tempfile.gettempdir(), f"no-keys-{secrets.token_hex(8)}.json")
    words = ["serve", "--port", "0", "--json", "--gpus", f"{gpus}", "--drain-s", f"{DRAIN_S:g}"]
    command = [sys.executable, "-m", "labkit.teach.leash", *words, "--keys", str(keys), *options]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as complaints:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            # An interrupt of a cell goes to the kernel's whole group, and is not for the server.
            **_apart(),
        )
        said = _first_line(process)
        if not said:
            _end(process)
            complaints.seek(0)
            # Of a command line that will not do, the sentence and not the usage.
            why = complaints.read().rpartition("Error: ")[2].strip()
            why = why or f"no word within {START_WITHIN_S:g} s"
            raise ServeError(f"the server did not come up: {why}")
    return Served(process, json.loads(said))


@contextmanager
def served(gpus: int = 4, *options: str) -> Iterator[Served]:
    """A server for the length of a `with`; see `serve`."""
    server = serve(gpus, *options)
    try:
        yield server
    finally:
        server.stop()


def answered_within(metrics: str, budget_s: float) -> dict[str, float]:
    """Of the answers that a page of /metrics counts, the share within the budget (s), by tier.

    All models together, from the last byte of a request to its answer; a refusal is no answer.
    Raises `ValueError` when the budget is no bound of the histogram.
    """
    inside: dict[str, float] = {}
    every: dict[str, float] = {}
    for line in metrics.splitlines():
        found = _BAR.match(line)
        if found is None:
            continue
        labels = dict(_LABEL.findall(found["labels"]))
        tier, bound, count = labels["tier"], float(labels["le"]), float(found["count"])
        if bound == inf:
            every[tier] = every.get(tier, 0.0) + count
        elif bound == budget_s:
            inside[tier] = inside.get(tier, 0.0) + count
    if every.keys() != inside.keys():
        raise ValueError(
            f"no bar of labkit_answer_seconds ends at {budget_s:g} s; take one that /metrics has"
        )
    return {tier: inside[tier] / count for tier, count in sorted(every.items()) if count}


_BAR = re.compile(r"labkit_answer_seconds_bucket\{(?P<labels>[^}]*)\} (?P<count>\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


# -- the process -----------------------------------------------------------------------------------


def _apart() -> dict[str, Any]:
    if os.name == "posix":
        return {"start_new_session": True}
    return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}  # type: ignore[attr-defined]


def _first_line(process: "subprocess.Popen[str]") -> str:
    """What it says when it can answer; empty when it ended, or took too long."""
    assert process.stdout is not None
    late = threading.Timer(START_WITHIN_S, process.kill)
    late.daemon = True
    late.start()
    try:
        return process.stdout.readline()
    finally:
        late.cancel()


def _end(process: "subprocess.Popen[str]") -> None:
    """Let go of the leash, and wait; by force in the end."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    try:
        process.wait(END_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


_OPENER = build_opener(ProxyHandler({}))
"""Straight to this machine, whatever proxy the environment names."""


def _reply(status: int, response: Any) -> Reply:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(status, headers, response.read().decode("utf-8"))
