"""Who may come in."""

import pytest

from labkit.core.admission import DepthLimit, default_depth_limit, fitted
from labkit.core.settings import ModelRule, Settings, TierRule
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


@pytest.mark.parametrize(("gpus", "limit"), [(1, 170), (2, 340), (18, 3_060)])
def test_the_limit_fits_the_gpus(gpus, limit):
    assert fitted(Settings(), gpus) == Settings(depth_limit=limit)


def test_the_limit_lets_every_tier_fill_a_batch():
    tiers = (TierRule("paid"), TierRule("free", share=50))
    assert fitted(Settings(tiers=tiers), 1).depth_limit == 200
    assert fitted(Settings(tiers=tiers), 2).depth_limit == 340


def test_without_a_budget_there_is_no_limit():
    assert fitted(Settings(budget=None, depth_limit=500), 3).depth_limit is None


def test_each_models_limit_fits_the_gpus_that_are_dealt_to_it():
    assert fitted(Settings(models=("a", "b")), 4) == Settings(models=("a", "b"), depth_limit=340)
    uneven = fitted(Settings(models=("a", "b")), 3)
    assert (uneven.depth_limit, uneven.sizes) == (340, (ModelRule("b", depth_limit=170),))


def test_a_model_of_its_own_size_has_the_limit_of_its_size():
    small = ModelRule("b", max_batch=8, batch_time=40 * MS)
    settings = fitted(Settings(models=("a", "b"), sizes=(small,)), 2)
    assert settings.depth_limit == 170
    assert settings.sizes == (ModelRule("b", max_batch=8, batch_time=40 * MS, depth_limit=46),)
    large = ModelRule("b", max_batch=100, batch_time=20 * MS)
    settings = fitted(Settings(max_batch=8, models=("a", "b"), sizes=(large,)), 2)
    assert (settings.of("a").depth_limit, settings.of("b").depth_limit) == (13, 1_250)


def test_where_all_models_are_small_the_gateways_own_batch_still_fits():
    small = ModelRule("ferry", max_batch=8)
    settings = fitted(Settings(sizes=(small,)), 1)
    assert (settings.depth_limit, settings.of("ferry").depth_limit) == (100, 13)


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
