"""The zoo: faults that other people published, rebuilt here one at a time for hunting.

Each is a gateway that is wrong in one way; the gateway of `labkit.core` has no switch for any of
them. The laws must catch every one, and a learner may try to name it from a trace.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations
from random import Random
from typing import Any, Literal

from hypothesis import HealthCheck, Phase, find
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from labkit.core.dispatch import Rng
from labkit.core.messages import Depart, Request
from labkit.core.settings import Settings, TierRule
from labkit.core.trace import Trace
from labkit.core.units import MS, S, to_ms
from labkit.teach import bugs
from labkit.teach.laws import LawBroken, Laws
from labkit.teach.rig import Fate, Gate, Kind, Plan, Rig, stamp
from labkit.teach.scenarios import plans
from labkit.teach.scenarios import settings as any_settings

ON_TIME = "with a GPU free nobody waits past max_wait"
NOT_EARLY = "a batch leaves when full or when its oldest has waited max_wait"
ABOARD = "an answer goes to the request it was computed for"

Weather = Literal["calm", "cancels", "die", "poison", "raise", "short", "slow", "drain"]


@dataclass(frozen=True, slots=True)
class Bug:
    """One planted fault.

    `story`: how the published fault looked. `source`: where it was published. `make`: a scheduler
    that has it. `law`: the law it breaks. `needs`: settings without which it cannot show.
    `question`, `hint`: for whoever hunts it with a trace and receipts in hand. `weather`: what
    else goes wrong in that hunt.
    """

    id: str
    title: str
    story: str
    source: str
    make: Callable[[Settings, Rng], Gate]
    law: str
    question: str
    hint: str
    weather: Weather = "calm"
    needs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Catch:
    """A world in which a bug broke a law; `trace` ends with the step that broke it."""

    plan: Plan
    broken: LawBroken
    trace: Trace


ZOO: dict[str, Bug] = {}


def _keep(
    id: str,
    make: Callable[[Settings, Rng], Gate],
    law: str,
    source: str,
    story: str,
    question: str,
    hint: str,
    weather: Weather = "calm",
    **needs: Any,
) -> None:
    title = (make.__doc__ or id).splitlines()[0].rstrip(".")
    ZOO[id] = Bug(id, title, story, source, make, law, question, hint, weather, needs)


_keep(
    "stale_timer",
    bugs.StaleTimer,
    NOT_EARLY,
    "a common size-or-time template",
    "A batch leaves because it is full, but the timer of its first passenger keeps running. It "
    "rings for people who boarded later, and their batch leaves half empty. At 10,000 requests a "
    "second the fill drops from 100 to 91 and a tenth more GPUs are needed.",
    "Find a TIMER batch whose oldest had not waited its time. When did that timer start?",
    "Look at the batch before it: it left full, with time still on its clock.",
)
_keep(
    "restarting_timer",
    bugs.RestartingTimer,
    ON_TIME,
    "async-batcher (measured: 98 ms for a window of 50)",
    "Every newcomer sets the clock back to the whole window. Under a steady trickle the first "
    "passenger waits almost twice the promised time, in the worst case until the boat is full.",
    "How long did the oldest of each TIMER batch wait, and how long the youngest?",
    "The youngest of each batch has waited exactly one window.",
)
_keep(
    "window_after_batch",
    bugs.WindowAfterBatch,
    NOT_EARLY,
    "Ray Serve, ray-project/ray pull request 36510",
    "The wait is measured from the end of the batch before. After a quiet minute that is long "
    "past, so the first arrival leaves alone and the second one pays for another trip.",
    "Why does the first passenger after a pause always travel alone?",
    "Add one window to the end of the batch before.",
)
_keep(
    "window_at_look",
    bugs.WindowAtLook,
    ON_TIME,
    "read in the source of LitServe and Mosec",
    "The loop is busy with a batch; whoever comes meanwhile is seen only when it looks again, and "
    "the window opens then. A request that came at 10 leaves at 150 in place of 100.",
    "What does a request that came while the GPU was busy wait for once it is idle?",
    "Compare the departure with the end of the batch before, not with the arrival.",
)
_keep(
    "full_waits",
    bugs.FullWaits,
    ON_TIME,
    "batched (measured: a full batch left after 182 of a 200 ms tick)",
    "All seats are taken and a GPU is idle, but the loop only acts when its timer rings.",
    "Are there batches that were full long before they left, with a GPU idle?",
    "Find the arrival that filled the boat, and the departure after it.",
)
_keep(
    "unit_slip",
    bugs.UnitSlip,
    NOT_EARLY,
    "read in the source of KServe: 100 meant as milliseconds, used as nanoseconds",
    "One side writes milliseconds, the other reads a smaller unit: the window is a thousandth of "
    "what it says, and batches of one leave all day.",
    "By what factor is every wait too short?",
    "Divide the window by the oldest age of a TIMER batch.",
    max_wait=50 * MS,
)
_keep(
    "free_by_slots",
    bugs.FreeBySlots,
    "paid boards before free",
    "vLLM, vllm-project/vllm issues 40004, 45561 and 54530",
    "Seats are kept for the low tier, and a paying request stays behind although a seat was there.",
    "Which receipts show paying customers who stayed behind while free ones boarded?",
    "Read `stayed` for tier 0, then the tiers aboard.",
)
_keep(
    "global_fifo",
    bugs.GlobalFifo,
    "tenants of a tier board in turn",
    "read in the source of llm-d: a global strict order is the default",
    "One tenant sends ten thousand documents, another one question. In one line for everybody the "
    "question waits for all the documents.",
    "How many of each tenant are aboard, and who stayed?",
    "Count by tenant, batch by batch.",
    max_batch=2,
)
_keep(
    "newest_first",
    bugs.NewestFirst,
    "first come, first served in a line",
    "batched (measured: order 0, 2, 5, 4, 1, 3 of equals); LiteLLM breaks ties by a random id",
    "Requests of equal rank leave in an order nobody chose, and the unlucky ones wait for ever "
    "under load.",
    "In which order did one tenant's requests leave?",
    "Write down the ids of one tenant in order of departure.",
)
_keep(
    "requeue_at_tail",
    bugs.RequeueAtTail,
    "whoever came back boards first",
    "vLLM, vllm-project/vllm issue 41951 and pull request 51574",
    "A request that was aboard already, and lost its place through no fault of its own, starts "
    "again behind everyone who came later. Its latency is the sum of two queues.",
    "Where does a request stand after its GPU was lost?",
    "Compare the batch after the loss with the batch that was lost.",
    weather="die",
    max_batch=1,
)
_keep(
    "shared_bank",
    bugs.SharedBank,
    "a batch holds one model",
    "read in the source of KServe: the last path wins",
    "Requests for two models are gathered in one list, and the batch goes to whichever model was "
    "named last.",
    "Did every request reach the model it asked for?",
    "Compare `model` of the rows with the version the GPU joined with.",
    models=("ferry", "barge"),
)
_keep(
    "one_too_many",
    bugs.OneTooMany,
    "the door rejects exactly when the limit is reached",
    "vLLM issue 58192; Ray pull request 54542; LiteLLM issue 21319; Triton issues 5783 and 6796",
    "The check and the count are two steps, or the comparison is off by one: the queue holds more "
    "than its limit says.",
    "How many waited when the first request was refused?",
    "Count arrivals less departures at that instant.",
    depth_limit=4,
)
_keep(
    "sheds_the_first",
    bugs.ShedsTheFirst,
    "the door rejects exactly when the limit is reached",
    "BentoML issues 1530 and 3200",
    "A latency estimator with no history yet takes the worst for granted, and an idle service "
    "refuses its first callers.",
    "Who was refused, and how many waited then?",
    "Look at the very first arrival.",
)
_keep(
    "cancelled_computed",
    bugs.CancelledComputed,
    "only those who wait board",
    "LitServe issue 165; Triton issues 4618 and 4818; Ray pull request 50054",
    "The client hangs up while it is queued. Its future is dropped, its prompt is not: the GPU "
    "works for nobody.",
    "Which rows aboard had an outcome already?",
    "Look for a cancelled id among later departures.",
    weather="cancels",
)
_keep(
    "cancel_hangs",
    bugs.CancelHangs,
    "whoever was computed is answered",
    "Ray issue 41057 and pull request 41199; async-batcher (measured)",
    "One of four clients hangs up mid-batch; setting its result raises, the loop stops there, and "
    "the other three wait for ever.",
    "Which batch came back without an answer, and what had happened to one of its rows?",
    "Find a `finish` that returned no command.",
    weather="cancels",
)
_keep(
    "expired_on_gpu",
    bugs.ExpiredOnGpu,
    "only a waiting request expires, and not before its time",
    "LitServe issue 52 and pull request 63",
    "The timeout meant for the queue also ends work a GPU has begun: the GPU's time is spent, and "
    "the client gets an error.",
    "Where was the expired request when it expired?",
    "Look whether its batch had left.",
    weather="slow",
)
_keep(
    "completion_order",
    bugs.CompletionOrder,
    ABOARD,
    "vLLM issue 394; elasticsearch issue 100143; ObsWebSocket issue 16",
    "Two GPUs are out. The second comes back first, and its outputs go to the clients of the "
    "first.",
    "Does each answer belong to the rows that left under its batch id?",
    "Take the first batch that overtook another.",
    weather="slow",
)
_keep(
    "zip_short",
    bugs.ZipShort,
    "a GPU that miscounts answers nobody and is stopped",
    "amazon-sagemaker-examples issue 3979",
    "The model returns 99 outputs for 100 inputs. Paired off in order, everyone after the gap "
    "gets a neighbour's answer.",
    "Which batch came back with fewer outputs than rows, and who was answered?",
    "Compare the lengths at each `finish`.",
    weather="short",
)
_keep(
    "all_fail",
    bugs.AllFail,
    "batch-mates of a bad input are answered",
    "LitServe issue 340",
    "One input makes the function raise, and a hundred clients get an error 500.",
    "How many failed together, and how many of them were at fault?",
    "Try the halves apart.",
    weather="raise",
)
_keep(
    "late_accepted",
    bugs.LateAccepted,
    "a late result changes nothing",
    "Ray issue 63995: the call may or may not have run",
    "A GPU is given up for dead and its batch is tried elsewhere. Then its answer comes after "
    "all; believed, it resolves clients who are answered, or are being computed, already.",
    "Which answer came from a batch that had been given up?",
    "List the batch ids after a `Stop` or a loss.",
    weather="slow",
)
_keep(
    "retry_the_dead",
    bugs.RetryTheDead,
    "batches go to GPUs that are up",
    "NVIDIA dynamo pull request 11647",
    "A dead GPU finishes nothing, so it is never busy, so it is everybody's first choice: the "
    "retry goes straight back to it.",
    "Which GPU got the batch after the loss?",
    "Compare with the GPU that was lost.",
    weather="die",
)
_keep(
    "poison_stays",
    bugs.PoisonStays,
    "after losses a batch travels whole, then in tens, then alone",
    "hindsight issue 2675; faktory issue 99",
    "One request kills whatever GPU runs it. Retried with its whole company it takes one GPU "
    "after another, and the innocent with it.",
    "How often may one batch sink before its company is made smaller?",
    "Count the losses of one id.",
    weather="poison",
)
_keep(
    "one_forgotten",
    bugs.OneForgotten,
    ON_TIME,
    "TorchServe, pytorch/serve issue 1235; read in the source of Mosec; dynamo issue 13088",
    "After a failure all are put back but one. It has no outcome, no error and no log line; its "
    "client waits for its own timeout.",
    "Does everybody who was aboard a lost batch turn up again?",
    "Subtract the rows of the retry from the rows that were lost.",
    weather="die",
)
_keep(
    "drain_accepts",
    bugs.DrainAccepts,
    "a draining GPU is stopped once it is empty",
    "Ray issues 63995 and 65698",
    "A replica is told to drain, keeps taking work, and is cut off in the middle of it.",
    "What did the drained GPU do next?",
    "Look for `Stop` after `drain`.",
    weather="drain",
)
_keep(
    "stuck_turn",
    bugs.StuckTurn,
    ON_TIME,
    "strict round robin, wherever one replica is slow",
    "Turns are kept to the letter: while the GPU whose turn it is computes, all others stand idle "
    "beside a full queue.",
    "Which GPUs were idle while work was due?",
    "Write down the GPU numbers in order of departure.",
    weather="slow",
)
_keep(
    "formed_early",
    bugs.FormedEarly,
    "paid boards before free",
    "batched (measured: a HIGH request ran fourth); vLLM issue 24365",
    "While the GPU is busy the next batch is made up and set aside. A paying request that comes a "
    "moment later finds the boat full of free ones.",
    "When was the batch formed, and when did it leave?",
    "Somebody aboard is less urgent than somebody who stayed.",
)


# -- catching them --------------------------------------------------------------------------------


def _caught(bug: Bug, plan: Plan, law: str | None) -> Catch | None:
    """Run a plan through a bug's gateway; None unless it breaks this law, or any if None."""
    rig = Rig(plan, bug.make(plan.settings, Random(1)), plan.settings.max_wait, most_steps=2_000)
    try:
        rig.run()
    except LawBroken as broken:
        if law is None or broken.law == law:
            return Catch(plan, broken, rig.trace)
    return None


