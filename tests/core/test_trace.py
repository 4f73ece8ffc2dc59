"""What was told is written down, and replays exactly."""

import io
import json
import re
from random import Random

import pytest

from labkit.core.gateway import Gateway
from labkit.core.messages import BatchError, Request, RowError
from labkit.core.settings import DISPATCHES, Settings, TierRule
from labkit.core.trace import (
    Recorder,
    Step,
    Trace,
    TraceFormatError,
    first_difference,
    read_jsonl,
    replay,
    write_jsonl,
)
from labkit.core.units import MS, S
from labkit.teach.rig import Fate, Plan, Rig, stamp

HEADER = json.dumps({"format": 1, "seed": 0, "dropped": 0, "settings": Settings().as_dict()})


def recorded(settings: Settings | None = None, seed: int = 0, ring: int | None = None) -> Recorder:
    settings = settings or Settings()
    return Recorder(Gateway(settings, Random(seed)), settings, seed, ring)


def written(trace: Trace) -> str:
    file = io.StringIO()
    write_jsonl(trace, file)
    return file.getvalue()


def read(*lines: str) -> Trace:
    return read_jsonl([HEADER, *lines])


def stormy(dispatch: str = "least_loaded", backlog: int | None = 0) -> Plan:
    """Everything that can happen, in two seconds."""
    kinds = ["ok", "die", "raise", "short", "row", "hang", "ok"]
    return Plan(
        Settings(
            max_batch=4,
            dispatch=dispatch,
            backlog=backlog,
            depth_limit=12,
            overdue_after=250 * MS,
            tiers=(TierRule("paid", 1 * S), TierRule("free", 2 * S)),
            models=("a", "b"),
        ),
        gpus=4,
        arrivals=tuple(
            Request(i, f"p{i}", i * 9 * MS, i % 2, "XYZ"[i % 3], "ab"[i % 5 == 0])
            for i in range(60)
        ),
        fates=tuple(Fate(kind, 100 * MS + i * 20 * MS) for i, kind in enumerate(kinds * 3)),
        cancels=((100 * MS, 11), (150 * MS, 3), (200 * MS, 999)),
        drains=((300 * MS, 1),),
        close_at=500 * MS,
    )


