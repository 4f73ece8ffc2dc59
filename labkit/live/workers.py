"""One OS process a GPU: each incarnation is a process, a pipe, and a thread for birth and burial.

What a worker says is read on the loop, where a loop can read a pipe. A thread for that would wait
for the interpreter's lock longer than for the message.
"""

import asyncio
import pickle
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from queue import SimpleQueue
from typing import Any

from labkit.core.messages import Result
from labkit.core.units import MS
from labkit.gpu.tag import carries
from labkit.live.fleet import GpuView, Listener, State, dealt
from labkit.live.kinds import Setup, target_of
from labkit.live.launch import Launcher, Process, launcher_for

START_WITHIN_S = 120.0
"""How long a worker may take to its first answer; torch and a GPU context take many seconds."""

SELF_TEST = "self-test"
DIRECT_BYTES = 1 << 16
"""A message up to this size fits the pipe's own buffer, so writing it cannot block the loop."""

LOOK_EVERY_S = 0.001
"""How often a busy loop looks for news between two of its steps, which may last 20 ms."""

MOST_FALSE_STARTS = 3
FIRST_PAUSE_S = 0.2


class Worker:
    """One incarnation of one GPU. `tell(event, worker, *arguments)` is called on its own thread.

    Events in order: `up(facts)` once it has answered a self-test batch; for each batch perhaps
    `pieces(batch_id, pieces)`, then `done(batch_id, result, raw_us)`; `down(why)` the moment its
    pipe ends; `buried(exit_code)` when the process, and so its memory, is really gone. Between `up`
    and `buried` nothing is told of a worker that `is_read_on_loop`: `read` says it, until `over` is
    set. `doomed`: it was ended on purpose.
    """

    def __init__(self, setup: Setup, launcher: Launcher, tell: Callable[..., None]) -> None:
        self.setup = setup
        self.pid: int | None = None
        self._launcher = launcher
        self._tell = tell
        self._process: Process | None = None
        self.doomed = False
        self.over = threading.Event()
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._outbox: SimpleQueue[bytes | None] | None = None
        self._writer: threading.Thread | None = None
        self.thread = threading.Thread(
            target=self._live, name=f"labkit-gpu-{setup.gpu}", daemon=True
        )

    def send(self, *message: Any) -> None:
        """Hand a message over without ever blocking; what a dead worker would get is dropped."""
        payload = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        if self._outbox is None:
            if len(payload) <= DIRECT_BYTES:
                self._write(payload)
                return
            # From the first large message on one thread writes, so that the order is kept.
            self._outbox = SimpleQueue()
            self._writer = threading.Thread(
                target=self._write_outbox,
                args=(self._outbox,),
                name=f"{self.thread.name}-out",
                daemon=True,
            )
            self._writer.start()
        self._outbox.put(payload)

    def kill(self) -> None:
        """End the process at once, even if it is still starting."""
        self.doomed = True
        if self._process is not None:
            self._process.kill()

    @property
    def is_read_on_loop(self) -> bool:
        """Whether the end of its pipe alone tells of its death, so that a loop can wait for it."""
        return self._process is not None and self._process.sentinel is None

    def fileno(self) -> int:
        """Of the pipe; raises OSError when it is buried."""
        process = self._process
        if process is None:
            raise OSError("its pipe is closed")
        return process.conn.fileno()

    def read(self) -> list[tuple[str, list[Any]]]:
        """What it has said, as events with their arguments, the last perhaps `down`.

        Waits when there is nothing, so that it is for whoever knows that there is something.
        """
        told: list[tuple[str, list[Any]]] = []
        try:
            with self._reading:
                conn: Any = self._process and self._process.conn
                messages = conn.read() if conn else [("ended", ENDED)]
            for verb, *arguments in messages:
                if verb not in SAID:
                    return [*told, ("down", [str(arguments[0])])]
                told.append((verb, arguments))
        except (EOFError, OSError):
            told.append(("down", [ENDED]))
        except Exception as error:
            told.append(("down", [unreadable(error)]))
        return told

    def _write(self, payload: bytes) -> None:
        with suppress(OSError), self._writing:
            if self._process is not None:
                self._process.conn.send_bytes(payload)

    def _write_outbox(self, outbox: SimpleQueue[bytes | None]) -> None:
        while (payload := outbox.get()) is not None:
            self._write(payload)

    def _live(self) -> None:
        """Launch, converse until the pipe ends, bury: the whole life of the thread."""
        try:
            process = self._launcher.launch(self.setup)
        except OSError as error:
            self._tell("down", self, f"could not start: {error}")
            self._tell("buried", self, None)
            return
        self.pid, self._process = process.pid, process
        if self.doomed:
            process.kill()
        why: str | None = ENDED
        try:
            why = self._converse(process)
        except TimeoutError as error:
            why = str(error)
        except (EOFError, OSError):
            pass
        except Exception as error:
            why = unreadable(error)
        if why is not None:
            self._tell("down", self, why)
        process.kill()
        exit_code = process.bury()
        with self._reading, self._writing:
            self._process = None
            process.conn.close()
        if self._outbox is not None and self._writer is not None:
            self._outbox.put(None)
            self._writer.join()
        self._tell("buried", self, exit_code)

    def _converse(self, process: Process) -> str | None:
        """Pass on what the worker says until it says why it stops; None where the loop does that.

        Raises EOFError at the end of the pipe.
        """
        facts = self._self_test(process)
        if isinstance(facts, str):
            return facts
        self._tell("up", self, facts)
        if self.is_read_on_loop:
            self.over.wait()
            return None
        while True:
            verb, *arguments = self._receive(process)
            if verb not in SAID:
                return str(arguments[0])
            self._tell(verb, self, *arguments)

    def _self_test(self, process: Process) -> dict[str, Any] | str:
        """The worker's facts once it has answered one real batch rightly, else what is wrong."""
        deadline = time.monotonic() + START_WITHIN_S
        verb, facts = self._receive(process, deadline)
        if verb != "up":
            return str(facts)
        self.send("run", 0, [SELF_TEST])
        verb = "pieces"
        while verb == "pieces":
            verb, *arguments = self._receive(process, deadline)
        if verb != "done":
            return str(arguments[0])
        result = arguments[1]
        # Sentences below are for whoever writes a kind of worker.
        if not isinstance(result, (list, tuple)) or len(result) != 1:
            return f"self-test: {result!r}; a worker must return one output per prompt, in order"
        if not isinstance(result[0], str) or not carries(result[0], SELF_TEST):
            return f"self-test: {result[0]!r} does not end in the tag of its prompt; stamp it"
        return dict(facts)

    def _receive(self, process: Process, deadline: float | None = None) -> Any:
        """The next message; raises EOFError at the end of the pipe, OSError past the deadline."""
        sources: list[Any] = [process.conn]
        if process.sentinel is not None:
            sources.append(process.sentinel)
        rest = None if deadline is None else max(deadline - time.monotonic(), 0)
        ready = wait(sources, rest)
        if process.conn in ready:
            return process.conn.recv()
        if ready:
            raise EOFError
        raise TimeoutError(f"no answer within {START_WITHIN_S:g} s of its start")


