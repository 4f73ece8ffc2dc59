"""What a run leaves behind on the machine: processes and open files, counted where that is easy."""

import os
import time
import uuid
from pathlib import Path
from typing import Self

MARK = "LABKIT_CENSUS"
PROC = Path("/proc")


class Census:
    """`with Census() as census:` marks every process started inside, and their descendants.

    Needs /proc: elsewhere `processes` and `handles` are None. Orphans keep the mark.
    """

    def __enter__(self) -> Self:
        """Mark, and count the files open now."""
        self._token = uuid.uuid4().hex
        self._before = os.environ.get(MARK)
        os.environ[MARK] = self._token
        self._handles = _open_files()
        return self

    def __exit__(self, *_: object) -> None:
        """The mark goes; the counts stay possible."""
        if self._before is None:
            del os.environ[MARK]
        else:
            os.environ[MARK] = self._before

    def processes(self, within: float = 10.0) -> int | None:
        """How many marked processes are still there after at most `within` seconds."""
        if self._handles is None:
            return None
        deadline = time.monotonic() + within
        while (left := self.marked()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return len(left)

    def handles(self) -> int | None:
        """Files open in this process beyond those open at the start."""
        now = _open_files()
        return None if now is None or self._handles is None else max(now - self._handles, 0)

    def marked(self) -> list[int]:
        """The process ids of those that are there now; this process is not among them."""
        own, mark = os.getpid(), f"{MARK}={self._token}".encode()
        found = []
        for folder in PROC.iterdir():
            if folder.name.isdecimal() and int(folder.name) != own:
                try:
                    marked = mark in (folder / "environ").read_bytes().split(b"\0")
                except OSError:
                    continue
                if marked:
                    found.append(int(folder.name))
        return found


def _open_files() -> int | None:
    try:
        return len(list((PROC / "self" / "fd").iterdir()))
    except OSError:
        return None
