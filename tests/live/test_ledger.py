"""The journal: groups by the ferry rule, byte for byte back, bounded, and alive after kill -9."""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from labkit.core.batching import FerryRule
from labkit.core.door import Commit
from labkit.core.idempotency import Entry, Key, KeyLedger, Standing
from labkit.core.units import MS, NEVER, S
from labkit.live import LiveError
from labkit.live.ledger import Group, MemoryJournal, SqliteJournal

HERE = Path(__file__).parent
KEY = Key("acme", "POST /v1/completions", "k1")


def commit(text: str = "k1", body: bytes = b"body", since: int = 0) -> Commit:
    return Commit(KEY._replace(text=text), Entry(b"print", 7, since, 200, body))


def kept(path: Path, now: int = 0, **options) -> list[tuple[Key, Entry]]:
    journal = SqliteJournal(path, **options)
    entries = journal.open(lambda: now, lambda group, error: None)
    journal.close()
    return entries


def write(path: Path, *commits: Commit, **options) -> list[list[Commit]]:
    """The groups in which these were stored."""
    groups: list[list[Commit]] = []
    journal = SqliteJournal(path, **options)
    journal.open(lambda: 0, lambda group, error: groups.append(list(group)))
    for one in commits:
        journal.append(one, 0)
    journal.close()
    return groups


@pytest.mark.parametrize("name", [":memory:", "file:x?mode=memory"])
def test_a_name_that_sqlite_reads_in_its_own_way_is_a_file_all_the_same(
    tmp_path, monkeypatch, name
):
    monkeypatch.chdir(tmp_path)
    write(Path(name), commit())
    assert [key for key, _ in kept(Path(name))] == [KEY]


# -- groups ---------------------------------------------------------------------------------------


def test_a_group_leaves_when_its_first_has_waited_three_milliseconds():
    group = Group(FerryRule(256, 3 * MS))
    assert group.due_at == NEVER
    group.add(commit("a"), 10 * MS)
    group.add(commit("b"), 12 * MS)
    assert group.due_at == 13 * MS
    assert [one.key.text for one in group.take()] == ["a", "b"]
    assert group.due_at == NEVER


def test_a_group_of_256_leaves_at_once_and_the_257th_waits_its_own_time():
    group = Group(FerryRule(256, 3 * MS))
    for number in range(256):
        group.add(commit(str(number)), number)
    assert group.due_at == 0
    group.add(commit("257th"), 300)
    assert len(group.take()) == 256
    assert group.due_at == 300 + 3 * MS


def test_everything_appended_before_the_end_is_stored_in_order(tmp_path: Path):
    commits = [commit(str(number)) for number in range(600)]
    groups = write(tmp_path / "ledger", *commits)
    assert [one for group in groups for one in group] == commits
    assert max(map(len, groups)) <= 256


