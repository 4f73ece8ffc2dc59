"""Rules of the whole suite: a learner's folder is left alone, and nothing passes by accident."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# In CI the same examples each time: a verdict should be about the change. Elsewhere new ones.
hypothesis.settings.register_profile(
    "lab", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI"))
)
hypothesis.settings.load_profile("lab")

_home: "pytest.StashKey[tempfile.TemporaryDirectory[str]]" = pytest.StashKey()


class NotebookRules:
    """How nbval reads notebooks: solved ones to the letter, a learner's for running through."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path):
        """Compare outputs under `solved/` alone: a learner's stubs may print what they like."""
        collectors = yield
        for collector in collectors:
            if file_path.suffix == ".ipynb" and file_path.parent.name != "solved":
                collector.compare_outputs = False
        return collectors


def pytest_configure(config: pytest.Config) -> None:
    """Give the run, and every process it starts, a learner's folder of its own."""
    folder = tempfile.TemporaryDirectory(prefix="labkit-home-")
    config.stash[_home] = folder
    os.environ["LABKIT_HOME"] = folder.name
    os.environ["MPLBACKEND"] = "agg"
    config.pluginmanager.register(NotebookRules())


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove that folder."""
    config.stash[_home].cleanup()


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """As at a terminal: what a shell starts in the background ignores the keyboard."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests come last, after the notebooks too.

    The browser's driver keeps an event loop running in this thread and processes beside it, until
    the end of the run; a test that wants neither must come before.
    """
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    """A test with one of the markers in LABKIT_REQUIRE that is skipped has failed."""
    report = yield
    required = os.environ.get("LABKIT_REQUIRE", "").split()
    missed = [name for name in required if item.get_closest_marker(name)]
    if report.skipped and missed:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"LABKIT_REQUIRE has {' and '.join(missed)}, yet: {reason}"
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run when a test passed that was expected to fail."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and reporter.stats.get("xpassed") and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
