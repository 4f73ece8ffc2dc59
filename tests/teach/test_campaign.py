"""The campaign: the sound service lives through it, and no planted fault does."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from labkit.core.door import Door
from labkit.core.idempotency import KeyLedger
from labkit.core.messages import Outcome
from labkit.core.settings import Settings
from labkit.core.trace import read_jsonl, replay
from labkit.core.units import MS
from labkit.teach.campaign import Catch, campaign, catch, draw, hunt, load, save, shrink
from labkit.teach.key_zoo import KEY_ZOO
from labkit.teach.planted import OF_THE_GATEWAY, PLANTED
from labkit.teach.rig import stamp
from labkit.teach.world import Event, Parts, Schedule, World, render
from labkit.viz.segments import dock_segments
from labkit.workload import stream


@cache
def caught(name: str) -> tuple[int, Catch, Catch]:
    """The run in which a planted fault broke a law, the catch, and the catch made small."""
    found = hunt(PLANTED[name].parts, seed=1, runs=200)
    assert found is not None, f"{name} lived through 200 runs"
    run, first = found
    return run, first, shrink(first, PLANTED[name].parts)


def test_a_hundred_and_twenty_runs_break_no_law():
    report = campaign(120, seed=2)
    assert (report["runs"], report["violations"], report["seeds_failed"]) == (120, 0, [])
    assert 200 <= report["steps"] / report["runs"] <= 400


@pytest.mark.parametrize("name", PLANTED)
def test_every_planted_fault_is_caught_and_shrinks_to_twelve_events(name: str):
    run, _, small = caught(name)
    assert run < 200
    assert small.steps <= 12
    assert len(small.schedule.events) <= 12


@pytest.mark.parametrize("name", PLANTED)
def test_the_sound_service_lives_through_what_caught_the_fault(name: str):
    _, first, small = caught(name)
    assert catch(first.schedule) is None
    assert catch(small.schedule) is None


@pytest.mark.parametrize("name", KEY_ZOO)
def test_a_fault_of_the_keys_breaks_the_law_it_says(name: str):
    assert caught(name)[2].broken.law == KEY_ZOO[name].law


def test_there_are_faults_of_every_kind_each_with_its_story():
    assert len(OF_THE_GATEWAY) + len(KEY_ZOO) == len(PLANTED) == 29
    for bug_id, bug in KEY_ZOO.items():
        assert bug.id == bug_id
        assert bug.question.endswith("?")
        assert all(len(text) > 15 for text in (bug.title, bug.story, bug.source, bug.hint))


def test_the_same_seed_and_number_are_the_same_run_and_another_is_another():
    assert draw(1, 7) == draw(1, 7)
    assert draw(1, 7) != draw(1, 8)
    first, second = World(draw(1, 7)), World(draw(1, 7))
    assert [trace.steps for trace in first.run()] == [trace.steps for trace in second.run()]


def test_runs_hold_all_that_they_promise():
    events = [event for run in range(20) for event in draw(1, run).events]
    kinds = {"call", "again", "other", "leave", "wait_over", "kill", "hang", "late", "straggle"}
    assert {event.what for event in events} == kinds | {
        *("raise", "short", "row", "drain", "crash", "disk_full")
    }
    assert {event.size for event in events} == {1, 2, 3}
    assert {event.nature for event in events} == {"ok", "kills", "raises"}
    batches = {draw(1, run).settings.max_batch for run in range(40)}
    assert batches == {1, 2, 3, 4}


# -- what is kept ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["retry_the_dead", "empty_after_restart"])
def test_a_kept_catch_breaks_the_same_law_again(name: str, tmp_path: Path):
    small = caught(name)[2]
    names = save(small, tmp_path, "it")
    again = catch(load(tmp_path / names[0]), PLANTED[name].parts)
    assert again is not None
    assert str(again.broken) == str(small.broken)


@pytest.mark.parametrize("name", ["retry_the_dead", "poison_stays", "late_accepted"])
def test_a_kept_trace_replays_and_is_drawn_by_the_dock(name: str, tmp_path: Path):
    small = caught(name)[2]
    path = tmp_path / save(small, tmp_path, "it")[1]
    trace = read_jsonl(path.read_text(encoding="utf-8").splitlines())
    gateway = PLANTED[name].parts.gateway(trace.settings, stream(trace.seed, "gateway"))
    replayed = replay(trace, gateway, stamp)
    assert replayed.steps == small.traces[0].steps
    assert dock_segments(replayed)["docks"]


def test_a_crash_leaves_one_trace_a_life():
    small = caught("empty_after_restart")[2]
    assert len(small.traces) == 2
    assert {event.what for event in small.schedule.events} >= {"crash", "call"}


# -- the world itself -----------------------------------------------------------------------------


def world(*events: Event, parts: Parts | None = None, **settings) -> World:
    """One GPU, one seat, and these events."""
    chosen = Settings(**{"max_batch": 1, "overdue_after": 250 * MS, **settings})
    made = World(Schedule(chosen, 1, events), parts)
    made.run()
    return made


def recorded(world: World) -> list[bytes]:
    return [entry.body for entry in world.key_laws.records.values()]


def test_what_is_in_flight_at_a_crash_is_computed_once_more_under_its_key():
    made = world(Event(0, "call", 0, key=True), Event(50 * MS, "crash"))
    assert len(made.traces) == 2
    assert recorded(made) == [b"2:<p0>"]


def test_what_is_stored_before_a_crash_is_replayed_after_it():
    made = world(
        Event(0, "call", 0, key=True), Event(110 * MS, "crash"), Event(200 * MS, "again", 0)
    )
    assert recorded(made) == [b"1:<p0>"]
    assert [step.verb for step in made.traces[1].steps] == ["join"]


def test_what_is_written_and_not_heard_is_replayed_to_whoever_asks_again():
    # Answered at 100 ms, in the file at 103, heard at 104.
    made = world(Event(0, "call", 0, key=True), Event(103_500, "crash"))
    assert recorded(made) == [b"1:<p0>"]


def test_what_waits_to_be_written_at_a_crash_never_happened():
    made = world(Event(0, "call", 0, key=True), Event(102 * MS, "crash"))
    assert recorded(made) == [b"2:<p0>"]


def test_a_service_that_falls_over_is_a_catch_too():
    class Falls(Door):
        def finish(self, batch_id, result, now):
            raise LookupError("no such batch")

    parts = Parts(door=lambda behind, keys: Falls(behind, keys, render))
    found = catch(Schedule(Settings(), 1, (Event(0, "call", 0),)), parts)
    assert found is not None
    assert found.broken.law == "the service does not fall over"


def test_a_law_is_not_broken_by_a_key_that_is_used_again_after_its_time():
    events = (Event(0, "call", 0, key=True), Event(1_200 * MS, "again", 0))
    assert recorded(world(*events)) == [b"2:<p0>"]


def test_the_shrinker_leaves_what_it_cannot_make_smaller():
    small = caught("retry_the_dead")[2]
    assert shrink(small, PLANTED["retry_the_dead"].parts).schedule == small.schedule


def test_a_campaign_says_what_failed_and_where_it_is_kept(tmp_path: Path):
    class NoCommits(KeyLedger):
        def finish(self, key, holder, outcome, status, body, now):
            return super().finish(key, holder, Outcome.CANCELLED, status, body, now)

    parts = replace(Parts(), keys=NoCommits)
    report = campaign(3, 1, parts, tmp_path, stop_at_first=True)
    assert (report["runs"], report["violations"], report["seeds_failed"]) == (1, 1, [0])
    assert {path.name for path in tmp_path.iterdir()} == set(report["failures"][0]["files"])
