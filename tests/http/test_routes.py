"""Routes, keys, limits and errors: each refusal has its status, its code, and the field's name."""

import json
import re
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from labkit.core.settings import SERVED
from labkit.core.units import MS, S
from labkit.gpu.tag import carries
from labkit.live.http.refusals import CASES

from .conftest import QUICK, until

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


def test_a_completion_is_answered_with_its_own_text(place):
    answer = place.complete("When does it leave?")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    (choice,) = answer.json["choices"]
    assert carries(choice["text"], "When does it leave?")
    assert (choice["index"], choice["finish_reason"]) == (0, "stop")
    assert answer.json["usage"] == {
        "prompt_tokens": 19,
        "completion_tokens": 29,
        "total_tokens": 48,
    }


def test_a_chat_is_the_lines_of_its_messages(place):
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "When?"}]
    answer = place.ask(CHAT, {"model": "ferry", "messages": said})
    (choice,) = answer.json["choices"]
    assert choice["message"]["role"] == "assistant"
    assert carries(choice["message"]["content"], "Be brief.\nWhen?")


def test_a_list_of_prompts_is_answered_in_order(place):
    prompts = [f"prompt {number}" for number in range(100)]
    choices = place.complete(prompts).json["choices"]
    assert [choice["index"] for choice in choices] == list(range(100))
    assert all(carries(c["text"], p) for c, p in zip(choices, prompts, strict=True))


def test_a_list_over_the_cap_is_refused_with_its_field(place):
    answer = place.complete(["x"] * 101)
    assert answer.status == 400
    assert (answer.error["code"], answer.error["param"]) == ("batch_too_large", "prompt")


def test_two_lists_of_sixty_never_share_a_batch_over_the_cap(serve):
    place = serve(QUICK.with_(max_wait=50 * MS, budget=None), gpus=1)
    lists = [[f"{name} {number}" for number in range(60)] for name in "ab"]
    answers = []
    threads = [
        threading.Thread(target=lambda p=prompts: answers.append(place.complete(p)))
        for prompts in lists
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.status for answer in answers] == [200, 200]
    sizes = [len(depart.rows) for _, depart in place.server.engine.shell.receipts]
    assert sum(sizes) == 120
    assert max(sizes) <= 100


def test_a_list_is_let_in_whole_or_not_at_all(serve):
    place = serve(QUICK.with_(depth_limit=150, max_wait=S // 2, budget=None), gpus=1)
    first = threading.Thread(target=lambda: place.complete(["x"] * 99))
    first.start()
    until(lambda: place.server.engine.gateway.depth() == 99)
    refused = place.complete(["y"] * 52)
    assert (refused.status, refused.error["code"]) == (429, "queue_full")
    assert place.server.engine.gateway.depth() == 99
    assert place.complete(["z"] * 51).status == 200
    first.join()


def test_two_models_never_share_a_batch(serve):
    place = serve(QUICK.with_(models=("ferry@1", "dinghy@2"), max_wait=50 * MS), gpus=2)

    def ask(number):
        model = ("ferry", "dinghy@2")[number % 2]
        answer = place.ask(COMPLETIONS, {"model": model, "prompt": f"{model} {number}"})
        assert answer.status == 200
        assert answer.json["model"] == ("ferry@1", "dinghy@2")[number % 2]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    receipts = place.ask("/lab/receipts", key="admin").json["receipts"]
    assert [len(receipt["models"]) for receipt in receipts] == [1] * len(receipts)
    assert {receipt["model"] for receipt in receipts} == {"ferry@1", "dinghy@2"}
    listed = place.ask("/v1/models").json["data"]
    assert [model["id"] for model in listed] == ["ferry@1", "dinghy@2"]
    # By the name without a version too, and as a client may write the @ in a path.
    assert place.ask("/v1/models/ferry").json == listed[0]
    assert place.ask("/v1/models/dinghy%402").json == listed[1]


def test_one_model_needs_a_key_a_name_that_is_served_and_the_right_method(place):
    assert place.ask("/v1/models/ferry", key="nobody").status == 401
    refused = place.ask("/v1/models/can%6Fe%ff/x")
    assert (refused.status, refused.error["code"], refused.error["param"]) == (
        404,
        "model_not_found",
        "model",
    )
    assert refused.error["message"] == "no model 'canoe\ufffd/x'; see /v1/models"
    assert place.ask("/v1/models/ferry", method="DELETE").headers["allow"] == "GET"


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (b"", 400, "invalid_json", None),
        (b"{", 400, "invalid_json", None),
        (b"[1, 2]", 400, "invalid_value", None),
        (b'{"model": "ferry", "prompt": "\xff"}', 400, "invalid_json", None),
        (b'{"model": "ferry", "prompt": "\\ud800"}', 400, "invalid_json", None),
        (b'{"model": "ferry", "prompt": "x", "unknown": "\xff"}', 400, "invalid_json", None),
        (b'{"model": "ferry"}', 400, "invalid_value", "prompt"),
        (b'{"prompt": "x"}', 400, "invalid_value", "model"),
        (b'{"model": "ferry", "prompt": [1, 2]}', 400, "invalid_value", "prompt[0]"),
        (b'{"model": "ferry", "prompt": []}', 400, "invalid_value", "prompt"),
        (b'{"model": "ferry", "prompt": "x", "n": 2}', 400, "unsupported_value", "n"),
        (b'{"model": "ferry", "prompt": "x", "stop": "!"}', 400, "unsupported_value", "stop"),
        (b'{"model": "ferry", "prompt": "x", "max_tokens": 0}', 400, "invalid_value", "max_tokens"),
        (
            b'{"model": "ferry", "prompt": "x", "max_tokens": 5000}',
            400,
            "context_length_exceeded",
            "max_tokens",
        ),
        (b'{"model": "canoe", "prompt": "x"}', 404, "model_not_found", "model"),
        (b"[" * 100_000, 400, "invalid_value", None),
    ],
)
def test_a_body_that_will_not_do_is_refused_with_its_field(place, body, status, code, param):
    answer = place.ask(COMPLETIONS, body)
    assert (answer.status, answer.error["code"], answer.error["param"]) == (status, code, param)
    assert set(answer.error) == {"message", "type", "param", "code"}


