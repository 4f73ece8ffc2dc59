"""Plays a trace through once and writes down what every GPU did, and who waited meanwhile."""

from collections.abc import Iterable, Sequence
from typing import Any

from labkit.core.messages import Answer, Command, Depart, End, Reason, Request, Stop
from labkit.core.trace import Step, Trace
from labkit.core.units import NEVER
from labkit.viz import words

MOST_REQUESTS = 10_000
MOST_BARS = 2_000
"""More cannot be told apart on a screen, and make a notebook heavy."""

SMALL, LARGE = "small", "large"

LATE = 0.2
"""A batch this share of its time late is a straggler."""


class LaneReader:
    """What one trace did to each GPU, from when until when (microseconds).

    `bars`: the batches, `downs`: when each GPU served nobody, `events`: sentences, of `rank` 0 for
    the ordinary, 1 and 2 for what is not; `waits`: for
    each class of requests [instant, how many wait, since when the first, longest wait so far].
    """

    def __init__(self, title: str, trace: Trace) -> None:
        self.title = title
        self.settings = trace.settings
        self.bars: list[dict[str, Any]] = []
        self.downs: dict[int, list[list[Any]]] = {}
        self.events: list[dict[str, Any]] = []
        self.instants: set[int] = set()
        self.joined: dict[int, int] = {}
        self._large = _large_requests(trace)
        self.classes = (SMALL, LARGE) if self._large else (SMALL,)
        self.waits: dict[str, list[list[Any]]] = {name: [[0, 0, None, 0]] for name in self.classes}
        self._waiting: dict[str, dict[int, int]] = {name: {} for name in self.classes}
        self._longest = dict.fromkeys(self.classes, 0)
        self._out: dict[int, dict[str, Any]] = {}
        self._aboard: dict[int, tuple[Request, ...]] = {}
        self._seen = self._last = 0
        steps = list(trace.steps)
        for i, step in enumerate(steps):
            self._read(step)
            self._last = step.now
            if i + 1 == len(steps) or steps[i + 1].now > step.now:
                self._settle(step.now)

    def ends_at(self) -> int:
        """The last instant worth drawing."""
        planned = [bar["planned"] for bar in self._out.values()]
        return max([self._last, *planned, 1])

    # -- one step ------------------------------------------------------------------------------

    def _read(self, step: Step) -> None:
        now = step.now
        if step.verb == "arrive":
            self._arrive(step.args[0], now)
        elif step.verb == "lose":
            self._lose(step.args[0], now, "died", step.commands)
        elif step.verb == "join":
            self._join(step.args[0], step.args[1], now, step.commands)
        elif step.verb == "finish":
            self._finish(step.args[0], now, step.commands)
        for command in step.commands:
            if isinstance(command, Depart):
                self._depart(command, now)
            elif isinstance(command, End):
                for waiting in self._waiting.values():
                    waiting.pop(command.request_id, None)
            elif isinstance(command, Stop):
                self._lose(command.gpu, now, "stopped", step.commands)

    def _arrive(self, request: Request, now: int) -> None:
        self._seen += 1
        if self._seen > MOST_REQUESTS:
            raise ValueError(
                f"lanes with more than {MOST_REQUESTS:,} requests cannot be read: draw a shorter "
                "run, or a plot of its latencies"
            )
        self._waiting[self._class(request)][request.id] = now

    def _depart(self, depart: Depart, now: int) -> None:
        if len(self.bars) == MOST_BARS:
            raise ValueError(
                f"lanes with more than {MOST_BARS:,} batches cannot be read: draw a shorter run"
            )
        for row in depart.rows:
            name = self._class(row)
            since = self._waiting[name].pop(row.id, now)
            self._longest[name] = max(self._longest[name], now - since)
        bar: dict[str, Any] = {
            "id": depart.batch_id,
            "gpus": sorted(depart.gpus),
            "start": now,
            "end": None,
            "planned": now + self.settings.of(depart.rows[0].model).batch_time,
            "size": len(depart.rows),
            "gang": len(depart.gpus) > 1,
            "retry": depart.receipt.reason is Reason.RETURNED,
            "lost": False,
            "since": min((row.arrived_at for row in depart.rows), default=now),
        }
        self.bars.append(bar)
        self._out[depart.batch_id], self._aboard[depart.batch_id] = bar, depart.rows
        for gpu in depart.gpus:
            self.joined.setdefault(gpu, 0)
        self.instants.add(now)
        self._say(now, words.start_sentence(bar, now), rank=2 if bar["gang"] else int(bar["retry"]))

    def _finish(self, batch_id: int, now: int, commands: Sequence[Command]) -> None:
        bar = self._out.pop(batch_id, None)
        if bar is None:
            return
        bar["end"] = now
        self.instants.add(now)
        rows = self._aboard.pop(batch_id)
        answered = {row.id for one in commands if isinstance(one, Answer) for row in one.rows}
        if rows and not answered:
            bar["lost"] = True
            back = self._return(rows, now, commands)
            self._say(now, words.failure_sentence(batch_id, back, now), rank=2)
        elif now - bar["planned"] > LATE * self.settings.batch_time:
            self._say(now, words.late_sentence(bar), rank=1)

    def _lose(self, gpu: int, now: int, why: str, commands: Sequence[Command]) -> None:
        """This GPU serves nobody from now on; whoever was aboard waits again."""
        downs = self.downs.setdefault(gpu, [])
        was_up = not downs or downs[-1][1] != NEVER
        lost = [bar for bar in self._out.values() if gpu in bar["gpus"]]
        if was_up:
            downs.append([now, NEVER, "died" if lost or why == "died" else why])
            self.instants.add(now)
        for bar in lost:
            del self._out[bar["id"]]
            bar.update(end=now, lost=True)
            back = self._return(self._aboard.pop(bar["id"]), now, commands)
            self._say(now, words.lost_sentence(gpu, bar["id"], back, now), rank=2)
        if was_up and not lost:
            self._say(now, f"GPU {gpu} {why} at {words.ms(now)}.", rank=1)

    def _join(self, gpu: int, version: Any, now: int, commands: Sequence[Command]) -> None:
        if any(gpu in bar["gpus"] for bar in self._out.values()):
            self._lose(gpu, now, "died", commands)
        if version is None:
            return
        downs = self.downs.setdefault(gpu, [])
        if downs and downs[-1][1] == NEVER:
            downs[-1][1] = now
            self._say(now, f"GPU {gpu} is back at {words.ms(now)}.", rank=1)
        if gpu not in self.joined:
            self.joined[gpu] = now
        self.instants.add(now)

    def _return(self, rows: Iterable[Request], now: int, commands: Sequence[Command]) -> int:
        """Those whom no command ended wait again, before all others; returns how many."""
        over = {one.request_id for one in commands if isinstance(one, End)}
        back = [row for row in rows if row.id not in over]
        for row in back:
            self._waiting[self._class(row)][row.id] = now
        return len(back)

    # -- one instant ---------------------------------------------------------------------------

    def _settle(self, now: int) -> None:
        """Who waits after all that happened at one instant."""
        for name, waiting in self._waiting.items():
            steps = self.waits[name]
            state = [len(waiting), next(iter(waiting.values()), None), self._longest[name]]
            if steps[-1][0] == now:
                steps[-1][1:] = state
            elif steps[-1][1:] != state:
                steps.append([now, *state])

    def _class(self, request: Request) -> str:
        return LARGE if request.id in self._large else SMALL

    def _say(self, now: int, text: str, *, rank: int) -> None:
        self.events.append({"at": now, "text": text, "rank": rank})


def _large_requests(trace: Trace) -> set[int]:
    """Those who need several GPUs at once, or whose model only ever does."""
    departs = [command for _, command in trace.commands() if isinstance(command, Depart)]
    gangs = [depart for depart in departs if len(depart.gpus) > 1]
    large = {row.model for depart in gangs for row in depart.rows}
    large -= {row.model for depart in departs if len(depart.gpus) == 1 for row in depart.rows}
    asked = [step.args[0] for step in trace.steps if step.verb == "arrive"]
    known = {row.id for depart in gangs for row in depart.rows}
    return known | {request.id for request in asked if request.model in large}
