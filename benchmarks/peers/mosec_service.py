"""The batch function behind Mosec: a Rust front and a process a worker; `--port --workers`."""

import argparse
import os
import sys
from typing import Any

from mosec import Server, Worker

from benchmarks.peers.work import MOST, WINDOW_S, answers


class Echo(Worker):
    """One batch at a time."""

    def forward(self, data: list[Any]) -> list[Any]:
        """One answer a request, in order."""
        return [{"text": text} for text in answers([asked["prompt"] for asked in data])]


def main() -> None:
    """Serve until SIGTERM; the queue is as long as nobody needs, so that it refuses nobody."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    asked = parser.parse_args()
    # Mosec reads the command line itself, and knows other words.
    sys.argv = sys.argv[:1]
    os.environ |= {
        "MOSEC_ADDRESS": "127.0.0.1",
        "MOSEC_PORT": str(asked.port),
        "MOSEC_CAPACITY": "100000",
        "MOSEC_TIMEOUT": "30000",
        "MOSEC_LOG_LEVEL": "warning",
    }
    server = Server()
    server.append_worker(
        Echo, num=asked.workers, max_batch_size=MOST, max_wait_time=round(WINDOW_S * 1_000)
    )
    server.run()


if __name__ == "__main__":
    main()
