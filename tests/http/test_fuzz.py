"""Bad input by the thousand, from seeds, and faults planted to see that the fuzzer sees them.

`make fuzz` goes on for as long as it is told to, with new seeds.
"""

import json
from base64 import b64encode
from random import Random

import msgspec
import pytest

from labkit.live.http.bodies import Asked
from labkit.live.http.reading import Reader
from tools import fuzz
from tools.fuzzing import bodies, framing, onslaught
from tools.fuzzing.server import Served
from tools.fuzzing.wires import sound_bodies, wire

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served():
    with Served() as served:
        yield served
        assert served.finding() is None


def bad_bodies(seed: int, number: int) -> list[str]:
    rng, found = Random(seed), []
    for _ in range(number):
        chat = rng.random() < 0.5
        found.append(bodies.finding(bodies.body(rng, chat), chat))
    return [told for told in found if told is not None]


def bad_framing(seed: int, number: int) -> list[str]:
    rng, sound = Random(seed), sound_bodies()
    found = [framing.finding(wire(rng, [b"known", b"unknown"], sound), rng) for _ in range(number)]
    return [told for told in found if told is not None]


def test_the_decoder_reads_a_body_as_plain_checks_do():
    assert bad_bodies(1, 3_000) == []


def test_requests_are_told_apart_however_the_bytes_are_cut_and_as_h11_does():
    assert bad_framing(1, 3_000) == []


@pytest.mark.parametrize("seed", range(4))
def test_a_burst_of_bad_clients_leaves_nothing_behind(served, seed):
    rng = Random(seed)
    assert onslaught.fire(served.port, onslaught.cases(rng, served, 60)) == []
    assert served.finding() is None


def test_a_canonical_form_that_raises_is_found(monkeypatch):
    def strict(body):
        return msgspec.json.encode(msgspec.json.decode(body), order="deterministic")

    monkeypatch.setattr(bodies, "canonical", strict)
    assert any("canonical form raised" in told for told in bad_bodies(1, 300))


def test_a_decoder_that_reads_something_else_is_found(monkeypatch):
    def blind(body, caps):
        return Asked(False, "ferry", ["hello"], None, False, False)

    monkeypatch.setattr(bodies, "read_completion", blind)
    found = bad_bodies(1, 300)
    assert any(told.startswith("accepted, where") for told in found)
    assert any(told.startswith("read as") for told in found)


def test_a_reader_that_minds_where_it_is_cut_is_found(monkeypatch):
    def forgetful(self, body):
        self._body = body

    monkeypatch.setattr(Reader, "on_body", forgetful)
    assert any("but in pieces as" in told for told in bad_framing(1, 300))


def test_a_reader_that_takes_two_hosts_is_found(monkeypatch):
    def trusting(self, name, value):
        self._headers.setdefault(name.lower(), value)

    monkeypatch.setattr(Reader, "on_header", trusting)
    assert any("which h11 refuses" in told for told in bad_framing(1, 1_000))


def response(status: bytes, body: bytes = b'{"status":"ok"}', head: bytes = b"") -> bytes:
    """One as the server writes it."""
    return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b" % (
        status,
        head,
        len(body),
        body,
    )


BUSY = b'{"error":{"message":"x","type":"rate_limit_error","param":null,"code":"queue_full"}}'


def test_sound_responses_are_left_alone():
    good = response(b"200 OK")
    busy = response(b"429 Too Many Requests", BUSY, b"retry-after: 3\r\n")
    assert onslaught.unsound(good + b"HTTP/1.1 100 Continue\r\n\r\n" + good + busy) is None
    assert onslaught.unsound(good + good[:-3]) is None


@pytest.mark.parametrize(
    ("heard", "told"),
    [
        (response(b"500 Internal Server Error"), "a server error"),
        (response(b"200 OK", b"{"), "JSON that is none"),
        (response(b"429 Too Many Requests", BUSY), "no time to come back"),
        (response(b"400 Bad Request", BUSY), "a code that does not belong"),
        (response(b"200 OK", head=b"x: \xff\r\n"), "no head of a response"),
        (response(b"200 OK") + b"more" + response(b"200 OK"), "no head of a response"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n"
            b"\r\n2\r\n{}HTTP/1.1 100 Continue\r\n\r\n",
            "JSON that is none",
        ),
    ],
)
def test_an_unsound_response_is_named(heard, told):
    assert told in onslaught.unsound(heard)


def test_a_finding_is_kept_and_replays(served, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(fuzz, "TURN_S", 0.05)
    campaign = fuzz.Campaign(1, tmp_path, served)
    monkeypatch.setattr(bodies, "read_chat", lambda body, caps: 1 / 0)
    for told, saved in campaign.bodies():
        campaign._keep("bodies", told, saved)
    (kept,) = campaign.findings
    assert f"--replay {kept}" in capsys.readouterr().out
    assert fuzz.main(["--replay", str(kept)]) == 1
    monkeypatch.undo()
    assert fuzz.main(["--replay", str(kept)]) == 0


def test_a_burst_replays_with_the_keys_of_the_day(served, monkeypatch, tmp_path):
    old = {name: key[:-4] + "past" for name, key in served.keys.items()}
    text = (
        b"GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\n\r\n"
        % old["paid"].encode()
    )
    case = onslaught.Case([text[:70], text[70:]], "read").saved()
    heard = []
    monkeypatch.setattr(onslaught, "unsound", heard.append)
    assert fuzz._fire_again(served, {"cases": [case], "keys": old}) == []
    assert heard[0].startswith(b"HTTP/1.1 200 ")
    kept = tmp_path / "1-0-framing.json"
    kept.write_text(json.dumps({"kind": "framing", "text": b64encode(text).decode(), "seed": 1}))
    assert fuzz.main(["--replay", str(kept)]) == 0
