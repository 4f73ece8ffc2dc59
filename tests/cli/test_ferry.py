"""`labkit ferry`: the rule in closed form, as documented keys."""

import pytest


def test_a_quiet_hundred_a_second(labkit):
    report = labkit("ferry", "--json").report
    assert report["mean_batch"] == pytest.approx(6)
    assert report["mean_batch_seen"] == pytest.approx(41 / 6)
    assert report["mean_wait_ms"] == pytest.approx(29.1667, abs=1e-4)
    assert report["p50_wait_ms"] == pytest.approx(30)
    assert report["p95_wait_ms"] == report["p99_wait_ms"] == 50
    assert report["load_erlang"] == pytest.approx(5 / 3)
    assert report["p_full"] < 1e-80


def test_rush_hour(labkit):
    report = labkit("ferry", "--rate", "10000", "--json").report
    assert report["mean_batch"] == pytest.approx(100)
    assert report["mean_wait_ms"] == pytest.approx(4.95)
    assert report["p95_wait_ms"] == pytest.approx(9.7035, abs=1e-4)
    assert report["p_full"] == pytest.approx(1)
    assert report["load_erlang"] == pytest.approx(10)


def test_the_window_may_be_nothing_or_for_ever(labkit):
    at_once = labkit("ferry", "--max-wait-ms", "0", "--json").report
    assert (at_once["mean_batch"], at_once["p99_wait_ms"]) == (1, 0)
    full = labkit("ferry", "--max-wait-ms", "inf", "--max-batch", "10", "--json").report
    assert full["max_wait_ms"] is None
    assert full["mean_batch"] == 10
    assert full["mean_wait_ms"] == pytest.approx(45)


def test_people_read_a_table(labkit):
    said = labkit("ferry", COLUMNS="80", NO_COLOR="1")
    assert said.code == 0
    assert "29.17 ms" in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    assert "only full ones" in labkit("ferry", "--max-wait-ms", "inf").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--rate 0", "0 is not above 0"),
        ("--rate 1e-300", "1e-300 is beyond"),
        ("--max-wait-ms -5", "-5 ms must be 0 or more; give milliseconds, such as 50, or inf"),
        ("--max-wait-ms nan", "'nan' is not a finite number"),
        ("--max-batch -2", "-2 is out of range; give 1 or more"),
        ("--batch-ms inf", "'inf' is not a finite number"),
    ],
)
def test_what_cannot_be_is_refused(labkit, words, says):
    said = labkit("ferry", *words.split())
    assert said.code == 2
    assert says in said.err
