"""Who sends what: shares, tiers, prompts, and ids."""

from collections import Counter
from math import nan
from random import Random

import pytest

from labkit.core.messages import Request, Tier
from labkit.workload import Mix, MixError, Tenant, crowd, requests


def test_the_plain_mix_needs_no_chance() -> None:
    assert requests([0, 5, 5], first_id=7) == [
        Request(7, "When does the next ferry leave?", 0),
        Request(8, "When does the next ferry leave?", 5),
        Request(9, "When does the next ferry leave?", 5),
    ]


def test_plain_requests_share_one_prompt() -> None:
    first, second = requests([0, 1])
    assert first.prompt is second.prompt


def test_a_generator_of_instants_will_do() -> None:
    assert [request.arrived_at for request in requests(at * 10 for at in range(3))] == [0, 10, 20]


def test_a_seed_means_the_same_senders_for_ever() -> None:
    mix = crowd(3, paid_share=0.7, zipf=1.0, prompts=("a", "b"))
    sent = [(one.tenant, one.tier, one.prompt) for one in requests(range(6), mix, Random(1))]
    assert sent == [
        ("paid-00", 0, "b"),
        ("paid-01", 0, "b"),
        ("free-02", 1, "b"),
        ("free-00", 1, "a"),
        ("free-01", 1, "a"),
        ("free-01", 1, "b"),
    ]


def test_more_prompts_do_not_change_who_sends() -> None:
    few, many = (
        requests(range(500), crowd(5, prompts=prompts), Random(3))
        for prompts in (("a", "b"), tuple("abcdefgh"))
    )
    assert [one.tenant for one in few] == [one.tenant for one in many]


def test_two_tiers_of_fifty_tenants_share_as_asked() -> None:
    sent = requests(range(100_000), crowd(50, paid_share=0.2), Random(2))
    tenants = Counter(one.tenant for one in sent)
    paid = sum(1 for one in sent if one.tier == Tier.PAID)
    assert len(tenants) == 100
    assert abs(paid - 20_000) < 500
    assert all(abs(tenants[f"paid-{rank:02d}"] - 400) < 100 for rank in range(50))


def test_zipf_gives_the_second_half_of_the_first() -> None:
    tenants = Counter(
        one.tenant for one in requests(range(100_000), crowd(4, 1.0, zipf=1.0), Random(2))
    )
    # Weights 1, 1/2, 1/3, 1/4 of 25/12.
    assert abs(tenants["paid-00"] - 48_000) < 700
    assert abs(tenants["paid-01"] - 24_000) < 700
    assert abs(tenants["paid-03"] - 12_000) < 700


def test_every_prompt_of_a_tenant_is_drawn_evenly() -> None:
    mix = Mix((Tenant("one", prompts=("a", "b", "c")),))
    said = Counter(one.prompt for one in requests(range(30_000), mix, Random(5)))
    assert all(abs(said[prompt] - 10_000) < 400 for prompt in "abc")


def test_a_tenant_without_weight_never_sends() -> None:
    mix = Mix((Tenant("a"), Tenant("b"), Tenant("silent", weight=0)))
    assert {one.tenant for one in requests(range(1000), mix, Random(1))} == {"a", "b"}


def test_a_tier_without_a_share_has_no_tenants() -> None:
    assert {tenant.tier for tenant in crowd(2, paid_share=1.0).tenants} == {Tier.PAID}


def test_a_mix_that_chooses_asks_for_a_stream() -> None:
    with pytest.raises(MixError, match=r"which of 4 tenants sends.*pass rng=Random\(seed\)"):
        requests([0], crowd(2))


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: Mix(()), "a mix of 0 tenants without weight sends nothing"),
        (lambda: Mix((Tenant(weight=0),)), "a mix of 1 tenants without weight"),
        (lambda: Mix((Tenant("a"), Tenant("a"))), "tenant 'a' is in the mix twice"),
        (lambda: Tenant(weight=-1), "weight -1 must be 0 or more"),
        (lambda: Tenant(weight=nan), "weight nan"),
        (lambda: Tenant(prompts=()), "tenant 'default' has no prompts"),
        (lambda: Tenant(tier=-1), "tier -1 must be 0"),
        (lambda: crowd(0), "tenants 0: a tier needs at least 1"),
        (lambda: crowd(2, paid_share=1.5), "paid_share 1.5: must be from 0 to 1"),
        (lambda: crowd(2, zipf=-1), "zipf -1: must be 0"),
    ],
)
def test_a_mix_that_cannot_be_is_refused(build, said: str) -> None:
    with pytest.raises(MixError, match=said):
        build()
