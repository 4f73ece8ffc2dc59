"""What a run is given beside its load: what breaks in it, and where its trace is kept."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from labkit.cli.common import Load, Problem
from labkit.cli.params import Rate
from labkit.core.trace import Trace, write_jsonl

F = TypeVar("F", bound=Callable[..., Any])


def kill_option(command: F) -> F:
    """Add --kill-at, handed over as `kills`, in seconds."""
    text = "Kill a GPU that is in the middle of a batch; may be given again."
    return _instants("--kill-at", "kills", text)(command)


def hang_option(text: str) -> Callable[[F], F]:
    """Add --hang-at, handed over as `hangs`, in seconds; `text` says what a hang is here."""
    return _instants("--hang-at", "hangs", text)


def _instants(flag: str, name: str, text: str) -> Callable[[F], F]:
    return click.option(flag, name, type=Rate("5"), multiple=True, metavar="SECONDS", help=text)


def check_faults(load: Load, kills: Iterable[float], hangs: Iterable[float]) -> None:
    """Refuse what would break after the end."""
    if load.seconds is None:
        return
    for flag, instants in (("--kill-at", kills), ("--hang-at", hangs)):
        for at in instants:
            if at >= load.seconds:
                raise Problem(
                    f"{flag} {at:g} is after the end, {load.seconds:g} s; give an earlier second, "
                    "or a larger --seconds"
                )


def save_trace_option(command: F) -> F:
    """Add --save-trace; write with `write_trace`, check first with `check_save_trace`."""
    return click.option(
        "--save-trace",
        type=click.Path(path_type=Path, dir_okay=False),
        default=None,
        help="Write the (first) run's trace as JSON Lines, for labkit replay.",
    )(command)


def check_save_trace(save: Path | None, load: Load) -> None:
    """Refuse, before anything runs, a file that is read or cannot be written."""
    if save is None:
        return
    if load.trace is not None and save.exists() and save.samefile(load.trace):
        raise Problem(
            f"--save-trace {save} is the file of --trace, and would overwrite what is read; "
            "give another name"
        )
    if not save.parent.is_dir():
        raise Problem(f"--save-trace {save}: no folder {save.parent}; make it, or check the path")


def write_trace(trace: Trace, save: Path) -> None:
    """As JSON Lines."""
    with save.open("w", encoding="utf-8") as file:
        write_jsonl(trace, file)
