"""The few calls of the `openai` client that the lab makes, for where that package is missing."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

PATIENCE_S = 60.0
_OPENER = build_opener(ProxyHandler({}))


class APIStatusError(Exception):
    """The server said no: `status_code`, and `code` from the body."""

    def __init__(self, status_code: int, body: dict[str, Any]) -> None:
        super().__init__(f"Error code: {status_code} - {body}")
        self.status_code = status_code
        self.code = body["error"]["code"]


class AuthenticationError(APIStatusError):
    """A key that nobody has."""


class OpenAI:
    """`completions.create`, plain and streamed, over urllib; no retries."""

    def __init__(self, *, base_url: str, api_key: str) -> None:
        self.base_url = base_url.rstrip("/")
        self.api_key = api_key
        self.completions = Completions(self)


class Completions:
    """What hangs under `client.completions`."""

    def __init__(self, client: OpenAI) -> None:
        self._client = client

    def create(self, *, stream: bool = False, **body: Any) -> Any:
        """A completion, or an iterator of its pieces; raises `APIStatusError`."""
        request = Request(
            f"{self._client.base_url}/completions",
            json.dumps({**body, "stream": stream}).encode(),
            {
                "authorization": f"Bearer {self._client.api_key}",
                "content-type": "application/json",
            },
        )
        try:
            response = _OPENER.open(request, timeout=PATIENCE_S)
        except HTTPError as refused:
            with refused:
                kind = AuthenticationError if refused.code == 401 else APIStatusError
                raise kind(refused.code, json.load(refused)) from None
        if stream:
            return _pieces(response)
        with response:
            return _named(response.read())


def _pieces(response: Any) -> Iterator[Any]:
    """The events of a stream, until it says that it is done."""
    with response:
        for line in response:
            event = line.strip().removeprefix(b"data: ")
            if event == b"[DONE]":
                return
            if event:
                yield _named(event)


def _named(text: bytes) -> Any:
    return json.loads(text, object_hook=lambda fields: SimpleNamespace(**fields))
