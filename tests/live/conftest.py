"""What the live tests share: waiting for another thread or process, and kinds of worker."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def until() -> Callable[..., None]:
    """`until(condition)`: wait for something that another thread or process does."""

    def wait(condition: Callable[[], bool], seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it did not happen"
            time.sleep(0.002)

    return wait


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """`kind(name)`: the kind of worker of that name in `worker_kinds`, as a caller's own module."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return "worker_kinds:{}".format
