"""Streams: first words first, a finish for each answer, and an end that nobody can mistake."""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from labkit.core.messages import BatchError, RowError
from labkit.core.units import MS
from labkit.gpu.tag import carries

from .conftest import QUICK, until

STEPS = QUICK.with_(batch_time=300 * MS, overdue_after=1_000 * MS, budget=None)
"""Six pieces, one every 50 ms, from real processes."""


def lose_a_gpu(place) -> float:
    """Kill the GPU of a stream after its first word, and check how the stream ends.

    Seconds from the dispatcher's own news of the loss until the client saw the connection's end.
    """
    engine, lost_at = place.server.engine, []

    def watch(what, gpu, now, why):
        if what == "lost":
            lost_at.append(time.monotonic())

    engine.shell.watchers.insert(0, watch)
    with place.line(place.request(b'{"model": "ferry", "prompt": "a", "stream": true}')) as line:
        heard = line.recv(65_536)
        engine.call(engine.fleet.kill, next(iter(engine.shell.on_gpu)))
        while piece := line.recv(65_536):
            heard += piece
        ended_at = time.monotonic()
    engine.shell.watchers.remove(watch)
    # The last event says why, nothing says it is complete, and the chunks have no end.
    events = [part for part in heard.split(b"\r\n") if part.startswith(b"data: ")]
    assert json.loads(events[0][6:])["choices"][0]["text"] == "a "
    assert json.loads(events[-1][6:])["error"]["code"] == "gpu_lost"
    assert b"[DONE]" not in heard
    assert not heard.endswith(b"0\r\n\r\n")
    (at,) = lost_at
    return ended_at - at


@contextmanager
def streaming(place, path="/v1/completions", key="paid", **body) -> Iterator[Iterator[dict | str]]:
    """The events of one stream as they come: JSON objects, and `[DONE]`."""
    connection = http.client.HTTPConnection(place.server.host, place.server.port, timeout=20)
    sent = {"authorization": f"Bearer {place.keys[key]}", "content-type": "application/json"}
    asked = {"model": "ferry", "prompt": "a b c", "stream": True} | body
    if "messages" in asked:
        del asked["prompt"]
    connection.request("POST", path, json.dumps(asked).encode(), sent)
    response = connection.getresponse()
    assert response.status == 200
    assert response.getheader("content-type").startswith("text/event-stream")

    def events() -> Iterator[dict | str]:
        while line := response.readline():
            assert line.startswith((b"data: ", b"\n")), "no event has an id or a name"
            if line != b"\n":
                data = line[6:].strip()
                yield "[DONE]" if data == b"[DONE]" else json.loads(data)

    try:
        yield events()
    finally:
        connection.close()


def test_a_completion_streams_its_words_then_its_finish_then_done(place):
    with streaming(place) as events:
        *pieces, finish, done = list(events)
    assert done == "[DONE]"
    texts = [event["choices"][0]["text"] for event in pieces]
    assert texts[:3] == ["a", " b", " c"]
    assert carries("".join(texts), "a b c")
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert [event["choices"][0]["finish_reason"] for event in pieces] == [None] * len(pieces)


def test_a_chat_begins_with_who_speaks(place):
    said = [{"role": "user", "content": "a b"}]
    with streaming(place, "/v1/chat/completions", messages=said) as events:
        first, *pieces, finish, done = list(events)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert first["object"] == "chat.completion.chunk"
    assert carries("".join(e["choices"][0]["delta"]["content"] for e in pieces), "a b")
    assert (finish["choices"][0]["delta"], done) == ({}, "[DONE]")
    assert len({event["id"] for event in (first, *pieces, finish)}) == 1


def test_usage_comes_once_and_only_when_asked_for(place):
    with streaming(place) as events:
        assert [e for e in events if e != "[DONE]" and not e["choices"]] == []
    with streaming(place, stream_options={"include_usage": True}) as events:
        *_, usage, _ = list(events)
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 5, "completion_tokens": 15, "total_tokens": 20}


def test_a_list_streams_every_answer_to_its_own_finish(place):
    with streaming(place, prompt=["a b", "c"]) as events:
        *chunks, done = list(events)
    assert done == "[DONE]"
    for index, prompt in enumerate(["a b", "c"]):
        own = [e["choices"][0] for e in chunks if e["choices"][0]["index"] == index]
        assert carries("".join(choice["text"] for choice in own), prompt)
        assert [c["finish_reason"] for c in own] == [None] * (len(own) - 1) + ["stop"]


def test_a_stream_is_cut_at_max_tokens_and_says_so(place):
    with streaming(place, max_tokens=3) as events:
        *pieces, finish, done = list(events)
    assert "".join(e["choices"][0]["text"] for e in pieces) == "a b"
    assert (finish["choices"][0]["finish_reason"], done) == ("length", "[DONE]")


