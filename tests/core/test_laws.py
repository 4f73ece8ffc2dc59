"""Every law, on every combination of policies, in worlds at random."""

from random import Random

from hypothesis import HealthCheck, given, settings

from labkit.core.gateway import Gateway
from labkit.core.trace import replay
from labkit.teach.rig import Plan, Rig
from labkit.teach.scenarios import plans

worlds = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def rig(plan: Plan, gateway: Gateway | None = None) -> Rig:
    gateway = gateway or Gateway(plan.settings, Random(1))
    return Rig(plan, gateway, plan.settings.max_wait if plan.settings.rule == "ferry" else None)


@settings(worlds, max_examples=400)
@given(plans())
def test_no_world_breaks_a_law(plan: Plan) -> None:
    rig(plan).run()


@settings(worlds, max_examples=100)
@given(plans())
def test_a_trace_replays_to_the_very_same_commands(plan: Plan) -> None:
    trace = rig(plan).run()
    assert replay(trace, Gateway(plan.settings, Random(1))).steps == trace.steps
