"""Finds the smallest case on which an answer fails, the same one on every run."""

from collections.abc import Callable
from typing import TypeVar

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import NoSuchExample
from hypothesis.strategies import SearchStrategy

from labkit.teach.exercises.exercise import Refuted

T = TypeVar("T")

SETTINGS = settings(
    max_examples=150,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)


def smallest(cases: SearchStrategy[T], fails: Callable[[T], Exception | None]) -> None:
    """Raise what `fails` returned for the smallest case in which it returned something.

    Anything that `fails` itself raises (a stub, a learner's exception, code that never ends)
    passes straight through.
    """

    def refuted(case: T) -> bool:
        try:
            return fails(case) is not None
        except Refuted:
            return True

    try:
        case = find(cases, refuted, settings=SETTINGS)
    except NoSuchExample:
        return
    problem = fails(case)
    if problem is not None:
        raise problem
