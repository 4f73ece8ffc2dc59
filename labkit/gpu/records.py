"""Figures and where they come from: LIVE, RECORDED or PREDICTED.

A record is one JSON file a device and day in data/measured, written by `labkit measure`:

    {schema, date, device, software, code: {key: hash of the measuring function}, ceilings,
     results: [{key, params, unit, n, p50, p95, min, max, floor}],
     unavailable: {key: why}, checksum}

Reading refuses a record that was edited by hand or holds a value below its physical floor, by
the file's name. A figure whose measuring function has changed since says "older code", one older
than 180 days warns. Standard library only.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from labkit.gpu.ceilings import Ceilings, predicted_ms, stated
from labkit.paths import data_dir

SCHEMA = 1
STALE_DAYS = 180
Label = Literal["LIVE", "RECORDED", "PREDICTED"]
Params = Mapping[str, object]
_FIELDS = ("p50", "p95", "min", "max")


class BadRecord(ValueError):
    """A record that cannot be believed: names the file, what is wrong, and what to do."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its label and all that is needed to believe it.

    `warnings` are for the reader's banner; `ceilings` says what a PREDICTED figure was computed
    from. A prediction has n = 0 and the same value in every column.
    """

    label: Label
    key: str
    params: Params
    unit: str
    n: int
    p50: float
    p95: float
    min: float
    max: float
    floor: float
    device: str
    date: str | None = None
    older_code: bool = False
    warnings: tuple[str, ...] = ()
    ceilings: str | None = None

    def __str__(self) -> str:
        """The figure as a caption: value, label, device, day."""
        origin = f"{self.label}{' (older code)' if self.older_code else ''}, {self.device}"
        tail = self.date or self.ceilings or "now"
        return f"{self.p50:.3g} {self.unit} [{origin}, {tail}]"


@dataclass(slots=True)
class Record:
    """A record in the making or as read; see the module for the fields."""

    device: str
    date: str
    software: dict[str, str] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)
    ceilings: dict[str, Any] = field(default_factory=dict)
    results: list[dict[str, Any]] = field(default_factory=list)
    unavailable: dict[str, str] = field(default_factory=dict)
    schema: int = SCHEMA

    def as_dict(self) -> dict[str, Any]:
        """Plain values with the checksum last."""
        names = ("schema", "date", "device", "software", "code", "ceilings", "results")
        plain = {name: getattr(self, name) for name in (*names, "unavailable")}
        return {**plain, "checksum": checksum(plain)}

    def save(self, path: Path) -> None:
        """Write the file in one piece, so that an interrupted run leaves the last whole one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".part")
        draft.write_text(json.dumps(self.as_dict(), indent=1, allow_nan=False) + "\n")
        draft.replace(path)


