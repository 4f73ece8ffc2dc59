"""The load test against servers that answer, refuse, lie, hang up or are not there."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from itertools import count

import pytest
from click.testing import CliRunner

from labkit.cli.main import main
from labkit.core.units import MS
from labkit.live.errors import LiveError
from labkit.live.loadtest import LoadTest, Target
from labkit.workload import regular, requests
from tests.cli.test_json_page import SECTIONS, undocumented

from .conftest import QUICK


def load(target: Target, rate: float = 200, seconds: float = 0.5, **options) -> dict:
    """The report of a short test at an even pace."""
    arrivals = list(requests(regular(rate, seconds)))
    for number, request in enumerate(arrivals):
        request.prompt = f"request {number}"
    return LoadTest(target, arrivals, **options).run().report()


def at(place, tier: str = "paid", **more) -> Target:
    """This server, with this tier's key."""
    return Target(place.url, (place.keys[tier],), **more)


class Scripted(asyncio.Protocol):
    """A bare server's connection; what it answers to the n-th POST is `answer(n)`."""

    def __init__(self, answer, count, open_):
        self.answer, self.count, self.open = answer, count, open_
        self.heard = b""

    def connection_made(self, transport):
        self.transport = transport
        self.open.append(transport)

    def data_received(self, data):
        self.heard += data
        head, ended, body = self.heard.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        if not ended or (length and len(body) < int(length[1])):
            return
        self.heard = b""
        if head.startswith(b"GET /v1/models "):
            said = response(200, {"data": [{"id": "ferry", "owned_by": "labkit"}]})
        else:
            said = self.answer(next(self.count))
        if said is None:
            self.transport.close()
        else:
            self.transport.write(said)


@pytest.fixture
def script() -> Iterator:
    """`script(answer)`: a bare server; `answer(number)` is what it writes for each request."""
    loop = asyncio.new_event_loop()
    transports, servers = [], []

    def serve(answer) -> str:
        def connection():
            return Scripted(answer, numbers, transports)

        numbers = count()
        making = loop.create_server(connection, "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(making, loop).result(5)
        servers.append(server)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield serve

    async def end():
        for closing in (*servers, *transports):
            closing.close()
        await asyncio.sleep(0.01)

    asyncio.run_coroutine_threadsafe(end(), loop).result(5)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def response(status: int, body: object, head: str = "") -> bytes:
    """The bytes of a response."""
    payload = json.dumps(body).encode()
    return f"HTTP/1.1 {status} X\r\ncontent-length: {len(payload)}\r\n{head}\r\n".encode() + payload


def test_its_books_and_the_servers_metrics_agree(serve):
    place = serve()
    report = load(at(place, keyed=0.5))
    told = place.metrics()
    assert report["offered"] == report["answered"] == report["attempts"] == 100
    assert report["statuses"] == {"200": 100}
    assert (report["lost"], report["wrong_tag"], report["codes"]) == (0, 0, {})
    assert told['labkit_http_responses_total{route="completions",status="200"}'] == 100
    assert told["labkit_returned_rows_total"] == 100
    assert report["latency_ms"]["p50"] >= 20
    assert sum(row["sent"] for row in report["seconds"]) == 100


def test_it_times_the_pieces_of_streams(serve):
    place = serve()
    report = load(at(place, chat=True, stream=True))
    assert report["answered"] == 100
    assert report["broken_streams"] == 0
    assert report["ttft_ms"]["p50"] <= report["latency_ms"]["max"]


def test_every_refusal_says_when_to_return(serve):
    place = serve(QUICK.with_(depth_limit=100, batch_time=100 * MS), gpus=1)
    report = load(at(place, "free"), rate=2_000, seconds=0.5)
    refused = report["statuses"]["429"]
    assert report["answered"] + refused == report["offered"] == 1_000
    assert report["codes"] == {"queue_full": refused}
    assert report["bad_retry_after"] == 0


def test_clients_that_obey_are_let_in_when_they_return(serve):
    place = serve(QUICK.with_(depth_limit=100, batch_time=50 * MS), gpus=1)
    report = load(at(place, retries="obedient"), rate=1_000, seconds=0.3)
    assert report["attempts"] >= report["offered"]
    assert report["attempts"] <= 3 * report["offered"]
    assert report["lost"] == 0


def test_it_finds_a_server_that_answers_with_anothers_answer(script):
    url = script(lambda number: response(200, {"choices": [{"text": "x #00000000"}]}))
    report = load(Target(url), rate=50, seconds=0.2)
    assert report["wrong_tag"] == report["answered"] == 10


def test_it_finds_refusals_without_a_time_to_return(script):
    heads = ["", "retry-after: 0\r\n", "retry-after: 61\r\n", "retry-after: 7\r\n"]
    url = script(lambda n: response(429, {"error": {"code": "busy"}}, heads[n % 4]))
    report = load(Target(url), rate=40, seconds=0.5)
    assert report["codes"] == {"busy": 20}
    assert report["bad_retry_after"] == 15


def test_a_server_that_hangs_up_is_counted_and_not_waited_for(script):
    report = load(Target(script(lambda number: None)), rate=40, seconds=0.5)
    assert report["statuses"] == {"0": 20}
    assert report["codes"] == {"connection_broke": 20}
    assert report["lost"] == 0


def test_a_stormy_client_comes_back_at_once_and_gives_up_at_three(script):
    url = script(lambda number: response(503, {}, "retry-after: 60\r\n"))
    report = load(Target(url, retries="stormy"), rate=40, seconds=0.25)
    assert (report["offered"], report["attempts"]) == (10, 30)
    assert (report["returned"], report["admitted_on_return"]) == (20, 0)


def test_who_never_answers_is_given_up(script):
    report = load(Target(script(lambda number: b"")), rate=40, seconds=0.25, patience_s=0.1)
    assert (report["offered"], report["lost"]) == (10, 10)


def test_a_wrong_address_key_or_model_is_told_before_any_load(place):
    with pytest.raises(LiveError, match="nobody listens there"):
        load(Target("http://127.0.0.1:9"))
    with pytest.raises(LiveError, match="does not know this key"):
        load(Target(place.url, ("nobody",)))
    with pytest.raises(LiveError, match="no model 'canoe'; it has ferry"):
        load(at(place, model="canoe"))
    with pytest.raises(LiveError, match="is no URL"):
        load(Target("ferry"))


def test_the_command_prints_the_same(place):
    words = ["loadtest", "--url", f"{place.url}/v1", "--rate", "100", "--seconds", "0.3", "--json"]
    told = CliRunner().invoke(main, words, env={"LABKIT_API_KEY": place.keys["free"]})
    assert told.exit_code == 0, told.output
    report = json.loads(told.stdout)
    assert report["offered"] == report["answered"] > 0
    assert undocumented(report, SECTIONS["loadtest"]) - set(report["statuses"]) == set()
    assert CliRunner().invoke(main, [*words[:-1], "--key", "nobody"]).exit_code == 2
