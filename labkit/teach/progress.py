"""What a learner has done so far: one local file, safe to write from two kernels at once."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import IO, Any

from labkit.paths import home_dir
from labkit.teach.exercises import EXERCISES, Exercise, Mark
from labkit.teach.page import Page, box, html_table, inline, show, text_table

FORMAT = 1
SITTING = 20
"""Minutes of the next task."""


@dataclass(frozen=True, slots=True)
class Record:
    """One exercise's history: checks, hints and solution seen, how the last check ended."""

    attempts: int = 0
    hints: int = 0
    solution: bool = False
    passed: bool = False
    last: str = ""

    def __post_init__(self) -> None:
        kinds = {"attempts": int, "hints": int, "solution": bool, "passed": bool, "last": str}
        for name, kind in kinds.items():
            if type(getattr(self, name)) is not kind:
                raise TypeError(f"{name} {getattr(self, name)!r} is no {kind.__name__}")


class Later(Exception):
    """The file was written by a later version of the lab."""


class NoProgress(ValueError):
    """A file that holds no progress: says which, why, and that nothing was changed."""


def file() -> Path:
    """Where progress is kept; it need not exist."""
    return home_dir() / "progress.json"


def records() -> dict[str, Record]:
    """Everything noted so far, by exercise id; empty when there is nothing, or nothing readable."""
    try:
        return _records_in(_read())
    except (Later, OSError) as error:
        _tell(str(error))
        return {}


def note_check(exercise_id: str, mark: Mark) -> None:
    """A check ended; a stub is no attempt. What once passed stays passed."""
    if mark is not Mark.NOT_ATTEMPTED:
        passed = mark is Mark.PASSED
        _change(
            exercise_id,
            lambda old: replace(
                old, attempts=old.attempts + 1, passed=old.passed or passed, last=mark.value
            ),
        )


def note_hint(exercise_id: str, count: int) -> None:
    """So many hints were shown."""
    _change(exercise_id, lambda old: replace(old, hints=max(old.hints, count)))


def note_solution(exercise_id: str) -> None:
    """The solution was shown."""
    _change(exercise_id, lambda old: replace(old, solution=True))


def export(to: Path | str) -> Path:
    """Copy the progress to a file of one's own; returns where."""
    target = Path(to).expanduser()
    target.parent.mkdir(parents=True, exist_ok=True)
    _write(target, _read())
    return target


def bring(source: Path | str) -> int:
    """Add what another file of progress notes; of how many exercises.

    What is here already stays, and what passed on either side has passed. Raises `NoProgress`,
    `Later` or OSError, and has changed nothing then.
    """
    place = Path(source).expanduser()
    try:
        theirs = _records_in(_parsed(place.read_bytes(), place.name))
    except _UNREADABLE as error:
        raise NoProgress(
            f"{place}: no progress of this lab ({error}); nothing was changed, give a file that "
            "`labkit progress export` wrote"
        ) from error
    with _locked():
        kept = _read()
        ours = _records_in(kept)
        for exercise_id, other in theirs.items():
            _enter(kept, exercise_id, _both(ours.get(exercise_id, Record()), other))
        _write(file(), kept)
    return len(theirs)


def _both(one: Record, other: Record) -> Record:
    """What both together have done; the last check is that of whoever checked more often."""
    later = other if other.attempts > one.attempts else one
    return Record(
        later.attempts,
        max(one.hints, other.hints),
        one.solution or other.solution,
        one.passed or other.passed,
        later.last,
    )


def erase(sure: bool = False) -> Page:
    """Forget everything, when asked with `sure=True`."""
    count = len(records())
    noted = "1 exercise" if count == 1 else f"{count} exercises"
    if not sure:
        said = f"{noted} noted; `erase(sure=True)` forgets, `export(file)` keeps a copy"
        return Page(said.replace("`", ""), box(inline(said), "dotted"))
    with _locked():
        file().unlink(missing_ok=True)
    said = f"forgotten: {noted}"
    return Page(said, box(said, "dotted"))


def next_up(noted: dict[str, Record], minutes: int = SITTING) -> list[Exercise]:
    """What to do next: what was begun and is not done, then the rest in order, for one sitting."""
    left = [ex for ex in EXERCISES.values() if not noted.get(ex.id, Record()).passed]
    begun = [ex for ex in left if noted.get(ex.id, Record()).attempts]
    chosen: list[Exercise] = []
    for ex in [*begun[-1:], *(ex for ex in left if ex not in begun[-1:])]:
        if chosen and sum(one.minutes for one in chosen) + ex.minutes > minutes:
            break
        chosen.append(ex)
    return chosen


