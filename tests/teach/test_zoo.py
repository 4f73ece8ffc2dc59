"""The laws catch every planted bug, and the hunts show what they promise."""

from random import Random

import pytest

from labkit.core.gateway import Gateway
from labkit.core.messages import Depart
from labkit.core.trace import replay
from labkit.core.units import MS
from labkit.teach.rig import Rig
from labkit.teach.zoo import ZOO, catch, hunt, morning, smallest


@pytest.mark.parametrize("bug_id", ZOO)
def test_the_laws_catch_every_bug_by_the_law_it_breaks(bug_id: str):
    caught = catch(bug_id)
    assert caught.broken.law == ZOO[bug_id].law
    assert caught.trace.steps[-1].now == caught.broken.now
    plan = caught.plan  # through which the sound gateway lives
    Rig(plan, Gateway(plan.settings, Random(1)), plan.settings.max_wait).run()


@pytest.mark.parametrize("bug_id", ["stale_timer", "restarting_timer"])
def test_the_smallest_world_that_catches_a_timer_shows_at_most_three_arrivals(bug_id: str):
    assert len(smallest(bug_id).plan.arrivals) <= 3


@pytest.mark.parametrize("bug_id", ZOO)
def test_a_hunt_shows_a_whole_morning_with_its_receipts(bug_id: str):
    trace, receipts = hunt(bug_id)
    departures = [(now, c) for now, c in trace.commands() if isinstance(c, Depart)]
    assert len(departures) == len(receipts) >= 5
    assert receipts[0].keys() == {
        "at_ms",
        "batch",
        "gpu",
        "aboard",
        "reason",
        "oldest_ms",
        "slack_ms",
        "stayed",
        "first_stayed",
    }
    assert [row["at_ms"] * MS for row in receipts] == [now for now, _ in departures]
    assert [row["aboard"] for row in receipts] == [[r.id for r in c.rows] for _, c in departures]


@pytest.mark.parametrize("bug_id", ZOO)
def test_a_hunts_trace_replays_on_its_own_bug(bug_id: str):
    trace, _ = hunt(bug_id)
    bug = ZOO[bug_id]
    assert replay(trace, bug.make(trace.settings, Random(1))).steps == trace.steps


@pytest.mark.parametrize("bug_id", ZOO)
def test_the_sound_gateway_has_a_quiet_time_on_the_mornings_of_the_hunts(bug_id: str):
    for seed in range(3):
        plan = morning(ZOO[bug_id], seed)
        Rig(plan, Gateway(plan.settings, Random(1)), plan.settings.max_wait).run()


def test_every_bug_tells_its_story_and_where_it_was_published():
    assert len(ZOO) == len({bug.title for bug in ZOO.values()}) == 26
    for bug_id, bug in ZOO.items():
        assert bug.id == bug_id
        assert bug.question.endswith("?")
        assert all(len(text) > 15 for text in (bug.story, bug.source, bug.hint, bug.title))