def test_a_lone_outcome_is_stored_without_waiting_for_another(tmp_path: Path, until: Callable):
    stored: list[Commit] = []
    journal = SqliteJournal(tmp_path / "ledger")
    journal.open(lambda: time.monotonic_ns() // 1_000, lambda group, error: stored.extend(group))
    journal.append(commit(), time.monotonic_ns() // 1_000)
    until(lambda: stored == [commit()])
    journal.close()


# -- what comes back ------------------------------------------------------------------------------


def test_what_was_stored_replays_byte_for_byte_after_a_restart(tmp_path: Path):
    body = bytes(range(256)) + "é\u2028".encode()
    odd = Key("acme", "POST", "k\udce91'\x00")
    write(tmp_path / "ledger", Commit(odd, Entry(b"\x00print", 7, 5, 422, body)))
    keys = KeyLedger()
    keys.restore(kept(tmp_path / "ledger"), now=0)
    found = keys.begin(odd, b"\x00print", 9, now=0)
    assert found is not None
    assert (found.standing, found.entry.status, found.entry.body) == (Standing.DONE, 422, body)


def test_a_key_that_was_only_reserved_is_free_after_a_restart(tmp_path: Path):
    write(tmp_path / "ledger", commit("done"))
    keys = KeyLedger()
    keys.restore(kept(tmp_path / "ledger"), now=0)
    found = keys.begin(KEY._replace(text="reserved"), b"print", 9, now=0)
    assert found is not None
    assert found.standing is Standing.NEW


def test_instants_are_told_by_the_clock_of_whoever_reads(tmp_path: Path):
    write(tmp_path / "ledger", commit(since=0), wall=lambda: 1_000 * S)
    ((_, entry),) = kept(tmp_path / "ledger", now=5 * S, wall=lambda: 1_060 * S)
    assert entry.since == -55 * S


# -- bounds ---------------------------------------------------------------------------------------


def test_a_day_later_it_is_forgotten(tmp_path: Path):
    day = 86_400 * S
    write(tmp_path / "ledger", commit(since=0), wall=lambda: 0)
    assert len(kept(tmp_path / "ledger", wall=lambda: day - 1)) == 1
    assert kept(tmp_path / "ledger", wall=lambda: day) == []


@pytest.mark.parametrize("hours", [-48, 23, 25])
def test_a_wall_clock_that_is_set_meanwhile_makes_no_outcome_old(tmp_path: Path, hours: int):
    path, errors, wall = tmp_path / "ledger", [], [1_000_000 * S]
    journal = SqliteJournal(path, wall=lambda: wall[0])
    for text, later in (("before", 0), ("after", hours * 3600 * S)):
        journal.open(lambda: 0, lambda group, error: errors.append(error))
        wall[0] += later
        journal.append(commit(text), 0)
        journal.close()
    assert (errors, rows(path)) == ([None, None], ["before", "after"])
    assert "after" in [key.text for key, _ in kept(path, wall=lambda: wall[0])]


def rows(path: Path) -> list[str]:
    with sqlite3.connect(path) as db:
        found = [text.decode() for (text,) in db.execute("SELECT text FROM outcomes ORDER BY id")]
    db.close()
    return found


def test_old_rows_go_with_the_next_group_and_the_file_stops_growing(tmp_path: Path):
    path, size = tmp_path / "ledger", 0
    for hour in range(8):
        many = [commit(f"{hour}-{n}", b"x" * 2_000, since=0) for n in range(256)]
        write(path, *many, keep_for=3600 * S, wall=lambda hour=hour: hour * 3600 * S)
        if hour == 2:
            size = path.stat().st_size
    assert {text[0] for text in rows(path)} == {"7"}
    assert path.stat().st_size <= size


def test_no_more_rows_are_kept_than_asked_for_and_the_newest_stay(tmp_path: Path):
    write(tmp_path / "ledger", *[commit(str(n)) for n in range(300)], most=10)
    assert rows(tmp_path / "ledger") == [str(n) for n in range(290, 300)]


def test_a_key_used_again_after_its_time_has_one_row(tmp_path: Path):
    write(tmp_path / "ledger", commit(body=b"first"))
    write(tmp_path / "ledger", commit(body=b"second"))
    ((_, entry),) = kept(tmp_path / "ledger")
    assert entry.body == b"second"


# -- what goes wrong ------------------------------------------------------------------------------


def test_a_group_that_cannot_be_written_is_said_and_the_next_one_is(tmp_path: Path):
    heard: list[tuple[str, bool]] = []
    journal = SqliteJournal(tmp_path / "ledger", rule=FerryRule(1, 0))
    journal.open(lambda: 0, lambda group, error: heard.append((group[0].key.text, error is None)))
    journal.append(Commit(KEY._replace(text="bad"), Entry(b"", 1, 0, None)), 0)
    journal.append(commit("good"), 0)
    journal.close()
    assert heard == [("bad", False), ("good", True)]
    assert rows(tmp_path / "ledger") == ["good"]


def test_one_that_cannot_be_written_costs_the_others_of_its_group_nothing(tmp_path: Path):
    heard: list[tuple[list[str], bool]] = []
    journal = SqliteJournal(tmp_path / "ledger")
    journal.open(
        lambda: 0, lambda group, error: heard.append(([c.key.text for c in group], error is None))
    )
    huge = Commit(KEY._replace(text="huge"), Entry(b"", 1, 0, 2**63, b""))
    for one in (commit("a"), Commit(KEY._replace(text="bad"), Entry(b"", 1, 0, None)), huge):
        journal.append(one, 0)
    journal.append(commit("b"), 0)
    journal.close()
    assert heard == [(["bad"], False), (["huge"], False), (["a", "b"], True)]
    assert rows(tmp_path / "ledger") == ["a", "b"]


def refused(path: Path) -> str:
    """Why this file is no ledger; it and its folder must be as they were."""
    before = path.read_bytes() if path.is_file() else None
    beside = sorted(path.parent.glob("*"))
    with pytest.raises(LiveError) as told:
        kept(path)
    assert sorted(path.parent.glob("*")) == beside
    assert before is None or path.read_bytes() == before
    assert str(told.value).startswith(f"the ledger {path}")
    return str(told.value)


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path):
    path = tmp_path / "letter.txt"
    path.write_text("not a database, and long enough to be read as one" * 20)
    assert "not a database; it is left as it is" in refused(path)


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
@pytest.mark.parametrize("statement", ["CREATE TABLE outcomes (a)", "PRAGMA user_version = 1"])
def test_a_database_of_something_else_is_left_as_it_is(tmp_path: Path, mode: str, statement: str):
    path = tmp_path / "bookmarks? 100%.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA journal_mode = {mode}")
        db.execute(statement)
        db.commit()
    assert "a database of something else; it is left as it is" in refused(path)