def test_who_sends_a_megabyte_as_a_name_does_not_get_it_back(place):
    answer = place.complete(model="x" * 900_000)
    assert answer.status == 404
    assert len(answer.body) < 1_000


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ([{"role": "pirate", "content": "x"}], "messages[0].role"),
        ([{"content": "x"}], "messages[0].role"),
        (
            [
                {"role": "user", "content": "x"},
                {"role": "user", "content": [{"type": "image_url"}]},
            ],
            "messages[1].content",
        ),
    ],
)
def test_a_chat_that_will_not_do_is_refused_with_its_field(place, messages, param):
    answer = place.ask(CHAT, {"model": "ferry", "messages": messages})
    assert (answer.status, answer.error["param"]) == (400, param)


def test_each_tier_has_its_own_caps(place):
    prompt = "x" * 5_000
    assert place.complete(prompt, key="paid").status == 200
    refused = place.complete(prompt, key="free")
    assert (refused.status, refused.error["code"]) == (400, "context_length_exceeded")
    assert refused.error["param"] == "prompt"


def test_a_cap_counts_bytes_and_not_letters(place):
    assert place.complete("ü" * 2_048, key="free").status == 200
    assert place.complete("ü" * 2_049, key="free").status == 400


def test_an_answer_is_cut_at_max_tokens_and_says_so(place):
    (choice,) = place.complete("grüß", max_tokens=3).json["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("gr", "length")


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer nobody", "Basic x", "nobody"])
def test_a_stranger_is_told_so(place, header):
    headers = {} if header is None else {"authorization": header}
    answer = place.ask(COMPLETIONS, {"model": "ferry", "prompt": "x"}, None, **headers)
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")


def test_a_client_never_says_its_own_tier(place):
    before = place.metrics()
    place.complete(key="free", X_Tier="paid", Tier="paid")
    after = place.metrics()
    name = 'labkit_calls_total{outcome="answered",tier="free"}'
    assert after[name] == before.get(name, 0) + 1


def test_guessing_keys_is_slowed_and_the_right_key_still_works(serve):
    place = serve()
    statuses = [place.ask("/v1/models", key=f"guess {n}").status for n in range(30)]
    assert statuses[0] == 401
    assert statuses[-1] == 429
    told = place.ask("/v1/models", key="one more").headers
    assert (told["retry-after"], told["retry-after-ms"]) == ("1", "500")
    assert "ratelimit" not in told
    assert place.complete(key="free").status == 200


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/", "/v1/models/", "//v1/models", "/v1/../v1/models", "/v1/%6dodels"]
)
def test_a_path_is_what_it_is_and_nothing_else(place, path):
    assert place.ask(path).status == 404


def test_a_wrong_method_is_told_the_right_one(place):
    answer = place.ask(COMPLETIONS)
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert place.ask("/healthz", {}).headers["allow"] == "GET"
    assert place.ask("/healthz", method="HEAD").body == b""


