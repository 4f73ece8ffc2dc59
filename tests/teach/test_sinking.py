"""Notebook 06: the walks that its exercises and cards put numbers on."""

from collections import Counter

import pytest

from labkit.core.messages import Answer, Depart, End, Request
from labkit.core.settings import Settings
from labkit.core.units import MS, to_ms
from labkit.sim.driver import simulate
from labkit.sim.faults import Raises
from labkit.teach.exercises import EXERCISES, Mark
from labkit.teach.exercises.detection import slowest_for, sunk_once
from labkit.teach.exercises.guard import Guarded
from labkit.teach.exercises.hunts import accused, lettered
from labkit.teach.exercises.key_ledger import replies
from labkit.teach.exercises.lives import answered_after
from labkit.teach.exercises.on_loss import plan_of
from labkit.teach.exercises.sinking import LearnersLoss, came_back, live, span
from labkit.teach.exercises.sinking_hunts import BELIEVED, FORGOTTEN, SUSPECTS, WORDS
from labkit.teach.zoo import ZOO
from labkit.theory.capacity import Window
from labkit.theory.dock import Dock


def poisoned(function, killer=37):
    """The walk of a hundred of whom one is poison: deaths, calls, answered, failed."""
    plan = plan_of((100, 0, killer))
    gateway = LearnersLoss(plan.settings)
    gateway.function = Guarded(function)
    trace = live(plan, gateway)
    commands = [command for _, command in trace.commands()]
    return (
        sum(step.verb == "lose" for step in trace.steps),
        sum(isinstance(command, Depart) for command in commands),
        sum(len(command.rows) for command in commands if isinstance(command, Answer)),
        sum(isinstance(command, End) for command in commands),
    )


def test_whole_in_tens_alone_costs_four_deaths_and_22_calls():
    on_loss = EXERCISES["06.on_loss"].reference()
    assert [poisoned(on_loss, killer) for killer in (0, 37, 99)] == [(4, 22, 99, 1)] * 3


def test_halving_what_kills_costs_up_to_eight_deaths():
    def halves(rows, losses):
        middle = (len(rows) + 1) // 2
        return [rows[:middle], rows[middle:]] if len(rows) > 1 else []

    assert poisoned(halves) == (7, 13, 99, 1)
    assert poisoned(halves, killer=0) == (8, 15, 99, 1)
    assert "up to eight boats" in EXERCISES["06.on_loss"].why


def test_somebody_who_is_put_nowhere_is_named_with_the_smallest_boat():
    verdict = EXERCISES["06.on_loss"].judged(lambda rows, losses: [rows[:-1]])
    assert verdict.mark is Mark.FAILED
    assert (
        verdict.line == "1 request after 1 loss: you give up, and somebody there may be blameless"
    )
    verdict = EXERCISES["06.on_loss"].judged(
        lambda rows, losses: [rows[: max(len(rows) - 1, 1)]] if losses < 4 else []
    )
    assert verdict.line == (
        "2 requests after 1 loss: you put request 1 nowhere, and its client waits for ever"
    )
    assert verdict.dock() is not None


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ([[0], [0]], "request 0 goes out twice"),
        ([[7]], "7 was not aboard"),
        ([0], "the groups are a list of lists of ids"),
        ("ab", "the groups are a list of lists of ids"),
    ],
)
def test_what_cannot_be_groups_is_refused_in_words(groups, said):
    verdict = EXERCISES["06.on_loss"].judged(lambda rows, losses: groups)
    assert verdict.mark is Mark.FAILED
    assert said in verdict.line


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (({}, []), "1 aboard, 1 came back: you answer 0, and 1 wait for their own"),
        (({0: 7}, []), "request 0 got 7, which is no output"),
        (({5: "x"}, []), "5 got an answer and was not aboard"),
        (([], []), "the answers are a dictionary"),
        ({}, "a pair (answers, again)"),
    ],
)
def test_what_cannot_be_a_return_is_refused_in_words(answer, said):
    verdict = EXERCISES["06.came_back"].judged(lambda rows, outputs: answer)
    assert verdict.mark is Mark.FAILED
    assert said in verdict.line


def test_one_bad_row_of_a_hundred_is_found_in_15_calls_at_most():
    calls = []
    for row in range(0, 100, 9):
        company = [Request(i) for i in range(100)]
        report = simulate(Settings(), company, gpus=2, faults=[Raises(row)]).report()
        assert (report["answered"], report["failed"]) == (99, 1)
        calls.append(report["batches"])
    assert max(calls) == 15


