"""Exact percentiles without looking at every request, whatever the sample made believe."""

from itertools import accumulate
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.core.books import summary
from labkit.sim import durations as module
from labkit.sim.durations import Group, durations
from labkit.sim.fast import crossings
from labkit.workload import poisson, stream


@given(seed=st.integers(0, 1 << 30), size=st.integers(1, 60), spread=st.sampled_from([0, 3, 900]))
def test_any_batches_give_what_sorting_all_would_give(seed, size, spread):
    rng = Random(seed)
    groups, instants = _random(rng, size, spread)
    assert durations(instants, groups).shown() == _by_sorting(instants, groups)


def test_a_long_run_is_summed_up_from_a_sample_and_exactly(monkeypatch):
    instants = poisson(10_000, 5, stream(1, "arrivals"))
    formed, _ = crossings(instants, gpus=11)
    groups = [Group(b.departed_at, b.first, b.first + b.count) for b in formed]
    monkeypatch.setattr(module, "_from_count", lambda *_: pytest.fail("counted every one"))
    assert durations(instants, groups).shown() == _by_sorting(instants, groups)


def test_a_sample_of_the_latest_arrivals_misleads_nobody():
    # Those ahead of the first one picked waited for 77, a quarter of all; nobody else waited.
    instants, groups = [], []
    for number in range(64):
        ahead = number % module.STRIDE
        instants += [number * 1_000] * ahead + [number * 1_000 + 77] * (32 - ahead)
        groups.append(Group(number * 1_000 + 77, number * 32, number * 32 + 32))
    assert durations(instants, groups).ranked == (0, 77, 77)


def test_a_part_of_the_run_is_summed_up_alone():
    groups = [Group(50, 2, 3), Group(90, 3, 5)]
    shown = durations([0, 10, 20, 30, 40], groups).shown()
    assert shown == summary([50 - 20, 90 - 30, 90 - 40])


def test_nobody_has_no_mean():
    assert durations([], []).shown() == summary([])


def test_longer_by_a_constant_is_the_summary_of_longer_durations():
    groups = [Group(50, 0, 3)]
    assert durations([0, 10, 20], groups).shown(longer=100_000) == summary(
        [100_050, 100_040, 100_030]
    )


def _random(rng: Random, size: int, spread: int) -> tuple[list[Group], list[int]]:
    """Some 100 batches of up to twice `size`, which wait for up to `spread` after the last."""
    sizes = [1 + int(rng.random() * 2 * size) for _ in range(100)]
    instants = list(accumulate(int(rng.random() * 20) for _ in range(sum(sizes))))
    lasts = list(accumulate(sizes))
    return [
        Group(instants[last - 1] + int(rng.random() * spread), last - size, last)
        for size, last in zip(sizes, lasts, strict=True)
    ], instants


def _by_sorting(instants: list[int], groups: list[Group]) -> dict[str, float | None]:
    return summary(end - at for end, first, last in groups for at in instants[first:last])
