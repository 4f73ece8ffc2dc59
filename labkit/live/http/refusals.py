"""Every way the door says no: a status, a type, a code, and a sentence that helps."""

from dataclasses import dataclass
from typing import Final

import msgspec

from labkit.core.door import NO_BODY
from labkit.core.messages import End, Outcome

INVALID: Final = "invalid_request_error"
BUSY: Final = "rate_limit_error"
SERVER: Final = "server_error"
KEYED: Final = "idempotency_error"


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table: status, type and sentence; `again`: a retry may help."""

    status: int
    type: str
    message: str
    again: bool = False


CASES: Final[dict[str, Case]] = {
    "bad_http": Case(400, INVALID, "this is not HTTP/1.1"),
    "headers_too_large": Case(431, INVALID, "too many header bytes; send fewer or shorter ones"),
    "expectation_failed": Case(417, INVALID, "the one expectation met here is 100-continue"),
    "request_timeout": Case(408, INVALID, "the request did not arrive in time; send it at once"),
    "invalid_json": Case(400, INVALID, "the body is not JSON in UTF-8"),
    "invalid_value": Case(400, INVALID, "a field has a value that cannot be served"),
    "unsupported_value": Case(400, INVALID, "this server does not do that; leave the field out"),
    "unsupported_media_type": Case(415, INVALID, "send Content-Type: application/json"),
    "body_too_large": Case(413, INVALID, "the body is over the cap; send less at once"),
    "batch_too_large": Case(400, INVALID, "too many prompts in one list; send fewer at once"),
    "context_length_exceeded": Case(400, INVALID, "longer than this tier may be; shorten it"),
    "invalid_api_key": Case(401, INVALID, "no such key; send Authorization: Bearer <key>"),
    "too_many_failures": Case(429, BUSY, "too many unknown keys from here; wait", again=True),
    "not_an_admin": Case(403, INVALID, "this needs an admin key, from this machine"),
    "not_found": Case(404, INVALID, "no such path; /openapi.json lists them"),
    "method_not_allowed": Case(405, INVALID, "not this method; see the Allow header"),
    "model_not_found": Case(404, INVALID, "no such model; /v1/models lists them"),
    "idempotency_in_flight": Case(
        409, KEYED, "the first request with this key still runs; come back for its answer", True
    ),
    "idempotency_key_reuse": Case(
        422, KEYED, "another request was sent with this key before; use a new key"
    ),
    "invalid_idempotency_key": Case(
        400, INVALID, "an idempotency key is 1 to 255 printable ASCII characters"
    ),
    "request_failed": Case(
        422, "request_failed_error", "this request alone broke its workers; do not send it again"
    ),
    "queue_full": Case(
        429, BUSY, "as many requests wait as can be served in time; come back later", True
    ),
    "tier_quota": Case(429, BUSY, "your tier's part of the queue is full; come back later", True),
    "too_many_keys": Case(429, BUSY, "too many keyed requests are in flight; come back", True),
    "no_ready_replica": Case(503, SERVER, "no GPU serves this model now; come back later", True),
    "draining": Case(503, SERVER, "the server is shutting down; come back later", True),
    "engine_broke": Case(503, SERVER, "the engine broke; tell whoever runs this server", True),
    "ledger_failed": Case(503, SERVER, "the outcome could not be kept; send it again", True),
    "gpu_lost": Case(503, SERVER, "the GPU was lost in the middle of this stream; send it again"),
    "batch_failed": Case(
        503, SERVER, "its batch failed in the middle of this stream; send it again"
    ),
    "too_many_connections": Case(503, SERVER, "too many connections are open", True),
    "deadline_exceeded": Case(504, SERVER, "it waited in the queue for longer than it may", True),
    "client_left": Case(499, INVALID, "the client left"),
    "internal_error": Case(500, SERVER, "a defect of this server; tell whoever runs it"),
}
"""By code. 429 says busy, 503 nobody there; what would break more workers is 422, which no client
sends again by itself."""

_OF_END = {"unknown_model": "model_not_found", "engine_stopped": "draining"}


LONGEST = 500
"""Characters of a message: who sends a megabyte as a name does not get it back."""


class Refusal(Exception):
    """A request that is not served: its `code` names a row of `CASES`.

    `message` adds to the row's own; `param` names the field; `headers` are more of them, as bytes.
    """

    def __init__(
        self,
        code: str,
        message: str | None = None,
        param: str | None = None,
        headers: bytes = b"",
    ) -> None:
        case = CASES[code]
        text = message or case.message
        super().__init__(text if len(text) <= LONGEST else f"{text[:LONGEST]} ...")
        self.code = code
        self.param = param
        self.status = case.status
        self.headers = headers

    @property
    def again(self) -> bool:
        """Whether the same request may be served later."""
        return CASES[self.code].again

    def body(self) -> bytes:
        """The JSON body, as OpenAI's clients read it."""
        return _encode(
            {
                "error": {
                    "message": str(self),
                    "type": CASES[self.code].type,
                    "param": self.param,
                    "code": self.code,
                }
            }
        )


_encode = msgspec.json.Encoder().encode


def code_of(body: bytes) -> str:
    """The code in an error body that a refusal made."""
    return str(msgspec.json.decode(body)["error"]["code"])


def refusal_of(end: End) -> Refusal:
    """How the door says that a request ended without an answer."""
    code = _OF_END.get(end.detail, end.detail)
    if code in CASES:
        return Refusal(code)
    if end.outcome is Outcome.FAILED and not end.detail.startswith(NO_BODY):
        return Refusal("request_failed", f"{CASES['request_failed'].message}: {end.detail}")
    return Refusal("internal_error", f"{end.outcome}: {end.detail}")
