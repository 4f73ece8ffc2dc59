"""What the dock draws of a trace: who boards when, which boat leaves why, and who comes back."""

import json

import pytest

from labkit.core.messages import Request
from labkit.core.settings import RULES, Settings
from labkit.core.units import MS
from labkit.viz import words
from labkit.viz.hand import HandShell, run_by_hand
from labkit.viz.moment import caption, moment, telling_instant
from labkit.viz.segments import OPEN, dock_segments

SIX = Settings(max_batch=6)


def rows(arrivals_ms, settings=SIX, gpus=1):
    trace = run_by_hand([ms * MS for ms in arrivals_ms], settings, gpus)
    segments = dock_segments(trace)
    return segments, segments["docks"][0]


def test_every_rule_has_its_words():
    assert set(words.RULES) == set(RULES)


def stays(dock, *keys):
    return [tuple(row[key] for key in keys) for row in dock["passengers"]]


def said(dock):
    return [event["text"] for event in dock["events"]]


def test_a_passenger_boards_at_once_while_a_boat_has_seats():
    _, dock = rows([0, 20])
    assert stays(dock, "since", "boarded", "seat", "left", "ended") == [
        (0, 0, 0, 50 * MS, 150 * MS),
        (20 * MS, 20 * MS, 1, 50 * MS, 150 * MS),
    ]


def test_the_bank_fills_only_while_no_boat_is_free():
    segments, dock = rows([0, 1, 2, 3, 4, 5, 30])
    assert stays(dock, "since", "boarded", "left")[-1] == (30 * MS, 105 * MS, 105 * MS)
    assert len(moment(segments, dock, 60 * MS).bank) == 1
    assert moment(segments, dock, 60 * MS).free == 0


