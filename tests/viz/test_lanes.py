"""What the lanes draw of a trace: batches, gaps, what a drain costs, and what a death takes."""

import base64
import io
import json

import pytest
from PIL import Image

from labkit.core.messages import Depart, Request
from labkit.core.settings import Settings
from labkit.core.units import MS
from labkit.sim.faults import Drain
from labkit.viz.hand import HandShell, run_by_hand
from labkit.viz.lanes import Lanes
from labkit.viz.lanes_moment import idle, lost, receipt, ticks, totals, waiting
from labkit.viz.lanes_reader import MOST_BARS, MOST_REQUESTS
from labkit.viz.lanes_segments import lane_segments
from labkit.viz.lanes_twin import lanes_png
from tests.viz.lanes_scenes import Script, eight_at_once, simulated, with_faults

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
SIX = Settings(max_batch=6)


def panel_of(trace):
    return lane_segments(trace)["panels"][0]


def gaps(panel, *kinds):
    return [
        (gap["lane"], gap["start"] // MS, gap["end"] // MS)
        for gap in panel["gaps"]
        if gap["kind"] in kinds
    ]


@pytest.fixture(scope="module")
def eight():
    return panel_of(eight_at_once())


@pytest.fixture(scope="module")
def faulty():
    return panel_of(with_faults())


def test_a_batch_is_a_bar_on_its_gpu_and_the_rest_is_idle():
    panel = panel_of(run_by_hand([0, 20 * MS], SIX, gpus=2))
    assert [(bar["runs"], bar["start"], bar["end"], bar["size"]) for bar in panel["bars"]] == [
        ([[0, 0]], 50 * MS, 150 * MS, 2)
    ]
    assert gaps(panel, "idle") == [(0, 0, 50), (1, 0, 150)]


def test_idle_time_adds_up_with_the_batches(faulty):
    horizon = faulty["horizon"]
    used = sum(bar["end"] - bar["start"] for bar in faulty["bars"])
    down = idle(faulty, horizon, "died", "stopped")
    assert used + down + idle(faulty, horizon, "idle", "drain") == 8 * horizon


def test_a_batch_on_eight_gpus_is_one_bar_across_all_lanes(eight):
    assert [bar["runs"] for bar in eight["bars"] if bar["gang"]] == [[[0, 7]]]


def test_lanes_that_are_not_neighbours_are_drawn_apart():
    script = Script(4)
    script.batch((0, 1, 3), (10, 110, 5), asked=0)
    script.batch((2,), (10, 60, 5), asked=0)
    assert panel_of(script.trace())["bars"][0]["runs"] == [[0, 1], [3, 3]]


def test_a_drain_is_the_idle_time_of_gpus_kept_for_one_batch(eight):
    assert gaps(eight, "drain") == [
        (0, 198, 238), (1, 168, 238), (2, 216, 238), (4, 135, 238), (5, 188, 238), (6, 142, 238),
        (7, 222, 238),
    ]  # fmt: skip
    assert idle(eight, eight["horizon"], "drain") == 397 * MS
    assert receipt(eight, 300 * MS) == (
        "Batch 16 of 12 requests starts on 8 GPUs at once at 238 ms; "
        "they stood idle for 397 GPU-ms first."
    )


def test_a_drain_s_cost_is_written_when_it_is_over():
    segments = lane_segments(eight_at_once())
    orange = (194, 65, 12)

    def written(at):
        strip = pixels(lanes_png(segments, at)).crop((470, 222, 676, 242))
        return {colour: count for count, colour in strip.getcolors(1 << 16)}.get(orange, 0)

    assert written(237 * MS) == 0
    assert written(238 * MS) > 50


def test_before_the_large_one_asked_an_idle_gpu_is_only_idle(eight):
    assert (4, 108, 135) in gaps(eight, "idle")


def test_a_drain_that_costs_nothing_says_so():
    script = Script(2)
    script.batch((0,), (0, 100, 5), asked=0)
    script.batch((1,), (0, 100, 5), asked=0)
    script.batch((0, 1), (100, 200, 5), asked=50, model="large")
    assert receipt(panel_of(script.trace()), 200 * MS).endswith("at 100 ms; none stood idle.")


def test_small_and_large_requests_are_counted_apart(eight):
    assert waiting(eight, "large", 200 * MS) == (12, 90 * MS)
    assert waiting(eight, "large", 300 * MS) == (0, 128 * MS)
    assert [label for label, _, _ in totals(eight, 0)][2:] == ["small waiting", "large waiting"]


def test_large_ones_that_never_left_count_as_large_by_their_model():
    script = Script(2)
    script.batch((0, 1), (10, 110, 3), asked=0, model="large")
    script.verb(120, "arrive", Request(99, arrived_at=120 * MS, model="large"), order=2)
    panel = panel_of(script.trace())
    assert waiting(panel, "large", 120 * MS) == (1, 10 * MS)
    assert waiting(panel, "small", 120 * MS) == (0, 0)


def test_who_waits_now_may_have_waited_longest():
    panel = panel_of(run_by_hand([0, 10 * MS], SIX))
    assert waiting(panel, "small", 30 * MS) == (2, 30 * MS)
    assert waiting(panel, "small", 100 * MS) == (0, 50 * MS)


def test_a_death_marks_the_batch_the_gap_and_the_retry(faulty):
    [lost_bar] = [bar for bar in faulty["bars"] if bar["lost"]]
    [died] = [gap for gap in faulty["gaps"] if gap["kind"] == "died"]
    [again] = [bar for bar in faulty["bars"] if bar["retry"]]
    assert lost_bar["runs"] == [[3, 3]]
    assert (died["lane"], died["start"], died["end"]) == (3, 180 * MS, 380 * MS)
    assert died["labels"] == ["down · 100 lost", "down"]
    assert again["labels"][0] == "RETRY 100"
    assert lost(faulty, 179 * MS) == 0
    assert lost(faulty, 180 * MS) == 100
    assert receipt(faulty, 180 * MS) == (
        "Batch 5 of 100 requests starts on GPU 4 at 180 ms to try again."
    )
    assert receipt(faulty, faulty["horizon"]) == (
        "GPU 3 died at 180 ms with batch 4; 100 go back to the head of the queue."
    )


def test_time_aboard_a_batch_that_was_lost_is_not_waiting(faulty):
    assert waiting(faulty, "small", faulty["horizon"]) == (0, 50 * MS)


def test_requests_of_a_lost_batch_wait_again():
    shell = HandShell(SIX, gpus=1)
    shell.board([Request(0, arrived_at=0), Request(1, arrived_at=0)], 0)
    shell.until(60 * MS)
    shell.lose(0, 60 * MS)
    assert waiting(panel_of(shell.trace), "small", 60 * MS) == (2, 50 * MS)


def test_a_straggler_shows_by_how_much_it_is_late(faulty):
    late = [bar for bar in faulty["bars"] if bar["late"]]
    assert {bar["runs"][0][0] for bar in late} == {5}
    assert late[0]["late"] == ["+60 ms", "+60"]
    assert late[0]["end"] - late[0]["planned"] == 60 * MS


def test_an_idle_gpu_that_dies_is_down_with_nothing_lost():
    shell = HandShell(SIX, gpus=2)
    shell.lose(1, 20 * MS)
    shell.board([Request(0, arrived_at=30 * MS)], 30 * MS)
    shell.until(300 * MS)
    panel = panel_of(shell.trace)
    assert gaps(panel, "died") == [(1, 20, 180)]
    assert receipt(panel, 20 * MS) == "GPU 1 died at 20 ms."


def test_a_drained_gpu_is_stopped_and_not_dead():
    panel = panel_of(simulated(faults=(Drain(2, at=300 * MS),)))
    assert gaps(panel, "stopped") == [(2, 300, panel["horizon"] // MS)]
    assert gaps(panel, "died") == []
    assert receipt(panel, 300 * MS) == "GPU 2 stopped at 300 ms."


def test_labels_of_bars_are_those_that_could_fit(eight):
    gang = next(bar for bar in eight["bars"] if bar["gang"])
    assert gang["labels"] == ["12 on 8 GPUs", "12"]


def test_everything_is_plain_json(eight, faulty):
    assert json.loads(json.dumps([eight, faulty])) == [eight, faulty]


def test_rules_share_one_time_axis():
    segments = lane_segments({"one": simulated(300, 0.2, 2), "two": simulated(300, 0.4, 2)})
    assert [panel["title"] for panel in segments["panels"]] == ["one", "two"]
    assert {panel["horizon"] for panel in segments["panels"]} == {segments["horizon"]}
    assert "one: " in repr(Lanes(segments))


def test_many_gpus_get_thinner_lanes_and_too_many_are_refused():
    heights = [panel_of(simulated(300, 0.1, n))["layout"]["bar"] for n in (8, 16, 40)]
    assert heights == [16, 10, 6]
    with pytest.raises(ValueError, match="41 GPUs: at most 40 lanes"):
        lane_segments(simulated(300, 0.1, 41))


def test_more_than_can_be_read_is_refused():
    crowd = run_by_hand([i * 10 for i in range(MOST_REQUESTS + 1)], Settings(), gpus=8)
    with pytest.raises(ValueError, match="more than 10,000 requests cannot be read"):
        lane_segments(crowd)
    single = Settings(max_batch=1, batch_time=1 * MS, budget=None)
    many = run_by_hand([i * MS for i in range(MOST_BARS + 1)], single, gpus=2)
    with pytest.raises(ValueError, match="more than 2,000 batches cannot be read"):
        lane_segments(many)


def test_nothing_to_draw_is_refused():
    with pytest.raises(ValueError, match="no trace to draw"):
        lane_segments({})


@pytest.mark.parametrize("window", [(50, 50), (-1, 10_000), (20_000, 10_000)])
def test_a_window_that_shows_nothing_is_refused(window):
    with pytest.raises(ValueError, match=f"window {window[0]} to {window[1]} us"):
        lane_segments(simulated(300, 0.1, 2), window)


def test_ticks_are_round_and_far_enough_apart():
    assert ticks(0, 438 * MS, 498) == [0, 100 * MS, 200 * MS, 300 * MS, 400 * MS]
    assert ticks(101 * MS, 120 * MS, 498) == [105 * MS, 110 * MS, 115 * MS, 120 * MS]


# -- the widget and its picture ------------------------------------------------------------------


def pixels(picture):
    return Image.open(io.BytesIO(picture.png)).convert("RGB")


def test_a_notebook_keeps_the_picture_its_size_and_its_line_beside_the_widget(monkeypatch):
    lanes = Lanes(eight_at_once())
    data, metadata = lanes._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/png", WIDGET_VIEW}
    assert metadata["image/png"]["alt"] == data["text/plain"] == repr(lanes)
    image = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
    assert image.size == (2 * metadata["image/png"]["width"], 2 * metadata["image/png"]["height"])
    monkeypatch.setenv("LABKIT_WIDGETS", "static")
    assert set(lanes._repr_mimebundle_()[0]) == {"text/plain", "image/png"}


def test_its_repr_is_one_line_without_an_address():
    assert repr(Lanes(eight_at_once(), at=140 * MS)) == (
        "Lanes at 140 ms. 15 batches on 8 GPUs; idle so that one could run: 5 GPU-ms; "
        "idle in all: 139 GPU-ms; small waiting: 0 · longest 40 ms; "
        "large waiting: 12 · longest 30 ms. Batch 9 of 100 requests starts on GPU 3 at 135 ms."
    )


def test_what_is_to_come_is_an_outline_only():
    segments = lane_segments(eight_at_once())
    teal = (15, 118, 110)

    def filled(at):
        colours = pixels(lanes_png(segments, at)).getcolors(1 << 20)
        return {colour: count for count, colour in colours}.get(teal, 0)

    assert filled(0) == 0
    assert 0 < filled(50 * MS) < filled(100 * MS)


def test_the_same_instant_is_drawn_to_the_same_bytes():
    segments = lane_segments(with_faults())
    assert lanes_png(segments, 200 * MS).png == lanes_png(segments, 200 * MS).png


def test_an_instant_outside_the_trace_is_refused():
    segments = lane_segments(run_by_hand([0], SIX))
    with pytest.raises(ValueError, match="at 151000 us: these segments run from 0 to 150000 us"):
        lanes_png(segments, 151 * MS)


def test_every_departure_of_a_real_run_is_drawn_once(faulty):
    trace = with_faults()
    departed = [command.batch_id for _, command in trace.commands() if isinstance(command, Depart)]
    assert [bar["id"] for bar in faulty["bars"]] == departed
