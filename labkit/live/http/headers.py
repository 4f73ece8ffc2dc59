"""What a client may say in header lines: a type, an idempotency key, and how long it will wait."""

from labkit.core.idempotency import Key
from labkit.core.units import NEVER, S
from labkit.live.http.exchange import Exchange
from labkit.live.http.refusals import Refusal
from labkit.live.keys import Account

LONGEST_HINT_S = 3_600.0


def check_type(exchange: Exchange) -> None:
    """Raise `Refusal` for a body that says it is anything but JSON."""
    kind = exchange.headers.get(b"content-type")
    if kind is None or kind == b"application/json":
        return
    if kind.partition(b";")[0].strip().lower() != b"application/json":
        raise Refusal("unsupported_media_type")


def key_of(text: bytes, exchange: Exchange, account: Account) -> Key:
    """An idempotency key, raw or in quotes; whose it is and for what is part of it."""
    word = text.decode("latin-1").strip()
    if len(word) >= 2 and word[0] == word[-1] == '"':
        word = word[1:-1]
    if not (1 <= len(word) <= 255 and word.isascii() and word.isprintable()):
        raise Refusal("invalid_idempotency_key")
    return Key(account.tenant, f"{exchange.method.decode()} {exchange.path.decode()}", word)


def deadline_of(seconds: bytes | None, now: int) -> int:
    """Until when the client says it will wait; a hint that makes no sense is none."""
    if seconds is None:
        return NEVER
    try:
        hint = float(seconds)
    except ValueError:
        return NEVER
    return now + round(hint * S) if 0 < hint <= LONGEST_HINT_S else NEVER
