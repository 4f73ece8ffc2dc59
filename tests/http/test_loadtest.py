"""The load test against servers that answer, refuse, lie, hang up or are not there."""

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count

import pytest
from click.testing import CliRunner

from labkit.cli.common import Load
from labkit.cli.loadtest import Pulse
from labkit.cli.main import main
from labkit.core.units import MS
from labkit.live.configure import loop_factory
from labkit.live.errors import LiveError
from labkit.live.loadtest import LoadTest, Progress, Target, now, until
from labkit.live.loadtest_books import labels, summary_rows
from labkit.paths import data_dir
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
    place = serve(QUICK.with_(depth_limit=125, batch_time=100 * MS), gpus=1)
    report = load(at(place, "free"), rate=2_000, seconds=0.5)
    refused = report["statuses"]["429"]
    assert report["answered"] + refused == report["offered"] == 1_000
    assert report["codes"] == {"queue_full": refused}
    assert report["bad_retry_after"] == 0


def test_clients_that_obey_are_let_in_when_they_return(serve):
    place = serve(QUICK.with_(depth_limit=125, batch_time=50 * MS), gpus=1)
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
    with pytest.raises(LiveError, match=r"does not know the key nobo\.\.\.; give one with --key"):
        load(Target(place.url, ("nobody",)))
    with pytest.raises(LiveError, match="no model 'canoe'; it has ferry"):
        load(at(place, model="canoe"))
    with pytest.raises(LiveError, match="is no URL"):
        load(Target("ferry"))
    with pytest.raises(LiveError, match=r"no TLS there \(.*\); try http://"):
        load(Target(place.url.replace("http:", "https:")))


def test_of_several_keys_each_one_is_tried_before_any_load(place):
    with pytest.raises(LiveError, match=r"does not know the key xxxx\.\.\."):
        load(Target(place.url, (place.keys["paid"], "xxxx")))


def test_a_key_that_only_the_load_is_refused_ends_the_test_after_ten(script):
    heard = []

    def refuse(number):
        heard.append(number)
        return response(401, {"error": {"code": "invalid_api_key"}})

    said = r"first 10 requests .* were all refused, the last with 401 \(invalid_api_key\); check"
    with pytest.raises(LiveError, match=said):
        load(Target(script(refuse)), rate=200, seconds=60)
    assert len(heard) < 2_000


def test_refusals_after_a_first_answer_do_not_end_it(script):
    fine = response(200, {"choices": [{"text": "x"}]})
    url = script(lambda number: response(404, {}) if number else fine)
    assert load(Target(url), rate=200, seconds=0.1)["statuses"] == {"200": 1, "404": 19}


def test_a_server_that_hangs_up_after_each_answer_still_answers_all_on_one_connection(script):
    body = {"choices": [{"text": "x"}]}
    url = script(lambda number: response(200, body, "connection: close\r\n"))
    report = load(Target(url, connections=1), rate=200, seconds=0.2)
    assert report["answered"] == report["offered"] == 40


def test_waiting_for_a_connection_is_counted(script):
    report = load(
        Target(script(lambda number: b""), connections=2), rate=100, seconds=0.1, patience_s=0.1
    )
    assert (report["offered"], report["crowded"], report["lost"]) == (10, 8, 10)
    assert [row["sent"] for row in report["seconds"]] == [10]


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_gives_the_report_so_far(script):
    fine = response(200, {"choices": [{"text": "x"}]})

    def answer(number):
        if number == 20:
            os.kill(os.getpid(), signal.SIGINT)
        return fine

    report = load(Target(script(answer)), rate=100, seconds=60)
    assert report["interrupted"] is True
    assert 20 <= report["answered"] == report["offered"] < 6_000


def test_whoever_watches_is_told_every_second(place):
    told = []
    load(at(place), rate=50, seconds=1.3, progress=told.append)
    assert told
    assert told[0].sent == told[0].ended + told[0].on_the_way > 0
    assert told[0].p95_ms >= 20


def test_a_pulse_is_a_line_a_second_when_asked_and_silent_otherwise():
    asked, silent = io.StringIO(), io.StringIO()
    hundred = Load(100.0, 10.0, 1, None, 1.0)
    with Pulse(hundred, True, asked) as one, Pulse(hundred, False, silent) as other:
        for pulse in (one, other):
            pulse.at(Progress(sent=230, ended=200, on_the_way=30, p95_ms=151.6))
            pulse.at(Progress(sent=1, ended=0, on_the_way=1, p95_ms=None))
    assert asked.getvalue() == (
        "230 of about 1,000 sent, 30 on their way, P95 152 ms\n"
        "1 of about 1,000 sent, 1 on their way\n"
    )
    assert silent.getvalue() == ""


