"""The contract: one to a hundred strings, one line each, in order, whoever sits beside."""

from random import Random

import pytest

torch = pytest.importorskip("torch")

from labkit.gpu import batchstring as module  # noqa: E402
from labkit.gpu.batchstring import BatchString, ContractError, load  # noqa: E402
from labkit.gpu.calibrate import Plan, plan  # noqa: E402
from labkit.gpu.decoder import Decoder  # noqa: E402
from labkit.gpu.grammar import begins, belongs, parse, subject_of  # noqa: E402
from labkit.gpu.tag import carries, stamp, text_of  # noqa: E402
from labkit.gpu.tokens import FULL_STEPS, WINDOW  # noqa: E402

WHOLE = plan(1.0)
PROMPTS = [f"passenger {number}" for number in range(60)] + [
    *("hello", "", "\0", "🚢🚢🚢", "x" * 100_000, "Tell me about the fog", "naïve café", "Ада"),
    *("request 7", "Ada", "Where is my parcel?", "\ud800", "a b c d e f g", "42", "日本語", "GPU"),
    *(f"seat {number}" for number in range(24)),
]


@pytest.fixture(scope="module")
def function() -> BatchString:
    return BatchString(Decoder(), WHOLE)


@pytest.fixture(scope="module")
def outputs(function: BatchString) -> list[str]:
    return function.compute(PROMPTS)


def test_a_hundred_prompts_give_a_hundred_lines_in_order(outputs: list[str]) -> None:
    assert len(PROMPTS) == len(outputs) == 100
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        assert carries(output, prompt)
        assert belongs(text_of(output)), output


def test_a_line_is_about_its_own_prompt(outputs: list[str]) -> None:
    lines = [parse(text_of(output)) for output in outputs]
    about = [line is not None and line.subject for line in lines]
    assert about == [subject_of(prompt) for prompt in PROMPTS]


def test_different_prompts_get_different_lines(outputs: list[str]) -> None:
    assert len({text_of(output) for output in outputs[:60]}) == 60


def test_the_same_text_alone_and_in_any_company(function: BatchString, outputs: list[str]) -> None:
    for place in (0, 63, 99):
        assert function.compute([PROMPTS[place]]) == [outputs[place]]
    assert function.compute(PROMPTS[::-1]) == outputs[::-1]
    assert function.compute(["someone"] * 37 + PROMPTS[:63])[37:] == outputs[:63]


def test_a_copy_of_a_prompt_gets_a_copy_of_its_answer(function: BatchString) -> None:
    assert len(set(function.compute(["request 42"] * 100))) == 1


def test_texts_are_decided_by_more_than_rounding() -> None:
    """The best token leads by more than what another order of summing changes."""
    decoder = Decoder()
    decoder.board(PROMPTS)
    lead = 1e9
    for position in range(FULL_STEPS):
        decoder.run(1)
        open_rows = (decoder.seats.tokens[:, WINDOW + 1 : position + 1] < 256).all(-1)
        if position >= WINDOW:
            best = decoder.seats.logits[open_rows].topk(2).values
            lead = min(lead, (best[:, 0] - best[:, 1]).min().item())
    assert lead > 1e-4


def test_fresh_prompts_of_any_kind_get_lines(function: BatchString) -> None:
    rng = Random(2024)
    marks = [chr(int(rng.random() * 0x3000)) for _ in range(2000)]
    prompts = ["".join(marks[20 * i : 20 * i + 20]) for i in range(100)]
    lines = [text_of(output) for output in function.compute(prompts)]
    assert sum(map(belongs, lines)) >= 95


