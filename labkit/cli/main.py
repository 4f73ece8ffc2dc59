"""The `labkit` command: a table of commands whose modules are imported only when called."""

import importlib
from typing import Any, NamedTuple

import click

from labkit import __version__
from labkit.extras import missing


class Entry(NamedTuple):
    """Where a command lives (`module:attribute`) and the line that `labkit --help` shows."""

    target: str
    help: str


COMMANDS: dict[str, Entry] = {
    "lab": Entry("labkit.cli.lab:lab", "Open JupyterLab on the first notebook."),
    "doctor": Entry("labkit.cli.doctor:doctor", "Say what this machine can run."),
    "capacity": Entry("labkit.cli.capacity:capacity", "How many GPUs a request rate needs."),
    "ferry": Entry("labkit.cli.ferry:ferry", "The ferry rule in closed form: fill, wait, load."),
    "sim": Entry("labkit.cli.sim:sim", "Simulate the gateway: the code that serves, sped up."),
    "live": Entry("labkit.cli.live:live", "Real load on worker processes; kill one."),
    "replay": Entry("labkit.cli.replay:replay", "A saved trace again: does it say the same?"),
    "faults": Entry("labkit.cli.faults:faults", "Thousands of seeded runs full of faults."),
    "storm": Entry("labkit.cli.storm:storm", "Kill workers and the dispatcher under load."),
    "serve": Entry("labkit.cli.serve:serve", "An OpenAI-compatible API in front of the GPUs."),
    "loadtest": Entry("labkit.cli.loadtest:loadtest", "Honest load on any such server."),
    "keys": Entry("labkit.cli.keys:keys", "Who may come in: make, list, revoke keys."),
    "bench": Entry("labkit.cli.bench:bench", "Our speed beside that of peers, as ratios."),
    "notebooks": Entry("labkit.cli.notebooks:notebooks", "Build the notebooks, or find drift."),
    "run": Entry("labkit.cli.run:run", "Run a notebook with parameters of your own."),
    "progress": Entry("labkit.cli.learner:progress", "What is done; take it to another machine."),
    "measure": Entry("labkit.cli.measure:measure", "Measure this machine; keep the figures."),
}
"""In the order of the help page; a new command is one line here."""


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the table."""
        return list(COMMANDS)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a package that is not installed is said with what installs it."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            told = missing(error)
            if told is None:
                raise
            raise click.UsageError(told) from error

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module; None when there is no such name."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), entry.target
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the table's own lines, so that a help page imports no command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, prog_name="labkit")
def main() -> None:
    """A small serving system in front of a language model: measure it, break it, defend it.

    Durations end in -ms, rates are requests a second. Every command that measures or computes
    takes --json.
    """


if __name__ == "__main__":
    main(prog_name="labkit")
