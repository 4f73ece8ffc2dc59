"""Tiers over HTTP: who may fill how much of the queue, and what a refusal says."""

import threading

import pytest

from labkit.core.settings import SERVED

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


def test_a_keyed_call_over_its_tiers_part_frees_its_key(nine_wait):
    asked = {"key": "free", "Idempotency_Key": "order-1"}
    refused = nine_wait.complete(["x"] * 3, **asked)
    assert (refused.status, refused.error["code"]) == (429, "tier_quota")
    again = nine_wait.complete(["x"] * 3, **asked)
    assert again.error["code"] == "tier_quota"
    assert "idempotent-replayed" not in again.headers
