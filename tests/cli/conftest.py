"""One way to run a command in this process and read what it says."""

import json
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from labkit.cli.main import main


class Said(NamedTuple):
    """A finished command: exit code, and what it wrote to the two streams."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> Any:
        """What it wrote as JSON."""
        return json.loads(self.out)


@pytest.fixture
def labkit():
    """Run `labkit` with these words; an exception that no command explains is raised."""

    def run(*words: object, **environment: str) -> Said:
        done = CliRunner(env=environment).invoke(main, [str(word) for word in words])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Said(done.exit_code, done.stdout, done.stderr)

    return run
