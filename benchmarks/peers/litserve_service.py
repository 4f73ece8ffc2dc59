"""The batch function behind LitServe: FastAPI and a process a worker; `--port --workers`."""

import argparse
from typing import Any

import litserve

from benchmarks.peers.work import MOST, WINDOW_S, answers

FRONTS = 2


class Echo(litserve.LitAPI):
    """Batches are lists of prompts, in and out."""

    def setup(self, device: str) -> None:
        """Nothing to load."""

    def decode_request(self, request: dict[str, Any]) -> str:
        """The prompt; LitServe finds the body by the name `request`."""
        return request["prompt"]

    def batch(self, inputs: list[str]) -> list[str]:
        """As they came."""
        return list(inputs)

    def predict(self, x: list[str]) -> list[str]:
        """One answer a prompt."""
        return answers(x)

    def unbatch(self, output: list[str]) -> list[str]:
        """As they came."""
        return output

    def encode_response(self, output: str) -> dict[str, str]:
        """The body."""
        return {"text": output}


def main() -> None:
    """Serve until SIGTERM, from two HTTP processes and LitServe's usual queue.

    On two cores that answered most: one HTTP process fewer, the queue it calls fast far fewer.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    asked = parser.parse_args()
    server = litserve.LitServer(
        Echo(max_batch_size=MOST, batch_timeout=WINDOW_S),
        accelerator="cpu",
        devices=1,
        workers_per_device=asked.workers,
        timeout=30,
    )
    server.run(
        host="127.0.0.1",
        port=asked.port,
        num_api_servers=FRONTS,
        log_level="warning",
        access_log=False,
        generate_client_file=False,
    )


if __name__ == "__main__":
    main()