def test_a_database_of_something_else_in_use_is_left_as_it_is(tmp_path: Path):
    path = tmp_path / "browser.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript("PRAGMA journal_mode = WAL; CREATE TABLE a (b); BEGIN IMMEDIATE")
        assert "a database of something else" in refused(path)
        db.execute("INSERT INTO a VALUES (1)")
        db.execute("COMMIT")


def test_a_ledger_of_a_later_lab_is_left_as_it_is(tmp_path: Path):
    path = tmp_path / "ledger"
    write(path, commit())
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 9")
    assert "version 9, and this lab reads 1; use the lab that wrote it" in refused(path)


def test_a_folder_a_device_and_a_folder_that_is_not_there_are_refused(tmp_path: Path):
    assert "is a folder or a device; give the name of a file" in refused(tmp_path)
    assert "is a folder or a device" in refused(Path(os.devnull))
    with pytest.raises(LiveError, match=r"unable to open .*; its folder must be there"):
        kept(tmp_path / "none" / "ledger")
    with pytest.raises(LiveError, match="File name too long; give another path"):
        kept(tmp_path / ("n" * 300))


def test_a_damaged_ledger_says_so_and_is_let_go(tmp_path: Path):
    path = tmp_path / "ledger"
    write(path, *[commit(str(n), b"x" * 500) for n in range(200)])
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(LiveError, match="malformed; it is damaged; move it away"):
        kept(path)
    path.write_bytes(whole)
    assert len(kept(path)) == 200


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read everything, so it is somebody else for a while."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions as POSIX has them")
@pytest.mark.parametrize(
    ("mode", "why"),
    [
        (0o000, "unable to open database file; .* the file must be readable"),
        (0o444, "disk I/O error; the file must be writable, and on a disk that knows locks"),
    ],
)
def test_a_ledger_that_may_not_be_read_or_written_says_so(mode: int, why: str):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        write(path, commit())
        path.chmod(mode)
        Path(folder).chmod(0o555)
        try:
            with as_nobody(), pytest.raises(LiveError, match=why):
                kept(path)
        finally:
            Path(folder).chmod(0o755)
            path.chmod(0o644)
        assert len(kept(path)) == 1


