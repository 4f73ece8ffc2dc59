"""The picture of a load test: what it counts, what it says, and that every sort of run has one."""

from types import SimpleNamespace

import pytest

from labkit.core.units import MS, S
from labkit.viz.load_shape import NO_ANSWER, load_shape
from labkit.viz.loads import load_picture


def books(rows=(), unanswered=(), streams=(), labels=("key 1",)):
    """Books of (due, took, status) and of streams of (due, first, step), all in milliseconds."""
    at, took, status = ([row[i] for row in rows] for i in range(3))
    due, first, step = ([row[i] for row in streams] for i in range(3))
    thousand = {"at": at, "took": took, "unanswered": unanswered}
    thousand |= {"first_at": due, "first": first, "step_at": due, "step": step}
    return SimpleNamespace(
        status=status,
        who=[row[3] if len(row) > 3 else 0 for row in rows],
        labels=labels,
        **{name: [one * MS for one in ms] for name, ms in thousand.items()},
    )


HUNDRED = [(10 * i, 100 + i, 200) for i in range(100)]


def test_its_sentence_counts_everybody_and_ranks_the_answered():
    mixed = books([*HUNDRED, (990, 2, 429), (991, 3, 429), (992, 4, 0)], unanswered=[995])
    assert repr(load_picture(mixed)) == (
        "104 requests over 0.995 s: 100 answered, 2 too many, 1 without a response, 1 broken off; "
        "P50 149 ms, P95 194 ms, P99 198 ms, slowest 199 ms."
    )


def test_what_came_back_is_in_the_order_of_its_legend():
    shape = load_shape(books([(3, 1, 503), (1, 1, 200), (0, 1, 0), (2, 1, 429)], unanswered=[7]))
    assert list(shape.due) == [200, 429, 503, NO_ANSWER, 0]
    assert shape.offered == 5
    assert shape.span_s == 0.007


@pytest.mark.parametrize(("span_s", "slot_s"), [(5, 0.1), (10, 0.2), (60, 1), (3_600, 60)])
def test_at_most_sixty_slots_stand_side_by_side(span_s, slot_s):
    assert load_shape(books([(span_s * S // MS, 1, 200)])).slot_s == slot_s


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (books(), "A load test in which no request was due."),
        (books([(0, 1, 429)] * 500), "500 requests over 0 s: 0 answered, 500 too many."),
        (books(unanswered=[0, 500]), "2 requests over 0.5 s: 0 answered, 2 without a response."),
        (books([(3, 120, 200)]), "1 request over 0.003 s: 1 answered; P50 120 ms, P95 120 ms, "
         "P99 120 ms, slowest 120 ms."),
        (books([(i, 100, 200) for i in range(4_000)]), "4,000 requests over 4 s: 4,000 answered; "
         "P50 100 ms, P95 100 ms, P99 100 ms, slowest 100 ms."),
    ],
    ids=["empty", "all refused", "silence", "one", "bands"],
)  # fmt: skip
def test_every_sort_of_run_has_a_picture_with_its_sentence(what, says):
    drawn = load_picture(what, theme="dark")
    assert drawn.line == says
    assert drawn.png.startswith(b"\x89PNG")


def test_each_key_has_a_line_and_a_name_of_its_own():
    rows = [(10 * i, 100 + 50 * (i % 2), 200, i % 2) for i in range(100)]
    shape = load_shape(books(rows, labels=("lk-paid", "lk-free")))
    assert {name: times.percentile(50) for name, times in shape.by_key.items()} == {
        "lk-paid": 100,
        "lk-free": 150,
    }
    words = load_picture(books(rows, labels=("lk-paid", "lk-free"))).svg()
    assert "lk-paid" in words
    assert "lk-free" in words
    assert "lk-paid" not in load_picture(books(rows)).svg()


def test_streams_have_a_panel_and_rows_of_their_own():
    stream = books(HUNDRED, streams=[(10 * i, 20 + i, 8) for i in range(100)])
    plain, streamed = load_picture(books(HUNDRED)), load_picture(stream)
    assert streamed.height > plain.height
    words = streamed.svg()
    for said in ("first piece, ms", "between pieces (ms)", "whole"):
        assert said in words
        assert said not in plain.svg()


def test_late_percentiles_and_the_budget_are_red_and_may_be_left_out():
    slow = books([(i, 600, 200) for i in range(10)])
    assert load_picture(slow).svg().count("#b91c1c") > 4
    assert "#b91c1c" not in load_picture(slow, budget_ms=None).svg()


def test_the_title_stands_on_the_picture():
    assert "my server" in load_picture(books(HUNDRED), title="my server").svg()
