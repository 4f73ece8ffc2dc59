"""`labkit measure`: measure this machine and keep the figures with where they came from."""

import re
import tempfile
from pathlib import Path
from typing import Any

import click

from labkit.cli.common import Problem, json_option


@click.command()
@click.option("--dry", is_flag=True, help="Tiny sizes, under a minute, into a temporary folder.")
@click.option("--only-missing", is_flag=True, help="Complete this device's newest record.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the record.  [default: data/measured]",
)
@click.option("--device", help="cpu or cuda:0.  [default: the card, if torch can use one]")
@json_option
def measure(
    dry: bool, only_missing: bool, out: Path | None, device: str | None, as_json: bool
) -> None:
    """Measure ceilings, steps, batchstring and start-up on this machine; at most six minutes.

    The record is saved after each item, so it may be interrupted.
    """
    from labkit.gpu import device as choice
    from labkit.gpu.machine import look

    facts = look()
    if facts.torch is None:
        raise Problem("torch is not installed; pip install 'labkit[torch]'")
    chosen = choice.device(facts) if device is None else device
    check_device(chosen, len(facts.cards) if facts.cuda else 0)
    path = _measured(chosen, dry, only_missing, out, quiet=as_json)
    if as_json:
        click.echo(path.read_text(), nl=False)
    else:
        click.echo(str(path))


def check_device(name: str, cards: int) -> None:
    """A record is filed under a device's name, so only one that is here may be measured."""
    found = re.fullmatch(r"cpu|cuda(?::(\d{1,4}))?", name)
    if found is None:
        raise Problem(f"--device {name}: give cpu, or a card as cuda:0")
    if name == "cpu":
        return
    if not cards:
        raise Problem(f"--device {name}: torch cannot use a card here; run `labkit doctor`")
    if int(found[1] or 0) >= cards:
        raise Problem(f"--device {name}: torch can use {cards} here, cuda:0 to cuda:{cards - 1}")


def _measured(device: str, dry: bool, only_missing: bool, out: Path | None, quiet: bool) -> Path:
    from labkit.gpu import bench
    from labkit.gpu import measure as work
    from labkit.gpu.records import BadRecord, measured_dir

    if out is None:
        out = Path(tempfile.mkdtemp(prefix="labkit-measure-")) if dry else measured_dir()
    name = bench.device_name(device) + (" (dry run)" if dry else "")

    def say(line: Any) -> None:
        click.echo(line, err=quiet)

    try:
        return work.measure(bench.Bench(device, dry), name, out, only_missing=only_missing, say=say)
    except BadRecord as error:
        raise Problem(str(error)) from error
