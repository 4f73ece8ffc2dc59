"""Kill a process in the middle of its group commits, again and again; a process of its own.

A single thread forks, so that fifty kills cost a second and not fifty starts of Python. Prints one
JSON object: what was acknowledged and is missing or changed, and where the kills fell.
"""

import json
import os
import random
import signal
import sqlite3
import sys
import time

from labkit.core.door import Commit
from labkit.core.idempotency import Entry, Key
from labkit.live.ledger import SqliteJournal

NEW_KEYS = 4_000


class Told(SqliteJournal):
    """Says through a pipe when the commit of a group begins; `stored` says when it is over."""

    pipe = -1

    def _connect(self) -> sqlite3.Connection:
        db = super()._connect()
        db.set_trace_callback(self._say)
        return db

    def _say(self, statement: str) -> None:
        if statement.startswith("BEGIN"):
            os.write(self.pipe, b"begin\n")


def write(path: str, pipe: int, turn: int) -> None:
    """Commit as fast as it goes, and acknowledge what is durable; never returns."""

    def stored(group, error):
        lines = [f"{c.key.text} {c.entry.body.decode()}" for c in group]
        os.write(pipe, ("\n".join([*lines, "end"]) + "\n").encode())

    journal = Told(path)
    journal.pipe = pipe
    started = time.monotonic_ns()
    clock = lambda: (time.monotonic_ns() - started) // 1_000  # noqa: E731
    done = {key.text for key, _ in journal.open(clock, stored)}
    rng = random.Random(turn)
    parent = os.getppid()
    while os.getppid() == parent:  # whoever kills us may be killed first
        text = f"key{rng.randrange(NEW_KEYS * (turn + 1))}"
        if text not in done:
            done.add(text)
            # Another computation of the same key would leave another body.
            entry = Entry(b"print", 1, clock(), 200, f"{turn}-{rng.random()}".encode())
            journal.append(Commit(Key("acme", "POST", text), entry), clock())
        if rng.random() < 0.05:
            time.sleep(0.0005)
    os._exit(1)


def kill(path: str, turn: int, rng: random.Random) -> tuple[list[str], bool]:
    """One life and its end: what it acknowledged, and whether a commit was under way."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(ours)
        try:
            write(path, theirs, turn)
        finally:
            os._exit(1)
    os.close(theirs)
    with os.fdopen(ours, "r") as pipe:
        lines, left = [], rng.randrange(1, 5)
        while left:
            lines.append(pipe.readline())
            if not lines[-1]:
                raise SystemExit(f"the writer of turn {turn} ended by itself")
            left -= lines[-1] == "begin\n"
        time.sleep(rng.random() * 0.001)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        lines += pipe.readlines()
    marks = [line for line in lines if line in ("begin\n", "end\n")]
    # A line that was cut off was not heard.
    return [x[:-1] for x in lines if " " in x and x.endswith("\n")], marks[-1] == "begin\n"


def main(path: str, kills: int) -> None:
    """Kill so many times; after each, compare what is there with what was acknowledged."""
    rng = random.Random(1)
    heard: dict[str, str] = {}
    kept: dict[str, str] = {}
    wrong, inside, twice = [], 0, 0
    for turn in range(kills):
        acknowledged, mid_commit = kill(path, turn, rng)
        inside += mid_commit
        for line in acknowledged:
            text, body = line.split(" ")
            wrong += [f"{text} acknowledged twice"] if text in heard else []
            heard[text] = body
        before = kept
        with sqlite3.connect(path) as db:
            rows = db.execute("SELECT text, body FROM outcomes").fetchall()
        db.close()
        kept = {text.decode(): body.decode() for text, body in rows}
        twice += len(rows) - len(kept)
        wrong += [f"{text}: {kept.get(text)}" for text in heard if kept.get(text) != heard[text]]
        wrong += [f"{text} changed" for text in before if kept.get(text) != before[text]]
    print(json.dumps({"kills": kills, "inside": inside, "heard": len(heard), "kept": len(kept),
                      "twice": twice, "wrong": wrong[:5]}))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
