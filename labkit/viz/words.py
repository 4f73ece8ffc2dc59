"""What the pictures say: one sentence for each thing that happens, one line for each instant."""

from typing import Any

from labkit.core.messages import Depart, Reason
from labkit.core.settings import Settings
from labkit.core.units import MS

RULES = {
    "ferry": "leave when full, or when the first has waited {window}",
    "at_once": "leave at once",
    "full": "wait until full",
}


def rule_words(settings: Settings) -> str:
    """The rule of these settings, as a title says it."""
    return RULES[settings.rule].format(window=ms(settings.max_wait))


def badge(reason: Reason, settings: Settings) -> str:
    """The one word on a boat that leaves."""
    if reason is Reason.TIMER:
        return "AT ONCE" if settings.rule == "at_once" else "TIMER"
    return {Reason.RETURNED: "RETRY"}.get(reason, reason.value.upper())


def departure_sentence(depart: Depart, now: int, settings: Settings) -> str:
    """The receipt of one departure, for people: when, why, how many, and who stayed."""
    stayed = sum(depart.receipt.stayed)
    told = (
        [] if _is_full(depart, settings) else [f"{len(depart.rows)} of {settings.max_batch} seats"]
    )
    if stayed or not told:
        told.append(f"{stayed or 'nobody'} stayed behind")
    why = _why(depart, settings)
    return f"Boat {depart.batch_id} left at {ms(now)} because {why}; {', '.join(told)}."


def _is_full(depart: Depart, settings: Settings) -> bool:
    return depart.receipt.reason is Reason.FULL and len(depart.rows) == settings.max_batch


def _why(depart: Depart, settings: Settings) -> str:
    receipt = depart.receipt
    age = ms(receipt.oldest_age)
    if receipt.reason is Reason.FULL:
        return f"it was full, and the first aboard had waited {age}"
    if receipt.reason is Reason.RETURNED:
        return "its requests had come back from a boat that sank"
    if receipt.reason is Reason.DRAIN:
        return "the dock is closing"
    if receipt.reason is Reason.GANG:
        return f"all {len(depart.gpus)} GPUs were free at once"
    if settings.rule == "at_once":
        return "somebody was aboard" if not receipt.oldest_age else f"a boat was free after {age}"
    if receipt.oldest_age > settings.max_wait:
        return f"the first aboard had waited {age}, for want of a boat"
    return f"the first aboard had waited {age}"


def loss_sentence(batch_id: int, gpu: int, back: int, now: int) -> str:
    """A boat went down with its GPU: how many return to the head of the bank."""
    return (
        f"GPU {gpu} was lost at {ms(now)} with boat {batch_id}; "
        f"{back} {'goes' if back == 1 else 'go'} back to the head of the bank."
    )


def start_sentence(bar: dict[str, Any], now: int, cost: int | None = None) -> str:
    """A batch starts; `cost`: what its GPUs stood idle for each other, in GPU-microseconds."""
    count = len(bar["gpus"])
    where = f"GPU {bar['gpus'][0]}" if count == 1 else f"{count} GPUs at once"
    size = "1 request" if bar["size"] == 1 else f"{bar['size']:,} requests"
    end = " to try again" if bar["retry"] else ""
    if cost is not None:
        end = f"; they stood idle for {cost // MS:,} GPU-ms first" if cost else "; none stood idle"
    return f"Batch {bar['id']} of {size} starts on {where} at {ms(now)}{end}."


def bar_labels(bar: dict[str, Any]) -> list[str]:
    """What may stand on a batch's bar, the longest first: the first that fits is written."""
    size = f"{bar['size']:,}"
    if bar["lost"]:
        return [f"{size} lost", size]
    if bar["gang"]:
        count = len(bar["gpus"])
        return [f"{size} on {count} GPUs", size]
    return [f"RETRY {size}", "RETRY", size] if bar["retry"] else [size]


def late_sentence(bar: dict[str, Any]) -> str:
    """A batch came back long after it was expected."""
    took, planned = bar["end"] - bar["start"], bar["planned"] - bar["start"]
    where = f"GPU {bar['gpus'][0]}" if len(bar["gpus"]) == 1 else f"{len(bar['gpus'])} GPUs"
    return f"Batch {bar['id']} took {ms(took)} on {where}, {ms(took - planned)} more than planned."


def lost_sentence(gpu: int, batch_id: int, back: int, now: int) -> str:
    """A GPU died with its batch: how many wait again."""
    return (
        f"GPU {gpu} died at {ms(now)} with batch {batch_id}; {back} "
        f"{'goes' if back == 1 else 'go'} back to the head of the queue."
    )


def failure_sentence(batch_id: int, back: int, now: int) -> str:
    """A batch came back without its answers: how many wait again."""
    return f"Batch {batch_id} failed at {ms(now)}; {back} {'tries' if back == 1 else 'try'} again."


def ms(duration: int) -> str:
    """A duration to a tenth of a millisecond: `50 ms`, `46.9 ms`."""
    return f"{round(duration / MS, 1):,.10g} ms"


def instant(at: int) -> str:
    """An instant on the time axis, to the whole millisecond: the eye needs no more."""
    return f"{at // MS:,} ms"


def short(title: str) -> str:
    """A title that fits before the time axis."""
    return title if len(title) <= 24 else f"{title[:23]}…"
