"""One HTTP request, and the way back for its response, whichever server carries both."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labkit.live.keys import Account

JSON = b"application/json"
EVENTS = b"text/event-stream; charset=utf-8"
NO_HEADERS: dict[bytes, bytes] = {}
"""In the place of those that were read; nobody writes into it."""


class Exchange(ABC):
    """A request that has arrived whole; a carrier (our own protocol, or ASGI) derives from it.

    Names of headers are lower case. Answered by one `respond`, or by `begin`, pushes, and `end` or
    `cut`. `left` is called, once, when the client goes before the response is complete. `account`
    is who asks, once that is known.
    """

    __slots__ = ("account", "body", "headers", "left", "method", "path", "peer", "started_at")

    def __init__(
        self,
        method: bytes,
        path: bytes,
        headers: Mapping[bytes, bytes],
        body: bytes,
        peer: str,
        started_at: float,
    ) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self.peer = peer
        self.started_at = started_at
        self.account: Account | None = None
        self.left: Callable[[], None] | None = None

    def forget(self) -> None:
        """What was asked is read: thousands may be open, and none needs to keep it."""
        self.headers, self.body = NO_HEADERS, b""

    @abstractmethod
    def respond(self, status: int, body: bytes, kind: bytes = JSON, extra: bytes = b"") -> None:
        """The whole response; `extra` are more header lines, each ended by CR LF."""

    @abstractmethod
    def begin(self, kind: bytes, extra: bytes, first: bytes) -> None:
        """A 200 whose body comes in pieces, and the first of them."""

    @abstractmethod
    def push(self, piece: bytes) -> None:
        """The next piece."""

    @abstractmethod
    def end(self) -> None:
        """The last piece has been pushed."""

    @abstractmethod
    def cut(self) -> None:
        """Close the connection without an end, so that nobody takes what came for the whole."""
