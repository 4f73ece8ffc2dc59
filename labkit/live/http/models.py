"""Models by the names that a client may use, and as `/v1/models` describes them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from labkit.live.http.refusals import Refusal


class Models:
    """All models of one server, perhaps with a version (`ferry@1`).

    `names`: every name a client may use, with the version or without, to the model it means: of
    several versions the last one. `created`: seconds since 1970.
    """

    def __init__(self, models: Sequence[str], created: int) -> None:
        latest = {model.partition("@")[0]: model for model in models}
        self.names = latest | {model: model for model in models}
        self._models = models
        self._created = created

    def named(self, name: str) -> str:
        """The model that a client means by this name; raises `Refusal`."""
        model = self.names.get(name)
        if model is None:
            raise Refusal("model_not_found", f"no model {name!r}; see /v1/models", "model")
        return model

    def described(self, name: str) -> bytes:
        """The JSON of one; raises `Refusal`."""
        return _encode(self._row(self.named(name)))

    def listed(self) -> bytes:
        """The JSON of all."""
        rows = [self._row(model) for model in self._models]
        return _encode({"object": "list", "data": rows})

    def _row(self, model: str) -> dict[str, Any]:
        return {"id": model, "object": "model", "created": self._created, "owned_by": "labkit"}


_encode = msgspec.json.Encoder().encode
