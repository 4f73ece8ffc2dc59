"""What a drain costs, against small simulations and published values."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.theory import gang
from labkit.theory.checks import OutOfDomain


def test_draining_eight_with_uniform_phases():
    assert 100 * gang.drain_time(8) == pytest.approx(88.889, abs=5e-4)
    assert 100 * gang.drain_idle(8) == pytest.approx(311.11, abs=5e-3)
    assert gang.drain_idle(8) == pytest.approx(28 / 9)


def test_draining_eight_with_exponential_service():
    assert 100 * gang.drain_time_exponential(8) == pytest.approx(271.79, abs=5e-3)
    assert gang.drain_idle_exponential(8) == pytest.approx(13.743, abs=5e-4)


def test_drains_played_out_say_the_same():
    rng, longest, idle = Random(1), 0.0, 0.0
    for _ in range(40_000):
        residuals = [rng.random() for _ in range(8)]
        longest += max(residuals)
        idle += 8 * max(residuals) - sum(residuals)
    assert longest / 40_000 == pytest.approx(gang.drain_time(8), rel=0.01)
    assert idle / 40_000 == pytest.approx(gang.drain_idle(8), rel=0.01)


def test_one_gpu_drains_without_idling():
    assert gang.drain_idle(1) == 0
    assert gang.drain_idle_exponential(1) == 0


@pytest.mark.parametrize(
    ("open_for", "lost"), [(0, 0.2059), (5, 0.05645), (10, 0.03271), (20, 0.01777)]
)
def test_fixed_turns_lose_less_the_longer_they_are(open_for, lost):
    assert gang.fixed_turns_lost_share(8, open_for) == pytest.approx(lost, rel=5e-4)
    assert gang.large_wait_bound(open_for) == open_for + 1


def test_the_largest_of_eight_normals():
    assert 8 * gang.expected_normal_maximum(8) == pytest.approx(11.389, abs=5e-4)
    assert gang.expected_normal_maximum(1) == pytest.approx(0, abs=1e-12)
    assert gang.expected_normal_maximum(2) == pytest.approx(1 / 3.141592653589793**0.5)


def test_jitter_opens_the_drain_with_the_root_of_the_rounds():
    assert gang.drain_idle_jittered(8, 0.02, 4.0) == pytest.approx(11.389 * 0.02 * 2, rel=1e-4)
    assert gang.drain_idle_jittered(8, 0.0, 4.0) == 0
    assert gang.drain_idle_jittered(8, 0.1, 0.2) == gang.drain_idle_jittered(8, 0.1, 1.0)


def test_strict_fifo_idles_behind_the_large_ones():
    assert gang.strict_fifo_utilization(8, 0.10) == pytest.approx(0.82357, abs=5e-6)
    assert gang.strict_fifo_utilization(8, 1.0) == 1.0
    assert gang.strict_fifo_utilization(1, 0.3) == pytest.approx(1.0)


def test_strict_fifo_played_out_says_the_same():
    rng, work, time, smalls = Random(3), 0, 0, 0
    for _ in range(200_000):
        if rng.random() < 0.10:
            time += -(-smalls // 8) + 1
            work += smalls + 8
            smalls = 0
        else:
            smalls += 1
    assert work / (8 * time) == pytest.approx(gang.strict_fifo_utilization(8, 0.10), rel=0.01)


@pytest.mark.parametrize(("utilization", "seconds"), [(0.5, 1.8), (0.65, 4.7), (0.8, 14.8)])
def test_waiting_until_all_eight_happen_to_be_idle(utilization, seconds):
    assert 0.1 * gang.time_to_all_idle(8, utilization) == pytest.approx(seconds, abs=0.05)


@pytest.mark.parametrize(("gpus", "utilization"), [(3, 0.5), (8, 0.65), (2, 0.9)])
def test_waiting_for_all_idle_equals_the_step_by_step_passage(gpus, utilization):
    # h(n): mean time from n present to n - 1, from n + 1 down; the chain is cut where none come.
    arrive, top = utilization * gpus, 2000
    down = 1 / min(top, gpus)
    passage = [0.0] * (top + 1)
    for n in range(top, 0, -1):
        rate = min(n, gpus)
        down = (1 + arrive * down) / rate if n < top else 1 / rate
        passage[n] = down
    chance, weights = 1.0, [1.0]
    for n in range(1, top + 1):
        chance *= arrive / min(n, gpus)
        weights.append(chance)
    reached, mean = 0.0, 0.0
    for n in range(1, top + 1):
        reached += passage[n]
        mean += weights[n] * reached
    assert mean / sum(weights) == pytest.approx(gang.time_to_all_idle(gpus, utilization), rel=1e-9)


@given(st.integers(1, 64), st.floats(0.01, 0.95))
def test_every_loss_is_a_share(gpus, share):
    assert 0 <= gang.drain_time(gpus) < 1
    assert 0 <= gang.fixed_turns_lost_share(gpus, share) < 0.5
    assert 0 < gang.strict_fifo_utilization(gpus, share) <= 1 + 1e-12
    assert gang.time_to_all_idle(gpus, share) > 0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: gang.drain_time(0), "gpus 0"),
        (lambda: gang.fixed_turns_lost_share(8, -1), "open_for -1"),
        (lambda: gang.strict_fifo_utilization(8, 0), "large_share 0"),
        (lambda: gang.time_to_all_idle(8, 1.0), "utilization 1.0: must be above 0 and below 1"),
        (lambda: gang.drain_idle_jittered(8, -0.1, 1), "sigma -0.1"),
    ],
)
def test_what_has_no_answer_names_the_value(call, says):
    with pytest.raises(OutOfDomain, match=says):
        call()
