"""Kinds of worker: what a GPU's process computes, named so that any process can import it."""

import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from labkit.core.messages import Output, RowError
from labkit.core.units import S
from labkit.gpu.tag import stamp

KINDS: dict[str, str] = {
    "timer": "labkit.live.kinds:timer",
    "cpu": "labkit.gpu.kinds:cpu",
    "cuda": "labkit.gpu.kinds:cuda",
    "paced": "labkit.live.kinds:paced",
}
"""Kind -> `module:function`; any other `module:function` is a kind too.

`auto` is no kind but a choice among them, see `labkit.live.configure`.
"""


class Runner(Protocol):
    """What a kind's factory returns: a batch function that does not wait for the contract's time.

    It may also have `fatal`: exception classes after which the process is of no use (a poisoned
    GPU context); `facts`: a few plain values to show beside the GPU, such as its device;
    `poison()`, which breaks the context by raising a fatal error; `hang(seconds)`; and
    `steps(prompts)`, used in place of the call: it yields a list of pieces, one a row and None for
    no piece, step by step, and each row's pieces add up to its output.
    """

    def __call__(self, prompts: list[str]) -> Sequence[Output | RowError]:
        """One output a prompt, in order."""


Factory = Callable[["Setup"], Runner]


class UnknownKind(ValueError):
    """No worker is called that: says which are, and how to name one's own."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What one worker process is told when it starts; must survive pickling.

    `batch_time`: microseconds a batch takes at least, from the moment the worker has it; a result
    that is ready sooner waits. `options` are for the factory alone, and
    hold `gpus`, the size of the fleet.
    """

    gpu: int
    target: str
    batch_time: int
    options: Mapping[str, Any] = field(default_factory=dict)


def target_of(kind: str) -> str:
    """The `module:function` of a kind; raises `UnknownKind`."""
    target = KINDS.get(kind, kind)
    module, _, function = target.partition(":")
    if not module or not function:
        raise UnknownKind(
            f"workers {kind!r}: choose one of {', '.join(KINDS)}, auto, or name a factory as "
            "'package.module:function'"
        )
    return target


def build(setup: Setup) -> Runner:
    """Import the factory and call it, in the process that will run it."""
    module, _, function = setup.target.partition(":")
    factory: Factory = getattr(importlib.import_module(module), function)
    return factory(setup)


def timer(setup: Setup) -> Runner:
    """Holds the contract by the clock and computes nothing: echoes each prompt with its tag."""
    return echo


STEP_S = 0.05
"""A piece of every answer aboard, twenty times a second."""


class Paced:
    """Writes every answer aboard a piece at a time by the clock, as a decoding step does.

    A batch takes `steps` steps of 50 ms: the prompt's words in turn, and the tag in the last one.
    """

    def __init__(self, steps: int) -> None:
        self.count = max(steps, 1)

    def __call__(self, prompts: Sequence[str]) -> list[str]:
        """The same, without waiting."""
        return ["".join(self._pieces(prompt)) for prompt in prompts]

    def steps(self, prompts: Sequence[str]) -> Iterator[list[str]]:
        """One piece a prompt, then a pause, until all is said."""
        rows = [self._pieces(prompt) for prompt in prompts]
        began = time.monotonic()
        for step in range(self.count):
            time.sleep(max(began + step * STEP_S - time.monotonic(), 0))
            yield [row[step] for row in rows]

    def _pieces(self, prompt: str) -> list[str]:
        words = prompt.split() or ["..."]
        said = [f"{words[step % len(words)]} " for step in range(self.count - 1)]
        return [*said, stamp("", prompt).lstrip()] if said else [stamp("", prompt)]


def paced(setup: Setup) -> Runner:
    """As many pieces as steps of 50 ms fit a batch."""
    return Paced(round(setup.batch_time / S / STEP_S))


def echo(prompts: Sequence[str]) -> list[str]:
    """Each prompt, followed by its tag."""
    return [stamp(prompt, prompt) for prompt in prompts]
