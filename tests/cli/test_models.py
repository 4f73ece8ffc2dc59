"""Models of their own size on the command line."""

import signal

import click
import pytest
from click.testing import CliRunner

from labkit.cli.main import main
from labkit.cli.params import ModelParam
from labkit.core.settings import ModelRule


def test_a_model_is_a_name_or_a_name_with_its_own_numbers():
    read = ModelParam()
    assert read.convert("ferry@2", None, None) == ModelRule("ferry@2")
    words = "barge,max-batch=8,batch-ms=40,max-wait-ms=2.5"
    assert read.convert(words, None, None) == ModelRule("barge", 8, 40_000, 2_500)
    assert read.convert("barge,batch-ms=1", None, None) == ModelRule("barge", batch_time=1_000)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("barge,seats=8", "'seats=8': give max-batch, batch-ms, max-wait-ms, as max-batch=8"),
        ("barge,max-batch=101", "101 is out of range; give 1 to 100"),
        ("barge,batch-ms=0", "0 ms must be more than 0"),
        (",max-batch=8", "',max-batch=8' has no name; give one"),
    ],
)
def test_a_model_that_cannot_be_read_is_refused_with_the_remedy(words: str, says: str):
    with pytest.raises(click.BadParameter) as refused:
        ModelParam().convert(words, None, None)
    assert says in refused.value.message


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--model barge,batch-ms=300", "model 'barge': overdue_after 250 ms is not longer"),
        ("--model a --model a", "models a, a: each may be named once"),
        ("--model a --model b --gpus 1", "2 models on 1 GPUs: each model needs one at least"),
    ],
)
def test_the_server_checks_each_models_arithmetic(words: str, says: str):
    ended = CliRunner().invoke(main, ["serve", "--port", "0", *words.split()])
    assert (ended.exit_code, says in ended.output) == (2, True)


def test_a_server_that_never_was_leaves_the_keyboard_as_it_was():
    before = signal.getsignal(signal.SIGINT)
    CliRunner().invoke(main, ["serve", "--port", "0", "--model", "a", "--model", "a"])
    assert signal.getsignal(signal.SIGINT) is before