def test_a_wrong_count_answers_nobody_and_a_single_row_that_raised_is_over():
    assert came_back([1, 2], ["a"]) == ({}, [[1, 2]])
    assert came_back([1], None) == ({}, [])
    assert came_back([1, 2, 3], None) == ({}, [[1, 2], [3]])
    assert came_back([1, 2], ["a", "b"]) == ({1: "a", 2: "b"}, [])


@pytest.mark.parametrize("life", [(50, 100), (50, 20), (0, 0), (10, 99)])
def test_with_the_slowest_detector_whoever_sank_is_answered_on_the_last_tick(life):
    delay = slowest_for([life], 95, 500, 100, 30)
    assert answered_after(sunk_once(*life, 100, delay)) + 30 == 500


def test_the_p95_of_those_who_sank_allows_what_the_closed_form_says():
    form = Window(Dock(100, 50))
    steps = [(n + 0.5) / 200 for n in range(200)]
    waits = [form.dock.wait_percentile(100 * share) for share in steps]
    lives = [(wait, n + 0.5) for wait in waits for n in range(100)]
    assert slowest_for(lives, 95, 500, 100, 30) == pytest.approx(form.largest_detection(), abs=1)
    assert slowest_for([(50, 100)], 95, 500, 100, 30) == 220


def test_fifty_at_once_are_one_execution():
    assert Counter(replies([("begin", "k", "A")] * 50)) == {"run": 1, "wait": 49}


def test_a_reply_too_few_is_counted():
    verdict = EXERCISES["06.key_ledger"].judged(lambda events: ["run", "wait"][: len(events) - 1])
    assert "the replies are a list" in verdict.line or "replies to 1 begins" in verdict.line


@pytest.mark.parametrize("hunt", [FORGOTTEN, BELIEVED], ids=lambda hunt: hunt.bug_id)
def test_a_sinking_has_receipts_that_give_the_fault_away(hunt):
    trace, receipts = hunt.evidence()
    assert any(hunt.telling(row, to_ms(trace.settings.max_wait)) for row in receipts)
    assert len(receipts) <= 8


def test_on_the_one_morning_two_are_forgotten_and_on_the_other_six_hear_twice():
    heard = []
    for hunt in (FORGOTTEN, BELIEVED):
        trace, _ = hunt.evidence()
        told = Counter(
            row.id for _, c in trace.commands() if isinstance(c, Answer) for row in c.rows
        )
        heard.append(sorted(set(range(24)) - set(told)) + [i for i, n in told.items() if n > 1])
    assert heard == [[6, 7], [2, 3, 4, 5, 6, 7]]


def test_the_accused_of_a_sinking_are_planted_bugs_and_each_has_a_letter():
    assert set(SUSPECTS) <= set(ZOO)
    for letter, name in lettered(SUSPECTS).items():
        for said in (letter, f"({letter.upper()}).", name, name.replace("_", " ")):
            assert accused(said, SUSPECTS, WORDS) == [name]


@pytest.mark.parametrize(
    ("words", "bug_id"),
    [
        ("whoever comes back goes to the back of the queue", "requeue_at_tail"),
        ("one row gets dropped after a loss", "one_forgotten"),
        ("somebody is never put back", "one_forgotten"),
        ("the same GPU gets it again", "retry_the_dead"),
        ("there is no fence, a zombie answers", "late_accepted"),
        ("the batch was given up and its answer is accepted all the same", "late_accepted"),
        ("nobody splits it: poison", "poison_stays"),
        ("it zips what came back", "zip_short"),
    ],
)
def test_a_sinking_may_be_explained_in_a_sentence(words, bug_id):
    assert accused(words, SUSPECTS, WORDS) == [bug_id]


def test_a_hunt_on_lanes_shows_itself_as_text_too():
    page, trace = EXERCISES["06.hunt"].exhibit()
    assert trace is None
    assert "what became of it" in repr(page)


def test_ids_in_a_row_are_said_as_a_span():
    assert span([3, 4, 5, 6]) == "3 to 6"
    assert span([3, 4]) == "3, 4"
    assert span([3, 5, 6]) == "3, 5, 6"
    assert span([1, 3, 5, 7, 9, 11, 13, 15, 17]) == "1, 3, 5, 7, 9, 11, 13, 15, ..."


def test_a_life_is_spent_where_the_exercise_says():
    trace = sunk_once(50, 20, 100, 30)
    left = [now for now, command in trace.commands() if isinstance(command, Depart)]
    assert left == [50 * MS, 100 * MS]
