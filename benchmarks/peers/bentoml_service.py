"""The batch function behind BentoML, which batches adaptively; `--port --workers`."""

import argparse
import os
import sys

os.environ |= {"BENTOML_DO_NOT_TRACK": "True", "DO_NOT_TRACK": "1"}

import bentoml

from benchmarks.peers.work import MOST, answers

WORKERS = "LABKIT_BENCH_WORKERS"


@bentoml.service(
    workers=int(os.environ.get(WORKERS, "1")),
    threads=1,
    traffic={"timeout": 30},
    logging={"access": {"enabled": False}},
)
class Echo:
    """Waits as long as BentoML finds worth it: there is no fixed window."""

    @bentoml.api(batchable=True, max_batch_size=MOST, max_latency_ms=10_000, route="/echo")
    def echo(self, prompts: list[str]) -> list[str]:
        """One answer a prompt, in order."""
        return answers(prompts)


def main() -> None:
    """Serve until SIGTERM; becomes BentoML's own command, whose workers import this module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    asked = parser.parse_args()
    os.environ[WORKERS] = str(asked.workers)
    place = ["--host", "127.0.0.1", "--port", str(asked.port), "--working-dir", os.getcwd()]
    service = "benchmarks.peers.bentoml_service:Echo"
    command = [sys.executable, "-m", "bentoml", "serve", service, *place]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
