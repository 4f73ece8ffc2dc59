"""Worlds at random, for Hypothesis: small, tangled, and quick to shrink."""

from operator import itemgetter

from hypothesis import strategies as st

from labkit.core.messages import Request
from labkit.core.settings import DISPATCHES, RULES, Settings, TierRule
from labkit.core.units import MS, NEVER
from labkit.teach.rig import Fate, Kind, Plan

INSTANTS = st.one_of(
    st.integers(0, 12).map(lambda n: n * 25 * MS), st.integers(0, 300).map(lambda n: n * MS)
)
"""Round instants often, so that things happen at once."""

DURATIONS = st.sampled_from([100 * MS, 50 * MS, 1, 99 * MS, 101 * MS, 240 * MS, 250 * MS, 270 * MS])
"""Around one batch time, and around the 250 ms after which a batch counts as lost."""

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
def plans(
    draw: st.DrawFn,
    most: int = 14,
    among: st.SearchStrategy[Settings] | None = None,
    calm: bool = False,
) -> Plan:
    """Settings drawn from `among`, up to `most` requests, up to three GPUs, faults unless calm."""
    chosen = draw(settings() if among is None else among)
    visits = draw(st.lists(_visit(chosen.models), max_size=most))
    visits.sort(key=itemgetter(0))
    arrivals = tuple(_request(number, *visit) for number, visit in enumerate(visits))
    ids = range(len(visits))
    gpus = draw(st.integers(1, 3))
    if calm:
        return Plan(chosen, gpus, arrivals)
    some = st.sets(st.sampled_from(ids), max_size=2) if visits else st.just(set())
    drains = st.lists(st.tuples(INSTANTS, st.integers(0, 2)), max_size=1)
    cancels = st.lists(st.tuples(INSTANTS, st.integers(0, most)), max_size=3)
    return Plan(
        settings=chosen,
        gpus=gpus,
        arrivals=arrivals,
        fates=tuple(draw(st.lists(fates(), max_size=8))),
        cancels=tuple(draw(cancels)),
        drains=tuple(draw(drains)),
        poison=frozenset(draw(some)) if draw(st.integers(0, 4)) == 0 else frozenset(),
        bad=frozenset(draw(some)) if draw(st.integers(0, 4)) == 0 else frozenset(),
        back_after=draw(st.sampled_from([300 * MS, 1 * MS, None])),
        close_at=draw(st.sampled_from([None, None, 60 * MS, 200 * MS])),
    )


def _visit(models: tuple[str, ...]) -> st.SearchStrategy[tuple[int, int, str, str, int]]:
    """One request, drawn in one piece so that it can be left out in one piece."""
    patience = st.sampled_from([NEVER, NEVER, NEVER, 60 * MS, 150 * MS])
    return st.tuples(
        INSTANTS, st.integers(0, 1), st.sampled_from("ABC"), st.sampled_from(models), patience
    )


def _request(number: int, at: int, tier: int, tenant: str, model: str, patience: int) -> Request:
    deadline = NEVER if patience == NEVER else at + patience
    return Request(number, f"p{number}", at, tier, tenant, model, deadline)
