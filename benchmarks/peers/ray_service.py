"""The batch function behind Ray Serve: `@serve.batch` in a replica a worker; `--port --workers`."""

import argparse
import asyncio
import os
import signal
import tempfile
import threading
from typing import Any

# The second is what Ray's documentation says to set for throughput; both before it is imported.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}

import ray
from ray import serve
from starlette.requests import Request

from benchmarks.peers.work import BATCH_S, MOST, WINDOW_S, stamped


@serve.deployment
class Echo:
    """One batch at a time; another one's worth may wait behind it."""

    @serve.batch(max_batch_size=MOST, batch_wait_timeout_s=WINDOW_S)
    async def batch(self, prompts: list[str]) -> list[str]:
        """One answer a prompt, in order."""
        await asyncio.sleep(BATCH_S)
        return stamped(prompts)

    async def __call__(self, request: Request) -> dict[str, Any]:
        """One request."""
        return {"text": await self.batch((await request.json())["prompt"])}


def main() -> None:
    """Serve until SIGTERM, then take down what Ray started."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    asked = parser.parse_args()
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    ray.init(
        num_cpus=asked.workers + 2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        object_store_memory=200 * 1024**2,
        _temp_dir=tempfile.gettempdir(),
    )
    serve.start(http_options={"host": "127.0.0.1", "port": asked.port})
    app = Echo.options(
        num_replicas=asked.workers,
        max_ongoing_requests=2 * MOST,
        ray_actor_options={"num_cpus": 0},
    ).bind()
    serve.run(app, route_prefix="/", logging_config={"enable_access_log": False})
    over.wait()
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
