"""The books of a load test over HTTP: one row a request, and the report they add up to."""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit.core.books import summary
from labkit.core.units import S

SHOWN = len("lk-") + 8
"""How much of one of this lab's keys names it; of other keys nothing is shown."""


def labels(keys: Sequence[str]) -> list[str]:
    """A name for each key that differs: how it begins, else its number."""
    distinct = list(dict.fromkeys(keys))
    begins = [key[:SHOWN] for key in distinct]
    ours = all(key.startswith("lk-") and len(key) >= 2 * SHOWN for key in distinct)
    if ours and len(set(begins)) == len(begins):
        return begins
    return [f"key {number}" for number in range(1, len(distinct) + 1)]


@dataclass(slots=True)
class Outcome:
    """The books of a load test; instants and durations in microseconds.

    One row a request: when it was scheduled, how long until its last response, and its status
    (0: the connection broke). `unanswered` are the instants of those who had no response when the
    test ended. One row a stream: `first` and when it was scheduled, `step` likewise. `who` and
    `unanswered_who` number the key that a request carried, `labels` names it.
    """

    at: "array[int]" = field(default_factory=lambda: array("q"))
    took: "array[int]" = field(default_factory=lambda: array("q"))
    status: "array[int]" = field(default_factory=lambda: array("h"))
    first: "array[int]" = field(default_factory=lambda: array("q"))
    first_at: "array[int]" = field(default_factory=lambda: array("q"))
    step: "array[int]" = field(default_factory=lambda: array("q"))
    step_at: "array[int]" = field(default_factory=lambda: array("q"))
    lag: "array[int]" = field(default_factory=lambda: array("q"))
    unanswered: "array[int]" = field(default_factory=lambda: array("q"))
    who: "array[int]" = field(default_factory=lambda: array("h"))
    unanswered_who: "array[int]" = field(default_factory=lambda: array("h"))
    labels: Sequence[str] = ("key 1",)
    offered: int = 0
    attempts: int = 0
    wrong_tag: int = 0
    broken_streams: int = 0
    replayed: int = 0
    returned: int = 0
    admitted_on_return: int = 0
    bad_retry_after: int = 0
    connections: int = 0
    crowded: int = 0
    interrupted: bool = False
    wall_s: float = 0.0
    codes: Counter[str] = field(default_factory=Counter)
    codes_of: Counter[tuple[int, str]] = field(default_factory=Counter)

    @property
    def lost(self) -> int:
        """How many had no response when the test ended."""
        return len(self.unanswered)

    def report(self) -> dict[str, Any]:
        """The stable keys of `labkit loadtest --json`."""
        good = [took for took, status in zip(self.took, self.status, strict=True) if status == 200]
        statuses = Counter(self.status)
        return {
            "offered": self.offered,
            "answered": len(good),
            "lost": self.lost,
            "statuses": {str(status): statuses[status] for status in sorted(statuses)},
            "codes": dict(sorted(self.codes.items())),
            "wrong_tag": self.wrong_tag,
            "attempts": self.attempts,
            "replayed": self.replayed,
            "returned": self.returned,
            "admitted_on_return": self.admitted_on_return,
            "bad_retry_after": self.bad_retry_after,
            "latency_ms": summary(good),
            "ttft_ms": summary(self.first),
            "tpot_ms": summary(self.step),
            "broken_streams": self.broken_streams,
            "generator_lag_ms": summary(self.lag),
            "connections": self.connections,
            "crowded": self.crowded,
            "interrupted": self.interrupted,
            "wall_s": round(self.wall_s, 3),
            "seconds": self.seconds(),
            "by_key": self.by_key(),
        }

    def by_key(self) -> list[dict[str, Any]]:
        """What became of the requests of each key, in the order in which the keys were given."""
        rows = zip(self.who, self.took, self.status, strict=True)
        good: list[list[int]] = [[] for _ in self.labels]
        statuses: list[Counter[int]] = [Counter() for _ in self.labels]
        for who, took, status in rows:
            statuses[who][status] += 1
            if status == 200:
                good[who].append(took)
        lost = Counter(self.unanswered_who)
        return [
            {
                "key": label,
                "offered": statuses[who].total() + lost[who],
                "answered": len(good[who]),
                "lost": lost[who],
                "statuses": {str(one): statuses[who][one] for one in sorted(statuses[who])},
                "codes": {
                    code: n for (whose, code), n in sorted(self.codes_of.items()) if whose == who
                },
                "latency_ms": summary(good[who]),
            }
            for who, label in enumerate(self.labels)
        ]

    def seconds(self) -> list[dict[str, Any]]:
        """What was scheduled in each second: how many, how many answered, and how fast."""
        slots: dict[int, tuple[int, list[int]]] = {}
        for at, took, status in zip(self.at, self.took, self.status, strict=True):
            sent, good = slots.get(at // S, (0, []))
            if status == 200:
                good.append(took)
            slots[at // S] = (sent + 1, good)
        for at in self.unanswered:
            sent, good = slots.get(at // S, (0, []))
            slots[at // S] = (sent + 1, good)
        rows = []
        for second in sorted(slots):
            sent, good = slots[second]
            shown = summary(good)
            rows.append(
                {
                    "second": second,
                    "sent": sent,
                    "answered": len(good),
                    "p50_ms": shown["p50"],
                    "p95_ms": shown["p95"],
                }
            )
        return rows


def summary_rows(report: dict[str, Any]) -> Sequence[tuple[str, ...]]:
    """The report in a few rows, for people."""
    latency, lag = report["latency_ms"], report["generator_lag_ms"]
    rows: list[tuple[str, ...]] = [
        (
            "offered",
            f"{report['offered']:,}",
            f"{report['connections']:,} connections" + ", interrupted" * report["interrupted"],
        ),
        ("answered", f"{report['answered']:,}"),
    ]
    rows += [
        (f"status {status}" if status != "0" else "broken", f"{number:,}")
        for status, number in report["statuses"].items()
        if status != "200"
    ]
    if report["codes"]:
        rows.append(("refusals", f"{sum(report['codes'].values()):,}", _codes(report)))
    if report["lost"]:
        rows.append(("no response", f"{report['lost']:,}"))
    if report["crowded"]:
        more = "waited for a connection; part of the latency. More: --connections, ulimit -n"
        rows.append(("crowded", f"{report['crowded']:,}", more))
    if latency["p50"] is not None:
        shown = " / ".join(f"{latency[name]:.1f}" for name in ("p50", "p95", "p99"))
        rows.append(("latency", f"{shown} ms", f"P50 / P95 / P99; max {latency['max']:.1f}"))
    for name, label in (("ttft_ms", "first piece"), ("tpot_ms", "between pieces")):
        if report[name]["p50"] is not None:
            shown = f"{report[name]['p50']:.1f} / {report[name]['p95']:.1f} ms"
            rows.append((label, shown, "P50 / P95"))
    if report["returned"]:
        share = report["admitted_on_return"] / report["returned"]
        rows.append(("came back", f"{report['returned']:,}", f"{share:.0%} were let in"))
    if lag["p50"] is not None:
        rows.append(("lag", f"{lag['p50']:.1f} ms", f"of the generator; max {lag['max']:.1f}"))
    if len(report["by_key"]) > 1:
        rows += map(_key_row, report["by_key"])
    return rows


def _codes(report: dict[str, Any]) -> str:
    """How often each code was given."""
    return ", ".join(f"{code} {number:,}" for code, number in report["codes"].items())


def _key_row(row: dict[str, Any]) -> tuple[str, ...]:
    """One key's requests: how many were answered, how fast, and why the others were not."""
    latency, said = row["latency_ms"], []
    if latency["p50"] is not None:
        shown = " / ".join(f"{latency[name]:.1f}" for name in ("p50", "p95", "p99"))
        said.append(f"{shown} ms")
    if row["codes"]:
        said.append(_codes(row))
    if row["lost"]:
        said.append(f"no response {row['lost']:,}")
    return row["key"], f"{row['answered']:,} of {row['offered']:,}", "; ".join(said)
