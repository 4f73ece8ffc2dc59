"""`labkit progress`: what a learner has done, to look at and to carry to another machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from labkit.cli.common import Problem, explained
from labkit.cli.output import json_option, print_json


@click.group()
def progress() -> None:
    """What is done of the exercises; kept in a file under LABKIT_HOME."""


@progress.command()
@json_option
def show(as_json: bool) -> None:
    """Show the skill map and the next twenty minutes."""
    from labkit.teach import progress as kept

    if as_json:
        noted = {exercise: asdict(record) for exercise, record in kept.records().items()}
        print_json({"file": str(kept.file()), "exercises": noted})
    else:
        click.echo(kept.progress().text)


@progress.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@explained
def export(file: Path) -> None:
    """Copy everything to FILE."""
    from labkit.teach import progress as kept

    with _said():
        click.echo(f"wrote {kept.export(file)}")


@progress.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@explained
def import_(file: Path) -> None:
    """Add what FILE notes; nothing that is here is lost."""
    from labkit.teach import progress as kept

    with _said():
        count = kept.bring(file)
    click.echo(f"{count} exercises brought; labkit progress show")


@contextmanager
def _said() -> Iterator[None]:
    """What is wrong with a file of progress is for whoever named it."""
    from labkit.teach.progress import Later, NoProgress

    try:
        yield
    except (Later, NoProgress) as error:
        raise Problem(str(error)) from error
