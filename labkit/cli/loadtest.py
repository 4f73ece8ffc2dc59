"""`labkit loadtest`: honest load on any OpenAI-compatible server."""

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO, cast

import click

from labkit.cli.common import (
    Load,
    Problem,
    emit,
    explained,
    json_option,
    load_from,
    load_options,
)
from labkit.cli.params import Count

if TYPE_CHECKING:
    from labkit.live.loadtest import Progress
    from labkit.live.loadtest_books import Outcome
    from labkit.viz.tokens import Theme

MOST_CONNECTIONS = 10_000
SPARE_FILES = 64
INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended."""


@click.command()
@click.option(
    "--url", default="http://127.0.0.1:8000", show_default=True, help="Of the server, /v1 or not."
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    envvar="LABKIT_API_KEY",
    help="Bearer key; again for more, which take turns.  [env: LABKIT_API_KEY]",
)
@click.option("--model", default="ferry", show_default=True)
@click.option("--chat", is_flag=True, help="Use /chat/completions.")
@click.option("--stream", is_flag=True, help="Ask for streams; time first and later pieces.")
@click.option("--max-tokens", type=Count(1), default=None, help="Longest answer.")
@click.option(
    "--keyed", type=click.FloatRange(0, 1), default=0.0, help="Share with an idempotency key."
)
@click.option(
    "--retries",
    type=click.Choice(("off", "obedient", "stormy")),
    default="off",
    show_default=True,
    help="What a refused client does: nothing, wait as told, or come back at once.",
)
@click.option(
    "--connections",
    type=Count(1, 60_000),
    default=None,
    help="At most.  [default: 10,000, or as many as this process may open]",
)
@click.option(
    "--progress", is_flag=True, help="A line a second on how it goes, also without a terminal."
)
@click.option(
    "--picture",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="Draw latency, percentiles and statuses into this .png or .svg.",
)
@click.option(
    "--theme",
    type=click.Choice(("light", "dark")),
    default="light",
    show_default=True,
    help="Of the picture.",
)
@load_options
@json_option
@explained
def loadtest(as_json: bool, **options: Any) -> None:
    """Send requests on a schedule that waits for nobody, and time each from its instant.

    Ctrl-C ends it early, with the report so far and exit code 130. Exit code 1 if a request had no
    response, or an answer was another request's.
    """
    load = load_from(options)
    draw = _drawer(options["picture"], options["theme"])
    outcome = _run(load, options)
    report = {"url": options["url"], **outcome.report()}
    from labkit.live.loadtest_books import summary_rows

    emit(report, as_json, lambda: list(summary_rows(report)))  # type: ignore[arg-type]
    draw(outcome, f"{options['url']} · {options['model']}")
    if report["interrupted"]:
        raise SystemExit(INTERRUPTED)
    if report["lost"] or report["wrong_tag"]:
        raise SystemExit(1)


def _drawer(path: Path | None, theme: str) -> Callable[[Any, str], None]:
    """Draws the picture asked for; what would keep it from being drawn is told before any load."""
    if path is None:
        return lambda outcome, title: None
    if path.suffix.lower() not in (".png", ".svg"):
        raise Problem(f"--picture {path}: give a name that ends in .png or .svg")
    if not path.parent.is_dir():
        raise Problem(f"--picture {path}: there is no folder {path.parent}; make it first")
    if find_spec("matplotlib") is None:
        raise Problem("--picture: matplotlib cannot be imported; pip install 'labkit[lab]'")

    def draw(outcome: Any, title: str) -> None:
        from labkit.viz.loads import load_picture

        load_picture(outcome, title=title, theme=cast("Theme", theme)).save(path)
        click.echo(f"picture: {path}", err=True)

    return draw


def _run(load: Load, options: dict[str, Any]) -> "Outcome":
    from labkit.cli.arrivals import arrivals_of
    from labkit.live.errors import LiveError

    if find_spec("httptools") is None or find_spec("msgspec") is None:
        raise Problem("httptools or msgspec cannot be imported; pip install 'labkit[http]'")
    from labkit.live.loadtest import LoadTest, Target

    target = Target(
        options["url"],
        options["keys"] or ("",),
        options["model"],
        options["chat"],
        options["stream"],
        options["max_tokens"],
        options["keyed"],
        options["retries"],
        _connections(options["connections"]),
    )
    try:
        with Pulse(load, options["progress"]) as pulse:
            return LoadTest(
                target,
                arrivals_of(load),
                warm=50 if load.rate is None else round(load.rate * 0.25) + 10,
                seed=load.seed,
                progress=pulse.at,
                uvloop=find_spec("uvloop") is not None,
            ).run()
    except LiveError as error:
        raise Problem(str(error)) from error


def _connections(asked: int | None) -> int:
    """How many connections may be open; refuses more than the system allows this process."""
    from labkit.live.openfiles import most_open

    wanted = MOST_CONNECTIONS if asked is None else asked
    allowed = most_open(wanted, SPARE_FILES)
    if asked is None:
        return min(wanted, allowed)
    if asked > allowed:
        raise Problem(
            f"--connections {asked}: this process may open {allowed} at most (ulimit -n); raise "
            f"that limit, or use --connections {allowed}"
        )
    return asked


class Pulse:
    """One line a second on standard error: how much is sent, answered, on its way, and how fast.

    On a terminal the line is written over; elsewhere only when `asked`, each on a line of its own.
    """

    def __init__(self, load: Load, asked: bool, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.terminal = self.stream.isatty()
        self.shown = self.terminal or asked
        rate, seconds = load.rate, load.seconds
        self.total = None if rate is None or seconds is None else round(rate * seconds)

    def __enter__(self) -> Self:
        """Nothing is shown yet."""
        return self

    def at(self, now: "Progress") -> None:
        """Say it, where somebody reads it."""
        if not self.shown:
            return
        of = f" of about {self.total:,}" if self.total else ""
        p95 = "" if now.p95_ms is None else f", P95 {now.p95_ms:,.0f} ms"
        line = f"{now.sent:,}{of} sent, {now.on_the_way:,} on their way{p95}"
        self.stream.write(f"\r{line[:78]:<78}" if self.terminal else f"{line}\n")
        self.stream.flush()

    def __exit__(self, *_: object) -> None:
        """Wipe the line, so that what follows starts on a clean one."""
        if self.terminal:
            self.stream.write(f"\r{'':<78}\r")
            self.stream.flush()
