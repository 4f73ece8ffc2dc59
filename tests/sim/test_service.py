"""How long a batch takes: whole microseconds, from a given rng, refused when they cannot be."""

from random import Random
from statistics import fmean, pstdev

import pytest

from labkit.core.units import MS
from labkit.sim.service import (
    Affine,
    Exponential,
    Fixed,
    Jittered,
    ServiceTime,
    Uneven,
    service_stream,
)


def test_the_contract_takes_the_same_time_whatever_the_size():
    service = Fixed(100 * MS)
    assert [service(size, 0, Random(1)) for size in (1, 50, 100)] == [100_000] * 3


def test_an_affine_time_grows_with_the_batch():
    service = Affine(base=51_570, per_row=1_108)
    assert [service(size, 0, Random(1)) for size in (1, 4, 100)] == [52_678, 56_002, 162_370]


def test_jitter_has_the_mean_and_the_deviation_it_was_given():
    draws = _draws(Jittered(100 * MS, 0.1))
    # 20,000 draws: the standard error of the mean is 71 us, of the deviation 50 us.
    assert fmean(draws) == pytest.approx(100_000, abs=4 * 71)
    assert pstdev(draws) == pytest.approx(10_000, abs=4 * 50)


def test_exponential_times_have_a_deviation_equal_to_their_mean():
    draws = _draws(Exponential(100 * MS))
    assert fmean(draws) == pytest.approx(100_000, abs=4 * 708)
    assert pstdev(draws) == pytest.approx(100_000, abs=4 * 1_000)


def test_a_slow_gpu_takes_its_own_time_and_the_others_theirs():
    service = Uneven(Fixed(100 * MS), {1: 1.5})
    assert [service(10, gpu, Random(1)) for gpu in (0, 1, 2)] == [100_000, 150_000, 100_000]


def test_every_time_is_a_whole_microsecond_and_at_least_one():
    rng = Random(3)
    for service in (Exponential(1), Jittered(1, 0.3), Affine(0, 0.1), Uneven(Fixed(1), {0: 0.1})):
        times = [service(1, 0, rng) for _ in range(100)]
        assert {type(time) for time in times} == {int}
        assert min(times) >= 1


def test_only_random_random_is_asked():
    class Only:
        def random(self) -> float:
            return 0.0

    rng: Random = Only()  # type: ignore[assignment]
    assert Exponential(100 * MS)(1, 0, rng) == 1
    assert Jittered(100 * MS, 0.1)(1, 0, rng) > 0


def test_the_same_seed_draws_the_same_times():
    drawn = [Jittered()(100, 0, rng) for rng in (service_stream(7), service_stream(7))]
    assert drawn[0] == drawn[1]
    assert service_stream(7).random() != service_stream(8).random()


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: Fixed(0), "service time 0: must be more than 0"),
        (lambda: Exponential(-1), "mean service time -1: must be more than 0"),
        (lambda: Jittered(100 * MS, 0.5), "sigma 0.5: must be from 0 to 0.3 of the mean"),
        (lambda: Jittered(100 * MS, float("nan")), "sigma nan: must be from 0 to 0.3"),
        (lambda: Affine(-1, 5), "service time -0.001 ms + 0.005 ms a row"),
        (lambda: Uneven(Fixed(), {3: 0}), "slowness of GPU 3 0: must be more than 0"),
    ],
)
def test_impossible_times_are_refused_with_the_value(build, said):
    with pytest.raises(ValueError, match="^" + said.replace("+", r"\+")):
        build()


def _draws(service: ServiceTime) -> list[int]:
    rng = service_stream(1)
    return [service(100, 0, rng) for _ in range(20_000)]
