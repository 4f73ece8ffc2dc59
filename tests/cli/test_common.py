"""What all commands share: options, refusals that say the remedy, output, and progress."""

import errno
import importlib
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from labkit.cli.common import (
    Load,
    emit,
    explained,
    gateway_options,
    json_option,
    load_from,
    load_options,
    settings_from,
)
from labkit.cli.main import COMMANDS, main
from labkit.cli.output import Row
from labkit.cli.progress import Progress
from labkit.core.units import MS
from labkit.theory.dock import Dock
from labkit.workload import TraceError

ROOT = Path(__file__).parents[2]


def asked(*words: str, rate: float = 100.0):
    """The settings and the load that these words ask for."""
    seen = []

    @click.command()
    @gateway_options
    @load_options
    @explained
    def probe(**options):
        seen.append((settings_from(options), load_from(options, rate=rate), options["gpus"]))

    CliRunner().invoke(probe, words, standalone_mode=False, catch_exceptions=False)
    return seen[0]


def test_a_tier_may_be_given_a_share_of_the_queue_and_the_limit_fits_it():
    settings, _, _ = asked("--tier-share", "free=50", "--gpus", "1")
    assert [(tier.name, tier.share) for tier in settings.tiers] == [("paid", 100), ("free", 50)]
    assert settings.depth_limit == 200


def refused(*words: str) -> str:
    """The sentence with which these words are refused."""
    with pytest.raises(click.UsageError) as caught:
        asked(*words)
    assert caught.value.exit_code == 2
    return caught.value.format_message()


def test_without_options_two_gpus_serve_a_hundred_a_second():
    settings, load, gpus = asked()
    assert (gpus, settings.max_batch, settings.max_wait) == (2, 100, 50 * MS)
    assert (settings.backlog, settings.dispatch, settings.rule) == (0, "least_loaded", "ferry")
    assert settings.depth_limit == 2 * 100 * (500 - 100 - 30 - 200) // 100
    assert load == Load(100.0, 10.0, 1, None, 1.0)


def test_words_become_the_cores_own_values():
    settings, load, _ = asked(
        *("--max-wait-ms", "0.5", "--backlog", "inf", "--dispatch", "two-choices"),
        *("--rule", "at-once", "--depth-limit", "none", "--overdue-ms", "250"),
        *("--budget-ms", "none", "--rate", "7.5", "--seconds", "3", "--seed", "9"),
    )
    assert (settings.max_wait, settings.backlog) == (500, None)
    assert (settings.dispatch, settings.rule) == ("two_choices", "at_once")
    assert (settings.depth_limit, settings.budget) == (None, None)
    assert settings.overdue_after == 250 * MS
    assert load == Load(7.5, 3.0, 9, None, 1.0)


def test_a_command_may_have_other_defaults():
    @click.command()
    @gateway_options(gpus="8", overdue_after="250")
    def probe(**options):
        assert (options["gpus"], options["overdue_after"]) == (8, 250_000)

    assert CliRunner().invoke(probe, [], catch_exceptions=False).exit_code == 0
    with pytest.raises(TypeError, match="no such option: gpu"):
        gateway_options(gpu="8")


def test_a_trace_brings_its_own_arrivals(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.touch()
    _, load, _ = asked("--trace", str(trace), "--trace-scale", "2", "--seconds", "5")
    assert load == Load(None, 5.0, 1, trace, 2.0)
    _, load, _ = asked("--trace", str(trace))
    assert load == Load(None, None, 1, trace, 1.0)
    assert "a trace brings its own arrivals" in refused("--trace", str(trace), "--rate", "5")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--rate -1", "-1 is not above 0; give a number above 0, such as 100"),
        ("--rate 0", "0 is not above 0"),
        ("--rate nan", "'nan' is not a finite number; give a number above 0"),
        ("--rate inf", "'inf' is not a finite number"),
        ("--rate many", "'many' is not a number"),
        ("--rate 1e300", "1e300 is beyond 1e-06 to 1e+12"),
        ("--rate 1e9", "1e+09 requests a second for 10 s is 10,000,000,000 requests, over 50,000"),
        ("--rate 1e-6 --seconds 1e9", "--seconds 1e+09 is over a year"),
        ("--gpus 0", "0 is out of range; give 1 to 10000"),
        ("--gpus two", "'two' is not a whole number; give 1 to 10000"),
        ("--max-batch 0", "0 is out of range; give 1 to 100"),
        ("--max-batch 101", "101 is out of range; give 1 to 100"),
        ("--max-batch 2.5", "'2.5' is not a whole number"),
        ("--max-wait-ms -1", "-1 ms must be 0 or more; give milliseconds, such as 50"),
        ("--max-wait-ms nan", "'nan' is not a finite number"),
        ("--max-wait-ms 1e9", "1e9 ms is over a day"),
        ("--max-wait-ms 300", "300 ms + batch 100 ms + reserve 200 ms = 600 ms, over the budget"),
        ("--batch-ms 0", "0 ms must be more than 0"),
        ("--overdue-ms 50", "not longer than a batch of 100 ms"),
        ("--backlog -1", "'-1' is no backlog; give 0 (pull), 1, 2, ... or inf"),
        ("--depth-limit 0", "'0' is no limit; give a whole number above 0, none, or auto"),
        ("--depth-limit 5", "depth_limit 5 is below one batch of 100"),
        ("--depth-limit 100 --tier-share free=80", "use a depth_limit of at least 125"),
        ("--tier-share free", "'free': give a tier and its percent, 1 to 100, as free=80"),
        ("--tier-share free=101", "'free=101': give a tier and its percent"),
        ("--tier-share gold=50", "--tier-share gold=50: no such tier; there are paid, free"),
        ("--dispatch best", "choose one of least-loaded|two-choices|round-robin|random"),
        ("--rule maybe", "choose one of ferry|at-once|full"),
        ("--seed -3", "-3 is out of range; give 0 or more"),
        ("--trace missing.csv", "--trace missing.csv: no such file; check the path"),
        ("--trace .", "--trace . is a folder; give one file in it"),
        ("--trace-scale 2", "--trace-scale 2 without --trace"),
    ],
)
def test_what_cannot_be_is_refused_with_the_value_and_the_remedy(words, says):
    assert says in refused(*words.split())


