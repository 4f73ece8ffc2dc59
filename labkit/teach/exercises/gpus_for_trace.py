"""03.gpus_for_trace: the fewest GPUs that carry so many seconds of a trace."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import ceil

from hypothesis import strategies as st

from labkit.teach.exercises.answers import rounded, shown
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.guard import Guarded
from labkit.teach.exercises.search import smallest
from labkit.teach.exercises.verdict import Case, Refuted
from labkit.theory.capacity import round_up

Seen = tuple[tuple[int, ...], int, float, int]
"""Requests in each second, what one GPU carries a second, target, percent of seconds to carry."""


def gpus_for(counts: Sequence[int], each: float, target: float, percent: float) -> int:
    """The fewest GPUs (at least 1) that carry `percent` of the seconds at the target."""
    ordered = sorted(counts)
    rank = max(ceil(Fraction(str(percent)) * len(ordered) / 100), 1)
    room = Fraction(each) * Fraction(str(target))
    return max(round_up(Fraction(ordered[rank - 1]) / room), 1)


def traces() -> Iterator[Seen]:
    """A few seconds each, the shortest first; then a minute with a burst."""
    yield (500,), 1_000, 0.65, 100
    yield (1_300,), 1_000, 0.65, 100
    yield (1_400,), 1_000, 0.65, 100
    yield (100, 3_000), 1_000, 0.65, 100
    yield (3_000, 100), 1_000, 0.65, 50
    yield (3_000, 100, 900, 2_000), 1_000, 0.5, 75
    yield (0, 0, 0), 1_000, 0.65, 95
    yield (1, 2, 3, 4, 5, 6, 7, 8, 9, 10), 1, 0.8, 90
    quiet = (200, 240, 180, 220, 210, 190, 230, 250, 170, 205)
    yield (*quiet * 5, 5_000, 4_000), 1_000, 0.65, 95
    yield (*quiet * 5, 5_000, 4_000), 1_000, 0.65, 100
    yield (*quiet * 9, *[4_000] * 10), 1_000, 0.65, 90


@st.composite
def any_trace(draw: st.DrawFn) -> Seen:
    """Up to twelve seconds; no second that floats could count either way."""
    each = draw(st.sampled_from([60, 500, 1_000]))
    target = draw(st.sampled_from([0.5, 0.65, 0.8]))
    counts = draw(st.lists(st.integers(0, 9_000), min_size=1, max_size=12))
    safe = tuple(
        n + 1 if n and n % round(each * target * 20) % round(each * target) == 0 else n
        for n in counts
    )
    return safe, each, target, draw(st.sampled_from([50, 75, 90, 95, 100]))


def judge_gpus_for_trace(function: Guarded) -> None:
    """Enough for the seconds asked for, and not one more."""

    def fails(seen: Seen) -> Refuted | None:
        counts, each, target, percent = seen
        given = (
            f"seconds {shown(list(counts), 44)}, {each:,} a GPU, target {target:g}, "
            f"{percent} % of the seconds"
        )
        yours = rounded(function(list(counts), each, target, percent), "GPUs", given)
        rule = gpus_for(*seen)
        if yours == rule:
            return None
        room = [gpus * each * target for gpus in (yours, rule)]
        rows = [
            ("GPUs", f"{yours:,}", f"{rule:,}"),
            ("carried at the target", *(f"{most:,.6g}" for most in room)),
            ("seconds within that", *(f"{carried(counts, most):.0f} %" for most in room)),
        ]
        side = "too few" if yours < rule else "too many"
        why = f"{given}: {yours:,} is {side}, {rule:,} is the answer"
        return Refuted(Case.tabled(why, ("", "yours", "the rule"), rows))

    smallest(function, traces(), any_trace(), fails)


def carried(counts: Sequence[int], room: float) -> float:
    """Percent of the seconds that are within `room`."""
    return 100 * sum(n <= room + 1e-6 for n in counts) / len(counts)


_TRACE = "def gpus_for_trace(counts, per_gpu, target, percent):\n"

GPUS_FOR_TRACE = Exercise(
    id="03.gpus_for_trace",
    title="How many for a real day?",
    minutes=10,
    difficulty=2,
    question=(
        "`counts` holds the requests in each second of a trace; one GPU carries `per_gpu` a second "
        "when every batch is full. Return the fewest GPUs, at least one, with which at least "
        "`percent` % of the seconds stay within `target` of what the GPUs carry. 100 is the peak."
    ),
    stub=_TRACE
    + '    """The fewest GPUs that carry `percent` % of the seconds."""\n    return ...\n',
    solution=_TRACE
    + '''\
    """The fewest GPUs that carry `percent` % of the seconds."""
    from math import ceil

    rank = ceil(percent * len(counts) / 100)
    second = sorted(counts)[rank - 1]
    return max(ceil(second / (per_gpu * target)), 1)
''',
    why=(
        "A mean hides the seconds that hurt. Sort the seconds, take the one at the percentile you "
        "promise, and size for that one; how far the peak lies above it is the price of never "
        "shedding anybody."
    ),
    hints=(
        "How many of the seconds must be carried? Which of them is the fullest of those?",
        "Sort, take the second at rank ceil(percent x n / 100), counted from 1, and divide by what "
        "one GPU carries at the target.",
        "`second = sorted(counts)[ceil(percent * len(counts) / 100) - 1]`, then "
        "`max(ceil(second / (per_gpu * target)), 1)`.",
    ),
    judge=judge_gpus_for_trace,
    mutants=(
        # The mean.
        _TRACE + "    from math import ceil\n"
        "    return max(ceil(sum(counts) / len(counts) / (per_gpu * target)), 1)\n",
        # The peak, whatever was asked.
        _TRACE + "    from math import ceil\n"
        "    return max(ceil(max(counts) / (per_gpu * target)), 1)\n",
        # No headroom.
        _TRACE + "    from math import ceil\n    rank = ceil(percent * len(counts) / 100)\n"
        "    return max(ceil(sorted(counts)[rank - 1] / per_gpu), 1)\n",
        # One rank too high.
        _TRACE + "    from math import ceil\n"
        "    rank = min(int(percent * len(counts) / 100), len(counts) - 1)\n"
        "    return max(ceil(sorted(counts)[rank] / (per_gpu * target)), 1)\n",
        # Not sorted.
        _TRACE + "    from math import ceil\n    rank = ceil(percent * len(counts) / 100)\n"
        "    return max(ceil(counts[rank - 1] / (per_gpu * target)), 1)\n",
        # Rounded down.
        _TRACE + "    from math import ceil\n    rank = ceil(percent * len(counts) / 100)\n"
        "    return max(int(sorted(counts)[rank - 1] / (per_gpu * target)), 1)\n",
        # No GPU at all on a quiet day.
        _TRACE + "    from math import ceil\n    rank = ceil(percent * len(counts) / 100)\n"
        "    return ceil(sorted(counts)[rank - 1] / (per_gpu * target))\n",
    ),
    alternatives=(
        _TRACE + "    gpus = 1\n"
        "    while 100 * sum(n <= gpus * per_gpu * target + 1e-9 for n in counts) < "
        "percent * len(counts):\n        gpus += 1\n    return gpus\n",
        _TRACE + "    from math import ceil\n"
        "    needs = sorted(max(ceil(n / (per_gpu * target)), 1) for n in counts)\n"
        "    return needs[-(-len(needs) * percent // 100) - 1]\n",
    ),
    right="enough for the seconds asked for, and not one GPU more",
)