def test_a_full_disk_is_said_and_written_to_again_when_there_is_room(tmp_path: Path):
    heard: list[str] = []
    journal = SqliteJournal(tmp_path / "ledger", rule=FerryRule(1, 0))
    journal.open(lambda: 0, lambda group, error: heard.append(str(error)))
    # SQLite answers as on a full disk where it may have no more pages.
    (pages,) = journal._db.execute("PRAGMA page_count").fetchone()
    journal._db.execute(f"PRAGMA max_page_count = {pages}")
    journal.append(commit("a", b"x" * 100_000), 0)
    while not heard:
        time.sleep(0.001)
    journal._db.execute("PRAGMA max_page_count = 1000000")
    journal.append(commit("b", b"x" * 100_000), 0)
    journal.close()
    assert heard == ["database or disk is full", "None"]
    assert rows(tmp_path / "ledger") == ["b"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no limits here")
def test_no_room_for_a_new_ledger_says_so(tmp_path: Path):
    path = tmp_path / "ledger"
    code = f"""
        import resource
        from labkit.live.ledger import SqliteJournal
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        SqliteJournal({str(path)!r}).open(lambda: 0, lambda group, error: None)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.splitlines()[-1]
    assert last.endswith("disk I/O error; look at that disk, or keep the ledger on another")


def test_two_at_once_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("labkit.live.ledger_file.LOCKED_S", 0.01)
    path = tmp_path / "ledger"
    first = SqliteJournal(path)
    first.open(lambda: 0, lambda group, error: None)
    for _ in range(2):
        assert "locked; another process uses it; stop that one, or keep" in refused(path)
    first.append(commit(), 0)
    first.close()
    assert len(kept(path)) == 1


def test_a_journal_that_was_closed_can_be_opened_and_written_again(tmp_path: Path):
    journal = SqliteJournal(tmp_path / "ledger")
    for text in ("k1", "k2"):
        journal.open(lambda: 0, lambda group, error: None)
        journal.append(commit(text), 0)
        journal.close()
    assert [key.text for key, _ in kept(tmp_path / "ledger")] == ["k1", "k2"]


@pytest.mark.parametrize("word", [b"\xff", "text", 5])
def test_rows_the_lab_never_wrote_are_named_and_the_file_is_let_go(tmp_path: Path, word: object):
    write(tmp_path / "ledger", commit())
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger")) as db:
        db.execute("UPDATE outcomes SET text = ?", (word,))
        db.commit()
    with pytest.raises(
        LiveError, match=r"the ledger .*it holds what this lab never wrote; move it away"
    ):
        kept(tmp_path / "ledger")
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger", timeout=0)) as db:
        assert db.execute("SELECT count(*) FROM outcomes").fetchone() == (1,)


def test_the_journal_in_memory_has_the_same_face_and_keeps_nothing():
    heard: list[Commit] = []
    journal = MemoryJournal()
    assert journal.open(lambda: 0, lambda group, error: heard.extend(group)) == []
    journal.append(commit(), 0)
    assert heard == [commit()]
    journal.close()
    assert journal.open(lambda: 0, lambda group, error: None) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills by fork, which is not here")
def test_fifty_kills_in_the_middle_of_commits_lose_nothing_that_was_acknowledged(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, HERE / "kill_ledger.py", tmp_path / "ledger", "50"],
        cwd=HERE.parents[1],
        env={"PYTHONPATH": str(HERE.parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    told = json.loads(done.stdout)
    assert (told["kills"], told["twice"], told["wrong"]) == (50, 0, [])
    # Written and not heard of before the end: allowed, since its client will ask again.
    assert told["kept"] >= told["heard"] > 1_000
    assert told["inside"] >= 5
