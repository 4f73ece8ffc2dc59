"""Finds the smallest case on which an answer fails, the same one on every run."""

import random
from collections.abc import Callable, Iterable
from typing import TypeVar

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import NoSuchExample
from hypothesis.strategies import SearchStrategy

from labkit.teach.exercises.guard import Guarded
from labkit.teach.exercises.verdict import Refuted

T = TypeVar("T")

EXAMPLES = 60

SETTINGS = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)


def smallest(
    function: Guarded,
    first: Iterable[T],
    cases: SearchStrategy[T] | None,
    fails: Callable[[T], Refuted | None],
) -> None:
    """Raise what `fails` returned or raised for the smallest case in which it did.

    `first` are small cases in order of size, tried one by one; what they cannot show is looked
    for among `cases` at random and shrunk. A stub, a learner's exception and code that never ends
    pass straight through.
    """

    def tried(case: T) -> Refuted | None:
        function.fresh()
        random.seed(0)
        try:
            return fails(case)
        except Refuted as refuted:
            return refuted

    state, printed = random.getstate(), None
    try:
        for case in first:
            if (problem := tried(case)) is not None:
                raise problem
            printed = printed or function.printed
        if cases is not None:
            _search(cases, tried)
    finally:
        random.setstate(state)
    function.printed = printed or function.printed


def _search(cases: SearchStrategy[T], tried: Callable[[T], Refuted | None]) -> None:
    try:
        case = find(cases, lambda case: tried(case) is not None, settings=SETTINGS)
    except NoSuchExample:
        return
    problem = tried(case)
    if problem is None:
        raise Refuted("your function gave two different answers to the same question")
    raise problem
