"""The numbers of /metrics are the ones the clients have written down themselves."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random

from labkit.core.units import MS

from .conftest import QUICK, until

ANSWERED = "labkit_answer_seconds_count"
SLOW = QUICK.with_(rule="full", budget=None, batch_time=300 * MS, overdue_after=5_000 * MS)
DEPTH, ON_GPU = 'labkit_queue_depth{model="ferry"}', "labkit_on_gpu_requests"


def test_the_depth_is_the_clients_own_count_after_every_event(serve):
    place = serve(SLOW, gpus=1)
    rng, waiting, left = Random(5), {}, 0

    def agrees() -> bool:
        told = place.metrics()
        return (told[DEPTH], told["labkit_in_flight_calls"]) == (
            sum(waiting.values()),
            len(waiting),
        )

    for _ in range(40):
        if waiting and rng.random() < 0.4:
            line = rng.choice(list(waiting))
            del waiting[line]
            line.close()
            left += 1
        elif sum(waiting.values()) < 90:
            prompts = ["x"] * rng.randrange(1, 10)
            body = json.dumps({"model": "ferry", "prompt": prompts}).encode()
            waiting[place.line(place.request(body))] = len(prompts)
        until(agrees)
    body = json.dumps({"model": "ferry", "prompt": ["x"] * (100 - sum(waiting.values()))}).encode()
    waiting[place.line(place.request(body))] = 0
    until(lambda: place.metrics()[ON_GPU] == 100)
    assert place.metrics()[DEPTH] == 0
    for line in waiting:
        assert line.recv(12) == b"HTTP/1.1 200"
        line.close()
    told = place.metrics()
    assert (told[DEPTH], told[ON_GPU], told["labkit_in_flight_calls"]) == (0, 0, 0)
    assert told['labkit_calls_total{outcome="cancelled",tier="paid"}'] == left
    assert told['labkit_calls_total{outcome="answered",tier="paid"}'] == len(waiting)
    assert told["labkit_returned_rows_total"] == told["labkit_batch_rows_total"] == 100


def test_every_response_is_in_the_books_of_both(serve):
    place = serve(QUICK.with_(depth_limit=125, max_wait=20 * MS))
    own: Counter[tuple[str, int]] = Counter()
    replayed, rows = [], []

    def ask(number: int) -> None:
        rng = Random(number)
        kind = rng.choice(("list", "list", "list", "stream", "keyed", "model", "field", "chat"))
        tier = rng.choice(("paid", "free"))
        size = rng.randrange(20, 80)
        if kind == "chat":
            said = {"model": "ferry", "messages": [{"role": "user", "content": "x"}]}
            answer = place.ask("/v1/chat/completions", said, tier)
        elif kind == "keyed":
            answer = place.complete("k", key=tier, Idempotency_Key=f"{number % 3}")
        else:
            odd = {"model": {"model": "canoe"}, "field": {"n": 2}, "stream": {"stream": True}}
            answer = place.complete(["x"] * size, key=tier, **odd.get(kind, {}))
        own["chat" if kind == "chat" else "completions", answer.status] += 1
        replayed.append(answer.headers.get("idempotent-replayed") == "true")
        if answer.status == 200 and kind != "keyed":
            rows.append(1 if kind == "chat" else size)

    with ThreadPoolExecutor(24) as pool:
        list(pool.map(ask, range(400)))
    own["models", 401] += place.ask("/v1/models", key="nobody").status == 401
    own["other", 404] += place.ask("/nowhere").status == 404
    own["other", 400] += place.raw(b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400")
    told = place.metrics()
    name = 'labkit_http_responses_total{{route="{}",status="{}"}}'
    of_ours = {(r, s): told.get(name.format(r, s), 0) for r, s in own}
    assert of_ours == dict(own)
    heard = sum(n for key, n in told.items() if key.startswith("labkit_http_responses_total"))
    assert heard == sum(own.values())
    answered = sum(n for (_, status), n in own.items() if status == 200)
    assert answered == sum(n for key, n in told.items() if 'outcome="answered"' in key)
    assert answered == sum(n for key, n in told.items() if key.startswith(ANSWERED))
    refused = sum(n for (_, status), n in own.items() if status == 429)
    assert refused > 0
    assert refused == sum(n for key, n in told.items() if 'outcome="rejected"' in key)
    assert told["labkit_idempotent_replays_total"] == sum(replayed)
    assert told["labkit_unknown_keys_total"] == 1
    # Three keys of two tenants: each is computed once at most.
    assert sum(rows) <= told["labkit_returned_rows_total"] <= sum(rows) + 6
    assert told["labkit_streamed_prompts"] == told["labkit_in_flight_calls"] == 0
