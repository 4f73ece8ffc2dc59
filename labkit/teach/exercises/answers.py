"""Reads what came back from a learner: the right type, or `Refuted` with what came instead."""

import dis
import re
from decimal import Decimal
from math import isfinite
from numbers import Real
from types import CodeType
from typing import Any

from labkit.core.messages import Request
from labkit.teach.exercises.verdict import NotAttempted, Refuted

MOST_SHOWN = 80

_STUB_STEPS = {
    "RESUME", "NOP", "LOAD_CONST", "LOAD_GLOBAL", "PUSH_NULL", "PRECALL", "CALL", "POP_TOP",
    "RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "COPY_FREE_VARS", "CACHE",
}  # fmt: skip


def is_stub(answer: Any) -> bool:
    """Whether nothing was written yet: `...`, or a function that only returns or raises nothing."""
    if answer is ...:
        return True
    if isinstance(answer, dict):
        return bool(answer) and all(value is ... for value in answer.values())
    found = getattr(answer, "__code__", None)
    return isinstance(found, CodeType) and _is_empty(found)


def _is_empty(written: CodeType) -> bool:
    if set(written.co_names) - {"NotImplementedError"}:
        return False
    for step in dis.get_instructions(written):
        if step.opname not in _STUB_STEPS:
            return False
        constant = step.opname in ("LOAD_CONST", "RETURN_CONST")
        if constant and not (step.argval is None or step.argval is ...):
            return isinstance(step.argval, str) and bool(written.co_names)
    return True


def shown(value: Any, most: int = MOST_SHOWN) -> str:
    """A value in a few words, without an address in memory, the same on every run."""
    try:
        words = _words(value)
    except Exception as error:
        words = f"a {type(value).__name__} whose repr raises {type(error).__name__}"
    words = re.sub(r" at 0x[0-9a-f]+", "", words)
    return words if len(words) <= most else words[: most - 3] + "..."


def _words(value: Any) -> str:
    if isinstance(value, Request):
        return f"{'free' if value.tier else 'paid'} {value.id}"
    if type(value) in (list, tuple):
        inside = ", ".join(_words(one) for one in value[:20]) + (", ..." if value[20:] else "")
        alone = "," if type(value) is tuple and len(value) == 1 else ""
        return f"[{inside}]" if type(value) is list else f"({inside}{alone})"
    if type(value) is frozenset:
        return _words(set(value)) if value else "nobody"
    if type(value) is set:
        return "{" + ", ".join(sorted(map(_words, value))) + "}"
    return repr(value)


def attempted(answer: Any) -> Any:
    """The learner's answer; raises `NotAttempted` for the stub's ellipsis."""
    if answer is ...:
        raise NotAttempted
    return answer


def whole(answer: Any, what: str, given: str) -> int:
    """A whole number; `what` it is, and what was `given`, for the refusal."""
    attempted(answer)
    if isinstance(answer, int) and not isinstance(answer, bool):
        return int(answer)
    index = getattr(type(answer), "__index__", None)
    if index is not None and not isinstance(answer, bool):
        return int(index(answer))
    raise _wrong(answer, f"{what} is a whole number", given)


def rounded(answer: Any, what: str, given: str) -> int:
    """The same where rounding led there: `//` and numpy leave a float or fraction that is whole."""
    real = isinstance(answer, Real | Decimal) and not isinstance(answer, bool)
    if real and isfinite(answer) and answer == int(answer):
        return int(answer)
    return whole(answer, what, given)


def number(answer: Any, what: str, given: str) -> float:
    """A finite number; NaN and infinity are refused."""
    attempted(answer)
    good = hasattr(type(answer), "__float__") and not isinstance(answer, bool | str)
    value = float(answer) if good else float("nan")
    if value != value or value in (float("inf"), float("-inf")):
        raise _wrong(answer, f"{what} is a finite number", given)
    return value


def several(answer: Any, what: str, given: str, count: int | None = None) -> tuple[Any, ...]:
    """A list or tuple, of `count` members where that is known."""
    attempted(answer)
    if not isinstance(answer, list | tuple) or (count is not None and len(answer) != count):
        raise _wrong(answer, what, given)
    return tuple(answer)


def either(answer: Any, what: str, given: str) -> bool:
    """True or False."""
    attempted(answer)
    if type(answer).__name__ not in ("bool", "bool_"):
        raise _wrong(answer, f"{what} is True or False", given)
    return bool(answer)


def _wrong(answer: Any, wanted: str, given: str) -> Refuted:
    hint = "; did you forget to return?" if answer is None else ""
    kind = type(answer).__name__
    if kind == "coroutine":
        answer.close()
        hint = "; write `def`, not `async def`"
    if kind == "generator":
        hint = "; `return` once in place of `yield`"
    named = "" if answer is None else f" ({kind})"
    return Refuted(f"{given}: got {shown(answer)}{named}, but {wanted}{hint}")


def called(name: str, args: tuple[Any, ...]) -> str:
    """A call in words: `due_at((0, 10000), 3, 50000)`."""
    return f"{name}({', '.join(shown(arg, 48) for arg in args)})"
