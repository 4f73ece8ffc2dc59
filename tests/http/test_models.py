"""Two models of different size behind one door."""

import threading

import pytest

from labkit.core.messages import Reason
from labkit.core.settings import ModelRule
from labkit.core.units import MS
from labkit.live.fleet import FakeFleet

from .conftest import QUICK, until

COMPLETIONS = "/v1/completions"
TWO = QUICK.with_(
    models=("ferry", "dinghy"),
    sizes=(ModelRule("dinghy", max_batch=4, batch_time=5 * MS, max_wait=150 * MS),),
)


def complete(place, model, prompts):
    """One completion of this model."""
    return place.ask(COMPLETIONS, {"model": model, "prompt": prompts})


@pytest.fixture
def two(serve):
    """Three GPUs: 0 and 2 serve the ferry, 1 the dinghy."""
    return serve(TWO, gpus=3)


def test_each_model_is_answered_by_its_own_pool_within_its_own_size(two):
    answers = {}

    def ask(model):
        answers[model] = complete(two, model, [f"{model} {n}" for n in range(30)])

    threads = [threading.Thread(target=ask, args=(model,)) for model in TWO.models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for model in TWO.models:
        assert answers[model].status == 200
        said = [choice["text"] for choice in answers[model].json["choices"]]
        assert [text.split(" #")[0] for text in said] == [f"{model} {n}" for n in range(30)]
    sizes = {model: [] for model in TWO.models}
    for _, depart in two.server.engine.shell.receipts:
        (model,) = {row.model for row in depart.rows}
        assert set(depart.gpus) <= {"ferry": {0, 2}, "dinghy": {1}}[model]
        sizes[model].append(len(depart.rows))
    assert sorted(sizes["ferry"]) == [30]
    assert sorted(sizes["dinghy"]) == [2, 4, 4, 4, 4, 4, 4, 4]


def test_each_model_has_its_own_window(two):
    assert complete(two, "ferry", "alone").status == 200
    assert complete(two, "dinghy", "alone").status == 200
    receipts = [depart.receipt for _, depart in two.server.engine.shell.receipts]
    assert [receipt.reason for receipt in receipts] == [Reason.TIMER] * 2
    assert receipts[0].oldest_age >= 5 * MS
    assert receipts[1].oldest_age >= 150 * MS
    slack = [receipt.slack + receipt.oldest_age for receipt in receipts]
    assert slack == [480 * MS, 495 * MS]


def test_a_batch_that_is_slow_for_its_model_breaks_the_contract(serve):
    place = serve(TWO, gpus=2, workers=FakeFleet(2, [20 * MS, 6 * MS]))
    assert complete(place, "ferry", "in time").status == 200
    assert complete(place, "dinghy", ["x"] * 4).status == 200
    assert place.server.engine.shell.violations == 1


def test_the_nominal_rate_of_a_model_is_what_its_own_gpus_could_give(two):
    rates = [two.server.front.timetable.nominal(model) for model in TWO.models]
    assert rates == [2 * 100 / 0.02, 4 / 0.005]


def test_a_model_nobody_serves_is_unknown_and_one_without_a_gpu_is_unready(two):
    unknown = complete(two, "raft", "x")
    assert (unknown.status, unknown.error["code"]) == (404, "model_not_found")
    front, engine = two.server.front, two.server.engine
    engine.call(engine.shell.scheduler.drain, 1, engine.shell.time())
    front.tick(engine.loop.time() - 5)
    unready = complete(two, "dinghy", "x")
    assert (unready.status, unready.error["code"]) == (503, "no_ready_replica")
    # Nobody knows when, however fast the others are: 5 s, spread over as long again.
    assert 5_000 <= int(unready.headers["retry-after-ms"]) <= 10_200
    assert complete(two, "ferry", "x").status == 200


def test_fewer_than_a_models_own_batch_are_not_due_where_all_wait_until_full(serve):
    place = serve(TWO.with_(rule="full", budget=None), gpus=2)
    crowd = threading.Thread(target=complete, args=(place, "dinghy", ["x"] * 3))
    crowd.start()
    until(lambda: place.server.engine.gateway.depth("dinghy") == 3)
    assert not place.server.front.readiness.is_due("dinghy")
    assert complete(place, "dinghy", "x").status == 200
    crowd.join()
