"""Every planted fault that a campaign can run: of the gateway and its mapping, and of the door."""

from dataclasses import dataclass

from labkit.teach.key_zoo import KEY_ZOO
from labkit.teach.world import Parts
from labkit.teach.zoo import ZOO


@dataclass(frozen=True, slots=True)
class Planted:
    """One fault as a campaign sees it: its name for people, and the service that has it."""

    title: str
    parts: Parts


OF_THE_GATEWAY = (
    "requeue_at_tail",
    "one_too_many",
    "cancelled_computed",
    "cancel_hangs",
    "expired_on_gpu",
    "completion_order",
    "zip_short",
    "all_fail",
    "late_accepted",
    "retry_the_dead",
    "poison_stays",
    "one_forgotten",
    "drain_accepts",
)
"""Those of the zoo that concern failure and the mapping, and show under any rule and dispatch."""

PLANTED: dict[str, Planted] = {
    **{name: Planted(ZOO[name].title, Parts(gateway=ZOO[name].make)) for name in OF_THE_GATEWAY},
    **{name: Planted(bug.title, bug.parts) for name, bug in KEY_ZOO.items()},
}
