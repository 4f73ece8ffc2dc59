"""The OpenAPI document: schemas from the types that decode the bodies, limits from the caps."""

from functools import cache
from typing import Any

import msgspec

from labkit import __version__
from labkit.live.http.answers import Body, ChatChoice, ChatPiece, Choice
from labkit.live.http.bodies import CAPS, MOST_BODY, MOST_PROMPTS, ROLES, Chat, Completion
from labkit.live.http.patience import LEAST_S, MOST_S
from labkit.live.http.refusals import CASES

Schema = dict[str, Any]

_REF = "#/components/schemas/{name}"
_ANYWHERE = (400, 405, 408, 413, 417, 431, 500, 503)
"""Refusals that any request may meet, most of them before it has arrived whole."""

_WITH_KEY = (401, 429)
_ANSWERING = (404, 409, 415, 422, 504)
_TEXT: Schema = {"type": "string"}
_WHOLE: Schema = {"type": "integer"}
_DONE: Schema = {
    "type": "object",
    "required": ["status"],
    "properties": {"status": {"enum": ["ok", "ready", "done"]}},
}


@cache
def document(models: tuple[str, ...]) -> bytes:
    """The document as JSON, of a server with these names for its models."""
    types, components = msgspec.json.schema_components(
        (Completion, Chat, Body[Choice], Body[ChatChoice], Body[ChatPiece]), ref_template=_REF
    )
    _limit(components, models)
    completion, chat, completed, said, piece = types
    for status in {case.status for case in CASES.values()}:
        components[f"Error{status}"] = _error(status)
    page = {
        "openapi": "3.1.0",
        "info": {
            "title": "labkit",
            "version": __version__,
            "description": "An OpenAI-compatible door in front of the lab's gateway. GET also "
            f"answers HEAD. No body may be over {MOST_BODY} bytes.",
        },
        "security": [{"bearer": []}],
        "paths": {
            "/v1/completions": {
                "post": _answering("completions", completion, completed, completed)
            },
            "/v1/chat/completions": {"post": _answering("chat", chat, said, piece)},
            "/v1/models": {"get": _operation("models", _json(_MODELS), _WITH_KEY)},
            "/v1/models/{model}": {"get": _one_model(models)},
            "/healthz": {"get": _operation("healthz", _json(_DONE))},
            "/readyz": {"get": _operation("readyz", _json(_DONE))},
            "/metrics": {"get": _operation("metrics", {"text/plain": {"schema": _TEXT}})},
            "/openapi.json": {"get": _operation("openapi", _json({"type": "object"}))},
            "/lab/gpus": {"get": _operation("gpus", _json(_list("gpus", _GPU)), _LAB)},
            "/lab/receipts": {
                "get": _operation("receipts", _json(_list("receipts", _RECEIPT)), _LAB)
            },
            "/lab/gpus/{number}/{verb}": {"post": _breaking()},
        },
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }
    return msgspec.json.encode(page)


# -- what may be sent -----------------------------------------------------------------------------


def _limit(components: dict[str, Any], models: tuple[str, ...]) -> None:
    """Add what the decoder leaves to the checks after it: the most that any tier may ask for."""
    prompt = max(caps.prompt for caps in CAPS.values())
    most = max(caps.max_tokens for caps in CAPS.values())
    text = {"type": "string", "maxLength": prompt}
    least_one = {"minItems": 1}
    asked = components["Completion"]["properties"]
    asked["prompt"] = {
        "description": f"tokens are bytes of UTF-8; a tier may allow fewer than {prompt}",
        "anyOf": [
            text,
            {"type": "array", "items": text, "maxItems": MOST_PROMPTS, **least_one},
        ],
    }
    said = components["Chat"]["properties"]
    said["messages"] |= least_one
    for properties in (asked, said):
        for name in ("max_tokens", "max_completion_tokens"):
            if name in properties:
                limits = {"type": "integer", "minimum": 1, "maximum": most}
                properties[name] = {"anyOf": [limits, {"type": "null"}]}
        properties["n"] = {"enum": [1, None]}
        properties["stop"] = {"enum": [None, "", []]}
        properties["model"] = {"enum": list(models)}
    asked |= {
        "best_of": {"enum": [1, None]},
        "echo": {"enum": [False, None]},
        "suffix": {"enum": ["", None]},
        "logprobs": {"type": "null"},
    }
    said |= {
        "logprobs": {"enum": [False, None]},
        "tools": {"anyOf": [{"type": "array", "maxItems": 0}, {"type": "null"}]},
    }
    components["Message"]["properties"]["role"] = {"enum": sorted(ROLES)}
    part = components["Part"]
    part["properties"] = {"type": {"const": "text"}, "text": _TEXT}
    part["required"] = ["type", "text"]


def _parameter(name: str, where: str, schema: Schema, description: str) -> Schema:
    return {
        "name": name,
        "in": where,
        "required": where == "path",
        "description": description,
        "schema": schema,
    }


