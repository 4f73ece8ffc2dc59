"""Worlds at random, for Hypothesis: small, tangled, and quick to shrink."""

from hypothesis import strategies as st

from labkit.core.messages import Request
from labkit.core.settings import DISPATCHES, RULES, Settings, TierRule
from labkit.core.units import MS, NEVER
from labkit.teach.rig import Fate, Kind, Plan

INSTANTS = st.one_of(
    st.integers(0, 12).map(lambda n: n * 25 * MS), st.integers(0, 300).map(lambda n: n * MS)
)
"""Round instants often, so that things happen at once."""

DURATIONS = st.sampled_from([100 * MS, 50 * MS, 1, 99 * MS, 101 * MS, 240 * MS])

KINDS: tuple[Kind, ...] = ("ok", "ok", "ok", "die", "hang", "raise", "short", "row")


@st.composite
def settings(draw: st.DrawFn) -> Settings:
    """Any gateway that a small world can hold."""
    max_batch = draw(st.integers(1, 4))
    timeouts = st.sampled_from([NEVER, NEVER, 120 * MS, 400 * MS])
    return Settings(
        max_batch=max_batch,
        max_wait=draw(st.sampled_from([0, 20 * MS, 50 * MS])),
        rule=draw(st.sampled_from(RULES)),
        dispatch=draw(st.sampled_from(DISPATCHES)),
        backlog=draw(st.sampled_from([0, 0, 1, 3, None])),
        depth_limit=draw(st.sampled_from([None, max_batch, max_batch + 3])),
        overdue_after=250 * MS,
        tiers=(TierRule("paid", draw(timeouts)), TierRule("free", draw(timeouts))),
        models=draw(st.sampled_from([("ferry",), ("ferry",), ("ferry", "barge")])),
    )


@st.composite
def fates(draw: st.DrawFn) -> Fate:
    """Mostly fine."""
    kinds: st.SearchStrategy[Kind] = st.sampled_from(KINDS)
    return Fate(draw(kinds), draw(DURATIONS))


@st.composite
def plans(draw: st.DrawFn, most: int = 14) -> Plan:
    """A gateway's settings, up to `most` requests, up to three GPUs, and faults."""
    chosen = draw(settings())
    instants = sorted(draw(st.lists(INSTANTS, max_size=most)))
    ids = range(len(instants))
    arrivals = tuple(_request(draw, i, at, chosen.models) for i, at in enumerate(instants))
    some = st.sets(st.sampled_from(ids), max_size=2) if instants else st.just(set())
    drains = st.lists(st.tuples(INSTANTS, st.integers(0, 2)), max_size=1)
    cancels = st.lists(st.tuples(INSTANTS, st.integers(0, most)), max_size=3)
    return Plan(
        settings=chosen,
        gpus=draw(st.integers(1, 3)),
        arrivals=arrivals,
        fates=tuple(draw(st.lists(fates(), max_size=8))),
        cancels=tuple(draw(cancels)),
        drains=tuple(draw(drains)),
        poison=frozenset(draw(some)) if draw(st.integers(0, 4)) == 0 else frozenset(),
        bad=frozenset(draw(some)) if draw(st.integers(0, 4)) == 0 else frozenset(),
        back_after=draw(st.sampled_from([300 * MS, 1 * MS, None])),
        close_at=draw(st.sampled_from([None, None, 60 * MS, 200 * MS])),
    )


def _request(draw: st.DrawFn, number: int, at: int, models: tuple[str, ...]) -> Request:
    return Request(
        id=number,
        prompt=f"p{number}",
        arrived_at=at,
        tier=draw(st.integers(0, 1)),
        tenant=draw(st.sampled_from("ABC")),
        model=draw(st.sampled_from(models)),
        deadline=draw(st.sampled_from([NEVER, NEVER, NEVER, at + 60 * MS, at + 150 * MS])),
    )
