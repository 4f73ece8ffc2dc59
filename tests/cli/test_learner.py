"""`labkit progress`: looked at, taken along and brought back, with nothing lost."""

from pathlib import Path

import pytest

from labkit.teach.exercises import Mark
from labkit.teach.progress import file, note_check, records


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))


def test_what_is_exported_here_is_imported_there(labkit, tmp_path: Path, monkeypatch):
    note_check("01.take", Mark.PASSED)
    copy = tmp_path / "mine.json"
    assert labkit("progress", "export", copy).out == f"wrote {copy}\n"
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "elsewhere"))
    note_check("02.max_wait", Mark.FAILED)
    assert labkit("progress", "import", copy).out.startswith("1 exercises brought")
    assert {name: record.passed for name, record in records().items()} == {
        "01.take": True,
        "02.max_wait": False,
    }
    told = labkit("progress", "show", "--json").report
    assert told["file"] == str(file())
    assert told["exercises"]["01.take"] == {
        "attempts": 1,
        "hints": 0,
        "solution": False,
        "passed": True,
        "last": "passed",
    }
    assert "Next 20 minutes" in labkit("progress", "show").out


def test_a_file_that_holds_no_progress_is_refused(labkit, tmp_path: Path):
    (tmp_path / "odd.json").write_text("[" * 100_000)
    done = labkit("progress", "import", tmp_path / "odd.json")
    assert (done.code, "no progress of this lab" in done.err) == (2, True)
    (tmp_path / "odd.json").write_text('{"format": 9}')
    assert "update labkit" in labkit("progress", "import", tmp_path / "odd.json").err
    assert "no such file" in labkit("progress", "import", tmp_path / "none.json").err
    assert not file().exists()
