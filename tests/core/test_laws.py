"""Every law, on every combination of policies, in worlds at random."""

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.core.gateway import Gateway
from labkit.core.settings import ModelRule, Settings, TierRule
from labkit.core.trace import replay
from labkit.core.units import MS
from labkit.teach.rig import Plan, Rig
from labkit.teach.scenarios import plans
from labkit.teach.scenarios import settings as gateways

worlds = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def rig(plan: Plan, gateway: Gateway | None = None) -> Rig:
    gateway = gateway or Gateway(plan.settings, Random(1))
    return Rig(plan, gateway, plan.settings.max_wait if plan.settings.rule == "ferry" else None)


@settings(worlds, max_examples=400)
@given(plans())
def test_no_world_breaks_a_law(plan: Plan) -> None:
    rig(plan).run()


@st.composite
def reserved(draw: st.DrawFn) -> Settings:
    """A gateway that keeps half of its queue for those who pay; it is slow, so that it fills."""
    tiers = (TierRule("paid"), TierRule("free", share=50))
    limit = draw(st.integers(2, 3))
    return draw(gateways()).with_(max_batch=1, tiers=tiers, depth_limit=limit, rule="at_once")


@settings(worlds, max_examples=100)
@given(plans(among=reserved(), most=30))
def test_no_world_breaks_a_law_where_a_part_of_the_queue_is_kept(plan: Plan) -> None:
    rig(plan).run()


@st.composite
def sized(draw: st.DrawFn) -> Settings:
    """Two models, one of which has a size of its own."""
    own = ModelRule(
        "barge",
        max_batch=draw(st.integers(1, 5)),
        batch_time=draw(st.sampled_from([40 * MS, 150 * MS])),
        max_wait=draw(st.sampled_from([0, 10 * MS, 90 * MS])),
        depth_limit=draw(st.sampled_from([None, 5, 7])),
    )
    return draw(gateways()).with_(models=("ferry", "barge"), sizes=(own,), depth_limit=None)


@settings(worlds, max_examples=100)
@given(plans(among=sized()))
def test_no_world_breaks_a_law_where_models_differ_in_size(plan: Plan) -> None:
    rig(plan).run()


@settings(worlds, max_examples=100)
@given(plans())
def test_a_trace_replays_to_the_very_same_commands(plan: Plan) -> None:
    trace = rig(plan).run()
    assert replay(trace, Gateway(plan.settings, Random(1))).steps == trace.steps
