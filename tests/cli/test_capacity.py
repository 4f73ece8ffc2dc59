"""`labkit capacity`: the sum, what a timer changes, and the money."""

import pytest


def test_ten_thousand_a_second_need_eighteen(labkit):
    report = labkit("capacity", "--json").report
    assert report["floor"] == 10
    assert report["at_target"] == 16
    assert report["needed"] == 18
    assert report["utilization_at_needed"] == pytest.approx(10 / 18)
    assert report["timer"]["needed"] == 18
    assert "cost" not in report


def test_target_spares_and_slots_are_heard(labkit):
    report = labkit("capacity", "--target", "0.6", "--spares", "1", "--json").report
    assert report["needed"] == 18
    report = labkit("capacity", "--max-batch", "30", "--slots", "4", "--json").report
    assert (report["floor"], report["load_erlang"]) == (9, pytest.approx(8.3333, abs=1e-4))


def test_at_a_hundred_a_second_the_timer_decides(labkit):
    words = ("capacity", "--rate", "100", "--max-wait-ms", "50", "--json")
    timer = labkit(*words).report["timer"]
    assert timer["load_erlang"] == pytest.approx(5 / 3)
    assert (timer["stable"], timer["no_batch_queue"]) == (2, 2)
    assert (timer["at_target"], timer["needed"]) == (3, 5)
    assert timer["latency_ms"]["p95"] == 150
    assert round(timer["retry_p95_ms"]) == 264
    assert round(timer["largest_detection_ms"]) == 236


def test_with_pull_one_gpu_is_stable(labkit):
    timer = labkit("capacity", "--rate", "100", "--mode", "pull", "--json").report["timer"]
    assert timer["stable"] == 1
    assert timer["one_gpu"]["latency_ms"]["mean"] == pytest.approx(150)
    assert timer["one_gpu"]["mean_batch"] == pytest.approx(10.0067, abs=1e-4)


def test_where_batches_outgrow_the_cap_one_gpu_has_no_closed_form(labkit):
    timer = labkit("capacity", "--rate", "990", "--mode", "pull", "--json").report["timer"]
    assert timer["one_gpu"] is None


def test_gateways_multiply_the_load(labkit):
    timer = labkit("capacity", "--gateways", "20", "--json").report["timer"]
    assert timer["load_erlang"] == pytest.approx(38.5, abs=0.05)
    assert timer["mean_batch"] == pytest.approx(26)
    assert timer["no_batch_queue"] is None


def test_money_is_for_the_gpus_that_are_needed(labkit):
    cost = labkit("capacity", "--cost-per-gpu-hour", "2.5", "--json").report["cost"]
    assert cost["gpus"] == 18
    assert cost["per_hour"] == 45
    assert cost["per_million_requests"] == pytest.approx(1.25)
    words = ("capacity", "--rate", "100", "--max-wait-ms", "50", "--cost-per-gpu-hour", "2.5")
    assert labkit(*words, "--json").report["cost"]["gpus"] == 5


def test_without_a_timer_only_full_batches_leave(labkit):
    timer = labkit("capacity", "--max-wait-ms", "inf", "--json").report["timer"]
    assert timer["max_wait_ms"] is None
    assert timer["mean_batch"] == 100


def test_people_read_a_table(labkit):
    words = ("--rate", "100", "--mode", "pull", "--cost-per-gpu-hour", "2")
    for extra in ((), words, ("--gateways", "5")):
        said = labkit("capacity", *extra, COLUMNS="80", NO_COLOR="1")
        assert said.code == 0
        assert "needed" in said.out
        assert max(map(len, said.out.splitlines())) <= 80
    assert "18  with 2 spare" in labkit("capacity", COLUMNS="80").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--rate -1", "-1 is not above 0"),
        ("--rate nan", "'nan' is not a finite number"),
        ("--target 65", "65 is over 1; for 65 % give 0.65"),
        ("--target 0", "0 is not between 0 and 1"),
        ("--spares -1", "-1 is out of range; give 0 or more"),
        ("--max-batch 0", "0 is out of range; give 1 or more"),
        ("--batch-ms 0", "0 ms must be more than 0"),
        ("--slots 0", "0 is out of range"),
        ("--gateways 0", "0 is out of range"),
        ("--mode shove", "'shove' is not one of"),
    ],
)
def test_what_cannot_be_is_refused(labkit, words, says):
    said = labkit("capacity", *words.split())
    assert said.code == 2
    assert says in said.err
    assert said.out == ""