def worlds(bug: Bug, most: int = 8) -> st.SearchStrategy[Plan]:
    """Plans in which this bug can show: the ferry rule, pull, its needs and its weather."""
    needs = {"rule": "ferry", "backlog": 0, "dispatch": "least_loaded", **bug.needs}
    chosen = any_settings().map(lambda chosen: chosen.with_(**needs))
    return plans(most, chosen, calm=bug.weather == "calm")


def _search(bug: Bug, phases: tuple[Phase, ...], examples: int, most: int) -> Catch:
    plan = find(
        worlds(bug, most),
        lambda plan: _caught(bug, plan, bug.law) is not None,
        settings=hypothesis_settings(
            max_examples=examples,
            phases=phases,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    caught = _caught(bug, plan, bug.law)
    assert caught is not None
    return caught


def catch(bug_id: str, examples: int = 2_000) -> Catch:
    """The first world at random in which this bug breaks its law; the same at every call.

    Raises `hypothesis.errors.NoSuchExample` when no world does.
    """
    return _search(ZOO[bug_id], (Phase.generate,), examples, 8)


def smallest(bug_id: str, examples: int = 2_000) -> Catch:
    """A small world in which this bug breaks its law; one arrival fewer and it would not show.

    Hypothesis gives up shrinking where dropping one arrival hides a fault of timing; from there
    every one and every two are tried, the last to come first.
    """
    bug = ZOO[bug_id]
    caught = _search(bug, (Phase.generate, Phase.shrink), examples, 8)
    while fewer := _without_some(bug, caught.plan):
        caught = fewer
    return caught


def _without_some(bug: Bug, plan: Plan) -> Catch | None:
    """The same with one or two arrivals fewer, if it still breaks the law."""
    arrivals = plan.arrivals
    for count in (1, 2):
        for gone in combinations(reversed(arrivals), count):
            left = tuple(request for request in arrivals if request not in gone)
            if caught := _caught(bug, replace(plan, arrivals=left), bug.law):
                return caught
    return None


# -- hunting them ---------------------------------------------------------------------------------

HUNT = Settings(
    max_batch=6,
    overdue_after=250 * MS,
    depth_limit=12,
    tiers=(TierRule("paid", 2 * S), TierRule("free", 400 * MS)),
)
"""The gateway of every hunt, but for the models its bug needs."""


def morning(bug: Bug, seed: int) -> Plan:
    """Two GPUs, thirty to sixty requests in half a second, and the bug's weather."""
    rng = Random(seed)
    count = 30 + seed % 4 * 10
    chosen = HUNT.with_(models=bug.needs.get("models", HUNT.models))

    def draw(choices: Sequence[Any]) -> Any:
        return choices[int(rng.random() * len(choices))]

    instants = sorted(int(rng.random() * 500) * MS for _ in range(count))
    arrivals = tuple(
        Request(i, f"p{i}", at, draw((0, 1)), draw("AAAB"), draw(chosen.models))
        for i, at in enumerate(instants)
    )
    kinds: dict[Weather, Kind] = {"die": "die", "short": "short", "raise": "raise"}
    ends: list[Fate] = [Fate(), Fate(kinds.get(bug.weather, "ok"))]
    if bug.weather == "slow":
        ends = [Fate(), Fate("ok", 180 * MS), Fate("ok", 270 * MS)]
    some = tuple((at + 20 * MS, i) for i, at in enumerate(instants) if i % 5 == 2)
    return Plan(
        chosen,
        gpus=2,
        arrivals=arrivals,
        fates=tuple(draw(ends) for _ in range(8)),
        cancels=some if bug.weather == "cancels" else (),
        drains=((200 * MS, 1),) if bug.weather == "drain" else (),
        poison=frozenset({10}) if bug.weather == "poison" else frozenset(),
    )


class _NoLaws(Laws):
    def told(self, *_: object) -> None:
        """Whatever it is, it is fine."""

    def passes(self, now: int) -> None:
        """So is this."""


class _Unwatched(Rig):
    """A rig without laws: it lives on after the fault, as the world did."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.laws = _NoLaws(self.plan.settings, stamp)

    def _ledger_adds_up(self) -> None:
        pass


def hunt(bug_id: str) -> tuple[Trace, list[dict[str, Any]]]:
    """A morning in which this bug does harm: its whole trace, and its receipts as rows.

    The same at every call. The trace replays on the bug's own gateway.
    """
    bug = ZOO[bug_id]
    mornings = (morning(bug, seed) for seed in range(500))
    plan = next(plan for plan in mornings if _caught(bug, plan, law=None))
    rig = _Unwatched(plan, bug.make(plan.settings, Random(1)), most_steps=400)
    # A gateway that is wrong may well fall over later; what it did until then is the evidence.
    with suppress(LawBroken, LookupError, ValueError):
        rig.run()
    return rig.trace, receipts(rig.trace)


def receipts(trace: Trace) -> list[dict[str, Any]]:
    """One row a departure, times in milliseconds, in order."""
    rows = []
    for now, command in trace.commands():
        if isinstance(command, Depart):
            receipt = command.receipt
            rows.append(
                {
                    "at_ms": to_ms(now),
                    "batch": command.batch_id,
                    "gpu": command.gpus[0],
                    "aboard": [row.id for row in command.rows],
                    "reason": receipt.reason.value,
                    "oldest_ms": to_ms(receipt.oldest_age),
                    "slack_ms": None if receipt.slack is None else to_ms(receipt.slack),
                    "stayed": receipt.stayed,
                    "first_stayed": receipt.first_stayed,
                }
            )
    return rows