def checksum(plain: Mapping[str, Any]) -> str:
    """SHA-256 of everything but the checksum itself, as canonical JSON.

    It shows an edit made in passing; it is no signature.
    """
    rest = {name: value for name, value in plain.items() if name != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def result(
    key: str, params: Params, unit: str, samples: list[float], floor: float
) -> dict[str, Any]:
    """One row of a record from its samples; `floor` is in the same unit."""
    ordered = sorted(samples)

    def rank(share: float) -> float:
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    spread = {"p50": rank(0.5), "p95": rank(0.95), "min": ordered[0], "max": ordered[-1]}
    rounded = {name: float(f"{value:.6g}") for name, value in spread.items()}
    row = {"key": key, "params": dict(params), "unit": unit, "n": len(ordered), **rounded}
    return {**row, "floor": float(f"{floor:.6g}")}


def load(path: Path) -> Record:
    """Read a record and believe it only if it passes every guard; raises BadRecord by name."""
    try:
        plain = json.loads(path.read_text())
        claimed = plain.pop("checksum")
        found = Record(**plain)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadRecord(
            f"{path.name}: no record ({error}); make it with `labkit measure`"
        ) from error
    if found.schema != SCHEMA:
        raise BadRecord(f"{path.name}: schema {found.schema}, not {SCHEMA}; measure again")
    if checksum(plain) != claimed:
        raise BadRecord(
            f"{path.name}: edited by hand (its checksum does not match); restore the file or "
            "measure again"
        )
    for row in found.results:
        _check_row(path.name, row)
    return found


def _check_row(name: str, row: Mapping[str, Any]) -> None:
    """Refuse a row that is impossible: not finite, out of order, or below its floor."""
    what = f"{name}: {row.get('key')} {row.get('params')}"
    values = [row.get(column) for column in (*_FIELDS, "floor")]
    if not all(isinstance(v, (int, float)) and isfinite(v) for v in values):
        raise BadRecord(f"{what}: {values} are not all numbers; measure again")
    if not row["min"] <= row["p50"] <= row["p95"] <= row["max"]:
        raise BadRecord(f"{what}: min, p50, p95, max = {values[:4]} are out of order")
    if row["min"] < row["floor"]:
        raise BadRecord(
            f"{what}: {row['min']:g} {row['unit']} is below the physical floor of "
            f"{row['floor']:g}; the clock or the ceilings are wrong: measure again"
        )


def measured_dir() -> Path:
    """Where the records that travel with the lab lie."""
    return data_dir() / "measured"


def records(folder: Path | None = None) -> list[Record]:
    """All records of a folder, newest first; one bad file refuses them all, by its name."""
    folder = folder or measured_dir()
    found = [load(path) for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda record: record.date, reverse=True)


def recorded(
    key: str,
    *,
    folder: Path | None = None,
    device: str | None = None,
    today: date | None = None,
    code_of: Callable[[str], str | None] | None = None,
    **params: object,
) -> Figure | None:
    """The newest recorded figure of this key and exactly these params; None if there is none.

    `device` is a part of a device's name. Raises BadRecord for a folder with a bad record.
    """
    code_of = code_of or _code_of
    for record in records(folder):
        if device is not None and device not in record.device:
            continue
        for row in record.results:
            if row["key"] == key and row["params"] == params:
                current = code_of(key)
                older = current is not None and record.code.get(key) != current
                return _figure(record, row, older, today or date.today())
    return None


def _code_of(key: str) -> str | None:
    from labkit.gpu.measure import code_of

    return code_of(key)


def _figure(record: Record, row: Mapping[str, Any], older: bool, today: date) -> Figure:
    age = (today - date.fromisoformat(record.date)).days
    warnings = []
    if older:
        warnings.append(f"{row['key']}: measured by older code; run `labkit measure` again")
    if age > STALE_DAYS:
        warnings.append(f"{row['key']}: measured {age} days ago, on {record.date}")
    columns = {name: row[name] for name in ("key", "params", "unit", "n", *_FIELDS, "floor")}
    return Figure(
        "RECORDED",
        **columns,
        device=record.device,
        date=record.date,
        older_code=older,
        warnings=tuple(warnings),
    )


def live(key: str, samples: list[float], device: str, unit: str = "ms", **params: object) -> Figure:
    """A figure measured just now."""
    row = result(key, params, unit, samples, 0.0)
    return Figure("LIVE", device=device, **row)


def predicted(
    key: str, device: str, ceilings: Ceilings | None = None, **params: object
) -> Figure | None:
    """The figure at the ceilings (those the maker states by default); None without a formula."""
    used = ceilings or stated(device)
    value = predicted_ms(key, params, used)
    if value is None:
        return None
    return Figure(
        "PREDICTED", key, params, "ms", 0, value, value, value, value, value, device,
        ceilings=used.source,
    )  # fmt: skip


def figure(key: str, device: str, *, folder: Path | None = None, **params: Any) -> Figure:
    """RECORDED if there is a record of such a device, else PREDICTED.

    Raises LookupError, with the remedy, when there is neither; BadRecord for a bad record.
    """
    found = recorded(key, folder=folder, device=device, **params)
    found = found or predicted(key, device, **params)
    if found is None:
        raise LookupError(
            f"{key} {params}: no record for {device} and no formula; run `labkit measure` there"
        )
    return found
