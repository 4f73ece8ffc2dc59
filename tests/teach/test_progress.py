"""Progress: one file that is whole at every instant, whoever writes and whatever it held."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from labkit.teach import progress as progress_file
from labkit.teach.exercises import EXERCISES, Mark
from labkit.teach.progress import (
    Later,
    NoProgress,
    Record,
    bring,
    erase,
    export,
    file,
    next_up,
    note_check,
    note_hint,
    note_solution,
    progress,
    records,
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A learner's folder of one's own."""
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    progress_file._told.clear()
    return tmp_path / "home"


def test_nothing_is_written_by_looking(home):
    assert records() == {}
    progress()
    assert not home.exists()


def test_what_passed_once_stays_passed():
    note_check("01.take", Mark.PASSED)
    note_check("01.take", Mark.FAILED)
    note_check("01.take", Mark.NOT_ATTEMPTED)
    note_hint("01.take", 2)
    note_hint("01.take", 1)
    note_solution("01.take")
    assert records() == {"01.take": Record(2, 2, True, True, "failed")}


def test_the_file_is_versioned_and_nothing_else_lies_beside_it(home):
    note_check("01.take", Mark.PASSED)
    kept = json.loads(file().read_text())
    assert kept["format"] == 1
    assert kept["exercises"]["01.take"]["attempts"] == 1
    assert sorted(path.name for path in home.iterdir()) == ["progress.json", "progress.lock"]


def test_what_another_version_noted_besides_is_kept():
    note_check("01.take", Mark.PASSED)
    kept = json.loads(file().read_text())
    kept["name"] = "Ada"
    kept["exercises"]["01.take"]["mood"] = "good"
    kept["exercises"]["99.later"] = {"attempts": 3}
    file().write_text(json.dumps(kept))
    note_check("01.take", Mark.FAILED)
    again = json.loads(file().read_text())
    assert again["name"] == "Ada"
    assert again["exercises"]["01.take"]["mood"] == "good"
    assert again["exercises"]["99.later"]["attempts"] == 3


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"[]",
        b'{"format": "one"}',
        b'{"format": 1, "exercises": []}',
        b'{"format": 1, "exercises": {"01.take": 3}}',
        b'{"format": 1, "exercises": {"01.take": {"attempts": "many"}}}',
        b"null",
        b"[" * 100_000,
        b'{"format": 1, "exercises": ' + b'{"x":' * 100_000 + b"1" + b"}" * 100_001,
    ],
)
def test_a_file_that_cannot_be_read_is_kept_aside_and_said(home, capsys, broken):
    home.mkdir()
    file().write_bytes(broken)
    note_check("01.take", Mark.PASSED)
    assert records()["01.take"].passed
    assert (home / "progress.unreadable-1.json").read_bytes() == broken
    assert "it is kept as progress.unreadable-1.json" in capsys.readouterr().out
    file().write_bytes(broken)
    assert records() == {}
    assert (home / "progress.unreadable-2.json").read_bytes() == broken


def test_a_file_of_a_later_version_is_left_alone(home, capsys):
    home.mkdir()
    later = b'{"format": 2, "exercises": "elsewhere"}'
    file().write_bytes(later)
    note_check("01.take", Mark.PASSED)
    note_check("01.take", Mark.PASSED)
    assert file().read_bytes() == later
    said = capsys.readouterr().out
    assert said.count("update labkit, the file is left as it is") == 1
    assert "0 of 4" in progress().text


def test_a_disk_that_refuses_does_not_stop_the_lesson(home, capsys):
    home.parent.joinpath("home").write_text("a file where the folder should be")
    note_check("01.take", Mark.PASSED)
    assert "progress is not kept" in capsys.readouterr().out


def test_many_writers_at_once_lose_nothing():
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: note_check("01.take", Mark.FAILED), range(80)))
        list(pool.map(lambda ex: note_check(ex, Mark.PASSED), EXERCISES))
    noted = records()
    assert noted["01.take"].attempts == 81
    assert all(noted[ex].passed for ex in EXERCISES)


