"""Who asks: the account of a bearer key, and a limit on guessing keys from one address."""

import time
from collections import OrderedDict

from labkit.live.http.counters import Counters
from labkit.live.http.exchange import Exchange
from labkit.live.http.patience import retry_headers
from labkit.live.http.refusals import Refusal
from labkit.live.keys import Account, Keyring

FAILURES, FORGIVEN_PER_S = 20, 2.0
"""Unknown keys that one address may show at once, and how fast they are forgiven."""

MOST_GUESSERS = 10_000
"""Addresses whose failures are remembered; beyond them the one that failed longest ago is not."""


class Doorkeeper:
    """Knows who holds which key; assign `keyring` to replace who may come in."""

    def __init__(self, keyring: Keyring, counters: Counters) -> None:
        self.keyring = keyring
        self._counters = counters
        self._failures: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def account(self, exchange: Exchange) -> Account:
        """Who holds the bearer key; raises `Refusal`."""
        scheme, _, key = exchange.headers.get(b"authorization", b"").partition(b" ")
        account = self.keyring.find(key.strip()) if scheme.lower() == b"bearer" else None
        if account is None:
            self._counters.unknown_keys += 1
            self._check_failures(exchange.peer)
            raise Refusal("invalid_api_key", headers=b"www-authenticate: Bearer\r\n")
        exchange.account = account
        return account

    def admin(self, exchange: Exchange) -> Account:
        """The same of an admin on this machine; raises `Refusal`."""
        account = self.account(exchange)
        if not account.admin or exchange.peer not in ("127.0.0.1", "::1"):
            raise Refusal("not_an_admin")
        return account

    def _check_failures(self, peer: str) -> None:
        """A known key is never held up by who guesses beside it; a guesser soon is."""
        now = time.monotonic()
        level, since = self._failures.pop(peer, (0.0, now))
        level = max(level - (now - since) * FORGIVEN_PER_S, 0.0) + 1
        self._failures[peer] = (min(level, FAILURES + 1), now)
        if len(self._failures) > MOST_GUESSERS:
            self._failures.popitem(last=False)
        if level > FAILURES:
            raise Refusal("too_many_failures", headers=retry_headers(1 / FORGIVEN_PER_S))
