"""The OpenAPI document held against the server that serves it, by schemathesis."""

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

CONFIG = """
[checks]
not_a_server_error.expected-statuses = ["2xx", "4xx", "503", "504"]
positive_data_acceptance.expected-statuses = ["2xx", "404", "409", "422", "429", "503", "504"]
"""
"""What is sound is served, unless there is no such GPU, its key was used, or time is short."""


@dataclass(frozen=True)
class Report:
    """One run: how many cases, what it printed, and whether a check failed."""

    cases: int
    text: str
    failed: bool


def run(url: str, key: str, seed: int, examples: int, skip: str | None = None) -> Report:
    """Send so many examples to each operation and hold every answer against the document.

    `skip` is a pattern of paths to leave alone. Whatever a run writes is gone with it.
    """
    with tempfile.TemporaryDirectory(prefix="labkit-schema-") as folder:
        config = Path(folder) / "schemathesis.toml"
        config.write_text(CONFIG, encoding="utf-8")
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config)]
        options = ["--checks", "all", "--seed", str(seed), "--max-examples", str(examples)]
        done = subprocess.run(
            [
                *(*command, "run", f"{url}/openapi.json", *options),
                *("--header", f"Authorization: Bearer {key}", "--no-color"),
                *("--generation-database", "none", "--warnings", "off"),
                *(() if skip is None else ("--exclude-path-regex", skip)),
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    found = re.search(r"(\d+) generated", done.stdout)
    return Report(int(found[1]) if found else 0, done.stdout + done.stderr, done.returncode != 0)