def test_a_refused_stream_is_a_plain_error(place):
    answer = place.complete("x", model="canoe", stream=True)
    assert (answer.status, answer.headers["content-type"]) == (404, "application/json")


def test_a_gpu_lost_before_the_first_word_goes_unnoticed(serve):
    place = serve(QUICK.with_(batch_time=100 * MS), gpus=2)
    engine = place.server.engine

    def kill():
        until(lambda: engine.shell.on_gpu)
        engine.call(engine.fleet.kill, next(iter(engine.shell.on_gpu)))

    killer = threading.Thread(target=kill)
    killer.start()
    with streaming(place) as events:
        *_, finish, done = list(events)
    killer.join()
    assert (finish["choices"][0]["finish_reason"], done) == ("stop", "[DONE]")
    assert place.metrics()['labkit_batches_total{model="ferry",reason="returned"}'] == 1


def test_a_keyed_stream_is_recorded_and_replayed_as_one(place):
    body = {"model": "ferry", "prompt": "a b", "stream": True}
    first, again = (
        place.ask("/v1/completions", body, idempotency_key="stream-1") for _ in range(2)
    )
    assert first.body == again.body
    assert first.body.endswith(b"data: [DONE]\n\n")
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["content-type"].startswith("text/event-stream")
    whole = place.ask("/v1/completions", body | {"stream": False}, idempotency_key="stream-1")
    assert (whole.status, whole.error["code"]) == (422, "idempotency_key_reuse")


ABOARD = QUICK.with_(
    max_batch=2, max_wait=2_000 * MS, batch_time=400 * MS, overdue_after=1_000 * MS, budget=None
)
"""Two requests leave together, and stay away long enough for a test to speak for their GPU."""


@contextmanager
def two_aboard(place, second: bytes = b'{"model": "ferry", "prompt": "two"}'):
    """A stream that has heard `one ` and another request, in the same batch; the batch's id."""
    shell = place.server.engine.shell
    first = place.request(b'{"model": "ferry", "prompt": "one", "stream": true}')
    with place.line(first) as begun:
        until(lambda: shell.open)
        with place.line(place.request(second)) as other:
            until(lambda: shell.on_gpu)
            (depart,) = shell.on_gpu.values()
            place.server.engine.call(shell.pieces, depart.batch_id, ["one ", None])
            yield begun, other, depart.batch_id


def rest_of(line) -> bytes:
    """What comes until the server hangs up."""
    heard = b""
    while piece := line.recv(65_536):
        heard += piece
    return heard


def check_broken(heard: bytes, code: str) -> None:
    """One word, then why there are no more, and nothing that says it is complete."""
    events = [json.loads(part[6:]) for part in heard.split(b"\r\n") if part[:6] == b"data: "]
    assert [event["choices"][0]["text"] for event in events[:-1]] == ["one "]
    assert events[-1]["error"]["code"] == code
    assert b"[DONE]" not in heard
    assert not heard.endswith(b"0\r\n\r\n")


def answered(line) -> bool:
    """Whether a plain request has its answer."""
    return line.recv(65_536).startswith(b"HTTP/1.1 200 OK\r\n")


def departed(place) -> list[tuple[str, list[str]]]:
    """Why each batch left, and with whom."""
    receipts = [depart for _, depart in place.server.engine.shell.receipts]
    return [(one.receipt.reason, [row.prompt for row in one.rows]) for one in receipts]


@pytest.mark.parametrize(
    ("result", "code"), [(BatchError("no such word"), "batch_failed"), (["one"], "gpu_lost")]
)
def test_a_begun_stream_ends_when_its_batch_fails_and_the_others_aboard_go_on(serve, result, code):
    place = serve(ABOARD)
    engine = place.server.engine
    with two_aboard(place) as (begun, other, batch_id):
        engine.call(engine.shell.done, batch_id, result, 0)
        check_broken(rest_of(begun), code)
        assert answered(other)
    assert departed(place) == [("full", ["one", "two"]), ("returned", ["two"])]
    assert place.metrics()["labkit_streams_broken_total"] == 1


def test_a_stream_that_has_not_begun_goes_on_when_its_batch_fails(serve):
    place = serve(ABOARD)
    engine = place.server.engine
    with two_aboard(place, b'{"model": "ferry", "prompt": "two", "stream": true}') as aboard:
        begun, other, batch_id = aboard
        engine.call(engine.shell.done, batch_id, BatchError("no such word"), 0)
        check_broken(rest_of(begun), "batch_failed")
        heard = b""
        while b"[DONE]" not in heard:
            heard += other.recv(65_536)
    assert heard.count(b'"text":"two"') == 1


def test_a_begun_stream_that_fails_alone_says_so_and_its_company_is_answered(serve):
    place = serve(ABOARD)
    engine = place.server.engine
    with two_aboard(place) as (begun, other, batch_id):
        engine.call(engine.shell.done, batch_id, [RowError("no such word"), "two"], 0)
        check_broken(rest_of(begun), "request_failed")
        assert answered(other)
    assert departed(place) == [("full", ["one", "two"])]


