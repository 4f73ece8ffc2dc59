"""The exercises, by id."""

from labkit.teach.exercises.contract import CONTRACT
from labkit.teach.exercises.costume import COSTUME
from labkit.teach.exercises.detection import DETECTION
from labkit.teach.exercises.due_at import DUE_AT
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.gpus_for_trace import GPUS_FOR_TRACE
from labkit.teach.exercises.hunts import CAPACITY_HUNT, FERRY_HUNT
from labkit.teach.exercises.key_ledger import KEY_LEDGER
from labkit.teach.exercises.max_wait import MAX_WAIT
from labkit.teach.exercises.on_loss import ON_LOSS
from labkit.teach.exercises.partial import CAME_BACK
from labkit.teach.exercises.resolve import RESOLVE
from labkit.teach.exercises.retry_fits import RETRY_FITS
from labkit.teach.exercises.servers import SERVERS
from labkit.teach.exercises.sinking_hunts import GHOST_HUNT, SINKING_HUNT
from labkit.teach.exercises.sum_in_text import SUM_IN_TEXT
from labkit.teach.exercises.take import TAKE
from labkit.teach.exercises.verdict import Case, Mark, Verdict

EXERCISES: dict[str, Exercise] = {
    exercise.id: exercise
    for exercise in (
        CONTRACT,
        COSTUME,
        DUE_AT,
        TAKE,
        RESOLVE,
        FERRY_HUNT,
        RETRY_FITS,
        MAX_WAIT,
        SERVERS,
        GPUS_FOR_TRACE,
        SUM_IN_TEXT,
        CAPACITY_HUNT,
        ON_LOSS,
        CAME_BACK,
        DETECTION,
        KEY_LEDGER,
        SINKING_HUNT,
        GHOST_HUNT,
    )
}
"""In the order in which the notebooks meet them."""

__all__ = ["EXERCISES", "Case", "Exercise", "Mark", "Verdict"]
