"""`labkit bench serve`: the front door's own figures, every one that docs/benchmarks.md shows."""

from collections.abc import Iterator
from typing import Any

import click

from labkit.cli.common import explained
from labkit.cli.output import json_option
from labkit.cli.params import Count, Rate

NAMES = ("rates", "memory", "collector", "log", "carrier", "torch", "streams", "lost")
Table = tuple[str, list[str], list[list[str]]]


@click.command()
@click.option(
    "--seconds", type=Rate("30", "seconds"), default="30", show_default=True, help="Of one trial."
)
@click.option("--rounds", type=Count(1, 100), default="3", show_default=True, help="Median of.")
@click.option("--seed", type=Count(0), default="1", show_default=True)
@click.option("--only", multiple=True, type=click.Choice(NAMES), help="This part; again for more.")
@click.option(
    "--scale", type=Rate("1"), default="1", show_default=True, help="Multiply every rate by this."
)
@click.option("--markdown", is_flag=True, help="Print the tables as Markdown.")
@json_option
@explained
def serve(as_json: bool, markdown: bool, only: tuple[str, ...], **asked: Any) -> None:
    """The front door: rates, memory, collector, log, carriers, streams.

    Starts every server itself, puts `labkit loadtest` on it from another process, kills
    workers, and checks that each request was answered once. A quarter of an hour; leave
    the machine alone meanwhile.
    """
    from labkit.cli.bench import contest

    report = contest("serve")(parts=only or NAMES, tell=_tell, **asked)
    if as_json:
        from labkit.cli.output import emit

        emit(report, True, list)
        return
    for title, head, rows in tables(report):
        click.echo(_as_markdown(title, head, rows) if markdown else _as_text(title, head, rows))


def _tell(line: str) -> None:
    click.echo(line, err=True)


# -- the tables -------------------------------------------------------------------------------


def tables(report: dict[str, Any]) -> Iterator[Table]:
    """Title, names of columns, and rows, for each part of the report."""
    if "rates" in report:
        yield _rates(report["rates"])
    if "memory" in report:
        yield _memory(report["memory"])
    names = ("collector", "log", "carrier")
    versus: list[tuple[str, Any]] = [(name, report[name]) for name in names if name in report]
    if versus:
        yield _versus(versus)
    if "torch" in report:
        yield _torch(report["torch"])
    if "streams" in report:
        yield _streams(report["streams"])
    if "lost" in report:
        yield _lost(report["lost"])


def _latency(row: dict[str, Any]) -> str:
    return f"{row['p50']:.0f} / {row['p95']:.0f} / {row['p99']:.0f}"


def _answered(row: dict[str, Any]) -> str:
    return f"{row['answered']:,} of {row['offered']:,}" + ", once" * row["answered_once"]


def _rates(rows: list[dict[str, Any]]) -> Table:
    head = ["requests a second", "GPUs", "answered with 200", "P50 / P95 / P99, ms"]
    head += ["us a request", "MB before, after", "load before"]
    return (
        "Rates",
        head,
        [
            [
                f"{row['rate']:,.0f}",
                str(row["gpus"]),
                _answered(row),
                _latency(row),
                f"{row['cpu_us']:.0f}",
                f"{row['rss_at_rest_mb']:.0f}, {row['rss_mb']:.0f} ({row['keys_kept']:,} keys)",
                f"{row['load_average_before']:.1f}",
            ]
            for row in rows
        ],
    )


def _memory(found: dict[str, Any]) -> Table:
    sizes = ", ".join(f"{size:.0f}" for size in found["rss_mb"])
    row = [f"{found['rate']:,.0f}", f"{found['requests']:,}", sizes, f"{found['grown_mb']:+.1f}"]
    head = ["requests a second", "requests", "MB after each round", "MB since the second"]
    return "Memory, without keys", head, [row]


def _versus(parts: list[tuple[str, Any]]) -> Table:
    rows = []
    for part, found in parts:
        for number, (name, row) in enumerate(found["medians"].items()):
            ratio = f"{found['cpu_ratio']:g} x" if number else "1"
            cells = [f"{part}: {name}", f"{found['rate']:,.0f}", _latency(row)]
            rows.append([*cells, f"{row['cpu_us']:.1f}", ratio])
    head = ["server", "requests a second", "P50 / P95 / P99, ms", "us a request", "ratio"]
    return "What its parts cost", head, rows


def _torch(found: dict[str, Any]) -> Table:
    rows = [
        [
            f"{row['rate']:,.0f}",
            _answered(row),
            _latency(row),
            f"{row['restarts']}",
            "held" if row["held"] else "not held",
        ]
        for row in found["rates"]
    ]
    head = ["requests a second", "answered with 200", "P50 / P95 / P99, ms", "GPUs restarted", ""]
    return "Two torch workers and six timers, one killed in the middle", head, rows


def _streams(found: dict[str, Any]) -> Table:
    rows = [
        [
            f"{row['offered']:,} {name.replace('_', ' ')}, {part['stream_ms']:,} ms each",
            f"{row['p50']:,.0f} / {row['p95']:,.0f}",
            f"{row['least']['p50']:,.0f} / {row['least']['p95']:,.0f}",
            f"{row['over_p95']:+.1%}",
            f"{row['tpot_p95'] or 0:.1f}",
            f"{row['lag_p95']:.0f}",
        ]
        for name, part in found.items()
        for row in part["rounds"]
    ]
    head = ["streams", "P50 / P95, ms", "the least", "P95 over it", "between pieces, P95"]
    return "Streams", [*head, "generator late, P95"], rows


def _lost(found: dict[str, Any]) -> Table:
    rows = [
        [f"{name} aboard", f"{row['streams']:,}", f"{row['p50_ms']:g}", f"{row['max_ms']:g}"]
        for name, row in found.items()
        if isinstance(row, dict)
    ]
    return (
        "From the news of a lost GPU to the stream's end",
        ["", "streams", "P50, ms", "max"],
        rows,
    )


def _as_markdown(title: str, head: list[str], rows: list[list[str]]) -> str:
    lines = [f"**{title}**", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])


def _as_text(title: str, head: list[str], rows: list[list[str]]) -> str:
    wide = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=True)).rstrip()
        for row in [head, *rows]
    ]
    return "\n".join([title, *(f"  {line}" for line in lines), ""])
