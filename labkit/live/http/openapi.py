"""The OpenAPI document, its schemas taken from the very types that decode the bodies."""

from functools import cache
from typing import Any

import msgspec

from labkit import __version__
from labkit.live.http.answers import Body, ChatChoice, Choice
from labkit.live.http.bodies import Chat, Completion
from labkit.live.http.refusals import CASES

_REF = "#/components/schemas/{name}"
_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string", "enum": sorted(CASES)},
            },
        }
    },
}
_ANYWHERE = (400, 401, 408, 413, 429, 431, 500, 503)
_KEYED = (404, 409, 415, 422, 504)


@cache
def document() -> bytes:
    """The document as JSON."""
    types, components = msgspec.json.schema_components(
        (Completion, Chat, Body[Choice], Body[ChatChoice]), ref_template=_REF
    )
    completion, chat, completed, said = types
    components["Error"] = _ERROR
    page = {
        "openapi": "3.1.0",
        "info": {
            "title": "labkit",
            "version": __version__,
            "description": "An OpenAI-compatible door in front of the lab's gateway.",
        },
        "security": [{"bearer": []}],
        "paths": {
            "/v1/models": {"get": _operation("models", _json({"type": "object"}), secured=True)},
            "/v1/completions": {"post": _answering("completions", completion, completed)},
            "/v1/chat/completions": {"post": _answering("chat", chat, said)},
            "/healthz": {"get": _operation("healthz", _json({"type": "object"}))},
            "/readyz": {"get": _operation("readyz", _json({"type": "object"}))},
            "/metrics": {"get": _operation("metrics", {"text/plain": {}})},
            "/openapi.json": {"get": _operation("openapi", _json({"type": "object"}))},
        },
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }
    return msgspec.json.encode(page)


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _errors(statuses: tuple[int, ...]) -> dict[str, Any]:
    schema = {"$ref": _REF.format(name="Error")}
    return {
        str(status): {"description": "refused; `code` says why", "content": _json(schema)}
        for status in statuses
    }


def _operation(name: str, content: dict[str, Any], secured: bool = False) -> dict[str, Any]:
    answers = {"200": {"description": "as asked", "content": content}, **_errors(_ANYWHERE)}
    return {"operationId": name, "responses": answers, **({} if secured else {"security": []})}


def _answering(name: str, body: Any, answer: Any) -> dict[str, Any]:
    content = {**_json(answer), "text/event-stream": {"schema": {"type": "string"}}}
    operation = _operation(name, content, secured=True)
    operation["responses"] |= _errors(_KEYED)
    operation["requestBody"] = {"required": True, "content": _json(body)}
    operation["parameters"] = [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "one recorded outcome for all calls that carry it, for 24 hours",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        }
    ]
    return operation
