"""Settings that contradict themselves are refused, with the arithmetic."""

import json
import re

import pytest

from labkit.core.settings import PATIENT, SERVED, ConfigError, ModelRule, Settings, TierRule
from labkit.core.units import MS, NEVER, S

REFUSED = [
    (dict(max_batch=0), "max_batch 0: the contract takes 1 to 100 strings a batch"),
    (dict(max_batch=101), "max_batch 101: the contract takes 1 to 100 strings a batch"),
    (dict(max_wait=-1), "max_wait -0.001 ms: must be 0 or more"),
    (dict(batch_time=0), "batch_time 0 ms: must be more than 0"),
    (dict(rule="tram"), "rule 'tram': choose one of ferry, at_once, full"),
    (
        dict(dispatch="coin"),
        "dispatch 'coin': choose one of least_loaded, two_choices, round_robin, random",
    ),
    (
        dict(backlog=-1),
        "backlog -1: must be 0 (pull) or more; None is push without bound",
    ),
    (
        dict(overdue_after=100 * MS),
        "overdue_after 100 ms is not longer than a batch of 100 ms: every batch would count as "
        "lost",
    ),
    (dict(tiers=()), "a gateway needs at least one tier and one model"),
    (dict(models=()), "a gateway needs at least one tier and one model"),
    (
        dict(max_wait=201 * MS),
        "max_wait 201 ms + batch 100 ms + reserve 200 ms = 501 ms, over the budget of 500 ms; "
        "shorten the window, or give a larger budget or none",
    ),
    (
        dict(tiers=SERVED, depth_limit=124),
        "tier 'free' may fill 80 % of depth_limit 124, which is 99 and below one batch of 100: it "
        "could never fill one; use a depth_limit of at least 125, a larger share or smaller "
        "batches",
    ),
    (
        dict(tiers=SERVED, depth_limit=100),
        "tier 'free' may fill 80 % of depth_limit 100, which is 80 and below one batch of 100: it "
        "could never fill one; use a depth_limit of at least 125, a larger share or smaller "
        "batches",
    ),
    (
        dict(tiers=SERVED, depth_limit=99),
        "depth_limit 99 is below one batch of 100: no batch could ever fill; use at least 125, "
        "or a smaller max_batch",
    ),
    (
        dict(tiers=(TierRule("free", share=0),)),
        "share 0 of tier 'free': must be 1 to 100 percent of depth_limit; leave it out for all "
        "of it",
    ),
    (
        dict(tiers=(TierRule("paid"), TierRule("free", share=101))),
        "share 101 of tier 'free': must be 1 to 100 percent of depth_limit; leave it out for all "
        "of it",
    ),
    (
        dict(depth_limit=99),
        "depth_limit 99 is below one batch of 100: no batch could ever fill; use at least 100, "
        "or a smaller max_batch",
    ),
]


@pytest.mark.parametrize(("changes", "why"), REFUSED)
def test_what_cannot_be_is_refused_and_the_message_says_why(changes: dict, why: str):
    with pytest.raises(ConfigError) as refused:
        Settings(**changes)
    assert str(refused.value) == why


@pytest.mark.parametrize(
    "changes",
    [
        dict(max_batch=1),
        dict(max_batch=100),
        dict(max_wait=0),
        dict(max_wait=200 * MS),
        dict(batch_time=1),
        dict(backlog=0),
        dict(backlog=None),
        dict(overdue_after=100 * MS + 1),
        dict(depth_limit=100),
        dict(depth_limit=125, tiers=SERVED),
        dict(depth_limit=10_000, tiers=(TierRule("free", share=1),)),
        dict(max_wait=10 * S, budget=None),
        dict(max_wait=10 * S, rule="at_once"),
        dict(max_wait=10 * S, rule="full"),
    ],
)
def test_what_just_fits_is_accepted(changes: dict):
    for name, value in changes.items():
        assert getattr(Settings(**changes), name) == value


def test_the_lessons_constants_are_the_default():
    settings = Settings()
    assert (settings.max_batch, settings.max_wait, settings.batch_time) == (100, 50_000, 100_000)
    assert (settings.budget, settings.reserve, settings.backlog) == (500_000, 200_000, 0)
    assert (settings.depth_limit, settings.overdue_after) == (None, None)
    assert (settings.rule, settings.dispatch, settings.models) == (
        "ferry",
        "least_loaded",
        ("ferry",),
    )


def test_customers_wait_for_ever_in_the_simulator_and_not_at_the_door():
    assert PATIENT == (TierRule("paid", NEVER), TierRule("free", NEVER)) == Settings().tiers
    assert (TierRule("paid", 2_000_000), TierRule("free", 10_000_000, 80)) == SERVED


def test_the_least_depth_limit_lets_the_smallest_share_fill_a_batch():
    assert Settings().least_depth_limit == 100
    assert Settings(tiers=SERVED).least_depth_limit == 125
    assert Settings(tiers=SERVED, max_batch=7).least_depth_limit == 9