_HEADERS = [
    _parameter(
        "Idempotency-Key",
        "header",
        {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]*[!-~][ -~]*$"},
        "raw or in quotes: one recorded outcome for all calls that carry it, for 24 hours",
    ),
    _parameter(
        "X-Stainless-Read-Timeout",
        "header",
        _TEXT,
        "seconds that the client will wait: a deadline, where that makes sense",
    ),
    _parameter("X-Stainless-Retry-Count", "header", _TEXT, "counted, where it is not 0"),
]


# -- what may come back ---------------------------------------------------------------------------


def _object(required: dict[str, Schema], **optional: Schema) -> Schema:
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **optional},
    }


def _list(name: str, item: Schema) -> Schema:
    return _object({name: {"type": "array", "items": item}})


_MODEL = _object(
    {
        "id": _TEXT,
        "object": {"const": "model"},
        "created": _WHOLE,
        "owned_by": {"const": "labkit"},
    }
)
_MODELS = _object({"object": {"const": "list"}, "data": {"type": "array", "items": _MODEL}})
_GPU = _object(
    {
        "gpu": _WHOLE,
        "model": _TEXT,
        "state": _TEXT,
        "aboard": _WHOLE,
        "pid": {"type": ["integer", "null"]},
        "restarts": _WHOLE,
    }
)
_RECEIPT = _object({"at_ms": {"type": "number"}, "size": _WHOLE, "reason": _TEXT, "model": _TEXT})
_LAB = (*_WITH_KEY, 403, 404)


def _error(status: int) -> Schema:
    """The body of every refusal with this status."""
    codes = sorted(code for code, case in CASES.items() if case.status == status)
    types = sorted({CASES[code].type for code in codes})
    return _object(
        {
            "error": _object(
                {
                    "message": _TEXT,
                    "type": {"enum": types},
                    "param": {"type": ["string", "null"]},
                    "code": {"enum": codes},
                }
            )
        }
    )


def _header(schema: Schema, description: str, required: bool = True) -> Schema:
    return {"required": required, "description": description, "schema": schema}


_AGAIN = {
    "Retry-After": _header(
        {"type": "integer", "minimum": LEAST_S, "maximum": MOST_S}, "seconds, measured"
    ),
    "Retry-After-Ms": _header(
        {"type": "integer", "minimum": 1, "maximum": MOST_S * 1_000}, "the same, finer", False
    ),
}
_TOLD = {
    401: {"WWW-Authenticate": _header({"const": "Bearer"}, "what to show")},
    405: {"Allow": _header(_TEXT, "the methods that are served")},
    409: _AGAIN,
    429: _AGAIN
    | {
        "RateLimit": _header(_TEXT, "what is left: nothing, until so many seconds from now"),
        "RateLimit-Policy": _header(_TEXT, "how many may wait"),
    },
    503: _AGAIN,
    504: _AGAIN,
}
_NAMED = {
    "X-Request-Id": _header(_TEXT, "the id of the answer, under which the server logs it"),
    "Idempotent-Replayed": _header({"const": "true"}, "this was recorded before", False),
}


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def _errors(statuses: tuple[int, ...]) -> Schema:
    made = {}
    for status in statuses:
        codes = ", ".join(sorted(code for code, case in CASES.items() if case.status == status))
        made[str(status)] = {
            "description": f"refused; one of {codes}",
            "content": _json({"$ref": _REF.format(name=f"Error{status}")}),
            **({"headers": _TOLD[status]} if status in _TOLD else {}),
        }
    return made


def _operation(name: str, content: Schema, statuses: tuple[int, ...] = ()) -> Schema:
    """One operation; without statuses of its own it is open to everybody."""
    done = {"200": {"description": "as asked", "content": content}}
    made = {"operationId": name, "responses": {**done, **_errors((*_ANYWHERE, *statuses))}}
    return made if statuses else {**made, "security": []}


def _event(piece: Schema) -> Schema:
    """One of the events that a stream is a sequence of."""
    broken = {"$ref": _REF.format(name="Error503")}
    told = {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"anyOf": [piece, broken]},
    }
    end = {"const": "[DONE]"}
    return _object(
        {"data": {"description": "the last is an error or an end", "anyOf": [end, told]}}
    )


def _answering(name: str, body: Schema, answer: Schema, piece: Schema) -> Schema:
    content = {**_json(answer), "text/event-stream": {"schema": _event(piece)}}
    operation = _operation(name, content, (*_WITH_KEY, *_ANSWERING))
    operation["responses"]["200"]["headers"] = _NAMED
    operation["requestBody"] = {
        "required": True,
        "description": f"at most {MOST_BODY} bytes",
        "content": _json(body),
    }
    operation["parameters"] = _HEADERS
    return operation


def _one_model(models: tuple[str, ...]) -> Schema:
    operation = _operation("model", _json(_MODEL), (*_WITH_KEY, 404))
    names = {"enum": list(models)}
    operation["parameters"] = [_parameter("model", "path", names, "a name that the list has")]
    return operation


def _breaking() -> Schema:
    operation = _operation("break", _json(_DONE), _LAB)
    verbs = ["kill", "hang", "straggle", "poison", "drain"]
    operation["parameters"] = [
        _parameter("number", "path", {"type": "integer", "minimum": 0}, "which GPU"),
        _parameter("verb", "path", {"enum": verbs}, "what becomes of it"),
    ]
    return operation
