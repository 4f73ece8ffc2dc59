"""One recorded outcome a key, over HTTP."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from labkit.core.units import MS, S
from labkit.live.http.answers import Writer
from labkit.live.ledger import SqliteJournal

from .conftest import QUICK, until


def asked(place, key, prompt="pay once", **more):
    return place.complete(prompt, Idempotency_Key=key, **more)


def asked_as(place, tier, key):
    body = {"model": "ferry", "prompt": "pay once"}
    return place.ask("/v1/completions", body, tier, idempotency_key=key)


def test_the_same_key_twice_is_one_answer(place):
    first, again = asked(place, "order-1"), asked(place, '"order-1"')
    assert first.body == again.body
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"


def test_fifty_at_once_are_one_execution(serve):
    place = serve()
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: asked(place, "order-2"), range(50)))
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1
    assert place.metrics()["labkit_batch_rows_total"] == 1


def test_a_key_means_the_same_request_however_it_is_written(place):
    bodies = (
        b'{"model": "ferry", "prompt": "x", "user": "me"}',
        b'{"user":"me",\n "prompt":"\\u0078",  "model":"ferry"}',
    )
    one, two = (place.ask("/v1/completions", b, idempotency_key="order-3") for b in bodies)
    assert one.body == two.body
    other = asked(place, "order-3", "something else")
    assert (other.status, other.error["code"]) == (422, "idempotency_key_reuse")


@pytest.mark.parametrize("number", [b"1e999", b"9" * 5_000, b"-1e999"])
def test_a_number_that_nothing_can_hold_does_no_harm_in_a_field_nobody_reads(place, number):
    body = b'{"model": "ferry", "prompt": "x", "unknown": %b}' % number
    key = f"order-{len(number)}{number[0]}"
    first, again = (place.ask("/v1/completions", body, idempotency_key=key) for _ in range(2))
    assert (first.status, first.body) == (200, again.body)


def test_another_request_is_refused_before_it_is_said_to_be_in_flight(serve):
    place = serve(QUICK.with_(max_wait=300 * MS, budget=None))
    first = threading.Thread(target=asked, args=(place, "order-4"))
    first.start()
    until(lambda: place.server.engine.gateway.depth() == 1)
    assert asked(place, "order-4", "something else").status == 422
    first.join()


def test_a_key_belongs_to_its_tenant_and_its_path(place):
    one, other = (asked_as(place, tier, "order-5") for tier in ("paid", "free"))
    assert one.json["id"] != other.json["id"]
    said = {"model": "ferry", "messages": [{"role": "user", "content": "pay once"}]}
    chat = place.ask("/v1/chat/completions", said, idempotency_key="order-5")
    assert chat.status == 200
    assert "idempotent-replayed" not in chat.headers


def test_what_is_refused_for_its_body_takes_no_key(place):
    for prompt, status in ((["x"] * 101, 400), ("fine", 200)):
        assert asked(place, "order-6", prompt).status == status


def test_a_full_queue_frees_the_key(serve):
    place = serve(QUICK.with_(depth_limit=100, max_wait=300 * MS, budget=None), gpus=1)
    crowd = threading.Thread(target=place.complete, args=(["x"] * 99,))
    crowd.start()
    until(lambda: place.server.engine.gateway.depth() == 99)
    refused = asked(place, "order-7", ["a", "b"])
    assert (refused.status, refused.error["code"]) == (429, "queue_full")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    told = place.metrics()
    assert told['labkit_calls_total{outcome="rejected",tier="paid"}'] == 1
    crowd.join()
    accepted = asked(place, "order-7", ["a", "b"])
    assert accepted.status == 200
    assert "idempotent-replayed" not in accepted.headers


def test_who_waits_too_long_for_anothers_answer_is_told_when_to_return(serve):
    place = serve(QUICK.with_(max_wait=1 * S, budget=None, rule="ferry"))
    place.server.front._budget_s = 0.05
    first = threading.Thread(target=asked, args=(place, "order-8"))
    first.start()
    until(lambda: place.server.engine.gateway.depth() == 1)
    second = asked(place, "order-8")
    assert (second.status, second.error["code"]) == (409, "idempotency_in_flight")
    assert 1 <= int(second.headers["retry-after-ms"]) <= 60_000
    first.join()
    assert asked(place, "order-8").headers["idempotent-replayed"] == "true"


def test_who_waits_for_a_batch_on_its_gpu_is_told_to_give_it_its_time(serve):
    place = serve(QUICK.with_(batch_time=400 * MS, budget=None, overdue_after=None))
    place.server.front._budget_s = 0.02
    first = threading.Thread(target=asked, args=(place, "order-12"))
    first.start()
    until(lambda: place.server.engine.shell.on_gpu)
    second = asked(place, "order-12")
    assert second.status == 409
    assert int(second.headers["retry-after-ms"]) >= 400
    first.join()


def test_work_goes_on_while_anyone_waits_for_it(serve):
    place = serve(QUICK.with_(max_wait=300 * MS, budget=None))
    engine = place.server.engine
    first = place.line(place.request(b'{"model":"ferry","prompt":"k"}', b"idempotency-key: o9\r\n"))
    until(lambda: engine.gateway.depth() == 1)
    second = ThreadPoolExecutor(1).submit(asked, place, "o9", "k")
    until(lambda: place.server.front.counters.in_flight == 2)
    first.close()
    assert second.result().status == 200
    assert place.metrics()["labkit_batch_rows_total"] == 1
    assert place.server.front._rendering == {}


def test_work_nobody_waits_for_is_withdrawn_and_the_key_is_free(serve):
    place = serve(QUICK.with_(max_wait=300 * MS, budget=None))
    engine = place.server.engine
    only = place.line(place.request(b'{"model":"ferry","prompt":"k"}', b"idempotency-key: o10\r\n"))
    until(lambda: engine.gateway.depth() == 1)
    only.close()
    until(lambda: engine.gateway.depth() == 0)
    assert engine.shell.door.keys.in_flight() == 0
    assert "idempotent-replayed" not in asked(place, "o10", "k").headers


@pytest.mark.parametrize("key", ["", '""', "x" * 256, "a\tb", "ключ".encode().decode("latin-1")])
def test_a_key_that_is_none_is_refused(place, key):
    answer = asked(place, key)
    assert (answer.status, answer.error["code"]) == (400, "invalid_idempotency_key")


def test_what_was_recorded_outlives_the_server(serve, tmp_path):
    first = serve(journal=SqliteJournal(tmp_path / "ledger.db"))
    answer = asked(first, "order-11")
    account = first.server.front.doorkeeper.keyring
    first.server.close()
    second = serve(journal=SqliteJournal(tmp_path / "ledger.db"), keyring=account)
    again = second.ask(
        "/v1/completions",
        {"model": "ferry", "prompt": "pay once"},
        first.keys["paid"],
        idempotency_key="order-11",
    )
    assert again.body == answer.body
    assert again.headers["idempotent-replayed"] == "true"


def test_what_is_recorded_is_replayed_while_it_drains_and_until_the_socket_closes(serve):
    place = serve()
    answer = asked(place, "order-12")
    ways = ((place.server._drain,), (place.server.engine.shell.end_all, "engine_stopped"))
    for number, way in enumerate(ways):
        place.server.engine.call(*way)
        again = asked(place, "order-12")
        assert (again.body, again.headers["idempotent-replayed"]) == (answer.body, "true")
        for fresh in (asked(place, f"fresh-{number}"), place.complete("without a key")):
            assert (fresh.status, fresh.error["code"]) == (503, "draining")


def test_a_new_key_is_computed_though_another_expires_at_the_same_instant(serve):
    place = serve(QUICK.with_(rule="full", budget=None))
    engine, answers = place.server.engine, {}

    def ask(key, **more):
        answers[key] = asked(place, key, prompt=key, **more)

    early = threading.Thread(
        target=ask, args=("early",), kwargs={"X_stainless_read_timeout": "0.1"}
    )
    late = threading.Thread(target=ask, args=("late",))
    early.start()
    until(lambda: engine.gateway.depth() == 1)
    held = threading.Event()
    engine.loop.call_soon_threadsafe(held.wait, 1.0)
    late.start()
    late.join(0.3)  # its bytes lie in the socket, and the deadline of the first has passed
    held.set()
    early.join()
    engine.call(engine.shell.close)
    late.join()
    assert (answers["early"].status, answers["late"].status) == (504, 200)


def test_a_body_that_cannot_be_made_is_a_defect_of_the_server(serve, caplog, monkeypatch):
    place = serve()
    with monkeypatch.context() as broken:
        broken.setattr(Writer, "whole", lambda writer, outputs: {}["text"])
        answer = asked(place, "order-7")
    assert (answer.status, answer.error["code"]) == (500, "internal_error")
    assert [record.message for record in caplog.records] == ["a defect while answering"]
    caplog.clear()
    assert asked(place, "order-7").status == 200
