"""A trace: the log of what a scheduler was told, from which everything it did replays exactly."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, TextIO

from labkit.core.contract import Scheduler
from labkit.core.messages import BatchError, Command, Depart, Request, Result, RowError
from labkit.core.said import said
from labkit.core.settings import Settings

FORMAT = 1
ARGUMENTS = {
    "arrive": 1,
    "cancel": 1,
    "finish": 2,
    "join": 2,
    "lose": 1,
    "drain": 1,
    "close": 0,
    "advance": 0,
}
"""The verbs, and how many arguments each takes besides the instant."""


class TraceFormatError(ValueError):
    """A trace file that cannot be read: says the line, what it holds, and the remedy."""


@dataclass(frozen=True, slots=True)
class Step:
    """One verb call at one instant, and the commands it returned."""

    now: int
    verb: str
    args: tuple[Any, ...]
    commands: tuple[Command, ...] = ()


@dataclass(slots=True)
class Trace:
    """Settings, seed and steps of one run, from an empty start.

    `dropped` counts steps that a ring forgot; such a trace can be looked at but not replayed.
    `said`: of a trace read from a file, what each step had said (`labkit.core.said`), if it holds
    that.
    """

    settings: Settings
    seed: int = 0
    steps: deque[Step] = field(default_factory=deque)
    dropped: int = 0
    said: list[int] | None = field(default=None, compare=False)

    def commands(self) -> Iterator[tuple[int, Command]]:
        """Every command with the instant at which it was given."""
        for step in self.steps:
            for command in step.commands:
                yield step.now, command


class Recorder:
    """A scheduler that notes down every call to the scheduler it wraps.

    `ring`: keep only the last so many steps; None keeps all. Refuses time that runs backwards.
    """

    def __init__(
        self, scheduler: Scheduler, settings: Settings, seed: int = 0, ring: int | None = None
    ) -> None:
        self.scheduler = scheduler
        self.trace = Trace(settings, seed, deque(maxlen=ring))
        self.now = 0

    @property
    def due_at(self) -> int:
        """The wrapped scheduler's."""
        return self.scheduler.due_at

    def _tell(self, verb: str, args: tuple[Any, ...], now: int) -> Sequence[Command]:
        if now < self.now:
            raise ValueError(f"{verb} at {now} us after {self.now} us: time never decreases")
        self.now = now
        commands: Sequence[Command] = getattr(self.scheduler, verb)(*args, now)
        steps = self.trace.steps
        if len(steps) == steps.maxlen:
            self.trace.dropped += 1
        steps.append(Step(now, verb, args, tuple(commands)))
        return commands

    def arrive(self, request: Request, now: int) -> Sequence[Command]:
        """Noted down and passed on, like every verb here."""
        return self._tell("arrive", (request,), now)

    def cancel(self, request_id: int, now: int) -> Sequence[Command]:
        """See `Scheduler.cancel`."""
        return self._tell("cancel", (request_id,), now)

    def finish(self, batch_id: int, result: Result, now: int) -> Sequence[Command]:
        """See `Scheduler.finish`."""
        return self._tell("finish", (batch_id, result), now)

    def join(self, gpu: int, version: str | None, now: int) -> Sequence[Command]:
        """See `Scheduler.join`."""
        return self._tell("join", (gpu, version), now)

    def lose(self, gpu: int, now: int) -> Sequence[Command]:
        """See `Scheduler.lose`."""
        return self._tell("lose", (gpu,), now)

    def drain(self, gpu: int, now: int) -> Sequence[Command]:
        """See `Scheduler.drain`."""
        return self._tell("drain", (gpu,), now)

    def close(self, now: int) -> Sequence[Command]:
        """See `Gateway.close`."""
        return self._tell("close", (), now)

    def advance(self, now: int) -> Sequence[Command]:
        """See `Scheduler.advance`."""
        return self._tell("advance", (), now)


def same_outputs(prompt: str) -> str:
    """The answer assumed when a trace is read without its outputs: the prompt itself."""
    return prompt


def replay(
    trace: Trace, scheduler: Scheduler, answer: Callable[[str], str] = same_outputs
) -> Trace:
    """Tell a fresh scheduler everything again; the new trace holds the commands it gave.

    Outputs that the trace does not hold are recomputed by `answer`.
    """
    if trace.dropped:
        raise ValueError(
            f"this trace forgot its first {trace.dropped} steps and does not replay; "
            "record without a ring"
        )
    recorder = Recorder(scheduler, trace.settings, trace.seed)
    rows: dict[int, tuple[Request, ...]] = {}
    for step in trace.steps:
        args = step.args
        if step.verb == "finish" and args[1] is None:
            args = (args[0], [answer(row.prompt) for row in rows.get(args[0], ())])
        elif step.verb == "finish" and isinstance(args[1], dict):
            args = (args[0], _result_from(args[1], rows.get(args[0], ()), answer))
        for command in getattr(recorder, step.verb)(*args, step.now):
            if isinstance(command, Depart):
                rows[command.batch_id] = command.rows
    return recorder.trace


