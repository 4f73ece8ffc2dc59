"""How a request ends without an answer: one class an outcome, each with its remedy."""

from labkit.core.messages import End, Outcome


class LiveError(RuntimeError):
    """Something about the engine itself: says what, and what to do."""


class NoAnswer(Exception):
    """A request ended without an answer; `code` is for programs, the message for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Rejected(NoAnswer):
    """It was never let in."""


class Expired(NoAnswer):
    """It waited in the queue for longer than it may."""


class Cancelled(NoAnswer):
    """It was withdrawn before it was answered."""


class Failed(NoAnswer):
    """It was let in and could not be answered."""


_SENTENCES = {
    "queue_full": "as many requests wait as the latency budget can serve; send it again later",
    "tier_quota": "its tier's part of the queue is full; send it again later",
    "draining": "the engine is closing and lets nobody in; start it again, then send",
    "unknown_model": "the engine serves no such model; name one of its Settings.models",
    "too_many_open": "too many replies are not collected yet; collect some, then send",
    "deadline_exceeded": "it waited too long in the queue; lower the rate, or give it more time",
    "client_left": "it was cancelled before it was answered",
    "engine_broke": "the engine broke; stop it, start a new one, then send",
    "engine_stopped": "the engine stopped before it was answered; start it again, then send",
}
_CLASSES = {
    Outcome.REJECTED: Rejected,
    Outcome.EXPIRED: Expired,
    Outcome.CANCELLED: Cancelled,
    Outcome.FAILED: Failed,
}


def error_of(end: End) -> NoAnswer:
    """The exception for a request that ended like this."""
    message = _SENTENCES.get(end.detail, end.detail)
    return _CLASSES[end.outcome](end.detail, f"request {end.request_id}: {message}")