def test_a_wrong_content_type_is_refused(place):
    body = {"model": "ferry", "prompt": "x"}
    refused = place.ask(COMPLETIONS, body, content_type="application/x-www-form-urlencoded")
    assert (refused.status, refused.error["code"]) == (415, "unsupported_media_type")
    assert (
        place.ask(COMPLETIONS, body, content_type="application/json; charset=utf-8").status == 200
    )


def test_it_is_healthy_and_ready(place):
    assert place.ask("/healthz", key=None).status == 200
    assert place.ask("/readyz", key=None).status == 200


def test_a_full_queue_says_when_to_come_back(serve):
    place = serve(QUICK.with_(depth_limit=100, rule="full", budget=None), gpus=1)
    waiting = threading.Thread(target=lambda: place.complete(["x"] * 99))
    waiting.start()
    until(lambda: place.server.engine.gateway.depth() == 99)
    answers = [place.complete(["y"] * 2) for _ in range(5)]
    assert [answer.status for answer in answers] == [429] * 5
    for answer in answers:
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert 1 <= int(answer.headers["retry-after-ms"]) <= 60_000
        assert answer.headers["ratelimit-policy"] == '"queue";q=100'
    assert len({answer.headers["retry-after-ms"] for answer in answers}) > 1
    place.complete("the hundredth")
    waiting.join()


def test_a_request_that_waits_too_long_is_told_504(serve):
    tiers = tuple(tier.__class__(tier.name, 50 * MS) for tier in SERVED)
    place = serve(QUICK.with_(tiers=tiers, rule="full", budget=None))
    answer = place.complete()
    assert (answer.status, answer.error["code"]) == (504, "deadline_exceeded")
    assert 1 <= int(answer.headers["retry-after"]) <= 60


def test_a_clients_own_patience_is_its_deadline(serve):
    place = serve(QUICK.with_(rule="full", budget=None))
    answer = place.complete(X_Stainless_Read_Timeout="0.05")
    assert (answer.status, answer.error["code"]) == (504, "deadline_exceeded")


def test_who_waits_for_a_full_batch_is_not_overdue(serve):
    place = serve(QUICK.with_(rule="full", budget=None), gpus=1)
    front, loop = place.server.front, place.server.engine.loop
    waiting = threading.Thread(target=place.complete, kwargs={"X_Stainless_Read_Timeout": "0.5"})
    waiting.start()
    until(lambda: place.server.engine.gateway.depth() == 1)
    assert not front.readiness.is_stuck(loop.time() + 10)
    waiting.join()


def test_it_is_not_ready_when_due_work_does_not_move_even_if_another_model_does(serve):
    place = serve(QUICK.with_(models=("ferry", "dinghy"), budget=None), gpus=2)
    engine, front = place.server.engine, place.server.front
    engine.fleet.restart_time = 60.0
    engine.call(engine.fleet.kill, 1)
    until(lambda: not engine.gateway.gpus("dinghy"))
    body = {"model": "dinghy", "prompt": "x"}
    waiting = threading.Thread(target=place.ask, args=(COMPLETIONS, body))
    waiting.start()
    until(lambda: engine.gateway.depth("dinghy") == 1)
    assert place.complete("for a ferry").status == 200
    assert not front.readiness.is_stuck(engine.loop.time() + 0.5)
    assert front.readiness.is_stuck(engine.loop.time() + 1.1)
    waiting.join()


def test_a_full_part_of_a_tier_says_how_large_it_is(serve):
    kept = QUICK.with_(max_batch=10, depth_limit=14, tiers=SERVED, rule="full", budget=None)
    place = serve(kept, gpus=1)
    engine = place.server.engine
    waiting = threading.Thread(target=place.complete, args=(["x"] * 9,), kwargs={"key": "free"})
    waiting.start()
    until(lambda: engine.gateway.depth() == 9)
    refused = place.complete(["y"] * 3, key="free")
    assert (refused.status, refused.error["code"]) == (429, "tier_quota")
    assert refused.headers["ratelimit-policy"] == '"tier";q=11'
    assert refused.headers["ratelimit"].startswith('"tier";r=0;t=')
    engine.call(engine.shell.close)
    waiting.join()


def test_nobody_there_is_503_and_not_429(serve):
    place = serve(gpus=1)
    engine = place.server.engine
    recorded = place.complete("kept", Idempotency_Key="kept")
    engine.fleet.restart_time = 60.0
    engine.call(engine.fleet.kill, 0)
    until(lambda: not engine.gateway.gpus())
    assert place.ask("/readyz", key=None).status == 503
    until(
        lambda: (
            place.ask("/v1/models").status == 200
            and place.server.front.readiness.is_unserved("ferry")
        )
    )
    answer = place.complete()
    assert (answer.status, answer.error["code"]) == (503, "no_ready_replica")
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert place.ask("/healthz", key=None).status == 200
    # What is recorded needs no GPU.
    again = place.complete("kept", Idempotency_Key="kept")
    assert (again.status, again.body) == (200, recorded.body)


