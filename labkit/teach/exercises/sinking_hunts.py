"""The hunts of notebook 06: something goes down, and what follows is wrong."""

from dataclasses import dataclass
from random import Random
from typing import Any

from labkit.core.messages import Answer, Depart, Request, Stop
from labkit.core.settings import Settings
from labkit.core.trace import Step, Trace
from labkit.core.units import MS, show_ms
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.hunts import Evidence, Hunt, exhibit, judge_of
from labkit.teach.exercises.sinking import live, span
from labkit.teach.page import Page
from labkit.teach.rig import Fate, Plan

HEAD = ("boat", "left at", "GPU", "aboard", "why", "what became of it")

SUSPECTS = {
    "requeue_at_tail": "Those who come back stand at the end of the line.",
    "one_forgotten": "After a loss somebody is not put back.",
    "retry_the_dead": "The retry goes to the GPU that is down.",
    "poison_stays": "Suspects travel together, however many boats they sink.",
    "late_accepted": "What comes back from a boat that was given up is believed.",
    "zip_short": "Outputs are paired off in order although one is missing.",
}
"""The accused, in the order of their letters."""

WORDS = {
    "requeue_at_tail": r"\btail\b|(end|back) of the (line|queue)|behind (every|those|all|the new)",
    "one_forgotten": (
        r"forg[eo]t|not (put|sent) (back|out)|never (comes?|goes|put|sent) (back|again|out)"
        r"|(is|goes|are|was|gets) (missing|dropped)|drops? (one|somebody|the last)"
    ),
    "retry_the_dead": (
        r"(same|dead|lost|failed) gpu (again|gets|takes)|to the (same|dead|lost|failed) gpu"
        r"|gpu that (is down|died|is dead)|not excluded"
    ),
    "poison_stays": r"\bpoison|never (split|bisect)|(travel|stay)s? together",
    "late_accepted": (
        r"\blate\b|\bfenc|\bepoch|given up[^.]{0,60}(believe|accept|answer)|answered twice"
        r"|(two|both) (answers|boats)|zombie"
    ),
    "zip_short": r"\bzip|too few outputs|pair(s|ed) off|one output (is )?(missing|short)",
}
"""How people say each of them."""

GIVEN_UP = 250 * MS


def _morning(fates: tuple[Fate, ...], back_after: int | None) -> Plan:
    """Three GPUs, six seats, twenty-four requests within a fifth of a second."""
    rng = Random(6)
    instants = sorted(int(rng.random() * 200) * MS for _ in range(24))
    arrivals = tuple(Request(i, f"p{i}", at) for i, at in enumerate(instants))
    settings = Settings(max_batch=6, overdue_after=GIVEN_UP)
    return Plan(settings, 3, arrivals, fates, back_after=back_after)


MORNINGS = {
    "one_forgotten": _morning((Fate(), Fate("die", 60 * MS), Fate(), Fate("die", 80 * MS)), None),
    "late_accepted": _morning((Fate(), Fate("ok", 290 * MS)), 300 * MS),
}


def sinking(bug_id: str) -> Evidence:
    """A morning on which something goes down, and the receipts of its boats."""
    from labkit.teach.zoo import ZOO, receipts

    plan = MORNINGS[bug_id]
    trace = live(plan, ZOO[bug_id].make(plan.settings, Random(1)))  # type: ignore[arg-type]
    became = _became(trace)
    return trace, [{**row, "became": became.get(row["batch"], [])} for row in receipts(trace)]


def _became(trace: Trace) -> dict[int, list[str]]:
    """What happened to each batch after it left, in order."""
    found: dict[int, list[str]] = {}
    on_gpu: dict[int, int] = {}
    for step in trace.steps:
        if step.verb == "finish":
            found.setdefault(step.args[0], []).append(_came_back(step))
            on_gpu = {gpu: batch for gpu, batch in on_gpu.items() if batch != step.args[0]}
        elif step.verb == "lose" and step.args[0] in on_gpu:
            batch = on_gpu.pop(step.args[0])
            found.setdefault(batch, []).append(f"sank at {show_ms(step.now)}")
        for command in step.commands:
            if isinstance(command, Stop) and command.gpu in on_gpu:
                batch = on_gpu.pop(command.gpu)
                found.setdefault(batch, []).append(f"given up at {show_ms(step.now)}")
            elif isinstance(command, Depart):
                on_gpu[command.gpus[0]] = command.batch_id
    return found


