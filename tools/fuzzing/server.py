"""The server under fire: a process of its own, and what must be true of it after every burst."""

import json
import subprocess
import sys
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType

import psutil

from labkit.gpu.tag import carries

QUIET = ("labkit_in_flight_calls", "labkit_on_gpu_requests", "labkit_streamed_prompts")
SETTLE_S = 20.0
SPARE_FILES = 3
"""Files that may be open beyond those at the start; a leak grows past any number."""


class Served:
    """`labkit serve` on a free port with fake GPUs; leaves with the `with` block.

    `files`: as many may it have open, and no more however it asks.
    """

    def __init__(self, *words: str, files: int | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="labkit-fuzz-")
        self._log = Path(self._folder.name) / "stderr"
        command = [sys.executable, "-m", "labkit", "serve", "--port", "0", "--json"]
        options = ["--workers", "fake", "--gpus", "2", "--batch-ms", "20", "--max-wait-ms", "5"]
        if files is not None:
            command = ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(files), *command]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *options, *words], stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server did not start: {self.log()}")
        said = json.loads(line)
        self.url, self.keys = said["url"], said["keys"]
        self.port = int(self.url.rsplit(":", 1)[1])
        self.watched = psutil.Process(said["pid"])
        self.ask()
        self._files = self.watched.num_fds()

    def __enter__(self) -> "Served":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.end()

    def log(self) -> str:
        """Everything it has said on stderr."""
        return self._log.read_text(errors="replace")

    def ask(self, prompt: str = "are you well?") -> str | None:
        """One good request; what is wrong with its answer."""
        line = HTTPConnection("127.0.0.1", self.port, timeout=SETTLE_S)
        head = {"authorization": f"Bearer {self.keys['paid']}", "content-type": "application/json"}
        try:
            body = json.dumps({"model": "ferry", "prompt": prompt})
            line.request("POST", "/v1/completions", body, head)
            answer = line.getresponse()
            text = answer.read()
            if answer.status != 200 or not carries(json.loads(text)["choices"][0]["text"], prompt):
                return f"a good request got {answer.status} {text!r:.200}"
        except OSError as error:
            return f"a good request got no answer: {error!r}"
        finally:
            line.close()
        return None

    def metrics(self) -> dict[str, float]:
        """Every sample by its name and labels."""
        line = HTTPConnection("127.0.0.1", self.port, timeout=SETTLE_S)
        try:
            line.request("GET", "/metrics")
            rows = line.getresponse().read().decode().splitlines()
        finally:
            line.close()
        samples = (row.rsplit(" ", 1) for row in rows if row[0] != "#")
        return {name: float(value) for name, value in samples}

    def finding(self) -> str | None:
        """What is wrong now; waits for what is on its way to come to its end."""
        if self.process.poll() is not None:
            return f"the server has ended with {self.process.returncode}: {self.log()[-2_000:]}"
        told = self.ask()
        if told is not None:
            return told
        deadline = time.monotonic() + SETTLE_S
        while (open_now := self._open()) and time.monotonic() < deadline:
            time.sleep(0.02)
        if open_now:
            return f"after {SETTLE_S:g} s there is still {open_now}"
        if log := self.log():
            return f"in its log: {log[-4_000:]}"
        return None

    def _open(self) -> dict[str, float]:
        told = self.metrics()
        busy = {
            name: value
            for name, value in told.items()
            if value and (name in QUIET or name.startswith("labkit_queue_depth"))
        }
        more = self.watched.num_fds() - self._files
        return busy | ({"files": more} if more > SPARE_FILES else {})

    def end(self) -> int:
        """SIGTERM; the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._folder.cleanup()
        return code
