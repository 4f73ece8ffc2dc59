"""`labkit loadtest`: honest load on any OpenAI-compatible server."""

from typing import Any

import click

from labkit.cli.common import (
    Load,
    Problem,
    Progress,
    emit,
    explained,
    json_option,
    load_from,
    load_options,
)
from labkit.cli.params import Count


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
    "--connections", type=Count(1, 60_000), default=10_000, show_default=True, help="At most."
)
@load_options
@json_option
@explained
def loadtest(as_json: bool, **options: Any) -> None:
    """Send requests on a schedule that waits for nobody, and time each from its instant.

    Exit code 1 if a request had no response, or an answer was another request's.
    """
    report = _run(load_from(options), options)
    from labkit.live.loadtest import summary_rows

    emit(report, as_json, lambda: list(summary_rows(report)))  # type: ignore[arg-type]
    if report["lost"] or report["wrong_tag"]:
        raise SystemExit(1)


def _run(load: Load, options: dict[str, Any]) -> dict[str, Any]:
    from importlib.util import find_spec

    from labkit.cli.arrivals import arrivals_of
    from labkit.live.errors import LiveError

    if find_spec("httptools") is None or find_spec("msgspec") is None:
        raise Problem("httptools or msgspec cannot be imported; pip install 'labkit[http]'")
    from labkit.live.loadtest import LoadTest, Target

    expected = 0.0 if load.rate is None or load.seconds is None else load.rate * load.seconds
    target = Target(
        options["url"],
        options["keys"] or ("",),
        options["model"],
        options["chat"],
        options["stream"],
        options["max_tokens"],
        options["keyed"],
        options["retries"],
        options["connections"],
    )
    try:
        with Progress(expected, "requests") as progress:
            outcome = LoadTest(
                target,
                arrivals_of(load),
                warm=50 if load.rate is None else round(load.rate * 0.25) + 10,
                seed=load.seed,
                progress=progress.at,
                uvloop=find_spec("uvloop") is not None,
            ).run()
    except LiveError as error:
        raise Problem(str(error)) from error
    return {"url": options["url"], **outcome.report()}