def _came_back(step: Step) -> str:
    answered = sum(len(c.rows) for c in step.commands if isinstance(c, Answer))
    what = f"{answered} answered" if answered else "nobody answered"
    return f"{what} at {show_ms(step.now)}"


def sinking_rows(receipts: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Receipts as people read them, with who was aboard and what became of the boat."""
    return [
        (
            str(row["batch"]),
            f"{row['at_ms']:g} ms",
            str(row["gpu"]),
            span(row["aboard"]),
            row["reason"],
            ", ".join(row["became"]) or "not back yet",
        )
        for row in receipts
    ]


def _hunt(bug_id: str, telling: Any, nudge: str) -> Hunt:
    return Hunt(bug_id, telling, nudge, SUSPECTS, WORDS, HEAD, sinking_rows, "Three GPUs", sinking)


FORGOTTEN = _hunt(
    "one_forgotten",
    lambda row, _: any("sank" in what for what in row["became"]),
    "compare those aboard with those who went out again",
)
BELIEVED = _hunt(
    "late_accepted",
    lambda row, _: len(row["became"]) > 1,
    "it was given up, and its passengers went out again",
)


@dataclass(frozen=True, slots=True)
class _WithLanes(Page):
    """A page, and under it in a notebook the lanes: a dock has no place for what sank."""

    trace: Trace

    def _ipython_display_(self) -> None:
        from IPython.display import display

        from labkit.viz.lanes import Lanes

        display(self._repr_mimebundle_(), raw=True)
        display(Lanes(self.trace))


def on_lanes(hunt: Hunt) -> tuple[Page, None]:
    """The receipts and the suspects, and what every GPU did."""
    page, trace = exhibit(hunt)
    return _WithLanes(page.text, page.html, trace), None


def _says(words: str) -> str:
    return f'accused = "{words}"\n'


SINKING_HUNT = Exercise(
    id="06.hunt",
    title="After the boat sank",
    minutes=6,
    difficulty=2,
    question=(
        "Two boats go down on this morning, and everybody aboard should go out again. Some "
        "clients wait to this day. Which fault is it?"
    ),
    stub="accused = ...\n",
    solution=_says("one forgotten"),
    why=(
        "No error, no log line, no outcome: six went down and five went out again. Count outcomes, "
        "not errors. `offered = answered + rejected + expired + cancelled + failed` is one line in "
        "a test, and it finds this fault on the first morning."
    ),
    hints=(
        "Take a boat that sank. Where do its passengers turn up again?",
        "Write down who was aboard the boat that sank, and strike out those aboard the next boat "
        "that left because they returned.",
        "Each time the last of those aboard is missing from the boat that returned.",
    ),
    judge=judge_of(FORGOTTEN),
    mutants=(
        _says("a"),
        _says("the retry goes to the same GPU"),
        _says("late_accepted"),
        _says("the detector is too slow"),
        _says("One is forgotten, or they stand at the tail"),
    ),
    alternatives=(
        _says("b"),
        _says("one_forgotten"),
        _says("After each loss the last row is not put back."),
        _says("Somebody who went down never goes out again."),
    ),
    exhibit=lambda: on_lanes(FORGOTTEN),
    right="that is the fault: somebody is not put back",
)

GHOST_HUNT = Exercise(
    id="06.ghost_hunt",
    title="Some clients hear twice",
    minutes=8,
    difficulty=3,
    question=(
        "Nothing dies on this morning, one boat is only slow. Yet some clients get two answers. "
        "Which fault is it?"
    ),
    stub="accused = ...\n",
    solution=_says("late accepted"),
    why=(
        "A boat that is given up may still come home. Whether it is dead or only late cannot be "
        "known from the bank, so do not try: give each life of a GPU a number, close its batches "
        "with it, and drop what comes back under a closed number, counted. That is fencing."
    ),
    hints=(
        "Which boat has two fates in the last column?",
        "Look for its passengers on another boat, and for the instants at which each was answered.",
        "It was given up after 250 ms, its passengers went out again, and 40 ms later its own "
        "answer came and was believed.",
    ),
    judge=judge_of(BELIEVED),
    mutants=(
        _says("b"),
        _says("the retry goes to the dead GPU"),
        _says("zip_short"),
        _says("the detector is too fast"),
        _says("A late answer is believed, and somebody is forgotten"),
    ),
    alternatives=(
        _says("e"),
        _says("late_accepted"),
        _says("The boat that was given up still answers, and that answer is accepted."),
        _says("There is no fence: the old epoch is believed."),
    ),
    exhibit=lambda: on_lanes(BELIEVED),
    right="that is the fault: an answer from a life that was over is believed",
)
