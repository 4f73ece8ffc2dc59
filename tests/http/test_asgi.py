"""The same front on uvicorn: what a client sees is the same."""

import json
import re

import pytest

from labkit.core.units import MS
from labkit.gpu.tag import carries

from .conftest import QUICK, until


@pytest.fixture
def place(serve):
    return serve(uvicorn=True)


def test_it_answers_refuses_and_shows_its_metrics(place):
    assert carries(place.complete("a b").json["choices"][0]["text"], "a b")
    refused = place.complete("x", model="canoe")
    assert (refused.status, refused.error["param"]) == (404, "model")
    assert place.complete("x", key="nobody").headers["www-authenticate"] == "Bearer"
    assert place.ask("/v1/models?x=1").status == 200
    assert place.ask("/v1/%6dodels").status == 404
    assert place.ask("/healthz", method="HEAD").body == b""
    told = place.metrics()
    assert told['labkit_http_responses_total{route="completions",status="200"}'] == 1


def test_it_streams(place):
    heard = place.complete("a b", stream=True)
    events = re.findall(rb"data: (\{.*\})\n\n", heard.body)
    texts = [json.loads(event)["choices"][0]["text"] for event in events]
    assert carries("".join(texts), "a b")
    assert heard.body.endswith(b"data: [DONE]\n\n")


def test_a_body_over_the_cap_is_refused_and_counted(place):
    assert place.ask("/v1/completions", b"x" * 1_000_001).status == 413
    assert place.metrics()['labkit_http_responses_total{route="other",status="413"}'] == 1


def test_a_client_who_leaves_is_withdrawn(serve):
    place = serve(QUICK.with_(max_wait=200 * MS, budget=None), uvicorn=True)
    line = place.line(place.request(b'{"model": "ferry", "prompt": "x"}'))
    until(lambda: place.server.engine.gateway.depth() == 1)
    line.close()
    until(lambda: place.server.engine.gateway.depth() == 0)
    assert place.metrics()['labkit_calls_total{outcome="cancelled",tier="paid"}'] == 1


@pytest.mark.live
def test_a_stream_whose_gpu_is_lost_has_no_end(serve):
    settings = QUICK.with_(batch_time=300 * MS, overdue_after=1_000 * MS, budget=None)
    place = serve(settings, gpus=2, workers="paced", uvicorn=True)
    engine = place.server.engine
    with place.line(place.request(b'{"model":"ferry","prompt":"x","stream":true}')) as line:
        heard = line.recv(65_536)
        engine.call(engine.fleet.kill, next(iter(engine.shell.on_gpu)))
        while piece := line.recv(65_536):
            heard += piece
    assert b'"code":"gpu_lost"' in heard
    assert not heard.endswith(b"0\r\n\r\n")