def first_difference(trace: Trace, again: Trace) -> int | None:
    """The first step, counted from 0, at which a replay said something else; None if none did.

    Raises ValueError when the trace does not hold what was said.
    """
    if trace.said is None:
        raise ValueError("this trace does not hold what was said; record it again to compare")
    pairs = zip(trace.said, again.steps, strict=True)
    return next((n for n, (then, step) in enumerate(pairs) if then != said(step.commands)), None)


# -- JSON Lines ---------------------------------------------------------------------------------


def write_jsonl(trace: Trace, file: TextIO) -> None:
    """One header line, then one line a step; outputs are left out, faults are kept."""
    header: dict[str, Any] = {"format": FORMAT, "seed": trace.seed, "dropped": trace.dropped}
    told = trace.said or [said(step.commands) for step in trace.steps]
    header["settings"], header["said"] = trace.settings.as_dict(), told
    print(json.dumps(header), file=file)
    sizes: dict[int, int] = {}
    for step in trace.steps:
        for command in step.commands:
            if isinstance(command, Depart):
                sizes[command.batch_id] = len(command.rows)
        print(json.dumps([step.now, step.verb, *_args_out(step, sizes)]), file=file)


def _args_out(step: Step, sizes: dict[int, int]) -> list[Any]:
    if step.verb == "arrive":
        return [asdict(step.args[0])]
    if step.verb == "finish":
        batch_id, result = step.args
        return [batch_id, _result_out(result, sizes.get(batch_id))]
    return list(step.args)


def _result_out(result: Any, size: int | None) -> Any:
    if result is None or isinstance(result, dict):
        return result
    if isinstance(result, BatchError):
        return {"raised": result.detail}
    errors = {str(i): row.detail for i, row in enumerate(result) if isinstance(row, RowError)}
    if len(result) != size:
        return {"outputs": len(result), "errors": errors}
    return {"errors": errors} if errors else None


def _result_from(
    noted: dict[str, Any], rows: Sequence[Request], answer: Callable[[str], str]
) -> Result:
    if "raised" in noted:
        return BatchError(noted["raised"])
    outputs: list[str | RowError] = [answer(row.prompt) for row in rows]
    size = noted.get("outputs", len(outputs))
    outputs = (outputs + [""] * size)[:size]
    for i, detail in noted["errors"].items():
        outputs[int(i)] = RowError(detail)
    return outputs


def read_jsonl(lines: Iterable[str]) -> Trace:
    """A trace without commands; `replay` it to see what happened."""
    numbered = enumerate(lines, 1)
    trace = _header_from(next((line for _, line in numbered), ""))
    for number, line in numbered:
        try:
            before = trace.steps[-1].now if trace.steps else 0
            step = _step_from(json.loads(line), before)
            if step.verb == "arrive":
                _check_request(step.args[0], len(trace.settings.tiers))
            trace.steps.append(step)
        except (ValueError, TypeError, RecursionError) as error:
            raise TraceFormatError(
                f"line {number}: {line.strip()[:80]!r} is not a step ({error}); "
                "the file was cut or edited: record it again"
            ) from error
    if trace.said is not None and len(trace.said) != len(trace.steps):
        raise TraceFormatError(
            f"{len(trace.steps)} steps of {len(trace.said)}; the file was cut: record it again"
        )
    return trace


def _step_from(values: Any, before: int) -> Step:
    if type(values) is not list or len(values) < 2:
        raise ValueError("a step is a list: an instant, a verb, arguments")
    now, verb, *args = values
    if type(now) is not int or now < before:
        raise ValueError(f"instant {now!r}: whole microseconds, {before} or later")
    if type(verb) is not str or len(args) != ARGUMENTS.get(verb):
        verbs = ", ".join(f"{name} ({count})" for name, count in ARGUMENTS.items())
        raise ValueError(f"{verb!r} with {len(args)} arguments; there are {verbs}")
    return Step(now, verb, (Request(**args[0]),) if verb == "arrive" else tuple(args))


def _check_request(request: Request, tiers: int) -> None:
    """Types, and the tier: dataclasses take whatever stands in the file."""
    for field_ in fields(Request):
        value, kind = getattr(request, field_.name), type(field_.default)
        kind = int if field_.default is MISSING or issubclass(kind, int) else kind
        if field_.name != "tier" and type(value) is not kind:
            raise ValueError(f"{field_.name} {value!r} is no {kind.__name__}")
    if type(request.tier) is not int or not 0 <= request.tier < tiers:
        raise ValueError(f"tier {request.tier!r}: there are 0 to {tiers - 1}")


def _header_from(line: str) -> Trace:
    try:
        header = json.loads(line)
        if header["format"] != FORMAT:
            raise ValueError(f"format {header['format']}, this version reads {FORMAT}")
        settings = Settings.from_dict(header["settings"])
        told = header.get("said")
        if told is not None and not (type(told) is list and all(type(n) is int for n in told)):
            raise ValueError("said is no list of whole numbers")
        return Trace(settings, header["seed"], dropped=header["dropped"], said=told)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise TraceFormatError(
            f"line 1: {line.strip()[:80]!r} is not the header of a labkit trace ({error}); "
            "write one with write_jsonl or `labkit sim --save-trace FILE`"
        ) from error