def test_every_call_is_a_step_with_what_came_of_it():
    door = recorded()
    door.join(0, "ferry", 0)
    request = Request(1, "hello", 0)
    door.arrive(request, 0)
    assert door.due_at == 50 * MS
    commands = door.advance(50 * MS)
    door.finish(1, ["HELLO"], 150 * MS)
    door.cancel(1, 151 * MS)
    door.drain(0, 152 * MS)
    door.lose(0, 153 * MS)
    door.close(154 * MS)
    assert [(step.now // MS, step.verb, step.args) for step in door.trace.steps] == [
        (0, "join", (0, "ferry")),
        (0, "arrive", (request,)),
        (50, "advance", ()),
        (150, "finish", (1, ["HELLO"])),
        (151, "cancel", (1,)),
        (152, "drain", (0,)),
        (153, "lose", (0,)),
        (154, "close", ()),
    ]
    assert door.trace.steps[2].commands == tuple(commands)
    assert [(now // MS, type(c).__name__) for now, c in door.trace.commands()] == [
        (50, "Depart"),
        (150, "Answer"),
        (152, "Stop"),
    ]


def test_time_that_runs_backwards_is_refused():
    door = recorded()
    door.advance(10)
    door.advance(10)
    with pytest.raises(ValueError, match="advance at 9 us after 10 us: time never decreases"):
        door.advance(9)


def test_a_ring_remembers_the_last_and_counts_what_it_forgot():
    door = recorded(ring=3)
    for now in range(5):
        door.advance(now)
    assert [step.now for step in door.trace.steps] == [2, 3, 4]
    assert door.trace.dropped == 2
    with pytest.raises(ValueError, match="forgot its first 2 steps and does not replay"):
        replay(door.trace, Gateway(Settings()))


def test_a_ring_that_has_not_overflowed_forgot_nothing():
    door = recorded(ring=3)
    for now in range(3):
        door.advance(now)
    assert door.trace.dropped == 0


@pytest.mark.parametrize("dispatch", DISPATCHES)
@pytest.mark.parametrize("backlog", [0, 1, None])
def test_a_storm_replays_exactly_from_memory_and_from_its_file(dispatch: str, backlog: int | None):
    plan = stormy(dispatch, backlog)
    trace = Rig(plan, Gateway(plan.settings, Random(7)), plan.settings.max_wait).run()
    assert {step.verb for step in trace.steps} == {
        "join", "arrive", "advance", "finish", "cancel", "drain", "lose", "close"
    }  # fmt: skip
    assert replay(trace, Gateway(plan.settings, Random(7))).steps == trace.steps
    back = read_jsonl(io.StringIO(written(trace)))
    assert back.settings == plan.settings
    again = replay(back, Gateway(back.settings, Random(7)), answer=stamp)
    assert again.steps == trace.steps
    assert written(again) == written(trace)


def test_another_seed_is_another_story():
    plan = stormy("random")
    trace = Rig(plan, Gateway(plan.settings, Random(7)), plan.settings.max_wait).run()
    assert replay(trace, Gateway(plan.settings, Random(8))).steps != trace.steps


def test_the_header_holds_the_settings_and_the_seed():
    trace = read_jsonl(written(recorded(Settings(max_batch=7), seed=42).trace).splitlines())
    assert (trace.settings, trace.seed, trace.dropped) == (Settings(max_batch=7), 42, 0)


def test_outputs_are_left_out_and_faults_are_kept():
    door = recorded(Settings(max_batch=2))
    for gpu in range(4):
        door.join(gpu, "ferry", 0)
    for number in range(8):
        door.arrive(Request(number, f"p{number}"), 0)
    door.advance(0)
    door.finish(1, ["a", "b"], 1)
    door.finish(2, ["a", RowError("too long")], 2)
    door.finish(3, BatchError("boom"), 3)
    door.finish(4, ["a"], 4)
    door.finish(99, ["a"], 5)
    lines = [json.loads(line) for line in written(door.trace).splitlines()]
    assert [line[2:] for line in lines[1:] if line[1] == "finish"] == [
        [1, None],
        [2, {"errors": {"1": "too long"}}],
        [3, {"raised": "boom"}],
        [4, {"outputs": 1, "errors": {}}],
        [99, {"outputs": 1, "errors": {}}],
    ]


def test_any_prompt_survives_the_file():
    door = recorded()
    prompts = ["", "two\nlines", "nul \0", "ferry ⛴", '"quoted"', "\ud800", "\u2028"]
    for number, prompt in enumerate(prompts):
        door.arrive(Request(number, prompt), 0)
    back = read_jsonl(io.StringIO(written(door.trace)))
    assert [step.args[0].prompt for step in back.steps] == prompts


def test_a_trace_read_without_outputs_answers_with_the_prompt():
    door = recorded()
    door.join(0, "ferry", 0)
    door.arrive(Request(1, "hello"), 0)
    door.advance(50 * MS)
    door.finish(1, ["HELLO"], 150 * MS)
    again = replay(read_jsonl(written(door.trace).splitlines()), Gateway(Settings()))
    assert again.steps[-1].commands[0].outputs == ("hello",)


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "ferry",
        "5",
        "[]",
        "[5]",
        '[5, "sink"]',
        '["soon", "advance"]',
        '[NaN, "advance"]',
        '[Infinity, "advance"]',
        '[-1, "advance"]',
        '[5, "advance", 1]',
        '[5, "close", 1]',
        '[5, "arrive"]',
        '[5, "arrive", 7]',
        '[5, "arrive", {"id": 1, "colour": "red"}]',
        '[5, "finish", 1]',
        '[5, "join", 1]',
        '[5, "lose"]',
        '[5, "drain", 1, 2]',
        '[5, "cancel"]',
        '{"now": 5, "verb": "advance"}',
        '["5", "advance"]',
        '[true, "advance"]',
        '[5, ["advance"]]',
    ],
)
def test_garbage_is_refused_with_its_line(garbage: str):
    with pytest.raises(TraceFormatError) as refused:
        read('[0, "advance"]', garbage)
    message = str(refused.value)
    assert message.startswith(f"line 3: {garbage[:80]!r} is not a step (")
    assert message.endswith("the file was cut or edited: record it again")


@pytest.mark.parametrize("garbage", ["5", "[]", "[5]", "{}", '"advance"'])
def test_a_line_that_is_no_step_is_told_what_a_step_is(garbage: str):
    with pytest.raises(TraceFormatError, match="a step is a list: an instant, a verb, arguments"):
        read(garbage)


def test_a_long_line_of_garbage_is_shown_by_its_first_80_characters():
    for lines in ([HEADER, "x" * 10_000], ["x" * 10_000]):
        with pytest.raises(TraceFormatError) as refused:
            read_jsonl(lines)
        assert str(refused.value).startswith(f"line {len(lines)}: '{'x' * 80}' is not")