def test_a_boat_is_full_or_its_timer_ran_out():
    _, dock = rows([0, 1, 2, 3, 4, 5, 200])
    assert [(boat["badge"], boat["size"], boat["start"] // MS) for boat in dock["boats"]] == [
        ("FULL", 6, 5),
        ("TIMER", 1, 250),
    ]
    assert said(dock) == [
        "Boat 1 left at 5 ms because it was full, and the first aboard had waited 5 ms; "
        "nobody stayed behind.",
        "Boat 2 left at 250 ms because the first aboard had waited 50 ms; 1 of 6 seats.",
    ]


def test_a_receipt_says_when_only_a_boat_was_wanting():
    _, dock = rows([0, 60])
    assert said(dock)[1] == (
        "Boat 2 left at 150 ms because the first aboard had waited 90 ms, for want of a boat; "
        "1 of 6 seats."
    )


def test_the_timer_counts_the_wait_of_whoever_waits_longest():
    _, dock = rows([0, 60])
    assert dock["timers"] == [
        {"arrived": 0, "since": 0, "until": 50 * MS},
        {"arrived": 60 * MS, "since": 60 * MS, "until": 150 * MS},
    ]


def test_leave_at_once_and_wait_until_full_have_no_timer():
    for rule, badges in (("at_once", ["AT ONCE"]), ("full", [])):
        _, dock = rows([0], SIX.with_(rule=rule))
        assert dock["max_wait"] is None
        assert [boat["badge"] for boat in dock["boats"]] == badges
    assert stays(dock, "left", "ended") == [(None, None)]


def test_those_of_a_lost_boat_return_to_the_head_of_the_bank():
    shell = HandShell(SIX, gpus=2)
    shell.board([Request(i, arrived_at=0) for i in range(2)], 0)
    shell.board([Request(2, arrived_at=60 * MS)], 60 * MS)
    shell.lose(0, 80 * MS)
    shell.until(400 * MS)
    dock = dock_segments(shell.trace)["docks"][0]
    assert stays(dock, "id", "since", "left", "outcome", "returned") == [
        (0, 80 * MS, 80 * MS, "answered", True),
        (1, 80 * MS, 80 * MS, "answered", True),
        (0, 0, 50 * MS, "returned", False),
        (1, 0, 50 * MS, "returned", False),
        (2, 60 * MS, 180 * MS, "answered", False),
    ]
    assert [(boat["lost"], boat["end"] // MS) for boat in dock["boats"]] == [
        (True, 80),
        (False, 180),
        (False, 280),
    ]
    assert dock["downs"] == [[[80 * MS, OPEN]], []]
    assert said(dock)[1] == (
        "GPU 0 was lost at 80 ms with boat 1; 2 go back to the head of the bank."
    )


def test_who_is_turned_away_is_counted_and_does_not_wait():
    shell = HandShell(SIX.with_(depth_limit=6, rule="full", max_batch=6), gpus=1)
    shell.board([Request(i, arrived_at=0) for i in range(8)], 0)
    segments = dock_segments(shell.trace)
    now = moment(segments, segments["docks"][0], 0)
    assert (now.gone, len(now.bank), len(now.aboard)) == (2, 0, 0)


def test_a_cancelled_passenger_leaves_the_seat():
    shell = HandShell(SIX, gpus=1)
    shell.board([Request(0), Request(1)], 0)
    shell.scheduler.cancel(0, 10 * MS)
    shell.now = 10 * MS
    shell.until(200 * MS)
    segments = dock_segments(shell.trace)
    dock = segments["docks"][0]
    assert [row["id"] for row in moment(segments, dock, 20 * MS).aboard] == [1]
    assert dock["boats"][0]["size"] == 1


def test_tenants_are_letters_and_tiers_are_discs_or_rings():
    shell = HandShell(SIX)
    shell.board([Request(0, tenant="acme"), Request(1, tenant="zoo", tier=1)], 0)
    dock = dock_segments(shell.trace)["docks"][0]
    assert stays(dock, "label", "paid") == [("A", True), ("B", False)]


def test_each_gpu_keeps_its_lane_while_they_are_few():
    _, dock = rows([0, 0, 0, 0, 0, 0, 10, 10, 10, 10, 10, 10], gpus=2)
    assert [(boat["gpu"], boat["lane"]) for boat in dock["boats"]] == [(0, 0), (1, 1)]
    _, dock = rows([0] * 12, gpus=9)
    assert [boat["lane"] for boat in dock["boats"]] == [0, 1]
    assert dock["gpus"] is None


def test_two_rules_share_one_time_axis():
    arrivals = [0, 10 * MS]
    rules = {name: run_by_hand(arrivals, SIX.with_(rule=name)) for name in ("at_once", "ferry")}
    segments = dock_segments(rules)
    assert [dock["title"] for dock in segments["docks"]] == ["at_once", "ferry"]
    assert segments["horizon"] == 200 * MS
    assert segments["docks"][1]["offset"] == segments["docks"][0]["layout"]["height"]


def test_a_hundred_seats_are_ten_by_ten():
    _, dock = rows([0], Settings())
    seats = dock["layout"]["seats"]
    assert len({x for x, _ in seats}) == len({y for _, y in seats}) == 10
    assert dock["layout"]["letters"] is False


@pytest.mark.parametrize("seats", [1, 2, 6, 12, 20, 21, 50, 100])
def test_seats_never_touch_and_stay_inside_the_boat(seats):
    layout = rows([0], Settings(max_batch=seats))[1]["layout"]
    places, radius = layout["seats"], layout["radius"]
    assert len(places) == seats
    gaps = [
        abs(x - u) + abs(y - v)
        for i, (x, y) in enumerate(places)
        for u, v in places[i + 1 : i + 12]
    ]
    assert min(gaps, default=100) > 2 * radius
    xs = [x for x, _ in layout["hull"]]
    assert min(xs) < min(x for x, _ in places) - radius
    assert max(xs) > max(x for x, _ in places) + radius


def test_segments_are_plain_json():
    segments, _ = rows([0, 5, 9])
    assert json.loads(json.dumps(segments)) == segments


def test_too_many_passengers_are_refused_with_a_remedy():
    shell = HandShell(Settings())
    shell.board([Request(i) for i in range(2_001)], 0)
    with pytest.raises(ValueError, match=r"more than 2,000 passengers .* draw a slice"):
        dock_segments(shell.trace)


def test_the_line_of_text_says_what_the_picture_shows():
    segments, _ = rows([0, 9, 14])
    assert caption(segments, 32 * MS) == (
        "Dock at 32 ms. 3 of 6 seats taken, 0 on the bank, 0 boats out; the first has waited "
        "32 of 50 ms. Nobody has left yet."
    )


def test_the_telling_instant_has_people_aboard_and_a_boat_out():
    segments, dock = rows([0, 1, 2, 3, 4, 5, 20, 30, 40, 120], gpus=2)
    now = moment(segments, dock, telling_instant(segments))
    assert now.aboard
    assert now.out
