"""A server that a notebook starts: it answers, it can be hurt, and it leaves nothing behind."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.parse

import psutil
import pytest

from labkit.gpu.tag import carries
from labkit.teach import thin_client
from labkit.teach.served import ServeError, answered_within, serve, served

pytestmark = pytest.mark.live

HOLDER = """
import time
from labkit.teach.served import serve
server = serve(gpus=2)
print(server.pid, server.url, flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def server():
    with served(gpus=2) as server:
        yield server


def until(true, within=10.0):
    deadline = time.monotonic() + within
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def family(pid):
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def gone(process):
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def listens(url):
    address = urllib.parse.urlsplit(url)
    try:
        socket.create_connection((address.hostname, address.port), 1).close()
    except ConnectionRefusedError:
        return False
    return True


def test_it_answers_with_keys_of_its_own_and_counts_it(server):
    before = server.counters()
    reply = server.ask("/v1/completions", {"model": "ferry", "prompt": "hello"})
    assert reply.status == 200
    assert carries(reply.json["choices"][0]["text"], "hello")
    answered = 'calls_total{outcome="answered",tier="paid"}'
    assert server.counters()[answered] - before.get(answered, 0) == 1


PAGE = """
labkit_answer_seconds_bucket{le="0.3",model="ferry",tier="paid"} 1.0
labkit_answer_seconds_bucket{le="0.5",model="ferry",tier="paid"} 2.0
labkit_answer_seconds_bucket{le="+Inf",model="ferry",tier="paid"} 2.0
labkit_answer_seconds_bucket{le="0.5",model="barge",tier="paid"} 1.0
labkit_answer_seconds_bucket{le="+Inf",model="barge",tier="paid"} 2.0
labkit_answer_seconds_bucket{le="0.5",model="ferry",tier="free"} 0.0
labkit_answer_seconds_bucket{le="+Inf",model="ferry",tier="free"} 4.0
labkit_first_piece_seconds_bucket{le="0.5",model="ferry",tier="free"} 9.0
"""


def test_the_share_within_the_budget_is_by_tier_over_all_models():
    assert answered_within(PAGE, 0.5) == {"free": 0.0, "paid": 0.75}
    assert answered_within("", 0.5) == {}
    with pytest.raises(ValueError, match=r"no bar of labkit_answer_seconds ends at 0\.4 s"):
        answered_within(PAGE, 0.4)


def test_a_server_says_which_share_of_its_answers_was_in_time(server):
    assert server.ask("/v1/completions", {"model": "ferry", "prompt": "x"}).status == 200
    assert server.within(10.0)["paid"] == 1.0


def test_a_refusal_is_a_reply_and_not_an_exception(server):
    reply = server.ask("/v1/models", key="nobody")
    assert (reply.status, reply.json["error"]["code"]) == (401, "invalid_api_key")


def test_a_gpu_killed_under_load_costs_nobody_an_answer(server):
    restarts = sum(gpu["restarts"] for gpu in server.gpus())
    load = server.offer(rate=100, seconds=1.0)
    until(lambda: any(gpu["aboard"] for gpu in server.gpus()))
    server.kill(max(server.gpus(), key=lambda gpu: gpu["aboard"])["gpu"])
    report = load.result(20).report()
    assert report["offered"] > 50
    assert report["answered"] == report["offered"]
    assert (report["lost"], report["wrong_tag"]) == (0, 0)
    until(lambda: sum(gpu["restarts"] for gpu in server.gpus()) == restarts + 1)


def test_a_batch_that_left_has_a_receipt(server):
    server.ask("/v1/completions", {"model": "ferry", "prompt": ["one", "two"]})
    last = server.receipts()[-1]
    assert (last["size"], last["reason"]) == (2, "timer")


def test_a_gpu_that_is_not_there_cannot_be_killed(server):
    with pytest.raises(ServeError, match="no GPU '9' here"):
        server.kill(9)


def test_a_button_of_the_board_kills_the_gpu_it_names(server):
    until(lambda: all(gpu["state"] == "ready" for gpu in server.gpus()))
    pid = server.gpus()[1]["pid"]
    board = server.board()
    assert [row["gpu"] for row in board.now["gpus"]] == [0, 1]
    board._pressed(board, {"type": "kill", "gpu": 1, "ask": "x"}, [])
    assert board.told == {"ask": "x", "words": "GPU 1 is dead, with 0 aboard."}
    until(lambda: server.gpus()[1]["pid"] not in (None, pid))
    assert board.press(9).endswith("no GPU '9' here")
    board.close()


def test_the_numbers_on_the_board_move_by_themselves_and_add_up(server):
    board = server.board()
    answered = board.now["answered"]
    report = server.offer(rate=200, seconds=0.5).result(20).report()
    until(lambda: board.now["answered"] - answered == report["answered"])
    until(lambda: board.now["on_the_way"] == 0)
    assert board.now["sent"] == board.now["ended"] == report["offered"] > 50
    assert f"{report['offered']} sent, 0 on their way" in repr(board)
    board.close()


def test_the_thin_client_does_what_the_lab_asks_of_the_real_one(server):
    import openai

    for kind in (openai, thin_client):
        client = kind.OpenAI(base_url=f"{server.url}/v1", api_key=server.keys["paid"])
        plain = client.completions.create(model="ferry", prompt="hello there")
        assert carries(plain.choices[0].text, "hello there")
        events = list(client.completions.create(model="ferry", prompt="hello there", stream=True))
        assert len(events) > 1
        assert "".join(event.choices[0].text for event in events) == plain.choices[0].text
        stranger = kind.OpenAI(base_url=f"{server.url}/v1", api_key="nobody")
        with pytest.raises(kind.AuthenticationError) as refused:
            stranger.completions.create(model="ferry", prompt="hello")
        assert (refused.value.status_code, refused.value.code) == (401, "invalid_api_key")
        getattr(client, "close", lambda: None)()
        getattr(stranger, "close", lambda: None)()


def test_stopped_it_is_gone_with_its_workers_and_says_so():
    server = serve(gpus=2)
    board = server.board()
    processes = family(server.pid)
    assert len(processes) >= 3
    assert server.stop() == 0
    until(lambda: board.over)
    assert board.now["gpus"][0]["state"] == "ready"
    assert server.stop() == 0
    assert all(map(gone, processes))
    with pytest.raises(ServeError, match="ended> does not answer"):
        server.gpus()


@pytest.mark.skipif(not hasattr(os, "getpgid"), reason="this system has no process groups")
def test_an_interrupt_of_the_kernels_group_does_not_reach_it(server):
    assert os.getpgid(server.pid) != os.getpgid(0)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_it_does_not_outlive_a_kernel_that_is_killed_with_no_time_for_a_word():
    kernel = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
    try:
        pid, url = kernel.stdout.readline().split()
        processes = family(int(pid))
        assert listens(url)
        kernel.kill()
        kernel.wait(10)
        until(lambda: all(map(gone, processes)))
        assert not listens(url)
    finally:
        kernel.kill()
        kernel.stdout.close()


def test_an_option_that_is_none_is_told_at_once_with_the_reason():
    with pytest.raises(ServeError, match="did not come up: Invalid value for '--rule'"):
        serve(2, "--rule", "never")
