"""One plan for all workers of a machine: the first measures it, the others read what it found.

Workers that calibrate side by side disturb each other, and workers with different plans write
different texts. So a plan is kept in the learner's folder by device, torch build and share; whoever
finds none measures under a lock. Delete the file to calibrate anew.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from labkit.gpu.calibrate import Plan
from labkit.gpu.pace import Sleep
from labkit.paths import home_dir

PATIENCE_S = 20.0
"""A lock that is held for longer belongs to a worker that died: it is no longer waited for."""

_LOOK_S = 0.05


def calibration_file() -> Path:
    """Where plans are kept."""
    return home_dir() / "calibration.json"


def agreed(
    key: str, measure: Callable[[], Plan], path: Path | None = None, sleep: Sleep = time.sleep
) -> Plan:
    """The plan kept under a key, or the one that `measure` finds, kept from then on."""
    path = path or calibration_file()
    found = remembered(path, key)
    if found is not None:
        return found
    with _alone(path.with_suffix(".lock"), sleep):
        found = remembered(path, key)
        if found is None:
            found = measure()
            remember(path, key, found)
    return found


@contextmanager
def _alone(lock: Path, sleep: Sleep) -> Iterator[None]:
    """Hold a lock file; where none can be made, or it is stuck, go on without."""
    held = False
    with suppress(OSError):
        lock.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(int(PATIENCE_S / _LOOK_S)):
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
            held = True
            break
        except FileExistsError:
            sleep(_LOOK_S)
        except OSError:
            break
    try:
        yield
    finally:
        # Whoever waited in vain removes the lock of the dead, too.
        with suppress(OSError):
            if held or lock.exists():
                lock.unlink()


def remembered(path: Path, key: str) -> Plan | None:
    """The plan stored under a key; None when there is none or the file cannot be read."""
    try:
        return Plan(**json.loads(path.read_text())[key])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def remember(path: Path, key: str, found: Plan) -> None:
    """Store a plan beside those of other devices; a place that cannot be written is no error."""
    try:
        stored = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        stored = {}
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}.part")
        draft.write_text(json.dumps({**stored, key: asdict(found)}, indent=1))
        draft.replace(path)
