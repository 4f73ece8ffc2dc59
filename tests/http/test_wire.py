"""HTTP as it really comes: in pieces, in floods, in disorder, and from people who hang up."""

import json
import random
import re
import socket
import threading
import time

import pytest

from labkit.core.units import MS
from labkit.gpu.tag import carries
from labkit.live.http.bodies import MOST_BODY
from labkit.live.http.reading import MOST_HEAD

from .conftest import QUICK, until

BODY = b'{"model": "ferry", "prompt": "hello"}'
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: here\r\n\r\n"


def statuses(heard: bytes) -> list[int]:
    """The status of every response in what was heard."""
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", heard)]


def line_to(place) -> socket.socket:
    """An open connection."""
    return socket.create_connection((place.server.host, place.server.port), 10)


def test_a_request_may_come_byte_by_byte(place):
    with line_to(place) as line:
        for number in range(len(payload := place.request(BODY))):
            line.sendall(payload[number : number + 1])
        assert statuses(line.recv(65_536)) == [200]


def test_a_connection_is_kept_for_the_next_request(place):
    with line_to(place) as line:
        for _ in range(3):
            line.sendall(place.request(BODY))
            assert statuses(line.recv(65_536)) == [200]


def test_pipelined_requests_are_answered_in_order(place):
    bodies = [b'{"model": "ferry", "prompt": "p%d"}' % number for number in range(40)]
    wire = b"".join(place.request(body) for body in bodies)
    heard = place.raw(wire + HEALTH.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    texts = re.findall(rb'"text":"([^"]+)"', heard)
    assert len(texts) == 40
    assert all(carries(text.decode(), f"p{n}") for n, text in enumerate(texts))
    assert heard.endswith(b'{"status":"ok"}')


def test_a_thousand_pipelined_requests_need_no_deeper_stack(place):
    wire = HEALTH * 999 + HEALTH.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    assert statuses(place.raw(wire)) == [200] * 1_000


def test_a_thousand_that_waited_for_one_need_no_deeper_stack_either(place):
    wire = place.request(BODY) + HEALTH * 1_500
    with place.line(wire) as line:
        heard = b""
        while heard.count(b"HTTP/1.1 200") < 1_501:
            heard += line.recv(1 << 20)


def test_a_body_may_come_in_chunks(place):
    head = place.request(b"").replace(b"content-length: 0\r\n", b"transfer-encoding: chunked\r\n")
    chunks = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (10, BODY[:10], len(BODY) - 10, BODY[10:])
    head = head.replace(b"host: here", b"host: here\r\nconnection: close")
    assert statuses(place.raw(head + chunks)) == [200]


def test_who_asks_before_sending_is_told_to_continue(place):
    with line_to(place) as line:
        head, _, body = place.request(BODY, b"expect: 100-continue\r\n").partition(b"\r\n\r\n")
        line.sendall(head + b"\r\n\r\n")
        assert statuses(line.recv(65_536)) == [100]
        line.sendall(body)
        assert statuses(line.recv(65_536)) == [200]


def test_continue_is_said_between_answers_and_never_inside_one(place):
    stream = b'{"model": "ferry", "prompt": "a b c", "stream": true}'
    head, _, body = place.request(BODY, b"expect: 100-continue\r\n").partition(b"\r\n\r\n")
    with place.line(place.request(stream) + head + b"\r\n\r\n") as line:
        heard = b""
        while not heard.endswith(b"HTTP/1.1 100 Continue\r\n\r\n"):
            heard += line.recv(65_536)
        assert statuses(heard) == [200, 100]
        assert b"data: [DONE]\n\n\r\n0\r\n\r\nHTTP/1.1 100 " in heard
        line.sendall(body)
        assert statuses(line.recv(65_536)) == [200]


def test_any_other_expectation_is_refused(place):
    assert statuses(place.raw(place.request(BODY, b"expect: a miracle\r\n"))) == [417]


def test_an_old_client_is_not_told_to_continue(place):
    wire = place.request(BODY, b"expect: 100-continue\r\n").replace(b"HTTP/1.1", b"HTTP/1.0")
    assert statuses(place.raw(wire)) == [200]


def test_an_offer_to_speak_another_protocol_is_not_taken_up(place):
    offer = b"connection: upgrade\r\nupgrade: h2c\r\n"
    bodies = [b'{"model": "ferry", "prompt": "p%d"}' % number for number in range(3)]
    wire = b"".join(place.request(body, offer) for body in bodies)
    heard = place.raw(wire + HEALTH.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    texts = re.findall(rb'"text":"([^"]+)"', heard)
    assert statuses(heard) == [200] * 4
    assert all(carries(text.decode(), f"p{n}") for n, text in enumerate(texts))


def test_a_trailer_is_no_header(place):
    head = place.request(b"").replace(b"content-length: 0\r\n", b"transfer-encoding: chunked\r\n")
    secret = re.search(rb"authorization: .*\r\n", head)[0]
    head = head.replace(secret, b"connection: close\r\n")
    wire = head + b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(BODY), BODY, secret)
    assert statuses(place.raw(wire)) == [401]


@pytest.mark.parametrize(
    "endless",
    [b"0\r\nx-endless: " + b"x" * 2_000_000, b"1;x=" + b"y" * 2_000_000, b"1\r\nx\r\n" * 400_000],
    ids=["trailer", "extension", "crumbs"],
)
def test_what_frames_a_body_is_bounded_too(place, endless):
    head = place.request(b"").replace(b"content-length: 0\r\n", b"transfer-encoding: chunked\r\n")
    with place.line(head) as line:
        for at in range(0, len(endless), 50_000):
            line.sendall(endless[at : at + 50_000])
        assert statuses(line.recv(65_536)) == [400]


def test_a_body_may_come_in_crumbs(place):
    body = json.dumps({"model": "ferry", "prompt": "x", "user": "u" * 150_000}).encode()
    head = place.request(b"").replace(b"content-length: 0\r\n", b"transfer-encoding: chunked\r\n")
    crumbs = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    with place.line(head + crumbs + b"0\r\n\r\n") as line:
        assert statuses(line.recv(65_536)) == [200]


def test_an_old_client_gets_its_answer_and_an_end(place):
    heard = place.raw(place.request(BODY).replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert statuses(heard) == [200]
    assert b"connection: close\r\n" in heard


def test_an_old_client_gets_a_stream_that_ends_with_the_connection(place):
    body = b'{"model": "ferry", "prompt": "a", "stream": true}'
    heard = place.raw(place.request(body).replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert b"transfer-encoding" not in heard
    assert heard.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    "wire",
    [
        b"hello\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: x\r\nhost: x\r\n\r\n",
        b"GET /healthz HTTP/0.9\r\nhost: x\r\n\r\n",
        b"GET /healthz HTTP/2.0\r\nhost: x\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET / HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused_and_the_line_closed(place, wire):
    heard = place.raw(wire)
    assert statuses(heard) == [400]
    assert b"connection: close\r\n" in heard


def test_what_is_not_http_after_a_request_is_refused_after_its_answer(place):
    assert statuses(place.raw(place.request(BODY) + b"\x00nonsense\r\n\r\n")) == [200, 400]


def test_a_tunnel_is_refused_once(place):
    heard = place.raw(b"CONNECT here:1 HTTP/1.1\r\nhost: here\r\n\r\nhello")
    assert statuses(heard) == [405]


def test_what_was_refused_unread_is_counted_too(serve):
    place = serve()
    assert statuses(place.raw(b"hello\r\n\r\n")) == [400]
    assert place.metrics()['labkit_http_responses_total{route="other",status="400"}'] == 1


def test_time_in_which_nobody_reads_is_not_held_against_the_client(serve):
    place = serve(QUICK.with_(rule="full", budget=None))
    server, loop = place.server, place.server.engine.loop
    with place.line(place.request(BODY) * 17 + HEALTH[:10]) as line:
        until(lambda: server.engine.gateway.depth() == 1)
        (connection,) = server.carrier.hub.open
        until(lambda: connection._paused)

        def look():
            connection.look(loop.time() + 60.0)

        server.engine.call(look)
        assert connection in server.carrier.hub.open
        assert connection._reader.refused is None
        line.setblocking(False)
        with pytest.raises(BlockingIOError):
            line.recv(1)
    until(lambda: not server.carrier.hub.open)


@pytest.mark.parametrize(
    "head",
    [
        b"x-big: " + b"x" * MOST_HEAD + b"\r\n",
        b"".join(b"x-%d: y\r\n" % number for number in range(200)),
    ],
)
def test_a_flood_of_headers_is_refused(place, head):
    assert statuses(place.raw(place.request(BODY, head))) == [431]


@pytest.mark.parametrize("step", [1_000, 100_000])
def test_a_header_without_an_end_is_refused(place, step):
    wire = b"GET / HTTP/1.1\r\nx-endless: " + b"x" * 2 * MOST_HEAD
    with line_to(place) as line:
        for number in range(0, len(wire), step):
            line.sendall(wire[number : number + step])
        assert statuses(line.recv(65_536)) == [431]
        assert line.recv(65_536) == b""


def test_a_piece_with_many_requests_is_no_long_header(place):
    with line_to(place) as line:
        line.sendall(HEALTH * 1_000 + HEALTH[:20])
        heard = b""
        while heard.count(b"HTTP/1.1 200") < 1_000:
            heard += line.recv(65_536)
        line.sendall(HEALTH[20:])
        assert statuses(line.recv(65_536)) == [200]


def test_a_body_that_says_it_is_too_large_is_refused_unread(place):
    head = place.request(b"").replace(b"content-length: 0", b"content-length: 1000000000")
    assert statuses(place.raw(head)) == [413]


def test_a_body_that_grows_too_large_is_refused(place):
    head = place.request(b"").replace(b"content-length: 0\r\n", b"transfer-encoding: chunked\r\n")
    chunk = b"%x\r\n%b\r\n" % (65_536, b"x" * 65_536)
    assert 413 in statuses(place.raw(head + chunk * (MOST_BODY // 65_536 + 2)))


def test_a_large_body_within_the_cap_is_read(place):
    body = json.dumps({"model": "ferry", "prompt": "x", "user": "u" * 900_000}).encode()
    assert place.ask("/v1/completions", body).status == 200


def test_a_client_who_hangs_up_while_queued_is_withdrawn_and_never_computed(serve):
    place = serve(QUICK.with_(max_wait=200 * MS, budget=None))
    engine = place.server.engine
    lines = [line_to(place) for _ in range(20)]
    for line in lines:
        line.sendall(place.request(BODY))
    until(lambda: engine.gateway.depth() == 20)
    for line in lines[:15]:
        line.close()
    until(lambda: engine.gateway.depth() == 5)
    for line in lines[15:]:
        assert statuses(line.recv(65_536)) == [200]
        line.close()
    told = place.metrics()
    assert told['labkit_calls_total{outcome="cancelled",tier="paid"}'] == 15
    assert told["labkit_batch_rows_total"] == 5


def test_half_a_connection_is_a_client_who_left(serve):
    place = serve(QUICK.with_(max_wait=200 * MS, budget=None))
    with line_to(place) as line:
        line.sendall(place.request(BODY))
        until(lambda: place.server.engine.gateway.depth() == 1)
        line.shutdown(socket.SHUT_WR)
        assert line.recv(65_536) == b""
    assert place.metrics()['labkit_calls_total{outcome="cancelled",tier="paid"}'] == 1


def test_a_client_who_resets_is_withdrawn(serve):
    place = serve(QUICK.with_(max_wait=200 * MS, budget=None))
    line = line_to(place)
    line.sendall(place.request(BODY))
    until(lambda: place.server.engine.gateway.depth() == 1)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    line.close()
    until(lambda: place.server.engine.gateway.depth() == 0)


def test_the_slow_and_the_idle_are_ended(serve):
    place = serve()
    server, loop = place.server, place.server.engine.loop
    with line_to(place) as slow, line_to(place) as idle, line_to(place) as busy:
        slow.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n")
        busy.sendall(HEALTH)
        assert statuses(busy.recv(65_536)) == [200]
        until(lambda: len(server.carrier.hub.open) == 3)

        def look(seconds):
            now = loop.time() + seconds
            for connection in list(server.carrier.hub.open):
                connection.look(now)

        server.engine.call(look, 11.0)
        assert statuses(slow.recv(65_536)) == [408]
        server.engine.call(look, 80.0)
        assert idle.recv(65_536) == b""
        assert busy.recv(65_536) == b""


def test_a_reader_who_does_not_read_is_cut_off(serve):
    place = serve()
    server, loop = place.server, place.server.engine.loop
    with line_to(place) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        line.settimeout(0.5)
        flood = b"GET /openapi.json HTTP/1.1\r\nhost: here\r\n\r\n" * 1_000_000
        with pytest.raises(TimeoutError):
            line.sendall(flood)

        def look():
            for connection in list(server.carrier.hub.open):
                connection.look(loop.time() + 11.0)

        server.engine.call(look)
        until(lambda: not server.carrier.hub.open)


def test_too_many_connections_are_told_so(serve):
    place = serve()
    place.server.carrier.hub.most = 3
    lines = [line_to(place) for _ in range(3)]
    until(lambda: len(place.server.carrier.hub.open) == 3)
    heard = place.raw(HEALTH)
    assert statuses(heard) == [503]
    assert re.search(rb"\r\nretry-after: [1-9]\r\n", heard)
    for line in lines:
        line.close()
    until(lambda: not place.server.carrier.hub.open)
    assert place.ask("/healthz").status == 200


def test_a_thousand_idle_connections_disturb_nobody(place):
    lines = [line_to(place) for _ in range(1_000)]
    try:
        assert place.complete().status == 200
        began = time.monotonic()
        assert place.ask("/healthz").status == 200
        assert time.monotonic() - began < 1.0
    finally:
        for line in lines:
            line.close()


def test_random_bytes_never_break_it(place):
    rng = random.Random(6)
    good = place.request(BODY)
    for _ in range(150):
        wire = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(wire))
            wire[at : at + rng.randrange(4)] = rng.randbytes(rng.randrange(4))
        with line_to(place) as line:
            line.sendall(bytes(wire))
            line.shutdown(socket.SHUT_WR)
            heard = b""
            while piece := line.recv(65_536):
                heard += piece
        assert all(status < 500 for status in statuses(heard)), bytes(wire)


@pytest.mark.live
def test_a_server_that_ends_lets_begun_streams_and_waiters_come_to_their_end(serve):
    settings = QUICK.with_(batch_time=300 * MS, overdue_after=1_000 * MS, budget=None)
    place = serve(settings, gpus=1, workers="paced")
    stream = b'{"model": "ferry", "prompt": "a b c", "stream": true}'
    with place.line(place.request(stream)) as streamed:
        heard = streamed.recv(65_536)
        waiters = [
            place.line(place.request(BODY, b"idempotency-key: %d\r\n" % (number % 3)))
            for number in range(6)
        ]
        until(lambda: place.server.front.counters.in_flight == 7)
        assert place.server.close() == 0
        while piece := streamed.recv(65_536):
            heard += piece
    assert heard.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    told = [statuses(line.recv(65_536)) for line in waiters]
    for key in range(3):
        # Which of the two came first nobody knows; the other may be asked to come back for it.
        assert sorted(told[key::3]) in ([[200], [200]], [[200], [409]])
    for line in waiters:
        line.close()


def test_a_guesser_a_newcomer_and_a_crowd_are_all_told_when_to_come_back(serve):
    place = serve(QUICK.with_(depth_limit=125, rule="full", budget=None), gpus=1)
    guesses = [place.ask("/v1/models", key=f"guess {number}") for number in range(25)]
    crowd = place.line(place.request(json.dumps({"model": "ferry", "prompt": ["x"] * 99}).encode()))
    until(lambda: place.server.engine.gateway.depth() == 99)
    refused = [guesses[-1], place.complete(["y"] * 30)]
    crowd.close()
    place.server.engine.call(place.server.engine.shell.close)
    refused.append(place.complete())
    codes = [answer.error["code"] for answer in refused]
    assert codes == ["too_many_failures", "queue_full", "draining"]
    for answer in refused:
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert 1 <= int(answer.headers["retry-after-ms"]) <= 60_000


def test_a_batch_function_that_sleeps_blocks_no_intake(serve):
    settings = QUICK.with_(batch_time=1_000 * MS, overdue_after=3_000 * MS, budget=None)
    place = serve(settings, gpus=1, workers="timer")
    waiting = threading.Thread(target=place.complete)
    waiting.start()
    until(lambda: place.server.engine.shell.on_gpu)
    assert place.ask("/healthz").status == 200
    with place.line(place.request(BODY)) as second:
        until(lambda: place.server.engine.gateway.depth() == 1)
        assert place.server.engine.shell.on_gpu, (
            "answered and let in while the batch was on its GPU"
        )
        assert statuses(second.recv(65_536)) == [200]
    waiting.join()
