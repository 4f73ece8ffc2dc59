"""Measure this machine and keep what was found: the work behind `labkit measure`.

Items run in the order of their value, and the record is written after each, so that a run that
is cut short has kept the best of it. What cannot be measured here is listed with its reason.
"""

import hashlib
import inspect
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.gpu import items
from labkit.gpu.records import BadRecord, Record, load

if TYPE_CHECKING:
    from labkit.gpu.bench import Bench

LIMIT_S = 360.0
"""A whole run takes at most six minutes on a card; items that no longer fit are left out."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Item:
    """One measurement: the keys of its rows, its function, and its usual time in seconds."""

    keys: tuple[str, ...]
    function: Callable[["Bench"], Iterator[dict[str, Any]]]
    usual_s: float
    needs_cuda: bool = False

    @property
    def name(self) -> str:
        """The name it goes by on the command line."""
        return self.function.__name__


ITEMS = (
    Item(("copy", "matmul"), items.ceilings, 10),
    Item(("step",), items.steps, 60),
    Item(("batchstring", "batchstring_raw"), items.contract, 20),
    Item(("gemm",), items.gemm, 15),
    Item(("launch",), items.launches, 20, needs_cuda=True),
    Item(("cold",), items.cold, 40),
)
"""In the order of their value."""


@cache
def _hash(function: Callable[..., Any]) -> str:
    return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:16]


def code_of(key: str, among: Sequence[Item] = ITEMS) -> str | None:
    """The hash of the function that measures a key now; None for a key nothing measures."""
    return next((_hash(item.function) for item in among if key in item.keys), None)


def record_path(folder: Path, device: str, day: date) -> Path:
    """`<device>-<date>.json`, with a name every file system takes."""
    slug = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return folder / f"{slug}-{day.isoformat()}.json"


def measure(
    bench: "Bench",
    device: str,
    folder: Path,
    *,
    only_missing: bool = False,
    among: Sequence[Item] | None = None,
    limit_s: float = LIMIT_S,
    clock: Callable[[], float] = time.monotonic,
    today: date | None = None,
    say: Say = print,
) -> Path:
    """Run the items and return the file of the record.

    `device` is the name to file under. With `only_missing` the newest record of this device in
    the folder is completed: items whose rows are there, by the same code, are left alone.
    Raises `BadRecord` when nothing at all could be measured, and writes no file then.
    """
    day = today or date.today()
    path = record_path(folder, device, day)
    record = Record(device, day.isoformat(), software())
    if only_missing:
        path = newest(folder, device) or path
        record = load(path) if path.exists() else record
    began = clock()
    for item in ITEMS if among is None else among:
        if only_missing and _has(record, item) and item.name != "ceilings":
            say(f"{item.name}: there")
            continue
        reason = _why_not(item, bench, limit_s - (clock() - began))
        reason = reason or _run(item, bench, record)
        for key in item.keys:
            record.unavailable.pop(key, None)
            if reason:
                record.unavailable[key] = reason
        say(f"{item.name}: {reason or 'measured'}  ({clock() - began:.0f} s)")
        if record.results:
            record.save(path)
        if reason and reason.startswith("lost"):
            break
    if not record.results:
        why = "; ".join(f"{key}: {reason}" for key, reason in record.unavailable.items())
        raise BadRecord(f"{path.name}: not written, nothing could be measured ({why})")
    return path


def _why_not(item: Item, bench: "Bench", left_s: float) -> str | None:
    if item.needs_cuda and not bench.on_cuda:
        return "needs CUDA"
    if not bench.dry and item.usual_s > left_s:
        return f"no time: {left_s:.0f} s left, usually takes {item.usual_s:.0f} s"
    return None


def _run(item: Item, bench: "Bench", record: Record) -> str | None:
    """Put the rows of one item in the place of its older ones; the reason if that failed."""
    from labkit.gpu.faults import is_fatal

    try:
        rows = list(item.function(bench))
    except RuntimeError as error:
        first = str(error).strip().partition("\n")[0]
        return f"lost the device: {first}" if is_fatal(error) else f"failed: {first}"
    impossible = [row for row in rows if row["min"] < row["floor"]]
    if impossible:
        row = impossible[0]
        return (
            f"impossible: {row['key']} {row['params']} took {row['min']:g}, under {row['floor']:g}"
        )
    record.results = [row for row in record.results if row["key"] not in item.keys] + rows
    record.code.update({key: _hash(item.function) for key in item.keys})
    if item.function is items.ceilings:
        record.ceilings = asdict(bench.ceilings)
    return None


def _has(record: Record, item: Item) -> bool:
    there = {row["key"] for row in record.results}
    return all(key in there and record.code.get(key) == _hash(item.function) for key in item.keys)


def newest(folder: Path, device: str) -> Path | None:
    """The newest record of a device in a folder; None if there is none."""
    stem = record_path(folder, device, date.min).name.removesuffix("-0001-01-01.json")
    found = sorted(folder.glob(f"{stem}-????-??-??.json"))
    return found[-1] if found else None


def software() -> dict[str, str]:
    """Versions that a figure may depend on."""
    import torch

    found = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return {**found, "system": platform.system()}
