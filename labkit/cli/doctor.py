"""`labkit doctor`: what this machine can run, what is missing, and the line that mends it."""

from typing import Any

import click

from labkit.cli.common import Row, emit, json_option
from labkit.cli.machine import WELCOME, Findings, examine


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Say what this machine can run, and how to mend what is missing.

    Exits with 1 only when the lab cannot run at all.
    """
    found = examine()
    emit(found.report, as_json, lambda: _rows(found))
    if not as_json:
        _say_what_to_mend(found)
    ctx.exit(1 if found.broken else 0)


def _rows(found: Findings) -> list[Row]:
    """The same for people, one line a subject."""
    report = found.report
    rows: list[Row] = [("labkit", report["labkit"], f"Python {report['python']}")]
    versions = report.get("packages", {})
    present = [name for name in WELCOME if versions.get(name)]
    rows.append(("packages", str(len(present)), ", ".join(present) or "only the base"))
    if "cores" in report:
        memory = f"{report['memory_free_gib']:.1f} GiB of memory free"
        rows += [("cores", str(report["cores"]), memory), _torch_row(report["torch"])]
        for number, card in enumerate(report["cards"]):
            room = f"{card['free_gib']} of {card['memory_gib']} GiB free"
            rows.append((f"card {number}", _said(report["workers"]["cuda"]), card["name"]))
            rows.append(("", "", f"{room}, driver {card['driver']}"))
            if card["why_slow"]:
                rows.append(("", "", f"slow: {card['why_slow']}"))
        kinds = [kind for kind, works in report["workers"].items() if works]
        rows.append(("live workers", str(len(kinds)), ", ".join(kinds)))
        rows.append(("a live run starts", "", report["fleet"]["banner"]))
    browser = report.get("chromium")
    rows.append(("browser", _said(browser), browser or "no Chromium"))
    rows.append(("home", _said(report.get("home_writable")), report.get("home", "")))
    return rows


def _said(there: object) -> str:
    return "yes" if there else "no"


def _say_what_to_mend(found: Findings) -> None:
    """The remedies and the verdict, as whole lines that can be copied."""
    for title, problems in (("BROKEN", found.broken), ("advice", found.advice)):
        for problem in problems:
            click.echo(f"\n{title}: {problem['what']}\n  {problem['remedy']}")
    click.echo("\nThe lab cannot run here yet." if found.broken else "\nThe lab runs here.")


def _torch_row(torch: dict[str, Any]) -> Row:
    """The torch build."""
    if torch["version"] is None:
        return ("torch", "no", "timer workers hold the contract by the clock")
    build = "CPU only" if torch["cuda_build"] is None else f"CUDA {torch['cuda_build']}"
    return ("torch", _said(torch["works"]), f"{torch['version']}, {build}")
