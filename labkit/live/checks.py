"""What is refused in the caller's own thread, before it could break the engine for everybody."""

from collections.abc import Iterable, Iterator
from math import isfinite

from labkit.core.messages import Request
from labkit.core.settings import Settings


def check_request(
    tier: object, tiers: int, tenant: object, model: object, deadline_ms: object
) -> None:
    """Refuse, in the caller's thread, what would break the scheduler for everybody."""
    if not isinstance(tier, int) or not 0 <= tier < tiers:
        raise ValueError(f"tier {tier!r}: this engine has tiers 0 to {tiers - 1}; give one of them")
    for name, text in (("tenant", tenant), ("model", model)):
        if not isinstance(text, str):
            raise ValueError(f"{name} {text!r}: must be text; pass a string")
    if deadline_ms is None:
        return
    if not isinstance(deadline_ms, int | float) or not isfinite(deadline_ms):
        raise ValueError(
            f"deadline_ms {deadline_ms!r}: must be a number of milliseconds, such as 200; "
            "leave it out for none"
        )


def check_amount(what: str, amount: object, wanted: str, above: bool = False) -> None:
    """A clock that is told nan, or to run backwards, harms more than the GPU it was meant for."""
    good = isinstance(amount, int | float) and isfinite(amount) and amount >= 0
    if not good or (above and not amount):
        raise ValueError(f"{what} {amount!r}: must be {wanted}")


def checked_arrivals(arrivals: Iterable[Request], settings: Settings) -> Iterator[Request]:
    """The same, as long as each may be asked of an engine with these settings; else ValueError."""
    models, tiers = settings.models, len(settings.tiers)
    for number, request in enumerate(arrivals):
        try:
            check_request(request.tier, tiers, request.tenant, request.model, None)
            if request.model not in models:
                raise ValueError(f"model {request.model!r}: this engine serves {', '.join(models)}")
        except ValueError as error:
            raise ValueError(f"arrival {number}: {error}") from None
        yield request
