"""A capacity sum as text: numbers with units, in the order in which they follow."""

import pytest

from labkit.teach.exercises.sums import Contract, figures, read_sum, slip

CONTRACT = Contract()


def read(text):
    """Value and unit of every number."""
    return [(figure.value, figure.unit) for figure in figures(text)]


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("10,000", 10_000, ""),
        ("10 000 req/s", 10_000, "/s"),
        ("10'000", 10_000, ""),
        ("10k rps", 10_000, "/s"),
        ("1,000 requests/s", 1_000, "/s"),
        ("1000/s", 1_000, "/s"),
        ("100 ms", 0.1, "s"),
        ("100ms", 0.1, "s"),
        ("0.1 s", 0.1, "s"),
        (".1 seconds", 0.1, "s"),
        ("65 %", 0.65, "%"),
        ("65%", 0.65, "%"),
        ("15.38", 15.38, ""),
        ("N+2", 2, ""),
        ("B=100", 100, ""),
    ],
)
def test_a_number_is_read_with_its_unit(text, value, unit):
    assert read(text) == [(pytest.approx(value), unit)]


def test_numbers_come_in_order():
    assert read("15.4 -> 16 -> 18") == [(15.4, ""), (16, ""), (18, "")]
    assert read("100 servers") == [(100, "")]


def missing(text):
    """The names of the steps that the text lacks, and what stands in their place."""
    return [
        (found.step.name, found.instead and found.instead.written)
        for found in read_sum(text, CONTRACT)
        if found.figure is None
    ]


WHOLE = "100 / 100 ms = 1,000 req/s; 10,000 / 1,000 = 10; 10 / 65 % = 15.4 -> 16; + 2 = 18"


def test_a_whole_sum_lacks_nothing():
    assert missing(WHOLE) == []


@pytest.mark.parametrize(
    ("old", "new", "lacks"),
    [
        (" -> 16", "", [("rounded up", None)]),
        ("15.4 -> 16", "16", [("at the target", None)]),
        ("= 18", "= 19", [("answer", "19")]),
        ("+ 2 = 18", "= 18", [("spares", None)]),
        ("= 10;", "= 11;", []),
        ("100 ms", "10 ms", [("batch time", "10 ms")]),
        ("65 %", "70 %", [("target", "70 %")]),
        ("1,000 req/s; 10,000 / 1,000", "900 req/s; 10,000 / 900", [("one GPU", "900 req/s")]),
    ],
)
def test_the_step_that_is_missing_or_wrong_is_named(old, new, lacks):
    assert missing(WHOLE.replace(old, new, 1)) == lacks


def test_another_contract_has_another_sum():
    small = Contract(rate=3_000, max_batch=50, batch_time=0.1, target=0.6, spares=1)
    text = "50 / 0.1 s = 500; 3,000 / 500 = 6; / 0.6 = 10 ; so 10 + 1 = 11"
    assert [f.step.name for f in read_sum(text, small) if f.figure is None] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (WHOLE, None),
        ("10,000 / 1,000 = 11", "10,000 / 1,000 is 10, not 11"),
        ("16 + 2 = 19 GPUs", "16 + 2 is 18, not 19"),
        ("100 strings / 0.1 s = 100 req/s", "100 / 0.1 s is 1,000, not 100 req/s"),
        ("10 / 65 % = 15.4, 10/0.65 = 15.38", None),
        ("10 × 0.65 = 6.5; N+2 at 65 % = fine", None),
        ("1 / 0 = 3", None),
    ],
)
def test_an_equation_that_is_not_so_is_named(text, said):
    assert slip(text) == said


def test_an_answer_before_its_reasons_is_no_sum():
    backwards = "18 = 2 + 16 <- 15.4 = 10 / 65 %; 10 = 10,000 / 1,000; 1,000 = 100 / 100 ms"
    assert [name for name, _ in missing(backwards)] == [
        "one GPU",
        "floor",
        "at the target",
        "answer",
    ]
