"""Help pages and refusals name the command or the unit that somebody meant."""

import pytest


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("sim", "--replay", "a.jsonl"), "labkit replay a.jsonl"),
        (("keys", "add", "me"), "--tenant me"),
    ],
    ids=["replay", "tenant"],
)
def test_a_near_miss_is_told_the_right_way(labkit, words, says):
    said = labkit(*words)
    assert said.code == 2
    assert says in " ".join(said.err.split())


def test_a_saved_run_is_no_trace_of_arrivals(labkit, tmp_path):
    path = tmp_path / "run.jsonl"
    labkit("sim", "--seconds", "1", "--save-trace", str(path))
    said = labkit("sim", "--trace", str(path))
    assert said.code == 2
    assert f"labkitreplay{path}" in "".join(said.err.split())


@pytest.mark.parametrize(("command", "option"), [("serve", "--drain-s"), ("storm", "--seconds")])
def test_a_duration_is_in_seconds(labkit, command, option):
    assert f"{option} SECONDS" in labkit(command, "--help").out


def test_the_page_of_serve_knows_paced_workers(labkit):
    assert "paced" in labkit("serve", "--help").out


def test_a_new_key_says_whose_it_is(labkit, tmp_path):
    said = labkit("keys", "add", "--tenant", "mine", "--keys", str(tmp_path / "keys.json"))
    assert "tenant" in said.out
    assert "mine" in said.out