@pytest.mark.parametrize(
    "header",
    [
        "",
        "[]",
        "{}",
        "ferry",
        '{"format": 2, "seed": 0, "dropped": 0}',
        '{"format": 1, "seed": 0, "dropped": 0, "settings": 5}',
        '{"format": 1, "seed": 0, "dropped": 0, "settings": {"tiers": [], "models": []}}',
        HEADER.replace('"max_batch": 100', '"max_batch": 0'),
        HEADER.replace('"dropped": 0, ', ""),
    ],
)
def test_a_file_that_begins_otherwise_is_not_a_trace(header: str):
    with pytest.raises(TraceFormatError) as refused:
        read_jsonl([header])
    assert str(refused.value).startswith(f"line 1: {header[:80]!r} is not the header of a labkit")


def test_an_empty_file_is_not_a_trace():
    with pytest.raises(TraceFormatError, match="line 1: '' is not the header"):
        read_jsonl([])


def test_a_file_of_another_format_says_which():
    with pytest.raises(TraceFormatError, match="format 2, this version reads 1"):
        read_jsonl(['{"format": 2}'])


def saved(seed: int = 0) -> Trace:
    """A trace of three steps that was written and read."""
    door = recorded(seed=seed)
    door.join(0, "ferry", 0)
    door.arrive(Request(1, "hello", 0), 0)
    door.advance(50 * MS)
    return read_jsonl(written(door.trace).splitlines())


def test_a_replay_that_says_the_same_differs_nowhere():
    trace = saved()
    assert trace.said is not None
    assert [bool(number) for number in trace.said] == [False, False, True]
    assert first_difference(trace, replay(trace, Gateway(Settings()))) is None


def test_the_first_step_that_says_something_else_is_found():
    trace = saved()
    again = replay(trace, Gateway(Settings()))
    assert trace.said is not None
    trace.said[2] += 1
    assert first_difference(trace, again) == 2
    trace.said[0] += 1
    assert first_difference(trace, again) == 0


def test_a_replay_of_another_length_is_no_replay():
    trace = saved()
    again = replay(trace, Gateway(Settings()))
    again.steps.pop()
    with pytest.raises(ValueError, match="shorter"):
        first_difference(trace, again)


def test_what_was_never_noted_cannot_be_compared():
    with pytest.raises(ValueError, match="does not hold what was said; record it again"):
        first_difference(Trace(Settings()), Trace(Settings()))


def test_a_trace_that_was_read_is_written_to_the_same_bytes():
    door = recorded()
    door.join(0, "ferry", 0)
    door.arrive(Request(1, "hello", 0), 0)
    door.arrive(Request(2, "hello", 0), 0)
    door.advance(50 * MS)
    door.finish(1, ["a", RowError("b")], 150 * MS)
    door.finish(9, ["a"], 151 * MS)
    text = written(door.trace)
    assert written(read_jsonl(text.splitlines())) == text


def test_a_trace_that_was_cut_between_two_lines_is_refused():
    trace = saved()
    *lines, _ = written(trace).splitlines()
    with pytest.raises(TraceFormatError, match="2 steps of 3; the file was cut: record it again"):
        read_jsonl(lines)


@pytest.mark.parametrize("noted", [5, "ab", [1, "a"], [True]])
def test_what_was_said_is_a_list_of_numbers(noted):
    header = json.dumps({**json.loads(HEADER), "said": noted})
    with pytest.raises(TraceFormatError, match="said is no list of whole numbers"):
        read_jsonl([header])


def test_an_empty_trace_has_seed_0_and_forgot_nothing_and_what_was_said_is_no_part_of_it():
    trace = Trace(Settings())
    assert (trace.seed, trace.dropped, Recorder(Gateway(Settings()), Settings()).trace.seed) == (
        0,
        0,
        0,
    )
    assert trace == Trace(Settings(), said=[])


def test_steps_are_values():
    assert Step(1, "advance", ()) == Step(1, "advance", ())


def test_a_step_before_the_one_before_it_is_refused():
    read('[5, "advance"]', '[5, "advance"]', '[6, "advance"]')
    with pytest.raises(TraceFormatError, match=r"line 3: .* whole microseconds, 5 or later"):
        read('[5, "advance"]', '[4, "advance"]')


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tier": 2}, "tier 2: there are 0 to 1"),
        ({"tier": "paid"}, "tier 'paid': there are 0 to 1"),
        ({"id": "seven"}, "id 'seven' is no int"),
        ({"arrived_at": 0.5}, "arrived_at 0.5 is no int"),
        ({"tenant": ["a"]}, "tenant ['a'] is no str"),
        ({"deadline": None}, "deadline None is no int"),
    ],
)
def test_a_request_that_no_gateway_could_take_is_refused_with_its_line(changes, said):
    step = json.dumps([0, "arrive", {"id": 1, "prompt": "p", **changes}])
    with pytest.raises(TraceFormatError, match=re.escape(said)) as refused:
        read_jsonl([HEADER, step])
    assert str(refused.value).startswith("line 2: ")
