"""`labkit run`: one notebook with other parameters, and a report of what it found."""

from pathlib import Path

import click

from labkit.cli.common import Problem, explained


@click.command()
@click.argument("name")
@click.option("-p", "given", multiple=True, metavar="KEY=VALUE", help="Replace a parameter.")
@click.option("--learner", is_flag=True, help="Run the learner's notebook, not the solved one.")
@click.option("--list", "listing", is_flag=True, help="Print the parameters and stop.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("build/runs"),
    show_default=True,
    help="Where the notebook and its HTML report go.",
)
@explained
def run(name: str, given: tuple[str, ...], learner: bool, listing: bool, out: Path) -> None:
    """Run the notebook NAME (03, 03_capacity) with other parameters.

    A parameter that the notebook does not have, or a value of another type, is refused. Your
    progress is left as it is.
    """
    import nbformat

    from labkit.teach import pipeline, runs

    try:
        folder = pipeline.notebooks_dir()
        source = pipeline.sources(folder, (name,))[0]
        path = pipeline.target(folder, source, "learner" if learner else "solved")
        if not path.is_file():
            raise Problem(f"{path.name} is not built: labkit notebooks build {source.stem}")
        defaults = runs.parameters(nbformat.read(path, as_version=4))
        values = runs.chosen(given, defaults)
    except (FileNotFoundError, pipeline.SourceError, runs.ParameterError) as error:
        raise Problem(str(error)) from error
    if listing:
        for key, value in defaults.items():
            click.echo(f"{key}={value!r}")
        return
    try:
        for written in runs.run(path, values, out, folder):
            click.echo(f"wrote {written}")
    except runs.CellFailed as error:
        raise click.ClickException(str(error)) from error