def test_a_short_answer_begins_the_whole_one(function: BatchString) -> None:
    short = BatchString(function.decoder, Plan(WINDOW + 24, 24, 1.0))
    for prompt, output in zip(PROMPTS, short.compute(PROMPTS), strict=True):
        assert begins(text_of(output), subject_of(prompt))
        assert len(text_of(output).encode()) <= 24


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "0 inputs: a batch is 1 to 100 strings; split it"),
        (["x"] * 101, "101 inputs: a batch is 1 to 100 strings; split it"),
        (["x", 7], "inputs[1] is 7, a int; make it a str"),
        (["x", None], "inputs[1] is None, a NoneType; make it a str"),
        ([b"x"], "inputs[0] is b'x', a bytes; make it a str"),
        ("hello", "inputs is the string 'hello'; put it in a list: [text]"),
        (None, "inputs is None; give a list of strings"),
    ],
)
def test_what_the_contract_refuses_is_refused_with_the_remedy(
    function: BatchString, inputs: list[str], message: str
) -> None:
    for call in (function, module.batchstring):
        with pytest.raises(ContractError) as refused:
            call(inputs)
        assert str(refused.value) == message
    assert isinstance(refused.value, ValueError)


class Paced:
    """A decoder that takes a stated time by a clock of its own, and writes nothing."""

    def __init__(self, step_s: float) -> None:
        self.now, self.step_s, self.ran = 0.0, step_s, 0

    def clock(self) -> float:
        self.now += 1e-6
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def board(self, prompts: list[str]) -> None:
        assert len(prompts) <= 100

    def run(self, steps: int) -> None:
        self.ran += steps
        self.now += steps * self.step_s

    def lines(self, count: int, new_bytes: int) -> list[str]:
        return ["line"] * count


def paced(step_ms: float) -> tuple[Paced, BatchString]:
    device = Paced(step_ms / 1000)
    return device, BatchString(device, WHOLE, device.clock, device.sleep)


@pytest.mark.parametrize("size", [1, 37, 100])
def test_a_batch_takes_a_hundred_milliseconds_whatever_its_size(size: int) -> None:
    device, function = paced(step_ms=1.0)
    assert function(["x"] * size) == [stamp("line", "x")] * size
    assert device.ran == FULL_STEPS
    assert function.timings.raw_ms == pytest.approx(FULL_STEPS, abs=0.1)
    assert function.timings.padded_ms == pytest.approx(100, abs=0.1)
    assert function.timings.padded_ms >= 100
    assert function.timings.violations == 0


def test_a_plan_for_a_cpu_counts_the_time_of_the_thread_alone(monkeypatch) -> None:
    device, _ = paced(step_ms=1.0)
    monkeypatch.setattr(module.time, "thread_time", lambda: device.now)
    # Half a core has 47.5 ms: room for the 52 steps of a whole line at 0.9 ms, not at 1 ms.
    device.step_s = 0.0009
    assert module.cpu_plan(device, 1.0).new_bytes == WHOLE.new_bytes
    device.step_s = 0.001
    assert module.cpu_plan(device, 1.0).new_bytes == 32
    assert module.cpu_plan(device, 0.5).new_bytes == 8


def test_a_batch_that_takes_longer_is_late_and_counted() -> None:
    _, function = paced(step_ms=2.0)
    function(["x"])
    assert function.timings.raw_ms == pytest.approx(2 * FULL_STEPS, abs=0.1)
    assert function.timings.padded_ms == pytest.approx(2 * FULL_STEPS, abs=0.1)
    assert function.timings.violations == 1


def test_steps_beyond_the_line_change_no_text(outputs: list[str]) -> None:
    late = BatchString(Decoder(), WHOLE)
    late.decoder.board(PROMPTS)
    late.decoder.run(FULL_STEPS + 80)
    texts = late.decoder.lines(100, WHOLE.new_bytes)
    assert texts == [text_of(output) for output in outputs]


def test_a_given_plan_is_kept_and_none_is_measured_once_and_kept(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    assert load("cpu", plan=Plan(WINDOW + 8, 8, 9.0)).plan == Plan(WINDOW + 8, 8, 9.0)
    assert list(tmp_path.iterdir()) == []
    found = load("cpu").plan
    assert found.new_bytes >= 8
    assert found.step_ms > 0
    assert load("cpu").plan == found
