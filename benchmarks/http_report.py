"""What the HTTP contest found: plans, rounds, and their medians and ratios as plain values."""

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.http_contestants import CONTESTANTS
from benchmarks.http_servers import KEYED

SHARE = 0.999
CLIENTS = (100, 400, 4_000)
"""Of the closed loops; what the best of them came to counts."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured; `tries` bounds the trials of one search."""

    workers: int
    rounds: int
    seconds: float
    limit_ms: float
    common_rate: float
    seed: int
    clients: tuple[int, ...] = CLIENTS
    tries: int = 7
    start_s: float = 120.0


@dataclass(slots=True)
class Round:
    """What one round of one contestant came to; `sustained` 0: no rate held."""

    sustained: float
    closed: list[dict[str, Any]]
    common: dict[str, Any]
    trials: list[dict[str, Any]]
    started_s: float
    answer_size: int
    ended_by_force: int = 0


def held(found: dict[str, Any], limit_ms: float) -> bool:
    """Nearly everybody answered, and the tail as it should be."""
    enough = found["answered"] >= SHARE * found["offered"]
    return enough and found["p95_ms"] is not None and found["p95_ms"] <= limit_ms


def best_of(loops: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The closed loop that came to most."""
    return max(loops, key=lambda loop: loop["per_s"])


def report_of(
    plan: Plan,
    rounds: Mapping[str, Sequence[Round]],
    skipped: Mapping[str, str],
    took_s: float,
    load_before: float | None,
) -> dict[str, Any]:
    """Medians of the rounds, ours over theirs, and under what circumstances."""
    rate = {name: median(one.sustained for one in found) for name, found in rounds.items()}
    closed = {
        name: median(best_of(one.closed)["per_s"] for one in found)
        for name, found in rounds.items()
    }
    common = {
        name: {
            "p50_ms": _middle(one.common["p50_ms"] for one in found),
            "p95_ms": _middle(one.common["p95_ms"] for one in found),
            "held": all(held(one.common, plan.limit_ms) for one in found),
        }
        for name, found in rounds.items()
    }
    return {
        "load": {
            "workers": plan.workers,
            "batch_ms": 100,
            "max_batch": 100,
            "window_ms": 50,
            "seconds": plan.seconds,
            "rounds": plan.rounds,
            "p95_limit_ms": plan.limit_ms,
            "answered_share": SHARE,
            "keyed": KEYED,
        },
        "machine": machine(load_before),
        "date": date.today().isoformat(),
        "took_s": round(took_s, 1),
        "contestants": {
            name: {"label": c.label, "version": c.version, "features": c.features}
            for name, c in CONTESTANTS.items()
            if name in rounds or name in skipped
        },
        "sustained_per_s": {name: round(value) for name, value in rate.items()},
        "closed_per_s": {name: round(value) for name, value in closed.items()},
        f"at_{plan.common_rate:.0f}_per_s": common,
        "cpu_us": {name: _middle(_cpu_us(one) for one in found) for name, found in rounds.items()},
        "ratios": _ratios(rate),
        "rounds": {name: [_shown(one) for one in found] for name, found in rounds.items()},
        "skipped": dict(skipped),
    }


def _ratios(rate: dict[str, float]) -> dict[str, float]:
    ours = rate.get("labkit", 0.0)
    return {
        f"labkit/{name}": round(ours / value, 2)
        for name, value in rate.items()
        if name != "labkit" and ours and value
    }


def _cpu_us(one: Round) -> float | None:
    """Of the server, a response, at the highest rate that held."""
    best = [found["cpu_us"] for found in one.trials if found["rate"] == one.sustained]
    return best[0] if best else None


def _middle(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(median(known), 1) if known else None


def _shown(one: Round) -> dict[str, Any]:
    return {
        "sustained_per_s": round(one.sustained, 1),
        "started_s": one.started_s,
        "answer_bytes": one.answer_size,
        "ended_by_force": one.ended_by_force,
        "closed": one.closed,
        "common": one.common,
        "trials": one.trials,
    }


def machine(load_before: float | None) -> dict[str, Any]:
    """What the numbers were taken on."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "load_average_before": load_before,
    }


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()


def load_average() -> float | None:
    """Of the last minute, where the system says."""
    try:
        return round(os.getloadavg()[0], 2)
    except (AttributeError, OSError):
        return None
