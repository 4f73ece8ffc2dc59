"""The exercises of notebook 03: how many servers, how many for a trace, and the sum as text."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import ceil
from typing import Any

from hypothesis import strategies as st

from labkit.core.units import from_ms
from labkit.sim import fast
from labkit.teach.exercises.answers import several, shown, whole
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.guard import Guarded
from labkit.teach.exercises.search import smallest
from labkit.teach.exercises.sums import Contract, Found, read_sum, slip
from labkit.teach.exercises.verdict import Case, NotAttempted, Refuted
from labkit.theory.capacity import at_target, floor_gpus, full_load, round_up
from labkit.workload import poisson, stream

# -- 03.servers -----------------------------------------------------------------------------------

Asked = tuple[int, int, int, int, float, float, int]
"""Rate, max batch, GPUs a server, GPUs a batch, batch time (ms), target, spares."""

STEPS = ("floor", "at the target", "with spares")


def servers(
    rate: float,
    max_batch: int,
    gpus: int,
    gpus_a_batch: int,
    batch_time: float,
    target: float,
    spares: int,
) -> tuple[int, int, int]:
    """The floor, the servers at the target utilization, and those with the spares."""
    slots = gpus // gpus_a_batch
    load = full_load(rate, max_batch, batch_time, slots)
    return (
        floor_gpus(rate, max_batch, batch_time, slots),
        at_target(load, target),
        at_target(load, target, spares),
    )


def fleets() -> Iterator[Asked]:
    """The question itself, then one thing changed at a time."""
    yield 10_000, 100, 1, 1, 100, 0.65, 2
    yield 10_000, 100, 8, 8, 100, 0.65, 2
    yield 10_000, 100, 8, 1, 100, 0.65, 2
    yield 10_000, 30, 4, 1, 100, 0.65, 2
    yield 10_000, 6, 1, 1, 100, 0.65, 2
    yield 9_050, 100, 1, 1, 100, 0.65, 2
    yield 3_000, 100, 1, 1, 100, 0.6, 1
    yield 100, 6, 1, 1, 100, 0.7, 1
    yield 10_000, 100, 8, 4, 100, 0.65, 0
    yield 12_000, 100, 1, 1, 50, 0.6, 0


@st.composite
def any_fleet(draw: st.DrawFn) -> Asked:
    """Round numbers that no rounding error decides."""
    gpus, each = draw(st.sampled_from([(1, 1), (2, 1), (4, 1), (8, 1), (8, 8), (8, 2), (8, 4)]))
    asked = (
        draw(st.integers(1, 200)) * 100,
        draw(st.sampled_from([1, 6, 16, 30, 50, 100])),
        gpus,
        each,
        draw(st.sampled_from([20.0, 50.0, 100.0, 250.0])),
        draw(st.sampled_from([0.5, 0.6, 0.65, 0.7, 0.8])),
        draw(st.integers(0, 3)),
    )
    if _on_edge(asked):
        return (asked[0] + 7, *asked[1:])
    return asked


def _on_edge(asked: Asked) -> bool:
    """Whether floats may round a right answer up by one: a whole number, or nearly."""
    rate, max_batch, gpus, each, batch_time, target, _ = asked
    exact = Fraction(rate) * Fraction(batch_time) / (1000 * max_batch * (gpus // each))
    return any(
        abs(value - round(value)) < Fraction(1, 10**6)
        for value in (exact, exact / Fraction(str(target)))
    )


def judge_servers(function: Guarded) -> None:
    """All three numbers, so that the step that went wrong is named."""

    def fails(asked: Asked) -> Refuted | None:
        rate, max_batch, gpus, each, batch_time, target, spares = asked
        given = (
            f"{rate:,} req/s, {max_batch} a batch, {gpus} GPU{'s' * (gpus > 1)} a server, "
            f"{each} a batch, {batch_time:g} ms, target {target:g}, {spares} spare"
        )
        answer = several(function(*asked), "the answer is (floor, at target, total)", given, 3)
        yours = tuple(whole(value, name, given) for name, value in zip(STEPS, answer, strict=True))
        rule = servers(*asked)
        if yours == rule:
            return None
        return Refuted(_counted_otherwise(given, asked, yours, rule))

    smallest(function, fleets(), any_fleet(), fails)


def _counted_otherwise(given: str, asked: Asked, yours: Sequence[int], rule: Sequence[int]) -> Case:
    rate, max_batch, gpus, each, batch_time, target, spares = asked
    slots = gpus // each
    load = full_load(rate, max_batch, batch_time, slots)
    worked = (
        f"{rate:,} x {batch_time / 1000:g} s / ({max_batch} x {slots}) = {load:.4g}",
        f"{load:.4g} / {target:g} = {load / target:.4g}",
        f"{rule[1]} + {spares}",
    )
    wrong = next(i for i in range(3) if yours[i] != rule[i])
    why = f"{given}: {STEPS[wrong]} you say {yours[wrong]}, the rule {rule[wrong]}"
    if each > 1 and slots == 1:
        why += f"; a batch takes all {each} GPUs, so a server has one slot"
    rows = [
        (name, how, str(mine), str(theirs))
        for name, how, mine, theirs in zip(STEPS, worked, yours, rule, strict=True)
    ]
    if yours[2] * slots <= 200 and 0 < yours[2] < load:
        late = simulated_p95(rate, max_batch, yours[2] * slots, batch_time)
        fine = simulated_p95(rate, max_batch, rule[2] * slots, batch_time)
        rows.append(("P95 after 2 s", "simulated", f"{late:,.0f} ms", f"{fine:,.0f} ms"))
    return Case.tabled(why, ("step", "how", "yours", "the rule"), rows)


def simulated_p95(rate: float, max_batch: int, gpus: int, batch_time: float) -> float:
    """P95 latency (ms) of two seconds of Poisson arrivals under a window of 50 ms."""
    instants = list(poisson(rate, 2, stream(3, "arrivals")))
    report = fast.run(instants, gpus=gpus, max_batch=max_batch, service_time=from_ms(batch_time))
    p95: float = report["latency_ms"]["p95"]
    return p95


_SERVERS = "def servers(rate, max_batch, gpus, gpus_a_batch, batch_time, target, spares):\n"
_CEIL = _SERVERS + "    from math import ceil\n"

SERVERS = Exercise(
    id="03.servers",
    title="How many servers?",
    minutes=10,
    difficulty=2,
    question=(
        "A server has `gpus` GPUs and one batch takes `gpus_a_batch` of them for `batch_time` ms. "
        "Return `(floor, at_target, total)`: servers at perfect fill, servers that are busy at "
        "most `target` of the time, and those with the `spares`."
    ),
    stub=_SERVERS
    + '    """(floor, at target, total) servers; batch_time in ms."""\n    return ...\n',
    solution=_SERVERS
    + '''\
    """(floor, at target, total) servers; batch_time in ms."""
    from math import ceil

    slots = gpus // gpus_a_batch
    load = rate * batch_time / 1000 / (max_batch * slots)
    at_target = ceil(load / target)
    return ceil(load), at_target, at_target + spares
''',
    why=(
        "10,000 / 1,000 is 10, and 10 is a floor: it leaves nothing for bursts, for batches that "
        "are not full, or for the GPU that is being replaced. 10 / 0.65 = 15.38, so 16, and two "
        "spares make 18. Count slots, not GPUs: a model that takes all eight has one."
    ),
    hints=(
        "How many requests a second does one server answer when every batch is full? How many "
        "batches does it run at once?",
        "Slots = GPUs a server over GPUs a batch. Load = rate x batch time / (batch x slots). "
        "Round up only at the end of each step, and carry the load on unrounded.",
        "`load = rate * batch_time / 1000 / (max_batch * slots)`, then `ceil(load)`, "
        "`ceil(load / target)`, and that plus `spares`.",
    ),
    judge=judge_servers,
    mutants=(
        # Every GPU is a slot: the eight-GPU model eight times too good.
        _CEIL + "    load = rate * batch_time / 1000 / (max_batch * gpus)\n"
        "    n = ceil(load / target)\n    return ceil(load), n, n + spares\n",
        # The GPUs a server do not count at all.
        _CEIL + "    load = rate * batch_time / 1000 / max_batch\n"
        "    n = ceil(load / target)\n    return ceil(load), n, n + spares\n",
        # Rounded too early.
        _CEIL + "    low = ceil(rate * batch_time / 1000 / (max_batch * (gpus // gpus_a_batch)))\n"
        "    n = ceil(low / target)\n    return low, n, n + spares\n",
        # Rounded down.
        _SERVERS + "    load = rate * batch_time / 1000 / (max_batch * (gpus // gpus_a_batch))\n"
        "    return int(load), int(load / target), int(load / target) + spares\n",
        # Multiplied by the target.
        _CEIL + "    load = rate * batch_time / 1000 / (max_batch * (gpus // gpus_a_batch))\n"
        "    n = ceil(load * target)\n    return ceil(load), n, n + spares\n",
        # The floor is the answer.
        _CEIL + "    low = ceil(rate * batch_time / 1000 / (max_batch * (gpus // gpus_a_batch)))\n"
        "    return low, low, low\n",
        # Milliseconds taken for seconds.
        _CEIL + "    load = rate * batch_time / (max_batch * (gpus // gpus_a_batch))\n"
        "    n = ceil(load / target)\n    return ceil(load), n, n + spares\n",
    ),
    alternatives=(
        _CEIL + "    each = max_batch * (gpus // gpus_a_batch) * 1000 / batch_time\n"
        "    low = ceil(rate / each)\n    busy = ceil(rate / each / target)\n"
        "    return low, busy, busy + spares\n",
        _CEIL + "    each = max_batch * (gpus / gpus_a_batch) / (batch_time / 1000)\n"
        "    busy = ceil(rate / (each * target))\n"
        "    return ceil(rate / each), busy, busy + spares\n",
        _SERVERS + "    from fractions import Fraction\n"
        "    load = Fraction(rate) * Fraction(batch_time) / 1000\n"
        "    load /= max_batch * (gpus // gpus_a_batch)\n"
        "    busy = -(-load // Fraction(str(target)))\n"
        "    return int(-(-load // 1)), int(busy), int(busy) + spares\n",
    ),
    right="floor, target and spares, for one GPU a batch and for eight",
)

# -- 03.gpus_for_trace ----------------------------------------------------------------------------

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
        yours = whole(function(list(counts), each, target, percent), "GPUs", given)
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

# -- 03.sum_in_text -------------------------------------------------------------------------------

QUESTION = Contract()


def judge_sum(answer: Any) -> None:
    """Each step of the sum has its number, after those it follows."""
    if answer is None or (isinstance(answer, str) and not answer.strip()):
        raise NotAttempted
    if not isinstance(answer, str):
        raise Refuted(f"got {shown(answer)}, but the sum is a text")
    found = read_sum(answer[:5_000], QUESTION)
    bad = next((i for i, one in enumerate(found) if one.figure is None), None)
    if bad is None:
        if wrong := slip(answer[:5_000]):
            raise Refuted(f"every step is there, but {wrong}")
        return
    step, instead = found[bad].step, found[bad].instead
    if instead is not None:
        why = f"step {step.name}: {instead.written} stands where {step.reads} belongs"
    else:
        why = f"step {step.name} is missing: {step.reads}"
    more = sum(one.figure is None for one in found) - 1
    if more:
        why += f"; {more} more {'is' if more == 1 else 'are'} missing or wrong"
    begin = max(min(bad - 2, len(found) - 5), 0)
    rows = [(one.step.name, _written(one), one.step.reads) for one in found[begin : begin + 5]]
    raise Refuted(Case.tabled(why, ("step", "yours", "the rule"), rows))


def _written(found: Found) -> str:
    if found.figure is not None:
        return found.figure.written
    return f"{found.instead.written}?" if found.instead is not None else "missing"


def _text(words: str) -> str:
    return f'capacity = """{words}"""\n'


SUM_IN_TEXT = Exercise(
    id="03.sum_in_text",
    title="The sum, as you would type it",
    minutes=6,
    difficulty=1,
    question=(
        "In a shared text document, write the capacity sum for 10,000 req/s with the contract (100 "
        "a batch, 100 ms a batch), a target of 65 % and two spares: from the batch to the answer, "
        "every step with its number."
    ),
    stub="capacity = ...\n",
    solution=_text(
        "one GPU: 100 / 100 ms = 1,000 req/s\n"
        "10,000 req/s / 1,000 = 10 at perfect fill: the floor\n"
        "at 65 %: 10 / 0.65 = 15.4 -> 16\n"
        "+ 2 spares = 18"
    ),
    why=(
        "Said in this order the sum answers the next three questions before they are asked: what "
        "one GPU does, why ten is not the answer, and where the two more come from."
    ),
    hints=(
        "Begin with what one GPU does in a second. Then three more lines.",
        "One GPU, the floor, the target with its rounding, the spares. Write every number with its "
        "unit: `100 ms`, `1,000 req/s`, `65 %`.",
        "100 / 100 ms = 1,000 req/s; 10,000 / 1,000 = 10; 10 / 65 % = 15.4 -> ...; + 2 = ...",
    ),
    judge=judge_sum,
    mutants=(
        _text("100 / 100 ms = 1,000 req/s a GPU. 10,000 / 1,000 = 10 GPUs."),
        _text("100 / 0.1 s = 1,000. 10,000 / 1,000 = 10. 10 / 0.65 = 15.4 -> 15. + 2 = 17"),
        _text("100 / 100 s = 1 req/s. 10,000 / 1 = 10,000 GPUs"),
        _text("100 / 100 ms = 100 req/s; 10,000 / 100 = 100; / 65 % = 153.8 -> 154; + 2 = 156"),
        _text("100 / 100 ms = 1,000; 10,000 / 1,000 = 10; x 0.65 = 6.5 -> 7; + 2 = 9"),
        _text("100 / 100 ms = 1,000; 10,000 / 1,000 = 10; / 0.65 = 15.4 -> 16"),
        _text("18"),
    ),
    alternatives=(
        _text(
            "D=0.1s, B=100 => 100/0.1 = 1000 rps per GPU\n"
            "load 10k rps => 10000/1000 = 10 (floor!)\n"
            "N+2 at 65%: 10/0.65=15.38 => 16, 16+2=18"
        ),
        _text(
            "10 000 requests/s. A batch of 100 takes 100 ms, so a GPU does 1 000 req/s.\n"
            "That is 10 GPUs at 100% busy. I want .65, which is 15.385, rounded up 16.\n"
            "Two down at once: 2 more, 18."
        ),
    ),
    right="all ten numbers, each after those it follows from",
)
