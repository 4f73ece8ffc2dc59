"""Whether there is anybody to answer: what `/readyz` says, and which model no GPU serves."""

from labkit.core.settings import Settings
from labkit.core.units import S
from labkit.live.desk import DeskEngine
from labkit.live.http.refusals import Refusal

UNSERVED_S = 1.0
"""A model without a GPU for longer than this answers 503; a GPU that restarts is back sooner."""

STUCK_S = 1.0
"""Work that is due and has not moved for so long, besides one batch: not ready."""


class Readiness:
    """Looks at the engine now and then, and is asked in between; seconds are those of the loop.

    `draining` is for the server to set. `unserved`: models without a GPU, and since when.
    """

    def __init__(self, settings: Settings, engine: DeskEngine) -> None:
        self.draining = False
        self.unserved: dict[str, float] = {}
        self._rule = settings.rule
        self._own = {model: settings.of(model) for model in settings.models}
        self._engine = engine
        self._moved: dict[str, tuple[int, float]] = {}

    def check(self) -> None:
        """Raise `Refusal` unless whoever asks for an answer now may get one."""
        if self.draining:
            raise Refusal("draining")
        if self._engine.failure is not None:
            raise Refusal("engine_broke")
        if not self._engine.gateway.gpus():
            raise Refusal("no_ready_replica", "no GPU is in service")
        if self.is_stuck(self._engine.loop.time()):
            raise Refusal("no_ready_replica", "due work does not move")

    def look(self, now: float) -> None:
        """Notice models nobody serves, and work that does not move."""
        shell, gateway = self._engine.shell, self._engine.gateway
        for model in self._own:
            if gateway.gpus(model):
                self.unserved.pop(model, None)
            else:
                self.unserved.setdefault(model, now)
            departed = shell.departed[model]
            if departed != self._moved.get(model, (-1, 0.0))[0] or not self.is_due(model):
                self._moved[model] = (departed, now)

    def joined(self, gpu: int) -> None:
        """This GPU is in service: its model is served from now on, not from the next look."""
        self.unserved.pop(self._engine.shell.version_of(gpu), None)

    def is_unserved(self, model: str) -> bool:
        """Whether this model has been without a GPU for longer than a restart takes."""
        since = self.unserved.get(model)
        return since is not None and self._engine.loop.time() - since > UNSERVED_S

    def is_stuck(self, now: float) -> bool:
        """Whether requests for a model are due and no batch of it has departed for too long."""
        return any(
            self.is_due(model) and now - at > self._patience(model)
            for model, (_, at) in self._moved.items()
        )

    def is_due(self, model: str) -> bool:
        """Whether so many wait that a batch leaves, now or when the window is over."""
        least = self._own[model].max_batch if self._rule == "full" else 1
        return self._engine.gateway.depth(model) >= least

    def _patience(self, model: str) -> float:
        own = self._own[model]
        window = own.max_wait if own.rule == "ferry" else 0
        return STUCK_S + (own.batch_time + window) / S