def test_a_begun_stream_whose_batch_of_one_raises_is_told_not_to_come_back(serve):
    place = serve(ABOARD.with_(max_wait=0))
    engine = place.server.engine
    with place.line(place.request(b'{"model": "ferry", "prompt": "one", "stream": true}')) as line:
        until(lambda: engine.shell.on_gpu)
        (depart,) = engine.shell.on_gpu.values()
        engine.call(engine.shell.pieces, depart.batch_id, ["one "])
        engine.call(engine.shell.done, depart.batch_id, BatchError("no such word"), 0)
        check_broken(rest_of(line), "request_failed")
    assert len(departed(place)) == 1


def test_the_begun_streams_of_a_gpu_that_hangs_are_computed_no_second_time(serve):
    place = serve(ABOARD.with_(max_batch=3))
    engine = place.server.engine
    engine.call(engine.fleet.inject, 0, "hang", 2.0)
    stream = place.request(b'{"model": "ferry", "prompt": "one", "stream": true}')
    with place.line(stream) as first, place.line(stream) as second:
        until(lambda: len(engine.shell.open) == 2)
        with place.line(place.request(b'{"model": "ferry", "prompt": "two"}')) as other:
            until(lambda: engine.shell.on_gpu)
            depart = engine.shell.on_gpu[0]
            engine.call(engine.shell.pieces, depart.batch_id, ["one ", "one ", None])
            check_broken(rest_of(first), "gpu_lost")
            check_broken(rest_of(second), "gpu_lost")
            assert departed(place)[1:] == [("returned", ["two"])]
            assert answered(other)


def test_the_streams_of_a_hung_gpu_end_one_after_another_and_none_within_another(serve):
    place = serve(ABOARD)
    engine, said = place.server.engine, []
    shell = engine.shell

    class Begun:
        def piece(self, request_id, text):
            raise AssertionError("nothing was said")

        def lost(self, code):
            said.append(code)
            (row_id,) = [key for key, stream in shell.streams.items() if stream is self]
            del shell.streams[row_id]
            shell.cancel(row_id)
            said.append("withdrawn")

    engine.call(engine.fleet.inject, 0, "hang", 2.0)
    plain = place.request(b'{"model": "ferry", "prompt": "a"}')
    with place.line(plain), place.line(plain):
        until(lambda: shell.on_gpu)
        rows = shell.on_gpu[0].rows
        engine.call(shell.streams.update, {row.id: Begun() for row in rows})
        until(lambda: not shell.on_gpu)
    assert said == ["gpu_lost", "withdrawn"] * 2
    assert len(departed(place)) == 1


@pytest.mark.live
class TestPacedWorkers:
    """Real processes that tell each step's pieces."""

    @pytest.fixture
    def paced(self, serve):
        return serve(STEPS, gpus=2, workers="paced")

    def test_pieces_come_as_they_are_made(self, paced):
        with streaming(paced) as events:
            came = [(time.monotonic(), event) for event in events]
        texts = [event["choices"][0]["text"] for _, event in came[:-2]]
        assert texts == ["a ", "b ", "c ", "a ", "b ", texts[-1]]
        assert carries("".join(texts), "a b c")
        # Five pauses of 50 ms lie between the first piece and the last.
        assert came[5][0] - came[0][0] > 0.2

    def test_the_end_follows_the_news_of_the_loss_and_nobody_computes_it_again(self, paced):
        took = [lose_a_gpu(paced) for _ in range(3)]
        # 0.05 is the promise, which `labkit bench serve` measures where nobody else is at work.
        assert max(took) < 0.5
        assert paced.server.engine.shell.reasons["ferry", "returned"] == 0
        assert paced.metrics()["labkit_streams_broken_total"] == 3

    def test_a_piece_that_cannot_be_sent_fails_only_its_own_stream(
        self, serve, caplog, monkeypatch
    ):
        monkeypatch.syspath_prepend(Path(__file__).parents[1] / "live")
        place = serve(STEPS, gpus=1, workers="worker_kinds:unsayable")
        refused = place.complete("x", stream=True)
        assert (refused.status, refused.error["code"]) == (500, "internal_error")
        assert place.ask("/readyz").status == 200
        assert place.complete("say nothing", stream=True).status == 200
        assert [record.message for record in caplog.records] == ["a defect while answering"]
        caplog.clear()

    def test_a_reader_who_leaves_is_withdrawn(self, paced):
        engine = paced.server.engine
        with streaming(paced) as events:
            next(events)
        until(lambda: paced.server.front.counters.in_flight == 0)
        assert paced.metrics()['labkit_calls_total{outcome="cancelled",tier="paid"}'] == 1
        until(lambda: not engine.shell.on_gpu)
