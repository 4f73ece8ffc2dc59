"""The board: what it says and draws of one moment, and that it looks until there is nothing."""

import time

from labkit.viz.board import Board
from labkit.viz.board_twin import board_png
from labkit.viz.widget import WIDGET_VIEW


def moment(**more):
    gpus = [
        {"gpu": 0, "state": "ready", "aboard": 37, "restarts": 0},
        {"gpu": 1, "state": "lost", "aboard": 0, "restarts": 2},
    ]
    return {"sent": 1_200, "ended": 1_160, "on_the_way": 40, "answered": 1_150, "refused": 10,
            "depth": 3, "again": 12, "most": 100, "gpus": gpus} | more  # fmt: skip


def test_its_line_says_every_number():
    assert repr(Board(lambda: moment(), lambda gpu: "")) == (
        "1,200 sent, 40 on their way; 1,150 answered, 10 refused; 3 waiting, 12 went out again; "
        "GPU 0 ready with 37 aboard, GPU 1 lost."
    )


def test_a_press_is_told_to_whoever_pressed():
    struck = []
    board = Board(moment, lambda gpu: struck.append(gpu) or f"GPU {gpu} is dead.")
    board._pressed(board, {"type": "kill", "gpu": 1, "ask": "mine"}, [])
    board._pressed(board, {"type": "something else"}, [])
    assert struck == [1]
    assert board.told == {"ask": "mine", "words": "GPU 1 is dead."}


def test_it_looks_by_itself_until_the_service_is_gone():
    seen = [moment(sent=1), moment(sent=2), moment(sent=3), None, moment(sent=9)]
    board = Board(lambda: seen.pop(0), lambda gpu: "", every_s=0.001)
    deadline = time.monotonic() + 10
    while not board.over:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert board.now["sent"] == 3
    assert len(seen) == 1


def test_of_a_service_that_is_gone_from_the_start_there_is_a_word():
    board = Board(lambda: None, lambda gpu: "")
    assert board.over
    assert repr(board) == "A board with nothing to show: its service is gone."
    assert board.picture().png.startswith(b"\x89PNG")


def test_a_notebook_keeps_the_picture_of_the_moment():
    data, shown = Board(moment, lambda gpu: "")._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/png", WIDGET_VIEW}
    assert shown["image/png"]["alt"].startswith("1,200 sent, 40 on their way")


def test_sixteen_gpus_make_a_higher_picture():
    many = [{"gpu": i, "state": "ready", "aboard": 0, "restarts": 0} for i in range(16)]
    assert board_png(moment(gpus=many)).height > board_png(moment()).height


def test_shown_anew_it_is_of_this_moment():
    sent = iter(range(1, 9))
    board = Board(lambda: moment(sent=next(sent)), lambda gpu: "", every_s=60.0)
    assert board.now["sent"] == 1
    shown, _ = board._repr_mimebundle_()
    assert board.now["sent"] == 2
    assert shown["text/plain"] == repr(board)
    board.close()
