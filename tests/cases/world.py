"""A small world told in milliseconds, with every law watching."""

from collections import Counter
from dataclasses import dataclass, fields
from functools import cached_property
from random import Random
from typing import Any

from labkit.core.gateway import Gateway
from labkit.core.messages import Answer, Depart, End, Outcome, Request, Stop
from labkit.core.settings import Settings
from labkit.core.trace import Trace
from labkit.core.units import MS
from labkit.teach.rig import Fate, Plan, Rig

OF_THE_PLAN = {field.name for field in fields(Plan)}


def at(ms: float, *ids: int, **others: Any) -> list[Request]:
    """Requests with these ids that arrive at one instant."""
    return [Request(i, f"p{i}", arrived_at=round(ms * MS), **others) for i in ids]


def takes(ms: float, kind: str = "ok") -> Fate:
    """A batch that ends in this way after so many milliseconds."""
    return Fate(kind, round(ms * MS))  # type: ignore[arg-type]


@dataclass
class Story:
    """What happened, in milliseconds."""

    gateway: Gateway
    trace: Trace

    @cached_property
    def departures(self) -> list[tuple[float, list[int]]]:
        return [
            (now / MS, [row.id for row in c.rows])
            for now, c in self.trace.commands()
            if isinstance(c, Depart)
        ]

    @cached_property
    def gpus(self) -> list[int]:
        return [c.gpus[0] for _, c in self.trace.commands() if isinstance(c, Depart)]

    @cached_property
    def answered(self) -> dict[int, float]:
        pairs = [
            (row.id, output, now / MS)
            for now, c in self.trace.commands()
            if isinstance(c, Answer)
            for row, output in zip(c.rows, c.outputs, strict=True)
        ]
        assert all(output == f"<p{request_id}>" for request_id, output, _ in pairs)
        assert len({request_id for request_id, _, _ in pairs}) == len(pairs)
        return {request_id: now for request_id, _, now in pairs}

    @cached_property
    def ends(self) -> dict[int, tuple[float, Outcome]]:
        return {
            c.request_id: (now / MS, c.outcome)
            for now, c in self.trace.commands()
            if isinstance(c, End)
        }

    @cached_property
    def outcomes(self) -> Counter[Outcome]:
        ended = Counter(outcome for _, outcome in self.ends.values())
        ended[Outcome.ANSWERED] = len(self.answered)
        return +ended

    @cached_property
    def stops(self) -> list[tuple[float, int]]:
        return [(now / MS, c.gpu) for now, c in self.trace.commands() if isinstance(c, Stop)]

    @cached_property
    def deaths(self) -> int:
        return sum(step.verb == "lose" for step in self.trace.steps)


def live(*arrivals: list[Request], gpus: int = 1, **others: Any) -> Story:
    """Live through a plan: G is one GPU of 100 ms a batch, cap 100, window 50."""
    ours = {name: others.pop(name) for name in list(others) if name in OF_THE_PLAN}
    settings = Settings(**others)
    requests = sorted((r for some in arrivals for r in some), key=lambda r: r.arrived_at)
    gateway = Gateway(settings, Random(1))
    plan = Plan(settings, gpus, tuple(requests), **ours)
    rig = Rig(plan, gateway, settings.max_wait if settings.rule == "ferry" else None)
    return Story(gateway, rig.run())
