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


def test_each_tier_may_fill_its_share_of_one_limit():
    assert DepthLimit.shared(125, (100, 80)).limits == (125, 100)
    assert DepthLimit.shared(99, (100, 50)).limits == (99, 49)


def test_without_a_limit_there_is_no_share_of_it():
    assert DepthLimit.shared(None, (100, 1)).limits == (NEVER, NEVER)


def test_the_queue_is_full_when_nobody_may_come_any_more():
    limit = DepthLimit((50, 100))
    assert (limit.why(50), limit.why(99), limit.why(100)) == (
        "tier_quota",
        "tier_quota",
        "queue_full",
    )