@pytest.mark.slow
def test_two_kernels_at_once_lose_nothing():
    body = (
        "import sys\n"
        "from labkit.teach.exercises import Mark\n"
        "from labkit.teach.progress import note_check\n"
        "for _ in range(25):\n"
        "    note_check('01.take', Mark.FAILED)\n"
        "    note_check(sys.argv[1], Mark.PASSED)\n"
    )
    kernels = [
        subprocess.Popen([sys.executable, "-c", body, name], env=os.environ)
        for name in ("02.max_wait", "03.servers")
    ]
    assert [kernel.wait() for kernel in kernels] == [0, 0]
    assert records()["01.take"].attempts == 50
    assert records()["02.max_wait"].attempts == 25
    assert records()["03.servers"].passed


def test_export_copies_and_erase_asks(home, tmp_path):
    note_check("01.take", Mark.PASSED)
    copy = export(tmp_path / "out" / "mine.json")
    assert json.loads(copy.read_text())["exercises"]["01.take"]["passed"] is True
    assert erase().text == "1 exercise noted; erase(sure=True) forgets, export(file) keeps a copy"
    assert records()["01.take"].passed
    assert erase(sure=True).text == "forgotten: 1 exercise"
    assert records() == {}
    assert erase(sure=True).text == "forgotten: 0 exercises"


def test_what_is_brought_adds_and_takes_nothing_away(home, tmp_path):
    note_hint("01.take", 3)
    note_check("01.take", Mark.FAILED)
    note_check("01.take", Mark.FAILED)
    note_check("02.max_wait", Mark.PASSED)
    other = export(tmp_path / "other.json")
    erase(sure=True)
    note_check("01.take", Mark.PASSED)
    note_solution("03.servers")
    assert bring(other) == 2
    assert records() == {
        "01.take": Record(attempts=2, hints=3, passed=True, last="failed"),
        "02.max_wait": Record(attempts=1, passed=True, last="passed"),
        "03.servers": Record(solution=True),
    }
    before = file().read_bytes()
    assert bring(other) == 2
    assert file().read_bytes() == before


@pytest.mark.parametrize("text", [b"", b"[]", b"\xff", b"[" * 100_000, b'{"format": "one"}'])
def test_what_is_no_progress_is_not_brought_and_changes_nothing(home, tmp_path, text):
    note_check("01.take", Mark.PASSED)
    before = file().read_bytes()
    (tmp_path / "other.json").write_bytes(text)
    with pytest.raises(
        NoProgress, match=r"other\.json: no progress of this lab \(.*nothing was ch"
    ):
        bring(tmp_path / "other.json")
    (tmp_path / "other.json").write_bytes(b'{"format": 2}')
    with pytest.raises(Later, match="update labkit"):
        bring(tmp_path / "other.json")
    with pytest.raises(FileNotFoundError):
        bring(tmp_path / "none.json")
    assert file().read_bytes() == before
    assert (tmp_path / "other.json").read_bytes() == b'{"format": 2}'


def test_the_map_shows_each_notebook_and_the_next_twenty_minutes():
    note_check("01.due_at", Mark.PASSED)
    note_check("01.take", Mark.FAILED)
    lines = progress().text.split("\n")
    assert re_spaced(lines[2]) == "01 ✓ due_at, ◐ take, ○ resolve, ○ hunt 1 of 4 24"
    assert lines[-1].startswith("Next 20 minutes: 01.take Who boards? (8 min), 00.contract")
    assert "<table" in progress().html


def re_spaced(line):
    """A line with single spaces."""
    return " ".join(line.split())


def test_one_sitting_is_twenty_minutes_and_ends():
    assert sum(ex.minutes for ex in next_up({})) <= 20
    done = {ex: Record(1, passed=True) for ex in EXERCISES}
    assert next_up(done) == []
    for ex in EXERCISES:
        note_check(ex, Mark.PASSED)
    assert progress().text.endswith("All done. Say them out loud next.")
