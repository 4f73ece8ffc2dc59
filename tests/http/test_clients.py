"""The clients people really use, unchanged: OpenAI's, curl, and a load generator."""

import asyncio
import json
import re
import shutil
import subprocess
import threading

import openai
import pytest

from labkit.core.units import MS
from labkit.gpu.tag import carries

from .conftest import QUICK, until

CROWD = {"model": "ferry", "prompt": ["x"] * 98}
SAID = [{"role": "user", "content": "When does it leave?"}]


@pytest.fixture
def client(place):
    with openai.OpenAI(base_url=f"{place.url}/v1", api_key=place.keys["paid"]) as client:
        yield client


def test_it_lists_the_models(client):
    assert [model.id for model in client.models.list()] == ["ferry"]


def test_it_describes_one_model_and_says_which_is_not_there(client):
    assert client.models.retrieve("ferry") == client.models.list().data[0]
    with pytest.raises(openai.NotFoundError) as refused:
        client.models.retrieve("canoe")
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")


def test_it_completes_and_chats(client):
    completion = client.completions.create(model="ferry", prompt=["one", "two"])
    assert carries(completion.choices[1].text, "two")
    chat = client.chat.completions.create(model="ferry", messages=SAID)
    assert carries(chat.choices[0].message.content, SAID[0]["content"])
    assert chat.usage.total_tokens == chat.usage.prompt_tokens + chat.usage.completion_tokens


def test_it_streams(client):
    options = {"include_usage": True}
    events = list(
        client.chat.completions.create(
            model="ferry", messages=SAID, stream=True, stream_options=options
        )
    )
    text = "".join(e.choices[0].delta.content or "" for e in events if e.choices)
    assert carries(text, SAID[0]["content"])
    assert [e.choices[0].finish_reason for e in events if e.choices][-1] == "stop"
    assert events[-1].usage.completion_tokens == len(text)
    assert [event for event in events if not event.choices] == [events[-1]]
    bare = client.chat.completions.create(model="ferry", messages=SAID, stream=True)
    assert all(event.choices for event in bare)


def test_its_asynchronous_half_works_too(place):
    async def ask():
        async with openai.AsyncOpenAI(
            base_url=f"{place.url}/v1", api_key=place.keys["free"]
        ) as client:
            asked = (
                client.completions.create(model="ferry", prompt=f"number {n}") for n in range(20)
            )
            events = await client.chat.completions.create(model="ferry", messages=SAID, stream=True)
            streamed = [event.choices[0] async for event in events]
            return await asyncio.gather(*asked), streamed

    completions, streamed = asyncio.run(ask())
    for number, completion in enumerate(completions):
        assert carries(completion.choices[0].text, f"number {number}")
    assert carries("".join(choice.delta.content or "" for choice in streamed), SAID[0]["content"])
    assert streamed[-1].finish_reason == "stop"


def test_its_errors_have_their_types(place, client):
    with pytest.raises(openai.NotFoundError) as unknown:
        client.completions.create(model="canoe", prompt="x")
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="ferry", prompt="x", n=3)
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="nobody").models.list()
    once = {"Idempotency-Key": "typed"}
    client.completions.create(model="ferry", prompt="x", extra_headers=once)
    with pytest.raises(openai.UnprocessableEntityError) as reused:
        client.completions.create(model="ferry", prompt="y", extra_headers=once)
    assert reused.value.code == "idempotency_key_reuse"


def test_what_may_be_tried_again_has_its_type_too(serve):
    place = serve(QUICK.with_(depth_limit=125, rule="full", budget=None), gpus=1)
    place.server.front._budget_s = 0.02
    base = {"base_url": f"{place.url}/v1", "api_key": place.keys["paid"], "max_retries": 0}
    with openai.OpenAI(**base) as client:
        once = {"Idempotency-Key": "typed"}
        keyed = place.request(json.dumps(CROWD).encode(), b"idempotency-key: typed\r\n")
        crowd = place.line(keyed)
        until(lambda: place.server.engine.gateway.depth() == 98)
        with pytest.raises(openai.ConflictError) as waiting:
            client.completions.create(**CROWD, extra_headers=once)
        with pytest.raises(openai.RateLimitError) as full:
            client.completions.create(model="ferry", prompt=["y"] * 30)
        hint = {"x-stainless-read-timeout": "0.01"}
        with pytest.raises(openai.InternalServerError) as late:
            client.completions.create(model="ferry", prompt="y", extra_headers=hint)
        crowd.close()
        place.server.engine.call(place.server.engine.shell.close)
        with pytest.raises(openai.InternalServerError) as ending:
            client.completions.create(model="ferry", prompt="y")
    told = [(e.value.status_code, e.value.code) for e in (waiting, full, late, ending)]
    assert told == [
        (409, "idempotency_in_flight"),
        (429, "queue_full"),
        (504, "deadline_exceeded"),
        (503, "draining"),
    ]