FEW_FILES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
from labkit.cli.main import main
main(sys.argv[1:])
"""


@pytest.mark.skipif(os.name != "posix", reason="this system has no such limit")
def test_more_connections_than_files_may_be_open_is_refused_with_the_number(place):
    words = ["loadtest", "--url", place.url, "--connections", "5000"]
    done = subprocess.run(
        [sys.executable, "-c", FEW_FILES, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "this process may open 136 at most (ulimit -n)" in done.stderr


def test_each_key_has_books_of_its_own_with_the_codes_of_its_refusals(script):
    def answer(number):
        if number % 2:
            return response(429, {"error": {"code": "tier_quota"}}, "retry-after: 1\r\n")
        return response(200, {"choices": []})

    paid, free = "lk-paidpaid" + "x" * 32, "lk-freefree" + "x" * 32
    target = Target(script(answer), (paid, free), max_tokens=5, connections=1)
    report = load(target, rate=20, seconds=1)
    first, second = report["by_key"]
    assert (first["key"], first["offered"], first["answered"]) == ("lk-paidpaid", 10, 10)
    assert first["codes"] == {}
    assert (second["key"], second["answered"], second["codes"]) == (
        "lk-freefree",
        0,
        {"tier_quota": 10},
    )
    assert second["statuses"] == {"429": 10}
    assert "0 of 10" in str(summary_rows(report))


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (("",), ["key 1"]),
        (("sk-somebody-elses-key-0001", "lk-aaaaaaaa-and-much-more"), ["key 1", "key 2"]),
        (("lk-aaaaaaaa-and-much-more",) * 2, ["lk-aaaaaaaa"]),
    ],
    ids=["none", "not ours", "twice the same"],
)
def test_of_a_key_that_is_not_ours_nothing_is_shown(keys, names):
    assert labels(keys) == names


def test_the_command_prints_the_same(place):
    words = ["loadtest", "--url", f"{place.url}/v1", "--rate", "100", "--seconds", "0.3", "--json"]
    told = CliRunner().invoke(main, words, env={"LABKIT_API_KEY": place.keys["free"]})
    assert told.exit_code == 0, told.output
    report = json.loads(told.stdout)
    assert report["offered"] == report["answered"] > 0
    assert undocumented(report, SECTIONS["loadtest"]) - set(report["statuses"]) == set()
    assert CliRunner().invoke(main, [*words[:-1], "--key", "nobody"]).exit_code == 2


def test_a_trace_is_played_for_the_seconds_asked_for(place):
    trace = str(data_dir() / "traces" / "synthetic_code.csv")
    words = ["loadtest", "--url", place.url, "--trace", trace, "--trace-scale", "3"]
    words += ["--seconds", "0.5", "--json", "--key", place.keys["paid"]]
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 0, told.output
    report = json.loads(told.stdout)
    assert report["offered"] == report["answered"] > 0
    assert [row["second"] for row in report["seconds"]] == [0]


@pytest.mark.parametrize(("name", "head"), [("load.png", b"\x89PNG"), ("load.svg", b"<svg ")])
def test_the_command_draws_a_picture_of_it(place, tmp_path, name, head):
    words = ["loadtest", "--url", place.url, "--rate", "100", "--seconds", "0.2"]
    words += ["--key", place.keys["paid"], "--picture", str(tmp_path / name), "--json"]
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["answered"] > 0
    assert (tmp_path / name).read_bytes().startswith(head)


@pytest.mark.parametrize(
    ("name", "says"), [("load.pdf", "ends in .png or .svg"), ("no/load.png", "there is no folder")]
)
def test_a_picture_that_could_not_be_written_is_told_before_any_load(tmp_path, name, says):
    told = CliRunner().invoke(main, ["loadtest", "--picture", str(tmp_path / name)])
    assert told.exit_code == 2
    assert says in " ".join(told.output.split())


@pytest.mark.parametrize("uvloop", [False, True])
def test_a_generator_waits_for_its_instants_without_keeping_a_processor_busy(uvloop):
    async def wait() -> tuple[list[int], float]:
        used, begun = time.process_time(), now()
        late = []
        for number in range(1, 201):
            instant = begun + 2 * MS * number
            await until(instant)
            late.append(now() - instant)
        return late, time.process_time() - used

    with asyncio.Runner(loop_factory=loop_factory(uvloop)) as runner:
        late, used = runner.run(wait())
    assert min(late) >= 0
    # Of these 0.4 s a loop that spins would use all.
    assert used < 0.2


def test_what_comes_while_a_generator_waits_is_heard_before_the_wait_is_over():
    async def run() -> tuple[int, int]:
        heard: list[int] = []
        instant = now() + 500 * MS
        asyncio.get_running_loop().call_later(0.05, lambda: heard.append(now()))
        await until(instant)
        return heard[0], instant

    heard, instant = asyncio.run(run())
    assert heard < instant
