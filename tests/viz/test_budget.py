"""The budget bar: what each part looks like, where its words stand, and what the sentence says."""

import pytest

from labkit.viz.budget import _look, budget_bar, budget_segments
from labkit.viz.layout import WIDTH, text_width
from labkit.viz.tokens import palette

LESSON = {"dock wait": 50, "GPU": 100, "queue and network": 30, "reserve": 200}


def kinds(parts, budget=500):
    return [box["kind"] for box in budget_segments(parts, budget)["boxes"]]


def test_the_sentence_adds_up_the_parts():
    assert repr(budget_bar(LESSON)) == (
        "A budget of 500 ms: dock wait 50 ms, GPU 100 ms, queue and network 30 ms, "
        "reserve 200 ms; 120 ms left."
    )


def test_a_sum_over_the_budget_says_by_how_much():
    line = repr(budget_bar({"wait": 100.5, "GPU": 450}))
    assert line == "A budget of 500 ms: wait 100.5 ms, GPU 450 ms; 50.5 ms over."


def test_a_sum_that_is_the_budget_leaves_nothing_even_in_binary():
    parts = {f"step {i}": 0.1 for i in range(10)}
    segments = budget_segments(parts, budget=1)
    assert segments["line"].endswith("; nothing left over.")
    assert segments["over"] is None


def test_the_reserve_is_hatched_and_the_rest_is_dashed():
    assert kinds(LESSON) == ["wait", "gpu", "other", "reserve", "left"]


def test_two_unnamed_kinds_side_by_side_differ():
    assert kinds({"guard": 100, "detection": 100, "GPU": 100, "network": 200}) == [
        "other", "more", "gpu", "other",
    ]  # fmt: skip


def test_a_part_of_nothing_has_no_box_but_is_said():
    segments = budget_segments({"queue": 0, "GPU": 500})
    assert [box["kind"] for box in segments["boxes"]] == ["gpu"]
    assert "queue 0 ms" in segments["line"]


def test_red_lies_only_beyond_the_budget():
    assert budget_segments(LESSON)["over"] is None
    over = budget_segments({"GPU": 1000})
    assert over["over"]["x"] == over["limit"]["x"] == pytest.approx(345)
    assert over["limit"]["words"] == "500 ms over the 500 ms"


@pytest.mark.parametrize(
    "parts",
    [
        LESSON,
        {"a": 1, "b": 1, "c": 1, "d": 1, "a part with a very long name": 490},
        {"dock wait": 50, "GPU, lost": 50, "detection": 200, "GPU again": 100, "network": 130},
        {"GPU": 499, "a name at the very end of the bar": 1},
    ],
)
def test_no_words_run_off_the_sheet_into_each_other_or_across_a_line(parts):
    labels = budget_segments(parts)["labels"]
    ends = [label["x"] + 6 + text_width(label["words"]) for label in labels]
    assert max(ends) <= WIDTH + 16
    for end, label in zip(ends, labels, strict=True):
        later = [one for one in labels if one["x"] > label["x"] and one["x"] < end]
        assert all(one["row"] < label["row"] for one in later)


@pytest.mark.parametrize(
    ("parts", "budget", "message"),
    [
        ({}, 500, "no parts: name at least one"),
        ({"GPU": -1}, 500, "GPU -1 ms: a part takes 0 ms or more"),
        ({"GPU": float("nan")}, 500, "GPU nan ms"),
        ({"GPU": 1}, 0, "budget 0 ms: must be more than 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(parts, budget, message):
    with pytest.raises(ValueError, match=message):
        budget_bar(parts, budget)


def test_what_was_lost_is_crossed_in_red_like_what_lies_beyond_the_budget():
    assert "lost" in kinds({"dock": 20, "lost": 80, "GPU": 100})
    look = _look(palette("light"), "lost")
    assert (look["edgecolor"], look["hatch"]) == (palette("light").red, "xxx")
