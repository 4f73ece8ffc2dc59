"""03.sum_in_text: the capacity sum as one types it in a shared document."""

from typing import Any

from labkit.teach.exercises.answers import shown
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.sums import Contract, Found, read_sum, slip
from labkit.teach.exercises.verdict import Case, NotAttempted, Refuted

QUESTION = Contract()


def judge_sum(answer: Any) -> None:
    """Each step of the sum has its number, after those it follows."""
    if answer is None or (isinstance(answer, str) and not answer.strip()):
        raise NotAttempted
    if not isinstance(answer, str):
        raise Refuted(f"got {shown(answer)}, but the sum is a text")
    found = read_sum(answer[:5_000], QUESTION)
    bad = next((i for i, one in enumerate(found) if one.figure is None), None)
    if bad is None:
        if wrong := slip(answer[:5_000]):
            raise Refuted(f"every step is there, but {wrong}")
        return
    step, instead = found[bad].step, found[bad].instead
    if instead is not None:
        why = f"step {step.name}: {instead.written} stands where {step.reads} belongs"
    else:
        why = f"step {step.name} is missing: {step.reads}"
    more = sum(one.figure is None for one in found) - 1
    if more:
        why += f"; {more} more {'is' if more == 1 else 'are'} missing or wrong"
    begin = max(min(bad - 2, len(found) - 5), 0)
    rows = [(one.step.name, _written(one), one.step.reads) for one in found[begin : begin + 5]]
    raise Refuted(Case.tabled(why, ("step", "yours", "the rule"), rows))


def _written(found: Found) -> str:
    if found.figure is not None:
        return found.figure.written
    return f"{found.instead.written}?" if found.instead is not None else "missing"


def _text(words: str) -> str:
    return f'capacity = """{words}"""\n'


SUM_IN_TEXT = Exercise(
    id="03.sum_in_text",
    title="The sum, as you would type it",
    minutes=6,
    difficulty=1,
    question=(
        "In a shared text document, write the capacity sum for 10,000 req/s with the contract (100 "
        "a batch, 100 ms a batch), a target of 65 % and two spares: from the batch to the answer, "
        "every step with its number."
    ),
    stub="capacity = ...\n",
    solution=_text(
        "one GPU: 100 / 100 ms = 1,000 req/s\n"
        "10,000 req/s / 1,000 = 10 at perfect fill: the floor\n"
        "at 65 %: 10 / 0.65 = 15.4 -> 16\n"
        "+ 2 spares = 18"
    ),
    why=(
        "Said in this order the sum answers the next three questions before they are asked: what "
        "one GPU does, why ten is not the answer, and where the two more come from."
    ),
    hints=(
        "Begin with what one GPU does in a second. Then three more lines.",
        "One GPU, the floor, the target with its rounding, the spares. Write every number with its "
        "unit: `100 ms`, `1,000 req/s`, `65 %`.",
        "100 / 100 ms = 1,000 req/s; 10,000 / 1,000 = 10; 10 / 65 % = 15.4 -> ...; + 2 = ...",
    ),
    judge=judge_sum,
    mutants=(
        _text("100 / 100 ms = 1,000 req/s a GPU. 10,000 / 1,000 = 10 GPUs."),
        _text("100 / 0.1 s = 1,000. 10,000 / 1,000 = 10. 10 / 0.65 = 15.4 -> 15. + 2 = 17"),
        _text("100 / 100 s = 1 req/s. 10,000 / 1 = 10,000 GPUs"),
        _text("100 / 100 ms = 100 req/s; 10,000 / 100 = 100; / 65 % = 153.8 -> 154; + 2 = 156"),
        _text("100 / 100 ms = 1,000; 10,000 / 1,000 = 10; x 0.65 = 6.5 -> 7; + 2 = 9"),
        _text("100 / 100 ms = 1,000; 10,000 / 1,000 = 10; / 0.65 = 15.4 -> 16"),
        _text("18"),
    ),
    alternatives=(
        _text(
            "D=0.1s, B=100 => 100/0.1 = 1000 rps per GPU\n"
            "load 10k rps => 10000/1000 = 10 (floor!)\n"
            "N+2 at 65%: 10/0.65=15.38 => 16, 16+2=18"
        ),
        _text(
            "10 000 requests/s. A batch of 100 takes 100 ms, so a GPU does 1 000 req/s.\n"
            "That is 10 GPUs at 100% busy. I want .65, which is 15.385, rounded up 16.\n"
            "Two down at once: 2 more, 18."
        ),
    ),
    right="all ten numbers, each after those it follows from",
)