def ended(error: Exception) -> click.ClickException:
    """What a command that raises this error ends with."""

    @explained
    def command():
        raise error

    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is what the test asks
        command()
    return caught.value


def test_errors_that_a_caller_can_mend_end_without_a_traceback():
    for error in (TraceError("row 3: no time"), FileNotFoundError(2, "gone", "a.csv")):
        assert isinstance(ended(error), click.UsageError)
    with pytest.raises(ValueError, match="rate -1") as caught:
        Dock(-1)
    assert "rate -1" in ended(caught.value).format_message()
    assert "a.csv: no such file" in ended(FileNotFoundError(2, "gone", "a.csv")).format_message()
    assert "give a file to read" in ended(IsADirectoryError(21, "folder", "a")).format_message()
    full = OSError(errno.ENOSPC, "No space left on device")
    assert "standard output: No space left" in ended(full).format_message()
    odd = OSError(errno.ENAMETOOLONG, "File name too long", "a" * 300)
    assert "aaa: File name too long" in ended(odd).format_message()


def test_any_other_error_stays_a_bug():
    bug = ValueError("not for callers")
    assert ended(bug) is bug
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    assert ended(refused) is refused


def reported(report: dict, *words: str, rows: list[Row] | None = None) -> str:
    """What a command that emits this prints."""

    @click.command()
    @json_option
    def command(as_json):
        emit(report, as_json, lambda: rows or [])

    return CliRunner(env={"COLUMNS": "80"}).invoke(command, words, catch_exceptions=False).output


def test_json_is_one_object_in_the_order_given():
    text = reported({"b": 1, "a": None, "name": "é"}, "--json")
    assert text == '{\n  "b": 1,\n  "a": null,\n  "name": "é"\n}\n'


def test_nan_is_no_json():
    with pytest.raises(ValueError, match="JSON compliant"):
        reported({"a": float("nan")}, "--json")


def test_a_table_keeps_to_eighty_columns_and_leaves_no_trailing_blanks():
    rows = [("needed", "18", "a remark " * 12), ("floor", "10"), ("[bold]", "/s", "[/x]")]
    lines = reported({}, rows=rows).splitlines()
    assert max(map(len, lines)) <= 80
    assert all(line == line.rstrip() for line in lines)
    assert lines[-1].split() == ["[bold]", "/s", "[/x]"]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def progress_over(instants: list[float], stream: io.StringIO) -> str:
    """What is shown when a hundred requests are done by each of these seconds."""
    clock = iter([0.0, *instants])
    with Progress(400, "requests", stream, lambda: next(clock)) as progress:
        for number, _ in enumerate(instants, start=1):
            progress.at(100 * number)
    return stream.getvalue()


def test_progress_keeps_quiet_for_two_seconds():
    assert progress_over([0.5, 1.0, 1.9], Terminal()) == ""


def test_progress_says_share_rate_and_time_left_and_wipes_its_line():
    said = progress_over([1.0, 2.0], Terminal())
    assert "50%  200 requests  100/s  2 s left" in said
    assert said.endswith(f"\r{'':<78}\r")


def test_progress_shows_four_lines_a_second_at_most():
    said = progress_over([2.0, 2.1, 2.2, 2.25], Terminal())
    assert said.count("left") == 2


def test_progress_is_for_terminals_alone():
    assert progress_over([1.0, 2.0, 3.0], io.StringIO()) == ""


def test_every_name_in_the_table_is_a_command():
    for name, entry in COMMANDS.items():
        module, _, attribute = entry.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), name


def test_help_lists_all_commands_and_imports_none():
    heavy = "simpy torch matplotlib numpy rich labkit.sim labkit.live labkit.theory"
    code = (
        "import sys; from labkit.cli.main import main; "
        "main(['--help'], standalone_mode=False); "
        f"print('HEAVY', *[name for name in '{heavy}'.split() if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    page, _, heavy_found = done.stdout.partition("HEAVY")
    assert heavy_found.strip() == ""
    listed = page.partition("Commands:\n")[2]
    assert [line.split()[0] for line in listed.splitlines() if line.strip()] == list(COMMANDS)
    assert max(len(line) for line in page.splitlines()) <= 80


def _groups(command: click.Command, name: str) -> Iterator[tuple[str, click.Group]]:
    if not isinstance(command, click.Group):
        return
    yield name, command
    context = click.Context(command)
    for word in command.list_commands(context):
        inner = command.get_command(context, word)
        assert inner is not None
        yield from _groups(inner, f"{name} {word}")


@pytest.mark.parametrize(("name", "group"), list(_groups(main, "labkit")))
def test_no_line_of_a_list_of_commands_is_cut_off(labkit, name, group):
    assert "..." not in labkit(*name.split()[1:], "--help").out.split("Commands:")[1]


def test_an_unknown_command_is_refused(labkit):
    said = labkit("fery")
    assert said.code == 2
    assert "fery" in said.err


def test_the_module_runs_as_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "labkit", "capacity", "--rate", "-1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "-1 is not above 0" in done.stderr
    assert "Traceback" not in done.stderr
