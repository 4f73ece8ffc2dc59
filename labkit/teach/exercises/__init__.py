"""The exercises, by id."""

from labkit.teach.exercises.budget import MAX_WAIT, RETRY_FITS
from labkit.teach.exercises.capacity import GPUS_FOR_TRACE, SERVERS, SUM_IN_TEXT
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.ferry import DUE_AT, RESOLVE, TAKE
from labkit.teach.exercises.hunts import CAPACITY_HUNT, FERRY_HUNT
from labkit.teach.exercises.start import CONTRACT, COSTUME
from labkit.teach.exercises.verdict import Case, Mark, Verdict

EXERCISES: dict[str, Exercise] = {
    exercise.id: exercise
    for exercise in (
        COSTUME,
        CONTRACT,
        DUE_AT,
        TAKE,
        RESOLVE,
        FERRY_HUNT,
        MAX_WAIT,
        RETRY_FITS,
        SERVERS,
        GPUS_FOR_TRACE,
        SUM_IN_TEXT,
        CAPACITY_HUNT,
    )
}
"""In the order in which the notebooks meet them."""

__all__ = ["EXERCISES", "Case", "Exercise", "Mark", "Verdict"]
