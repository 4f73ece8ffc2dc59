"""`labkit faults` and `labkit storm`, from the outside."""

import pytest

from labkit.teach.planted import PLANTED
from labkit.teach.zoo import ZOO
from tests.cli.test_json_page import SECTIONS, undocumented

STORM = ("storm", "--workers", "fake", "--rate", "100", "--seconds", "2", "--kills-per-s", "0")


def test_a_campaign_says_what_it_did_and_every_key_is_documented(labkit):
    said = labkit("faults", "--runs", "3", "--seed", "4", "--json")
    assert said.code == 0
    assert (said.report["runs"], said.report["violations"]) == (3, 0)
    assert undocumented(said.report, SECTIONS["faults"]) == set()


def test_a_planted_fault_is_caught_shrunk_and_kept(labkit, tmp_path):
    words = ("--bug", "late_accepted", "--save", str(tmp_path), "--json")
    said = labkit("faults", "--runs", "200", *words)
    assert said.code == 0
    (failure,) = said.report["failures"]
    assert failure["steps"] <= 12
    assert {path.name for path in tmp_path.iterdir()} == set(failure["files"])
    assert undocumented(said.report, SECTIONS["faults"]) == set()


def test_a_planted_fault_that_is_not_caught_is_a_failure(labkit):
    said = labkit("faults", "--runs", "1", "--seed", "3", "--bug", "first_leaves_all_lose")
    assert said.code == 1


def test_planted_faults_are_listed_and_an_unknown_one_is_refused(labkit):
    assert "poison_stays" in labkit("faults", "--bug", "list").out
    said = labkit("faults", "--bug", "nonsense")
    assert said.code == 2
    assert "`labkit faults --bug list` names all" in said.err


def test_all_forty_two_faults_are_told_of_by_name_or_by_count(labkit):
    said = labkit("faults", "--bug", "list").out.splitlines()
    assert len(said) - 1 + int(said[-1].split()[0]) == len({*ZOO, *PLANTED}) == 42


def test_a_fault_that_forgets_somebody_is_kept_until_it_shows(labkit, tmp_path):
    said = labkit("faults", "--bug", "one_forgotten", "--save", str(tmp_path))
    assert "e+15" not in said.out
    assert "for ever after: a batch was due at 60250 ms" in said.out
    assert f"wrote {tmp_path / 'seed1-run0.jsonl'}" in said.out.replace("\n", " ")
    again = labkit("replay", str(tmp_path / "seed1-run0.jsonl"))
    assert again.code == 1
    assert "DIFFERS first at step 7, advance at 60.25 s: now the gateway says Depart" in again.out


def test_a_schedule_is_not_replayed_but_the_trace_beside_it(labkit, tmp_path):
    labkit("faults", "--bug", "one_forgotten", "--save", str(tmp_path))
    said = labkit("replay", str(tmp_path / "seed1-run0.json"))
    assert said.code == 2
    words = "".join(said.err.split())
    assert f"itstraceisreplayed:labkitreplay{tmp_path / 'seed1-run0.jsonl'}" in words


def test_a_batch_that_was_given_up_and_comes_late_occupied_its_gpu_once(labkit, tmp_path):
    labkit("faults", "--runs", "200", "--bug", "late_accepted", "--save", str(tmp_path))
    (path,) = tmp_path.glob("*.jsonl")
    report = labkit("replay", str(path), "--json").report
    # 100 ms and 250 ms of work, on two GPUs for 270 ms.
    assert report["utilization"] == 0.648148


def test_a_storm_tells_its_verdict_and_every_key_is_documented(labkit):
    said = labkit(*STORM, "--json")
    assert said.code == 0
    assert undocumented(said.report, SECTIONS["storm"]) == set()
    assert said.report["verdict"]["exactly_once"]


def test_a_storm_is_told_to_people_in_a_sentence(labkit):
    assert "has one outcome, its own" in labkit(*STORM).out


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("--seconds", "1"), "give at least 2"),
        (("--rate", "50000"), "give at most 20000"),
        (("--crashes", "2"), "add --crash"),
        (("--crash", "--workers", "fake"), "use timer"),
        (("--workers", "nonsense"), "choose one of"),
        (("--kills-per-s", "-1"), "above 0"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(labkit, words, remedy):
    said = labkit("storm", *words)
    assert said.code == 2
    assert remedy in said.err
