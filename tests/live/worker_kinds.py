"""Kinds of worker for the tests: each breaks in its own way."""

import os
import signal
import sys
import time
from collections.abc import Sequence

from labkit.core.messages import RowError
from labkit.gpu.tag import stamp
from labkit.live.kinds import Setup, echo


class Broken(Exception):
    """After this the process is of no use."""


class Faulty:
    """Echoes, unless a prompt names a way to break."""

    fatal = (Broken,)

    def __init__(self, setup: Setup) -> None:
        self.facts = {"device": f"faulty-{setup.gpu}"}

    def __call__(self, prompts: Sequence[str]) -> list[str | RowError]:
        if "die" in prompts:
            os.kill(os.getpid(), signal.SIGKILL)
        if "poison" in prompts:
            raise Broken("the context is gone")
        if "raise" in prompts:
            raise ValueError("no such word")
        outputs: list[str | RowError] = list(echo(prompts))
        if "row" in prompts:
            outputs[list(prompts).index("row")] = RowError("this row alone")
        return outputs


ODD = {"none": None, "bytes": b"xyz", "letters": "xyz"}


def odd(setup: Setup):
    """Returns what is no list of texts, when a prompt asks for it."""

    def compute(prompts: Sequence[str]):
        if prompts[0] in ODD:
            return ODD[prompts[0]]
        outputs: dict[str, object] = dict(zip(prompts, echo(list(prompts)), strict=True))
        outputs["five"] = 5
        return [outputs[prompt] for prompt in prompts]

    return compute


def unbuildable(setup: Setup) -> Faulty:
    """A kind that cannot start."""
    raise RuntimeError("no such device")


def silent(setup: Setup):
    """A kind that forgets its answers."""
    return lambda prompts: []


def untagged(setup: Setup):
    """A kind that forgets the tag."""
    return list


def slow(setup: Setup):
    """Computes for longer than the contract allows, but not in its self-test."""

    def compute(prompts: Sequence[str]) -> list[str]:
        if "self-test" not in prompts:
            time.sleep(setup.batch_time / 1_000_000 + 0.02)
        return [stamp(prompt, prompt) for prompt in prompts]

    return compute


def parent(setup: Setup):
    """A kind that, asked to fork, hangs with a child that holds all its files for 15 seconds."""

    def compute(prompts: Sequence[str]) -> list[str]:
        if "fork" in prompts:
            child = os.fork()
            time.sleep(15)
            if not child:
                os._exit(0)
        return echo(prompts)

    return compute


def sleepy(setup: Setup):
    """A kind that takes a minute to start."""
    time.sleep(60)
    return echo


class Unsayable:
    """Says half a letter, which no UTF-8 has, to every prompt that does not ask for nothing."""

    def __init__(self, setup: Setup) -> None:
        self.facts = {"device": "odd"}

    def steps(self, prompts: Sequence[str]):
        """Half a letter, then the tag."""
        yield [None if "nothing" in prompt else "\ud800" for prompt in prompts]
        yield [stamp("", prompt) for prompt in prompts]


def unsayable(setup: Setup) -> Unsayable:
    """A kind whose words cannot be sent."""
    return Unsayable(setup)


class Hasty:
    """Says every piece of an answer and its end in one breath."""

    def steps(self, prompts: Sequence[str]):
        """Each prompt, then its tag."""
        yield [f"{prompt} " for prompt in prompts]
        yield [stamp("", prompt) for prompt in prompts]


def hasty(setup: Setup) -> Hasty:
    """A kind whose messages come together."""
    return Hasty()


def torchless(setup: Setup):
    """The kind `cpu` where torch is not installed."""
    sys.modules["torch"] = None  # type: ignore[assignment]
    from labkit.gpu.kinds import cpu

    return cpu(setup)
