"""Exercises as a notebook uses them: check, hint, solution, and going on without."""

import inspect
import re

import nbformat
import pytest
from nbclient import NotebookClient

from labkit.teach import use as session
from labkit.teach.exercises import EXERCISES, Mark
from labkit.teach.exercises.verdict import Case, Verdict
from labkit.teach.progress import records
from labkit.teach.use import Practice, exercise, use


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A learner's folder and a session of one's own."""
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    session._practice.cache_clear()
    session._checked.clear()
    return tmp_path


@pytest.fixture(scope="module", autouse=True)
def _closed():
    yield
    session.bench().close()


def stub(waiting, max_batch, max_wait):
    """Nothing yet."""
    return ...


def wrong(waiting, max_batch, max_wait):
    """The timer restarts."""
    return waiting[-1] + max_wait


def right(waiting, max_batch, max_wait):
    """The rule."""
    return waiting[0] + max_wait * (len(waiting) < max_batch)


# -- use ------------------------------------------------------------------------------------------


def test_a_stub_is_replaced_at_once_and_visibly(capsys):
    given = use("01.due_at", stub)
    assert given((0, 10), 6, 50) == 50
    assert capsys.readouterr().out == (
        "01.due_at: the lab's own from here on; yours is not written yet\n"
    )
    assert session.bench()._child is None


def test_what_passes_is_handed_back_itself(capsys):
    assert use("01.due_at", right) is right
    assert capsys.readouterr().out == "01.due_at: yours from here on\n"


def test_what_fails_is_replaced(capsys):
    assert use("01.due_at", wrong) is not wrong
    assert capsys.readouterr().out.endswith("yours does not pass yet\n")
    assert use("01.due_at", 7)((0,), 6, 50) == 50
    assert capsys.readouterr().out.endswith("yours does not run to its end yet\n")


def test_the_labs_own_is_not_taken_for_the_learners(capsys):
    given = use("01.due_at", stub)
    assert use("01.due_at", given) is given
    assert capsys.readouterr().out.endswith("01.due_at: the lab's own is in use\n")
    verdict = exercise("01.due_at").check(given)
    assert verdict.line.endswith(session.LABS_OWN)
    assert records() == {}
    assert not exercise("01.due_at").check(right).line.endswith(session.LABS_OWN)


def test_a_value_may_be_used_as_well():
    assert use("01.hunt", ...) == "stale timer"
    assert use("01.hunt", "d") == "d"


def test_use_never_believes_the_progress_file():
    Practice(EXERCISES["01.due_at"]).check(right)
    assert records()["01.due_at"].passed
    assert use("01.due_at", wrong) is not wrong


def test_the_same_answer_is_judged_once_a_session(monkeypatch):
    use("01.due_at", right)
    monkeypatch.setattr(session.bench(), "check", None)
    assert use("01.due_at", right) is right


def test_an_unknown_exercise_is_refused_with_the_known_ones():
    with pytest.raises(KeyError, match=r"no exercise '01\.flush'; there are 00\.contract, "):
        use("01.flush", stub)


def test_the_source_of_the_reference_can_be_read():
    assert inspect.getsource(use("01.due_at", stub)) == EXERCISES["01.due_at"].solution


# -- check, hint, solution ------------------------------------------------------------------------


def test_a_check_is_noted_and_a_stub_is_not():
    ex = exercise("01.due_at")
    assert ex.check(stub).mark is Mark.NOT_ATTEMPTED
    assert records() == {}
    assert ex.check(wrong).mark is Mark.FAILED
    assert ex.check(right).passed
    noted = records()["01.due_at"]
    assert (noted.attempts, noted.passed, noted.last) == (2, True, "passed")


def test_hints_come_one_at_a_time_and_the_last_one_stays():
    ex = exercise("01.take")
    said = [ex.hint().text for _ in range(4)]
    assert said[0].startswith("hint 1 of 3: There are two lines")
    assert said[0].endswith("(2 more)")
    assert said[1].endswith("(1 more)")
    assert said[2].endswith("(that was the last; solution() is there too)")
    assert said[3] == said[2]
    assert records()["01.take"].hints == 3


def test_a_solution_asks_for_one_attempt_and_then_says_why():
    ex = exercise("01.hunt")
    assert ex.solution().text.startswith("not yet: check one answer of your own first")
    ex.check(...)
    assert ex.solution().text.startswith("not yet")
    ex.check("a")
    shown = ex.solution()
    assert "stale timer" in shown.text
    assert EXERCISES["01.hunt"].why in shown.text
    assert "<code>" in shown.html
    assert records()["01.hunt"].solution


def test_an_attempt_of_another_session_opens_the_solution():
    exercise("01.hunt").check("a")
    again = Practice(EXERCISES["01.hunt"])
    assert "stale timer" in again.solution().text


def test_an_exercise_is_the_same_object_all_session():
    assert exercise("02.max_wait") is exercise("02.max_wait")
    assert repr(exercise("02.max_wait")).startswith("Derive the window (02.max_wait, 10 minutes")


@pytest.mark.parametrize(
    ("exercise_id", "words"),
    [("00.costume", "the interviewer says"), ("01.hunt", "the oldest had waited")],
)
def test_what_a_question_is_about_can_be_shown(exercise_id, words, capsys):
    exercise(exercise_id).show()
    assert words in capsys.readouterr().out


def test_every_answer_of_the_lab_passes_its_own_check():
    for ex in EXERCISES.values():
        if not ex.is_function:
            assert ex.judged(Practice(ex).answers()).passed


# -- how a verdict looks --------------------------------------------------------------------------


def test_a_verdict_is_one_line_a_table_and_what_was_printed():
    case = Case.tabled("why", ("a", "b"), [(1, 2), ("<x>", 4)])
    verdict = Verdict("01.due_at", Mark.FAILED, "a `b` < c", case, printed="<hi>")
    bundle = verdict._repr_mimebundle_()
    assert bundle["text/plain"].split("\n") == [
        "01.due_at failed: a `b` < c",
        "  a    b",
        "  1    2",
        "  <x>  4",
        "your code printed:",
        "  <hi>",
    ]
    html = bundle["text/html"]
    assert "<strong>failed</strong>" in html
    assert "a <code>b</code> &lt; c" in html
    assert "&lt;x&gt;" in html
    assert "<pre>&lt;hi&gt;</pre>" in html
    assert "<script" not in html


def test_marks_differ_without_colour():
    shown = {mark: Verdict("x", mark, "").html for mark in Mark}
    assert (
        len({re.search(r"border-left:2px (\w+) currentColor", h)[1] for h in shown.values()}) == 3
    )
    assert len({re.search(r'aria-hidden="true">(.)<', h)[1] for h in shown.values()}) == 4


def test_a_long_table_is_cut_and_says_so():
    case = Case.tabled("why", ("n", "square"), [(n, n * n) for n in range(9)])
    assert len(case.rows) == 5
    assert case.rows[-1] == ("and 5 more", "")


CELLS = [
    "from labkit.teach.use import exercise, use",
    "def due_at(waiting, max_batch, max_wait):\n    return ...",
    'ex = exercise("01.due_at")\nex.check(due_at)',
    'due_at = use("01.due_at", due_at)',
    "import os\nex.check(lambda waiting, max_batch, max_wait: os._exit(1))",
    "ex.check(lambda waiting, max_batch, max_wait: waiting[-1] + max_wait)",
    "ex.hint()",
    "due_at((0, 10), 6, 50)",
]


@pytest.mark.slow
def test_a_notebook_runs_through_with_stubs_and_with_harm(home, monkeypatch):
    monkeypatch.setenv("LABKIT_WIDGETS", "static")
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    NotebookClient(nb, timeout=60, kernel_name="python3").execute()
    plain = [[o.get("data", {}).get("text/plain", "") for o in cell.outputs] for cell in nb.cells]
    assert plain[2] == ["01.due_at not attempted: write due_at, then check it"]
    assert plain[3] == ["01.due_at: the lab's own from here on; yours is not written yet"]
    assert plain[4][0].startswith("01.due_at raised: it ended the process that checks it")
    assert plain[5][0].startswith("01.due_at failed: arrivals at 0 and 10 ms")
    assert "image/png" in nb.cells[5].outputs[1].data
    assert "text/html" in nb.cells[6].outputs[0].data
    assert plain[7] == ["50"]