def test_changed_settings_are_checked_again():
    assert Settings().with_(max_batch=7).max_batch == 7
    with pytest.raises(ConfigError):
        Settings().with_(max_batch=0)


def test_settings_survive_json():
    settings = Settings(tiers=SERVED, models=("a", "b"), backlog=None, depth_limit=500)
    assert Settings.from_dict(json.loads(json.dumps(settings.as_dict()))) == settings


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tiers": (TierRule("paid", -1),)}, "timeout -0.001 ms of tier 'paid': must be 0 or more"),
        ({"reserve": -1}, "reserve -0.001 ms: must be 0 or more"),
        ({"models": ("a", "b", "a")}, "models a, b, a: each may be named once"),
        ({"max_wait": float("nan")}, "max_wait nan: must be a whole number of microseconds"),
        ({"batch_time": 0.1}, "batch_time 0.1: must be a whole number of microseconds"),
        ({"overdue_after": 2.5e5}, "overdue_after 250000.0: must be a whole number"),
        ({"max_batch": 2.5}, "max_batch 2.5: must be a whole number"),
        ({"backlog": 0.5}, "backlog 0.5: must be a whole number"),
        (
            {"tiers": (TierRule("free", share=0.8),)},
            "share of tier 'free' 0.8: must be a whole number; round it at the border",
        ),
        ({"depth_limit": True}, "depth_limit True: must be a whole number"),
    ],
)
def test_what_no_gateway_could_count_with_is_refused(changes, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        Settings(**changes)


SIZES = (ModelRule("barge", max_batch=8, batch_time=40 * MS),)


def test_a_model_sees_the_settings_with_its_own_numbers():
    settings = Settings(models=("ferry", "barge"), sizes=SIZES, depth_limit=500)
    assert settings.of("ferry") == Settings(models=("ferry",), depth_limit=500)
    own = Settings(models=("barge",), max_batch=8, batch_time=40 * MS, depth_limit=500)
    assert settings.of("barge") == own
    assert settings.longest_batch == 100 * MS
    assert settings.with_(batch_time=10 * MS).longest_batch == 40 * MS


def test_every_number_of_a_size_may_be_its_own():
    size = ModelRule("ferry", 9, 30 * MS, 7 * MS, 10)
    own = Settings(sizes=(size,)).of("ferry")
    assert (own.max_batch, own.batch_time, own.max_wait, own.depth_limit) == (9, 30_000, 7_000, 10)


def test_models_are_dealt_to_the_gpus_in_turn():
    settings = Settings(models=("a", "b", "c"))
    assert [settings.model_of(gpu) for gpu in range(5)] == ["a", "b", "c", "a", "b"]


def test_sizes_survive_json_and_old_settings_have_none():
    settings = Settings(models=("ferry", "barge"), sizes=SIZES)
    values = json.loads(json.dumps(settings.as_dict()))
    assert Settings.from_dict(values) == settings
    assert values["sizes"][0]["max_batch"] == 8
    del values["sizes"]
    assert Settings.from_dict(values) == Settings(models=("ferry", "barge"))


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (dict(max_batch=101), "max_batch 101: the contract takes 1 to 100 strings a batch"),
        (
            dict(batch_time=250 * MS),
            "overdue_after 250 ms is not longer than a batch of 250 ms: every batch would count as "
            "lost",
        ),
        (
            dict(max_wait=201 * MS),
            "max_wait 201 ms + batch 100 ms + reserve 200 ms = 501 ms, over the budget of 500 ms; "
            "shorten the window, or give a larger budget or none",
        ),
        (
            dict(depth_limit=99),
            "depth_limit 99 is below one batch of 100: no batch could ever fill; use at least "
            "100, or a smaller max_batch",
        ),
    ],
)
def test_a_size_that_cannot_be_is_refused_with_the_models_name(size: dict, said: str):
    with pytest.raises(ConfigError) as refused:
        Settings(
            models=("ferry", "barge"), sizes=(ModelRule("barge", **size),), overdue_after=250 * MS
        )
    assert str(refused.value) == f"model 'barge': {said}"


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        (
            (ModelRule("raft"),),
            "a size for 'raft', which is none of the models ferry, barge: name it in "
            "Settings.models",
        ),
        (SIZES * 2, "sizes barge, barge: each model has one size"),
    ],
)
def test_a_size_belongs_to_one_model(sizes, said):
    with pytest.raises(ConfigError) as refused:
        Settings(models=("ferry", "barge"), sizes=sizes)
    assert str(refused.value) == said


def test_nothing_kept_back_and_no_patience_are_settings_too():
    assert Settings(reserve=0).reserve == 0
    assert Settings(tiers=(TierRule("paid", 0),)).tiers[0].timeout == 0
