"""03.servers: the floor, the servers at the target, and the spares."""

from collections.abc import Iterator, Sequence
from fractions import Fraction

from hypothesis import strategies as st

from labkit.core.units import from_ms
from labkit.sim import fast
from labkit.teach.exercises.answers import rounded, several
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.guard import Guarded
from labkit.teach.exercises.search import smallest
from labkit.teach.exercises.verdict import Case, Refuted
from labkit.theory.capacity import at_target, floor_gpus, full_load
from labkit.workload import poisson, stream

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
        yours = tuple(
            rounded(value, name, given) for name, value in zip(STEPS, answer, strict=True)
        )
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
