"""`labkit serve`: the front door, on this machine unless told otherwise."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import click

from labkit.cli.common import Problem, explained, gateway_options, json_option, settings_from
from labkit.cli.keys import file_option
from labkit.cli.params import Count, ModelParam, Rate
from labkit.cli.signals import Signals

MOST_PROCESSES = 64


@click.command()
@gateway_options(gpus="8", overdue_after="250")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=Count(0, 65_535), default=8000, show_default=True, help="0: any free.")
@click.option(
    "--workers",
    default="timer",
    show_default=True,
    help="timer, cpu, cuda, fake, auto (what this machine has), paced (streams piece by piece: "
    "see it with --batch-ms 1000), or package.module:function.",
)
@click.option(
    "--model",
    "models",
    type=ModelParam(),
    multiple=True,
    default=("ferry",),
    show_default=True,
    metavar="NAME",
    help="A model's name, perhaps with @version; again for more; GPUs are dealt to them in turn. "
    "One of another size: NAME,max-batch=8,batch-ms=40,max-wait-ms=10",
)
@click.option(
    "--ledger",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="Keep idempotent outcomes in this file; without it they last as long as the server.",
)
@click.option(
    "--access-log",
    metavar="FILE",
    default=None,
    help="Write one JSON line for each exchange that is over; - for standard output.",
)
@click.option(
    "--drain-s", type=Rate("10", "seconds"), default=10.0, show_default=True, help="To end in."
)
@click.option(
    "--server",
    type=click.Choice(("own", "uvicorn")),
    default="own",
    show_default=True,
    help="What speaks HTTP: our own protocol, or uvicorn, at about twice the cost a request.",
)
@click.option(
    "--collector",
    type=click.Choice(("tuned", "python")),
    default="tuned",
    show_default=True,
    help="Python's garbage collector: tuned for thousands of requests in flight, or as it comes.",
)
@click.option("--uvloop/--no-uvloop", default=None, help="Use uvloop.  [default: if installed]")
@file_option
@json_option
@explained
def serve(as_json: bool, **options: Any) -> None:
    """Serve an OpenAI-compatible API until SIGTERM or Ctrl-C; then answer whoever waits, and end.

    Without keys of your own, keys for a demonstration are made and shown once; they end with the
    server. Listening beyond this machine needs keys of your own: labkit keys add.
    """
    with Signals() as signals:
        _serve(signals, as_json, options)


def _serve(signals: Signals, as_json: bool, options: dict[str, Any]) -> None:
    _check_packages()
    from labkit.live.errors import LiveError
    from labkit.live.http.server import Server
    from labkit.live.keys import KeyProblem
    from labkit.live.kinds import UnknownKind

    try:
        keyring, key_file, shown = _keys(options["path"], options["host"])
        server = _server(Server, options, keyring=keyring, key_file=key_file)
        _start(server, signals)
    except (LiveError, UnknownKind, KeyProblem) as error:
        raise Problem(str(error)) from error
    _greet(server, shown, options, as_json)
    signals.wait()
    cut = server.close(options["drain_s"])
    if not as_json:
        click.echo("Everybody was answered." if not cut else f"{cut} calls were cut off.", err=True)


def _start(server: Any, signals: Signals) -> None:
    """Start it on a thread of its own, so that a signal is heard meanwhile.

    Told to end, it leaves no process behind and exits: 0 after SIGTERM, and after Ctrl-C 130, for
    nobody was served.
    """
    failures: list[BaseException] = []

    def run() -> None:
        try:
            server.start()
        except BaseException as error:
            failures.append(error)
        signals.wake()

    thread = threading.Thread(target=run, name="labkit-start")
    thread.start()
    number = signals.wait()
    if number:
        server.give_up()
    thread.join()
    if number:
        if not failures:
            server.close()
        raise SystemExit(0 if number == signal.SIGTERM else 130)
    if failures:
        raise failures[0]


def _server(make: Any, options: dict[str, Any], **more: Any) -> Any:
    from labkit.core.settings import SERVED
    from labkit.live.http.access import AccessLog
    from labkit.live.ledger import SqliteJournal

    gpus = options["gpus"]
    if gpus > MOST_PROCESSES and options["workers"] != "fake":
        raise Problem(f"--gpus {gpus}: each is a process here, and {MOST_PROCESSES} is the most")
    models, sizes = _names(options), tuple(size for size in options["models"] if size.own())
    settings = settings_from(options, tiers=SERVED, models=models, sizes=sizes)
    ledger, access = options["ledger"], options["access_log"]
    uvloop = options["uvloop"]
    return make(
        settings,
        gpus=gpus,
        workers=options["workers"],
        host=options["host"],
        port=options["port"],
        journal=None if ledger is None else SqliteJournal(ledger),
        access=None if access is None else AccessLog(access),
        uvicorn=options["server"] == "uvicorn",
        uvloop=_has("uvloop") if uvloop is None else uvloop,
        tunes_collector=options["collector"] == "tuned",
        **more,
    )


def _names(options: dict[str, Any]) -> tuple[str, ...]:
    return tuple(size.name for size in options["models"])


def _keys(path: Path | None, host: str) -> tuple[Any, Any, dict[str, str]]:
    """Who may come in, the file to watch, and the demonstration keys to show."""
    from labkit.live.http.server import is_loopback
    from labkit.live.keys import KeyFile, Keyring, demo

    key_file = KeyFile(path)
    keyring = Keyring(key_file.read())
    if len(keyring):
        return keyring, key_file, {}
    if not is_loopback(host):
        raise Problem(
            f"--host {host} can be reached from other machines and {key_file.path} has no key that "
            "works; make one first: labkit keys add --tier paid"
        )
    shown, accounts = demo()
    return Keyring(accounts), None, shown


def _greet(server: Any, shown: dict[str, str], options: dict[str, Any], as_json: bool) -> None:
    if as_json:
        report = {
            "url": server.url,
            "pid": os.getpid(),
            "models": _names(options),
            "gpus": server.engine.fleet.gpus,
            "workers": options["workers"],
            "keys": shown,
        }
        click.echo(json.dumps(report))
        return
    click.echo(f"labkit serves {', '.join(_names(options))} on {server.url}/v1")
    click.echo(f"{server.engine.fleet.gpus} GPUs, workers: {options['workers']}")
    names = _names(options)
    for place, name in enumerate(names if len(names) > 1 else ()):
        numbers = range(place, server.engine.fleet.gpus, len(names))
        click.echo(f"  {name}: GPUs {', '.join(map(str, numbers))}")
    if shown:
        click.echo("Keys for a demonstration, shown once:")
        for name, key in shown.items():
            click.echo(f"  {name:6} {key}")
    click.echo("Ctrl-C ends it, once everybody has been answered.")


def _has(package: str) -> bool:
    from importlib.util import find_spec

    return find_spec(package) is not None


def _check_packages() -> None:
    lacking = [name for name in ("httptools", "msgspec", "prometheus_client") if not _has(name)]
    if lacking:
        raise Problem(f"{', '.join(lacking)} cannot be imported; pip install 'labkit[http]'")
