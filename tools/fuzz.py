"""Throw bad input at the front door until the time is up, and end with 1 if anything gives way.

    python tools/fuzz.py                          for five minutes, a new seed each time
    python tools/fuzz.py --minutes 30 --seed 7    longer, and the same cases again
    python tools/fuzz.py --replay build/fuzz/7-12-wire.json

Four kinds take turns. `bodies`: the decoder against plain checks of the same JSON. `framing`: the
reader of connections against itself, cut otherwise, and against h11's. `wire`: bursts of clients
who cut, garble, stall, reset and leave, at a server in a process of its own; after each burst
nothing may be in flight, open or in its log, and a good request is answered. `schema`: every
operation of the OpenAPI document by schemathesis, the lab's own pages too.

What is found is written to a file under --keep that --replay takes. Bodies and framing replay to
the letter; a burst is timing too, so it may have to be replayed more than once.
"""

import argparse
import json
import signal
import sys
import time
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.fuzzing import bodies, framing, onslaught, schema  # noqa: E402
from tools.fuzzing.server import Served  # noqa: E402
from tools.fuzzing.wires import sound_bodies, wire  # noqa: E402

TURN_S = 6.0
"""How long bodies and framing take their turn."""

BURSTS, CROWD = 16, 60
EXAMPLES = 25
MOST_FINDINGS = 50
DAWDLE_S = 14.0
"""From half a request to the end of its connection: ten seconds, and those of the sweep."""

Finding = tuple[str, dict[str, Any]]
"""What is wrong, and what to replay."""


class Campaign:
    """Counts of one run, and what it found."""

    def __init__(self, seed: int, keep: Path, served: Served) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.keep = keep
        self.served = served
        self.counts: Counter[str] = Counter()
        self.findings: list[Path] = []
        self._known: set[str] = set()
        self._dawdlers: tuple[float, onslaught.Dawdlers] | None = None

    def turn(self) -> None:
        """Each kind once."""
        kinds: dict[str, Callable[[], Iterator[Finding]]] = {
            "bodies": self.bodies,
            "framing": self.framing,
            "wire": self.wire,
            "schema": self.schema,
        }
        for name, kind in kinds.items():
            for told, saved in kind():
                self._keep(name, told, saved)

    def bodies(self) -> Iterator[Finding]:
        """Decode what may be JSON."""
        until = time.monotonic() + TURN_S
        while time.monotonic() < until:
            chat = self.rng.random() < 0.5
            body = bodies.body(self.rng, chat)
            self.counts["bodies"] += 1
            if (told := bodies.finding(body, chat)) is not None:
                yield told, {"body": b64encode(body).decode(), "chat": chat}

    def framing(self) -> Iterator[Finding]:
        """Cut bytes into requests."""
        until, sound = time.monotonic() + TURN_S, sound_bodies()
        while time.monotonic() < until:
            text = wire(self.rng, [b"known", b"unknown"], sound)
            seed = self.rng.randrange(1 << 30)
            self.counts["framing"] += 1
            if (told := framing.finding(text, Random(seed))) is not None:
                yield told, {"text": b64encode(text).decode(), "seed": seed}

    def wire(self) -> Iterator[Finding]:
        """Bursts of clients, and dawdlers who stay from one turn to the next."""
        if self._dawdlers is None:
            dawdlers = onslaught.Dawdlers(self.rng, self.served, 20)
            self._dawdlers = (time.monotonic() + DAWDLE_S, dawdlers)
        for _ in range(BURSTS):
            burst = onslaught.cases(self.rng, self.served, CROWD)
            self.counts["wire"] += len(burst)
            saved = {"cases": [case.saved() for case in burst], "keys": self.served.keys}
            for told in onslaught.fire(self.served.port, burst):
                yield told, saved
            if self._dawdlers is not None and time.monotonic() > self._dawdlers[0]:
                told_of = self._dawdlers[1].finding()
                self._dawdlers = None
                self.counts["dawdlers"] += 20
                if told_of is not None:
                    yield told_of, {}
            if self._dawdlers is None:
                yield from self._after(saved)

    def schema(self) -> Iterator[Finding]:
        """What the document says, by two sorts of clients."""
        seed = self.rng.randrange(1 << 30)
        # Of a server that has had so many unknown keys shown, no stranger hears 401 any more.
        with Served() as fresh:
            for key, skip in (("paid", "^/lab"), ("admin", None)):
                report = schema.run(fresh.url, fresh.keys[key], seed, EXAMPLES, skip)
                self.counts["schema"] += report.cases
                if report.failed:
                    yield report.text, {"key": key, "skip": skip, "seed": seed}
            if (told := fresh.finding()) is not None:
                yield told, {"key": key, "skip": skip, "seed": seed}

    def close(self) -> None:
        """Let the last dawdlers come to their end, and look once more."""
        if self._dawdlers is not None:
            time.sleep(max(self._dawdlers[0] - time.monotonic(), 0))
            told = self._dawdlers[1].finding()
            if told is not None:
                self._keep("wire", told, {})
        for told, saved in self._after({}):
            self._keep("wire", told, saved)

    def _after(self, saved: dict[str, Any]) -> Iterator[Finding]:
        told = self.served.finding()
        if told is not None:
            yield told, saved
            # Whatever is wrong with it would be found again and again.
            self.served.end()
            self.served = Served()

    def _keep(self, kind: str, told: str, saved: dict[str, Any]) -> None:
        # One kind of fault, met a thousand times, is one finding.
        sort = kind + told[:60]
        if sort in self._known or len(self.findings) >= MOST_FINDINGS:
            self.counts["found again"] += 1
            return
        self._known.add(sort)
        self.keep.mkdir(parents=True, exist_ok=True)
        path = self.keep / f"{self.seed}-{len(self.findings)}-{kind}.json"
        path.write_text(json.dumps({"kind": kind, "told": told, **saved}, indent=1) + "\n")
        self.findings.append(path)
        print(f"\n{kind}: {told[:1_500]}\n  replay: python tools/fuzz.py --replay {path}")


