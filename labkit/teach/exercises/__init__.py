"""The exercises, by id."""

from labkit.teach.exercises.exercise import Case, Exercise, Mark, Verdict
from labkit.teach.exercises.ferry import DUE_AT

EXERCISES: dict[str, Exercise] = {exercise.id: exercise for exercise in (DUE_AT,)}

__all__ = ["EXERCISES", "Case", "Exercise", "Mark", "Verdict"]