def test_it_comes_back_after_a_429_and_is_let_in(serve):
    place = serve(QUICK.with_(depth_limit=100, max_wait=400 * MS, budget=None), gpus=1)
    crowd = threading.Thread(target=place.complete, args=(["x"] * 99,))
    crowd.start()
    until(lambda: place.server.engine.gateway.depth() == 99)
    with openai.OpenAI(base_url=f"{place.url}/v1", api_key=place.keys["free"]) as client:
        completion = client.completions.create(model="ferry", prompt=["a", "b"])
    crowd.join()
    assert carries(completion.choices[0].text, "a")
    told = place.metrics()
    assert told['labkit_http_responses_total{route="completions",status="429"}'] >= 1
    assert told["labkit_client_retries_total"] >= 1


def test_it_comes_back_for_a_key_that_is_in_flight(serve):
    place = serve(QUICK.with_(max_wait=400 * MS, budget=None))
    place.server.front._budget_s = 0.02
    header = {"Idempotency-Key": "once"}
    with openai.OpenAI(base_url=f"{place.url}/v1", api_key=place.keys["paid"]) as client:
        texts = []

        def ask():
            made = client.completions.create(model="ferry", prompt="x", extra_headers=header)
            texts.append(made.id)

        asking = [threading.Thread(target=ask) for _ in range(2)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
    assert len(texts) == 2
    assert len(set(texts)) == 1
    assert place.metrics()["labkit_batch_rows_total"] == 1


@pytest.mark.live
def test_a_gpu_lost_in_the_middle_of_its_stream_is_its_api_error(serve):
    settings = QUICK.with_(batch_time=300 * MS, overdue_after=1_000 * MS, budget=None)
    place = serve(settings, gpus=2, workers="paced")
    engine = place.server.engine
    with openai.OpenAI(base_url=f"{place.url}/v1", api_key=place.keys["paid"]) as client:
        events = client.completions.create(model="ferry", prompt="a b c", stream=True)
        assert next(events).choices[0].text == "a "
        engine.call(engine.fleet.kill, next(iter(engine.shell.on_gpu)))
        with pytest.raises(openai.APIError, match="GPU was lost"):
            list(events)


@pytest.mark.tool
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_gets_an_answer_and_a_stream(place):
    def curl(*words):
        auth = f"Authorization: Bearer {place.keys['paid']}"
        json_ = "Content-Type: application/json"
        command = ["curl", "-sS", "--max-time", "20", "-H", auth, "-H", json_, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    body = {"model": "ferry", "prompt": "by hand"}
    answer = json.loads(curl("-d", json.dumps(body), f"{place.url}/v1/completions"))
    assert carries(answer["choices"][0]["text"], "by hand")
    stream = curl("-N", "-d", json.dumps(body | {"stream": True}), f"{place.url}/v1/completions")
    assert stream.endswith("data: [DONE]\n\n")
    upgrade = curl("--http2", f"{place.url}/healthz", "--next", "-sS", f"{place.url}/healthz")
    assert upgrade == '{"status":"ok"}{"status":"ok"}'
    posted = curl("--http2", "-d", json.dumps(body), f"{place.url}/v1/completions")
    assert carries(json.loads(posted)["choices"][0]["text"], "by hand")


HEY = "https://github.com/rakyll/hey, in Debian and Ubuntu: apt-get install hey"


@pytest.mark.tool
@pytest.mark.skipif(shutil.which("hey") is None, reason=f"no load generator: {HEY}")
def test_a_load_generator_counts_what_the_server_counts(serve):
    place = serve(QUICK.with_(depth_limit=125, max_wait=20 * MS))
    auth = f"Authorization: Bearer {place.keys['paid']}"
    body = json.dumps({"model": "ferry", "prompt": ["x"] * 30})
    calls = ["-n", "3000", "-c", "100", "-m", "POST", "-T", "application/json"]
    command = ["hey", *calls, "-H", auth, "-d", body, f"{place.url}/v1/completions"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    heard = {status: int(n) for status, n in re.findall(r"\[(\d+)\]\s+(\d+) responses", said)}
    assert "Error distribution" not in said
    assert sum(heard.values()) == 3_000
    assert set(heard) == {"200", "429"}
    told = place.metrics()
    for status, number in heard.items():
        name = f'labkit_http_responses_total{{route="completions",status="{status}"}}'
        assert told[name] == number
    assert told['labkit_calls_total{outcome="answered",tier="paid"}'] == heard["200"]
    assert told['labkit_calls_total{outcome="rejected",tier="paid"}'] == heard["429"]
    assert told["labkit_returned_rows_total"] == 30 * heard["200"]
