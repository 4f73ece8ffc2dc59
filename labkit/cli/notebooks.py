"""`labkit notebooks`: build them from their sources, and find one that no longer matches."""

import time

import click

from labkit.cli.common import Problem


@click.group()
def notebooks() -> None:
    """The notebooks: each is generated from notebooks/src and never edited by hand."""


@notebooks.command()
@click.argument("names", nargs=-1)
@click.option("--no-execute", is_flag=True, help="Write the cells only; outputs stay empty.")
def build(names: tuple[str, ...], no_execute: bool) -> None:
    """Write and execute the notebooks of NAMES, or all.

    A name is 01 or 01_ferry_rule; each has a learner's notebook and a solved one.
    """
    from nbclient.exceptions import CellExecutionError

    from labkit.teach import pipeline

    try:
        folder = pipeline.notebooks_dir()
        for source in pipeline.sources(folder, names):
            start = time.perf_counter()
            for path in pipeline.build(source, folder, run=not no_execute):
                click.echo(f"wrote {path.relative_to(folder.parent)}")
            click.echo(f"{source.stem}: {time.perf_counter() - start:.1f} s", err=True)
    except (FileNotFoundError, pipeline.SourceError) as error:
        raise Problem(str(error)) from error
    except CellExecutionError as error:
        raise click.ClickException(f"a cell of {source.stem} failed\n{error}") from error


@notebooks.command()
def check() -> None:
    """Fail when a notebook is not what its source gives.

    Says which cell differs.
    """
    from labkit.teach import pipeline

    try:
        folder = pipeline.notebooks_dir()
        problems = pipeline.drift(folder)
    except (FileNotFoundError, pipeline.SourceError) as error:
        raise Problem(str(error)) from error
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        raise SystemExit(1)
    click.echo(f"{len(pipeline.sources(folder))} sources, every notebook matches")
