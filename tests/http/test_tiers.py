"""Tiers over HTTP: who may fill how much of the queue, and what a refusal says."""

import threading

import pytest

from labkit.core.settings import SERVED, ModelRule
from labkit.core.units import MS

from .conftest import QUICK, until

REFUSED = 'labkit_refused_requests_total{code="%s"}'


@pytest.fixture
def nine_wait(serve):
    """Nine of the free tier wait for a tenth; 14 may wait, and the free tier may fill 11."""
    kept = QUICK.with_(max_batch=10, depth_limit=14, tiers=SERVED, rule="full", budget=None)
    place = serve(kept, gpus=1)
    crowd = threading.Thread(target=place.complete, args=(["x"] * 9,), kwargs={"key": "free"})
    crowd.start()
    until(lambda: place.server.engine.gateway.depth() == 9)
    yield place
    place.server.engine.call(place.server.engine.shell.close)
    crowd.join()


def test_what_is_kept_for_others_refuses_a_free_rush(nine_wait):
    refused = nine_wait.complete(["x"] * 3, key="free")
    assert (refused.status, refused.error["code"]) == (429, "tier_quota")
    assert refused.error["type"] == "rate_limit_error"
    assert refused.error["message"].startswith("your tier's part of the queue is full")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert nine_wait.server.engine.gateway.depth() == 9
    assert nine_wait.metrics()[REFUSED % "tier_quota"] == 1


def test_whoever_pays_is_refused_only_by_a_full_queue(nine_wait):
    refused = nine_wait.complete(["x"] * 6)
    assert (refused.status, refused.error["code"]) == (429, "queue_full")
    told = nine_wait.metrics()
    assert told[REFUSED % "queue_full"] == 1
    assert REFUSED % "tier_quota" not in told


def test_where_a_free_rush_is_refused_a_paying_one_is_let_in(nine_wait):
    assert nine_wait.complete(["x"] * 3, key="free").error["code"] == "tier_quota"
    paying = threading.Thread(target=nine_wait.complete, args=(["y"] * 5,))
    paying.start()
    until(lambda: nine_wait.server.engine.shell.batches == 1)
    ((_, depart),) = nine_wait.server.engine.shell.receipts
    assert [row.prompt for row in depart.rows] == ["y"] * 5 + ["x"] * 5
    nine_wait.server.engine.call(nine_wait.server.engine.shell.close)
    paying.join()


@pytest.fixture
def uneven(serve):
    """A quick model with 50 places and a slow one with 20; of each the free tier may fill 80 %."""
    slow = ModelRule("barge", max_batch=4, batch_time=200 * MS, depth_limit=20)
    kept = QUICK.with_(
        **{"max_batch": 10, "depth_limit": 50, "tiers": SERVED, "rule": "full", "budget": None},
        **{"models": ("ferry", "barge"), "sizes": (slow,)},
    )
    place = serve(kept, gpus=2)
    place.server.front.timetable.chance = lambda: 0.0
    return place


@pytest.mark.parametrize(
    ("model", "key", "most"),
    [("ferry", "paid", 50), ("ferry", "free", 40), ("barge", "paid", 20), ("barge", "free", 16)],
)
@pytest.mark.parametrize("more", [{}, {"Idempotency_Key": "order-1"}])
def test_a_list_that_no_queue_will_ever_hold_is_refused_for_good(uneven, model, key, most, more):
    refused = uneven.complete(["x"] * (most + 1), model=model, key=key, **more)
    assert (refused.status, refused.error["code"]) == (400, "batch_too_large")
    assert refused.error["param"] == "prompt"
    assert f"of this tier {most} may wait for {model}" in refused.error["message"]
    assert "retry-after" not in refused.headers
    crowd = threading.Thread(
        target=uneven.complete, args=(["x"] * most,), kwargs={"model": model, "key": key, **more}
    )
    crowd.start()
    departed = uneven.server.engine.shell.departed
    until(lambda: departed[model] == most // (10 if model == "ferry" else 4))
    crowd.join()


def test_the_queue_of_another_model_makes_nobody_wait(uneven):
    engine = uneven.server.engine
    asked = [("ferry", 9), ("barge", 3)]
    crowds = [
        threading.Thread(target=uneven.complete, args=(["x"] * n,), kwargs={"model": model})
        for model, n in asked
    ]
    for crowd in crowds:
        crowd.start()
    until(lambda: [engine.gateway.depth(model) for model, _ in asked] == [9, 3])
    told = {
        model: uneven.complete(["y"] * (most - 1), model=model).headers["retry-after-ms"]
        for model, most in [("ferry", 50), ("barge", 20)]
    }
    # Until the first leaves at most a batch; then 9 at 500 a second, and 3 at 20 a second.
    assert told == {"ferry": "38", "barge": "350"}
    engine.call(engine.shell.close)
    for crowd in crowds:
        crowd.join()


def test_the_drain_rate_is_measured_for_each_model(uneven):
    told = uneven.metrics()
    rate = 'labkit_drained_rows_per_second{model="%s"}'
    assert [told[rate % model] for model in ("ferry", "barge")] == [0.0, 0.0]
    assert uneven.complete(["x"] * 20).status == 200
    assert uneven.complete(["x"] * 4, model="barge").status == 200
    assert uneven.server.engine.shell.returned == {"ferry": 20, "barge": 4}


def test_a_keyed_call_over_its_tiers_part_frees_its_key(nine_wait):
    asked = {"key": "free", "Idempotency_Key": "order-1"}
    refused = nine_wait.complete(["x"] * 3, **asked)
    assert (refused.status, refused.error["code"]) == (429, "tier_quota")
    again = nine_wait.complete(["x"] * 3, **asked)
    assert again.error["code"] == "tier_quota"
    assert "idempotent-replayed" not in again.headers