def progress() -> Page:
    """The skill map, notebook by notebook, and what to do in the next twenty minutes."""
    noted = records()
    head = ("notebook", "exercises", "passed", "minutes left")
    rows = []
    for notebook, group in groupby(EXERCISES.values(), key=lambda ex: ex.notebook):
        here = list(group)
        done = [noted.get(ex.id, Record()).passed for ex in here]
        names = ", ".join(f"{_sign(noted.get(ex.id))} {ex.id[3:]}" for ex in here)
        left = sum(ex.minutes for ex, is_done in zip(here, done, strict=True) if not is_done)
        rows.append((notebook, names, f"{sum(done)} of {len(here)}", str(left)))
    key = "✓ passed, ◐ begun, ○ open"
    sitting = next_up(noted)
    what = ", ".join(f"{ex.id} {ex.title} ({ex.minutes} min)" for ex in sitting)
    said = f"Next {SITTING} minutes: {what}" if sitting else "All done. Say them out loud next."
    text = "\n".join([*text_table(head, rows), f"  {key}", said])
    body = f"{html_table(head, rows)}<p style='opacity:.75'>{key}</p><p>{inline(said)}</p>"
    return Page(text, box(body, "dotted"))


def _sign(record: Record | None) -> str:
    if record is None:
        return "○"
    return "✓" if record.passed else "◐"


# -- the file -------------------------------------------------------------------------------------

_told: set[str] = set()


def _tell(message: str) -> None:
    """Say it once a session."""
    if message not in _told:
        _told.add(message)
        show(Page(message, box(inline(message), "dashed")))


def _change(exercise_id: str, change: Any) -> None:
    """Read, change and write under the lock; a disk that refuses does not stop the lesson."""
    try:
        with _locked():
            kept = _read()
            record = change(_records_in(kept).get(exercise_id, Record()))
            _enter(kept, exercise_id, record)
            _write(file(), kept)
    except (Later, OSError) as error:
        _tell(f"progress is not kept: {error}")


def _enter(kept: dict[str, Any], exercise_id: str, record: Record) -> None:
    """Beside whatever a later version has noted of it."""
    kept.setdefault("exercises", {}).setdefault(exercise_id, {}).update(asdict(record))


def _read() -> dict[str, Any]:
    """The file's content; one that cannot be read is put aside, whole, and said."""
    place = file()
    try:
        text = place.read_bytes()
    except FileNotFoundError:
        return {"format": FORMAT, "exercises": {}}
    try:
        return _parsed(text, place.name)
    except _UNREADABLE as error:
        aside = _aside(place)
        _tell(f"{place.name} could not be read ({error}); it is kept as {aside.name}")
        return {"format": FORMAT, "exercises": {}}


_UNREADABLE = (ValueError, TypeError, AttributeError, RecursionError)


def _parsed(text: bytes, name: str) -> dict[str, Any]:
    """The content of a progress file; one of `_UNREADABLE` for any other, or `Later`."""
    kept: dict[str, Any] = json.loads(text.decode("utf-8"))
    if type(kept) is not dict or type(kept.get("format")) is not int:
        raise ValueError("it is no progress file")
    if kept["format"] > FORMAT:
        raise Later(
            f"{name} has format {kept['format']}, this lab reads {FORMAT}; "
            "update labkit, the file is left as it is"
        )
    _records_in(kept)
    return kept


def _records_in(kept: dict[str, Any]) -> dict[str, Record]:
    known = Record.__dataclass_fields__
    return {
        exercise_id: Record(**{key: entry[key] for key in known if key in entry})
        for exercise_id, entry in kept.get("exercises", {}).items()
    }


def _aside(place: Path) -> Path:
    number = 1
    while (aside := place.with_name(f"{place.stem}.unreadable-{number}{place.suffix}")).exists():
        number += 1
    with suppress(FileNotFoundError):
        place.rename(aside)
    return aside


def _write(place: Path, kept: dict[str, Any]) -> None:
    """All or nothing: a new file takes the place of the old one in one step."""
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.stem}-", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump(kept, out, indent=1, sort_keys=True)
            out.flush()
            os.fsync(out.fileno())
        os.replace(name, place)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


@contextmanager
def _locked() -> Iterator[None]:
    """One writer at a time; the system lets go of the lock when a kernel dies."""
    place = file().with_suffix(".lock")
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("a+b") as held:
        _lock(held)
        try:
            yield
        finally:
            _unlock(held)


def _lock(held: IO[bytes]) -> None:
    with suppress(ImportError):
        import fcntl

        fcntl.flock(held, fcntl.LOCK_EX)
        return
    import msvcrt

    held.seek(0)
    msvcrt.locking(held.fileno(), msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined]


def _unlock(held: IO[bytes]) -> None:
    with suppress(ImportError):
        import fcntl

        fcntl.flock(held, fcntl.LOCK_UN)
        return
    import msvcrt

    held.seek(0)
    msvcrt.locking(held.fileno(), msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined]
