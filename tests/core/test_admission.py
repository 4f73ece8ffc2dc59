"""Who may come in."""

import pytest

from labkit.core.admission import DepthLimit, default_depth_limit
from labkit.core.units import MS, NEVER


@pytest.mark.parametrize(
    ("gpus", "budget", "limit"),
    [
        (18, 500 * MS, 3_060),
        (1, 500 * MS, 170),
        (1, 331 * MS, 100),
        (1, 100 * MS, 100),
        (0, 500 * MS, 100),
        (5, None, None),
    ],
)
def test_as_many_may_wait_as_the_budget_leaves_time_for(gpus, budget, limit):
    assert default_depth_limit(gpus, 100, budget, 100 * MS, 200 * MS) == limit


def test_the_network_takes_its_part_of_the_budget():
    assert default_depth_limit(1, 100, 500 * MS, 100 * MS, 200 * MS, network=0) == 200
    assert default_depth_limit(2, 6, 500 * MS, 100 * MS, 200 * MS, network=50 * MS) == 18


def test_the_door_admits_up_to_its_limit_all_or_none():
    limit = DepthLimit((100, 50))
    assert limit.admits(1, 99, 0)
    assert not limit.admits(1, 100, 0)
    assert limit.admits(100, 0, 0)
    assert not limit.admits(101, 0, 0)
    assert not limit.admits(2, 99, 0)


def test_each_tier_has_its_own_limit():
    limit = DepthLimit((100, 50))
    assert limit.admits(1, 49, 1)
    assert not limit.admits(1, 50, 1)


def test_one_limit_for_all_or_none_at_all():
    assert DepthLimit.same(100, 3).limits == (100, 100, 100)
    assert DepthLimit.same(None, 2).limits == (NEVER, NEVER)
