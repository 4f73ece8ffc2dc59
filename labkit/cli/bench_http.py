"""`labkit bench http`: our HTTP server beside other people's batching servers, in one run."""

from collections.abc import Sequence
from typing import Any

import click

from labkit.cli.common import explained
from labkit.cli.output import json_option
from labkit.cli.params import Count, Milliseconds, Rate
from labkit.core.units import to_ms

NAMES = ("labkit", "constant", "late", "bare", "mosec", "litserve", "ray_serve", "bentoml")


@click.command()
@click.option("--workers", type=Count(1, 64), default="28", show_default=True, help="Of each.")
@click.option("--rounds", type=Count(1, 100), default="3", show_default=True, help="Median of.")
@click.option(
    "--seconds", type=Rate("3", "seconds"), default="3", show_default=True, help="Of one trial."
)
@click.option(
    "--limit-ms", "limit", type=Milliseconds(), default="300", show_default=True, help="P95 within."
)
@click.option(
    "--common-rate", type=Rate("100"), default="100", show_default=True, help="Latency is compared."
)
@click.option("--seed", type=Count(0), default="1", show_default=True)
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="This one; again for more.")
@click.option("--quick", is_flag=True, help="Ours alone, for seconds: does it work?")
@click.option("--markdown", is_flag=True, help="Print the tables as Markdown.")
@json_option
@explained
def http(as_json: bool, markdown: bool, limit: int, **asked: Any) -> None:
    """Our HTTP server against Mosec, LitServe, Ray Serve and BentoML.

    The same batch function, workers, window and load generator for all; the highest rate
    each holds, a closed loop, and latency at a common rate; interleaved rounds, medians.
    A quarter of an hour. Peers are installed under build/peers on the first run.
    """
    from labkit.cli.bench import contest

    told = (lambda line: None) if asked["quick"] else _tell
    report = contest("http")(limit_ms=to_ms(limit), tell=told, **asked)
    if as_json:
        from labkit.cli.output import emit

        emit(report, True, list)
        return
    click.echo(as_markdown(report) if markdown else as_text(report))


def _tell(line: str) -> None:
    click.echo(line, err=True)


# -- the tables -------------------------------------------------------------------------------


def results(report: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """A header, and a row a contestant: the fastest first, whoever was left out last."""
    rate, closed = report["sustained_per_s"], report["closed_per_s"]
    at = next(key for key in report if key.startswith("at_"))
    common = at.removeprefix("at_").removesuffix("_per_s")
    header = ["server", "version", "held, a second", "ours is", "closed loop, a second"]
    header += [f"P50 / P95 at {int(common):,}", "processor time a request"]
    rows = []
    for name in sorted(rate, key=lambda name: -rate[name]):
        about, middle = report["contestants"][name], report[at][name]
        ratio = report["ratios"].get(f"labkit/{name}")
        rows.append(
            [
                about["label"],
                about["version"],
                f"{rate[name]:,}",
                "" if ratio is None else f"{ratio:g} x",
                f"{closed[name]:,}",
                f"{_ms(middle['p50_ms'])} / {_ms(middle['p95_ms'])} ms",
                _us(report["cpu_us"][name]),
            ]
        )
    for name, why in report["skipped"].items():
        about = report["contestants"][name]
        rows.append([about["label"], about["version"], f"not measured: {why}", "", "", "", ""])
    return header, rows


def features(report: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """What each has switched on."""
    rows = [[about["label"], about["features"]] for about in report["contestants"].values()]
    return ["server", "what is on"], rows


def circumstances(report: dict[str, Any]) -> list[str]:
    """Sentences: what was offered, on what, when, and what the ceiling says."""
    load, machine = report["load"], report["machine"]
    told = [
        f"{load['workers']} workers each, batches of up to {load['max_batch']} in "
        f"{load['batch_ms']} ms, a window of {load['window_ms']} ms. Held: "
        f"{load['answered_share']:.1%} answered rightly, P95 within {load['p95_limit_ms']:g} ms "
        f"counted from the schedule, in trials of {load['seconds']:g} s. Medians; rounds: "
        f"{load['rounds']}.",
        f"{machine['cores']} cores ({machine['cpu']}), Python {machine['python']}, "
        f"{machine['system']}, load average before: {machine['load_average_before']}; "
        f"{report['date']}, {report['took_s'] / 60:.1f} minutes.",
    ]
    for name, what in (
        ("constant", "of a constant answer"),
        ("late", "of one that waits 100 ms"),
        ("bare", "of its protocol alone"),
    ):
        share = report["ratios"].get(f"labkit/{name}")
        if share is not None:
            told.append(f"With everything on, ours holds {share:.0%} of the rate {what}.")
    return told


def as_text(report: dict[str, Any]) -> str:
    """The tables for a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    with console.capture() as captured:
        for header, rows in (results(report), features(report)):
            table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
            for number, name in enumerate(header):
                table.add_column(name, justify="right" if number > 1 else "left")
            for row in rows:
                table.add_row(*(Text(cell.replace("`", "")) for cell in row))
            console.print(table)
            console.print()
        for line in circumstances(report):
            console.print(line)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def as_markdown(report: dict[str, Any]) -> str:
    """The same for a page."""
    tables = [_markdown(*results(report), right=2), _markdown(*features(report))]
    return "\n\n".join([tables[0], "\n".join(circumstances(report)), tables[1]])


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]], right: int = 99) -> str:
    marks = ["---:" if number >= right else "---" for number in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, marks, *rows])


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} us"
