"""The file of a ledger: known from any other before it is touched, and held by one process."""

import sqlite3
from contextlib import closing
from pathlib import Path

from labkit.live.errors import LiveError

APPLICATION_ID = int.from_bytes(b"labk")
"""Stands in the file's header, by which a ledger is told from every other database."""

VERSION = 1
LOCKED_S = 5.0
"""How long to wait for another process to let go of the file; a dead one has let go already."""

_REMEDIES = {
    sqlite3.SQLITE_BUSY: "another process uses it; stop that one, or keep this ledger elsewhere",
    sqlite3.SQLITE_CANTOPEN: "its folder must be there, and the file must be readable",
    sqlite3.SQLITE_CORRUPT: "it is damaged; move it away, and every key in it is free again",
    sqlite3.SQLITE_FULL: "free some space on that disk, or keep the ledger on another",
    sqlite3.SQLITE_IOERR: "look at that disk, or keep the ledger on another",
    sqlite3.SQLITE_IOERR_LOCK: "the file must be writable, and on a disk that knows locks",
    sqlite3.SQLITE_NOTADB: "it is left as it is; give the ledger another name",
    sqlite3.SQLITE_READONLY: "the file and its folder must be writable",
}

_SCHEMA = """
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    BEGIN IMMEDIATE;
    CREATE TABLE IF NOT EXISTS outcomes (
        id INTEGER PRIMARY KEY, tenant BLOB NOT NULL, scope BLOB NOT NULL,
        text BLOB NOT NULL, fingerprint BLOB NOT NULL, status INTEGER NOT NULL,
        body BLOB NOT NULL, since INTEGER NOT NULL, UNIQUE (tenant, scope, text)
    );
    CREATE INDEX IF NOT EXISTS by_age ON outcomes (since);
    COMMIT;
"""


def connect(path: Path) -> sqlite3.Connection:
    """The ledger in this file, made if there is none, and no other process's until it is closed.

    A file that is no ledger is refused and left byte for byte as it is. Raises `LiveError`, with
    the remedy.
    """
    try:
        if path.exists() and not path.is_file():
            raise LiveError(f"the ledger {path} is a folder or a device; give the name of a file")
        if path.exists() and path.stat().st_size:
            _recognise(path)
        # SQLite takes a name like `:memory:` for no file at all, unless it comes with its folder.
        db = sqlite3.connect(
            path.absolute(), timeout=LOCKED_S, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare(db)
        except BaseException:
            db.close()
            raise
    except OSError as error:
        raise LiveError(f"the ledger {path}: {error.strerror}; give another path") from error
    except sqlite3.Error as error:
        raise trouble(path, error) from error
    return db


def trouble(path: Path, error: Exception) -> LiveError:
    """What went wrong with this file, with the remedy; rows the lab never wrote are wrong too."""
    code = getattr(error, "sqlite_errorcode", 0)
    # The low byte of a code is the kind, the rest says more of it.
    remedy = _REMEDIES.get(code) or _REMEDIES.get(code & 0xFF)
    remedy = remedy or "it holds what this lab never wrote; move it away"
    return LiveError(f"the ledger {path}: {error}; {remedy}")


def _recognise(path: Path) -> None:
    """By the header alone, read as if nobody could ever write: no lock, no log, no side file."""
    where = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(where, uri=True)) as db:
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise LiveError(
            f"the ledger {path}: this is a database of something else; it is left as it is, give "
            "the ledger another name"
        )
    if version != VERSION:
        raise LiveError(
            f"the ledger {path}: version {version}, and this lab reads {VERSION}; use the lab that "
            "wrote it, or give the ledger another name"
        )


def _prepare(db: sqlite3.Connection) -> None:
    """Ours alone from here on; a new file has its name in the header before anything else."""
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    if db.execute("PRAGMA page_count").fetchone() == (0,):
        db.executescript(
            f"BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION_ID}; "
            f"PRAGMA user_version = {VERSION}; COMMIT;"
        )
    db.executescript(_SCHEMA)