def test_the_lab_is_for_an_admin(place):
    assert place.ask("/lab/gpus", key="paid").status == 403
    assert place.ask("/lab/gpus", key=None).status == 401
    assert place.ask("/lab/gpus", {}, key="admin").headers["allow"] == "GET"
    assert place.ask("/lab/receipts", key="admin", method="HEAD").status == 200
    shown = place.ask("/lab/gpus", key="admin").json
    assert [gpu["state"] for gpu in shown["gpus"]] == ["ready", "ready"]
    for number in ("7", "9" * 5_000, "0" * 5_000, "%30", ""):
        assert place.ask(f"/lab/gpus/{number}/kill", {}, key="admin").status == 404
    assert place.ask("/lab/gpus/0/hug", {}, key="admin").status == 404


def test_the_document_describes_what_is_served(place):
    document = place.ask("/openapi.json", key=None).json
    assert document["openapi"] == "3.1.0"
    routes = {path.decode() for path in place.server.front._routes}
    lab = {"/lab/gpus", "/lab/receipts", "/lab/gpus/{number}/{verb}"}
    assert set(document["paths"]) == routes | lab | {"/v1/models/{model}"}
    told = {
        code
        for name, schema in document["components"]["schemas"].items()
        if name.startswith("Error")
        for code in schema["properties"]["error"]["properties"]["code"]["enum"]
    }
    assert told == set(CASES)
    needed = document["components"]["schemas"]["Completion"]["required"]
    assert needed == ["model", "prompt"]


def test_the_metrics_are_the_clients_own_books(serve):
    place = serve()
    statuses = [place.complete(f"n {n}", key=("paid", "free")[n % 2]).status for n in range(6)]
    statuses.append(place.complete(["a", "b"], key="free").status)
    statuses.append(place.complete("x", model="canoe").status)
    assert statuses == [200] * 7 + [404]
    told = place.metrics()
    assert told['labkit_http_responses_total{route="completions",status="200"}'] == 7
    assert told['labkit_http_responses_total{route="completions",status="404"}'] == 1
    assert told['labkit_calls_total{outcome="answered",tier="paid"}'] == 3
    assert told['labkit_calls_total{outcome="answered",tier="free"}'] == 4
    assert told["labkit_returned_rows_total"] == told["labkit_batch_rows_total"] == 8
    assert told['labkit_answer_seconds_count{model="ferry",tier="paid"}'] == 3
    assert told['labkit_answer_seconds_count{model="ferry",tier="free"}'] == 4
    assert told["labkit_in_flight_calls"] == 0
    assert told['labkit_queue_depth{model="ferry"}'] == 0


def test_an_error_body_is_what_openai_clients_read(place):
    answer = place.complete("x", model="canoe")
    assert json.loads(answer.body) == {
        "error": {
            "message": "no model 'canoe'; see /v1/models",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }


def test_the_metrics_are_named_as_prometheus_wants_them(place):
    place.complete("a b", stream=True)
    text = place.ask("/metrics", key=None).body.decode()
    families = [f for f in text_string_to_metric_families(text) if f.name.startswith("labkit_")]
    assert {family.type for family in families} == {"counter", "gauge", "histogram"}
    for family in families:
        assert family.documentation.endswith("."), family.name
        assert re.fullmatch(r"labkit(_[a-z]+)+", family.name), family.name
        samples = {sample.name.removeprefix(family.name) for sample in family.samples}
        if family.type == "counter":
            assert samples <= {"_total", "_created"}
        elif family.type == "histogram":
            assert family.name.endswith("_seconds")
            assert samples <= {"_bucket", "_sum", "_count", "_created"}
            bounds = {s.labels["le"] for s in family.samples if "le" in s.labels}
            # The objective is a bound, so that the share within it can be read off.
            assert {"0.5", "+Inf"} <= bounds
        else:
            assert samples == {""}
            assert not family.name.endswith(("_total", "_count", "_sum", "_bucket"))
    labels = {f.name: set(f.samples[0].labels) - {"le"} for f in families if f.samples}
    assert labels["labkit_answer_seconds"] == {"tier", "model"}
    assert labels["labkit_first_piece_seconds"] == {"tier", "model"}
    assert labels["labkit_batches"] == {"model", "reason"}
