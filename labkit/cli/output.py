"""One report, printed as JSON for programs or as a table for people."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def json_option(command: F) -> F:
    """Add `--json`, handed to the command as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def print_json(report: Mapping[str, Any]) -> None:
    """One JSON object, in the order given; nan and inf are no JSON: use None."""
    click.echo(json.dumps(report, indent=2, allow_nan=False, ensure_ascii=False))


Row = tuple[str, str] | tuple[str, str, str]


def emit(report: Mapping[str, Any], as_json: bool, rows: Callable[[], list[Row]]) -> None:
    """Print one report: as a JSON object in the order given, or as a table of `rows`.

    A row is a label, a value, and perhaps a remark. nan and inf are no JSON: use None.
    """
    if as_json:
        print_json(report)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for row in rows():
        table.add_row(*(Text(cell) for cell in row))
    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())