def replay(path: Path) -> list[str]:
    """What is still wrong when a finding is played again."""
    saved = json.loads(path.read_text())
    if saved["kind"] == "bodies":
        found = [bodies.finding(b64decode(saved["body"]), saved["chat"])]
    elif saved["kind"] == "framing":
        found = [framing.finding(b64decode(saved["text"]), Random(saved["seed"]))]
    else:
        with Served() as served:
            if saved["kind"] == "schema":
                key = served.keys[saved["key"]]
                report = schema.run(served.url, key, saved["seed"], EXAMPLES, saved["skip"])
                found = [report.text if report.failed else None, served.finding()]
            else:
                found = [*_fire_again(served, saved), served.finding()]
    return [told for told in found if told is not None]


def _fire_again(served: Served, saved: dict[str, Any]) -> list[str]:
    """The same burst, with the keys of the server that runs now; they are as long as the others."""
    burst = []
    for row in saved.get("cases", ()):
        case = onslaught.Case.read(row)
        text = b"".join(case.pieces)
        for name, key in saved["keys"].items():
            text = text.replace(key.encode(), served.keys[name].encode())
        ends = list(accumulate(map(len, case.pieces)))
        pieces = [text[a:b] for a, b in pairwise([0, *ends])]
        burst.append(onslaught.Case(pieces, case.end))
    return onslaught.fire(served.port, burst)


def main(words: list[str] | None = None) -> int:
    """Run or replay; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default: 5)")
    parser.add_argument("--seed", type=int, default=None, help="default: another each time")
    parser.add_argument("--keep", type=Path, default=ROOT / "build" / "fuzz", help="for findings")
    parser.add_argument("--replay", type=Path, default=None, help="a file that a run has kept")
    options = parser.parse_args(words)
    if options.replay is not None:
        found = replay(options.replay)
        print("\n".join(found) or "nothing is wrong any more")
        return 1 if found else 0
    # Leave no server behind when told to stop.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    seed = time.time_ns() % 1_000_000 if options.seed is None else options.seed
    return _run(seed, options.minutes, options.keep)


def _run(seed: int, minutes: float, keep: Path) -> int:
    began = time.monotonic()
    with Served() as served:
        campaign = Campaign(seed, keep, served)
        try:
            while time.monotonic() - began < minutes * 60:
                campaign.turn()
                print(_line(campaign, began), end="\r" if sys.stdout.isatty() else "\n", flush=True)
            campaign.close()
        finally:
            campaign.served.end()
    print(f"\n{_line(campaign, began)}")
    return 1 if campaign.findings else 0


def _line(campaign: Campaign, began: float) -> str:
    counts = ", ".join(f"{value:,} {name}" for name, value in campaign.counts.items())
    spent = time.monotonic() - began
    found = f"{len(campaign.findings)} findings"
    return f"seed {campaign.seed}, {spent / 60:.1f} min: {counts}: {found}"


if __name__ == "__main__":
    sys.exit(main())