ENDED = "its process ended"
SAID = ("done", "pieces")
"""What a worker says and goes on; anything else is its last word."""


def unreadable(error: Exception) -> str:
    """Why a worker is given up that sent something else than messages."""
    return f"it sent what cannot be read: {type(error).__name__}: {error}"


class _Seat:
    """One GPU of the fleet: the incarnation that plays it now, and the count of those before."""

    __slots__ = ("facts", "false_starts", "fenced", "restarts", "state", "why", "worker")

    def __init__(self) -> None:
        self.worker: Worker | None = None
        self.state = State.STARTING
        self.fenced = False
        self.false_starts = 0
        self.restarts = -1
        self.facts: dict[str, Any] = {}
        self.why = ""


class ProcessFleet:
    """Worker processes that come back when they end; `kinds[gpu]` says what each computes.

    `batch_time` in microseconds, see `dealt`; `options` go to each kind's factory.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        batch_time: int | Sequence[int] = 100 * MS,
        options: Mapping[str, Any] | None = None,
        launcher: Launcher | None = None,
    ) -> None:
        self.gpus = len(kinds)
        told = {"gpus": len(kinds), **(options or {})}
        times = dealt(batch_time, len(kinds))
        self._setups = [
            Setup(gpu, target_of(kind), times[gpu], told) for gpu, kind in enumerate(kinds)
        ]
        self._launcher = launcher or launcher_for([setup.target for setup in self._setups])
        self._seats = [_Seat() for _ in kinds]
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()
        self._closing = False
        self._news: deque[tuple[str, Worker, tuple[Any, ...]]] = deque()
        self._woken = self._hearing = False
        self._look_at = 0.0
        self._selector: Any = None

    def open(self, loop: asyncio.AbstractEventLoop, listener: Listener) -> None:
        """Start every process, all at once."""
        self._loop = loop
        self._listener = listener
        for gpu in range(self.gpus):
            self._start(gpu)

    def depart(self, gpu: int, batch_id: int, prompts: list[str]) -> None:
        """Write the batch to the GPU's pipe."""
        self._of(gpu).send("run", batch_id, prompts)

    def restart(self, gpu: int) -> None:
        """Fence first, so that nothing the old process still says counts; then end it."""
        seat = self._seats[gpu]
        seat.fenced, seat.state = True, State.LOST
        self._of(gpu).kill()

    def kill(self, gpu: int) -> None:
        """SIGKILL; the fleet learns of it as of any accident, by the end of the pipe."""
        self._of(gpu).kill()

    def inject(self, gpu: int, verb: str, *arguments: float) -> None:
        """The worker obeys when it reads the message: after the batch it is at."""
        self._of(gpu).send(verb, *arguments)

    def hear(self) -> None:
        """See `Fleet`."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            self._hear()

    def _hear(self) -> None:
        """What threads have told, then what workers have said; never within itself."""
        if self._hearing:
            return
        self._hearing = True
        try:
            while self._news:
                self._take(*self._news.popleft())
            if self._selector is not None:
                self._read()
        finally:
            self._hearing = False

    def _read(self) -> None:
        for ready, _ in self._selector.select(0):
            worker: Worker = ready.data
            for event, arguments in worker.read():
                self._take(event, worker, arguments)
                if event == "down":
                    self._selector.unregister(ready.fd)
                    worker.over.set()

    def _listen_to(self, worker: Worker) -> None:
        """From now on the loop reads it; all pipes together are one thing that it waits for."""
        if self._selector is None:
            self._selector = selectors.DefaultSelector()
            self._loop.add_reader(self._selector.fileno(), self._hear)
        try:
            self._selector.register(worker.fileno(), selectors.EVENT_READ, worker)
        except OSError:
            # Buried meanwhile, because the fleet closes.
            worker.over.set()

    def _deafen(self) -> None:
        if self._selector is not None:
            self._loop.remove_reader(self._selector.fileno())
            self._selector.close()
            self._selector = None

    def _take(self, event: str, worker: Worker, arguments: Sequence[Any]) -> None:
        """One piece of news; what goes wrong with it is the loop's to report, not the caller's."""
        try:
            getattr(self, f"_{event}")(worker, *arguments)
        except Exception as error:
            told = {"message": f"news of GPU {worker.setup.gpu}: {event}", "exception": error}
            self._loop.call_exception_handler(told)

    def view(self, gpu: int) -> GpuView:
        """The seat as it stands."""
        seat = self._seats[gpu]
        pid = None if seat.worker is None else seat.worker.pid
        facts = {**seat.facts, "why": seat.why} if seat.why else seat.facts
        return GpuView(seat.state, pid, max(seat.restarts, 0), facts)

    def close(self) -> None:
        """End every process, wait for every thread, then end what starts processes."""
        with self._starting:
            self._closing = True
        for seat in self._seats:
            if seat.worker is not None:
                seat.worker.kill()
                seat.worker.over.set()
        for thread in self._threads:
            thread.join()
        if self._selector is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._deafen)
        self._launcher.close()

    def _of(self, gpu: int) -> Worker:
        worker = self._seats[gpu].worker
        assert worker is not None, f"GPU {gpu} was never opened"
        return worker

    def _start(self, gpu: int) -> None:
        with self._starting:
            if self._closing:
                return
            seat = self._seats[gpu]
            seat.worker = Worker(self._setups[gpu], self._launcher, self._report)
            seat.state, seat.fenced = State.STARTING, False
            seat.restarts += 1
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            self._threads.append(seat.worker.thread)
            seat.worker.thread.start()

    def _report(self, event: str, worker: Worker, *arguments: Any) -> None:
        """From a worker's thread to the loop's; the loop may be gone when the process dies last."""
        self._news.append((event, worker, arguments))
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        # Before the news is read, so that what comes meanwhile wakes the loop again.
        self._woken = False
        self._hear()

    def _up(self, worker: Worker, facts: dict[str, Any]) -> None:
        seat = self._seats[worker.setup.gpu]
        if worker.is_read_on_loop:
            self._listen_to(worker)
        if worker is seat.worker and not seat.fenced:
            seat.state, seat.facts, seat.false_starts, seat.why = State.READY, facts, 0, ""
            self._listener.joined(worker.setup.gpu)

    def _pieces(self, worker: Worker, batch_id: int, pieces: Sequence[str | None]) -> None:
        seat = self._seats[worker.setup.gpu]
        if worker is seat.worker and not seat.fenced:
            self._listener.pieces(batch_id, pieces)

    def _done(self, worker: Worker, batch_id: int, result: Result, raw_us: int) -> None:
        # A batch id belongs to one incarnation, so the core itself drops what comes from a lost
        # one; it is passed on because it must be counted.
        self._listener.done(batch_id, result, raw_us)

    def _down(self, worker: Worker, why: str) -> None:
        seat = self._seats[worker.setup.gpu]
        if worker is not seat.worker:
            return
        if seat.state is State.STARTING and not worker.doomed:
            seat.false_starts += 1
        seat.state, seat.why = State.LOST, why
        if not seat.fenced:
            seat.fenced = True
            self._listener.lost(worker.setup.gpu, why)

    def _buried(self, worker: Worker, exit_code: int | None) -> None:
        """Only now is the GPU's memory free for the next incarnation."""
        gpu = worker.setup.gpu
        seat = self._seats[gpu]
        if worker is not seat.worker or self._closing:
            return
        if not seat.false_starts:
            self._start(gpu)
        elif seat.false_starts < MOST_FALSE_STARTS:
            pause = FIRST_PAUSE_S * 2**seat.false_starts
            self._loop.call_later(pause, self._start, gpu)
        else:
            seat.state = State.BROKEN
            self._listener.broken(gpu, seat.why)
