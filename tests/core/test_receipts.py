"""What a batch says when it leaves."""

import pytest

from labkit.core.gateway import Gateway
from labkit.core.messages import Reason, Receipt, Request, Tier
from labkit.core.settings import Settings
from labkit.core.units import MS


def receipt_of(requests: list[Request], at: int, **changes) -> Receipt:
    door = Gateway(Settings(**changes))
    door.join(0, "ferry", 0)
    for request in requests:
        door.arrive(request, request.arrived_at)
    return door.advance(at)[0].receipt


def test_a_full_batch_says_how_many_stayed_and_who_is_first_of_them():
    requests = [Request(i, arrived_at=i * MS) for i in range(4)]
    requests += [Request(i, arrived_at=i * MS, tier=Tier.FREE) for i in range(4, 7)]
    assert receipt_of(requests, 6 * MS, max_batch=2) == Receipt(
        Reason.FULL, 6 * MS, 394 * MS, (2, 3), (2, 4)
    )


def test_a_batch_that_the_timer_sent_says_so():
    assert receipt_of([Request(1, arrived_at=2 * MS)], 52 * MS) == Receipt(
        Reason.TIMER, 50 * MS, 350 * MS, (0, 0), (None, None)
    )


def test_a_batch_of_just_the_right_size_is_full_whenever_it_leaves():
    requests = [Request(i) for i in range(2)]
    assert receipt_of(requests, 90 * MS, max_batch=2).reason is Reason.FULL


def test_the_oldest_aboard_counts_and_not_the_first():
    requests = [Request(1, tier=Tier.FREE), Request(2, arrived_at=9 * MS)]
    assert receipt_of(requests, 50 * MS).oldest_age == 50 * MS


def test_slack_is_what_the_gpu_leaves_of_the_budget_and_may_be_spent():
    late = [Request(1)]
    assert receipt_of(late, 400 * MS).slack == 0
    assert receipt_of(late, 450 * MS).slack == -50 * MS


@pytest.mark.parametrize("at", [50, 900])
def test_without_a_budget_there_is_no_slack(at: int):
    assert receipt_of([Request(1)], at * MS, budget=None).slack is None


def test_a_batch_leaves_for_one_of_five_reasons():
    assert [str(reason) for reason in Reason] == ["full", "timer", "returned", "drain", "gang"]
