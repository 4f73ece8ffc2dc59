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
    if "cores" in report:
        free = report["memory_free_gib"]
        memory = "memory unknown" if free is None else f"{free:.1f} GiB of memory free"
        rows.append(("cores", str(report["cores"]), memory))
    versions = report.get("packages", {})
    present = [name for name in WELCOME if versions.get(name)]
    rows.append(("packages", str(len(present)), ", ".join(present) or "only the base"))
    rows += _torch_rows(report.get("torch"))
    rows.append(
        ("browser", "yes" if report.get("chromium") else "no", report.get("chromium") or "")
    )
    rows.append(("home", "yes" if report.get("home_writable") else "no", report.get("home", "")))
    kinds = [kind for kind, works in report.get("workers", {}).items() if works]
    rows.append(("live workers", str(len(kinds)), ", ".join(kinds)))
    return rows


def _say_what_to_mend(found: Findings) -> None:
    """The remedies and the verdict, as whole lines that can be copied."""
    for title, problems in (("BROKEN", found.broken), ("advice", found.advice)):
        for problem in problems:
            click.echo(f"\n{title}: {problem['what']}\n  {problem['remedy']}")
    click.echo("\nThe lab cannot run here yet." if found.broken else "\nThe lab runs here.")


def _torch_rows(torch: dict[str, Any] | None) -> list[Row]:
    """The torch build, and a line for every GPU."""
    if not torch or torch["version"] is None:
        return [("torch", "no", "timer workers hold the contract by the clock")]
    build = "CPU only" if torch["cuda_build"] is None else f"CUDA {torch['cuda_build']}"
    rows: list[Row] = [("torch", "yes", f"{torch['version']}, {build}")]
    for index, gpu in enumerate(torch["gpus"]):
        rows.append((f"GPU {index}", "yes", f"{gpu['name']}, {gpu['memory_gib']} GiB"))
    return rows
