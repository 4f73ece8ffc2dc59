"""The lab's own traces: made again byte for byte, and near the figures they were made from."""

from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from labkit.paths import data_dir
from labkit.workload import Skips, on_off_cv, read_trace, statistics
from labkit.workload.synthetic import (
    CODE_CV,
    CODE_ON_RATE,
    CODE_RATE,
    FILES,
    code_shaped,
    conversation_shaped,
    periods,
    write_all,
)


def test_making_the_traces_again_gives_the_same_bytes(tmp_path: Path) -> None:
    assert {path.name for path in write_all(tmp_path)} == set(FILES)
    for name in FILES:
        travelled = (data_dir() / "traces" / name).read_bytes()
        assert (tmp_path / name).read_bytes() == travelled
        assert len(travelled) < 200_000


@pytest.mark.parametrize("name", FILES)
def test_the_traces_have_the_shape_of_azures_of_2023(name: str) -> None:
    text = (data_dir() / "traces" / name).read_bytes()
    head, first, *_, last = text.split(b"\r\n")
    assert head == b"TIMESTAMP,ContextTokens,GeneratedTokens"
    assert first.startswith(b"2000-01-01 00:00:00.0000000,")
    assert len(last.split(b",")[0]) == len(b"2000-01-01 00:00:00.0000000")
    assert text.count(b"\n") == text.count(b"\r\n")
    assert not text.endswith(b"\n")


@pytest.mark.parametrize("name", FILES)
def test_reading_a_trace_gives_back_what_was_made(name: str) -> None:
    skips = Skips()
    read = [row[:3] for row in read_trace(data_dir() / "traces" / name, skips)]
    assert read == [row[:3] for row in FILES[name]()]
    assert skips.count == 0


def test_the_conversation_is_near_its_published_figures() -> None:
    found = statistics(read_trace(data_dir() / "traces" / "synthetic_conversation.csv"))
    assert found.rate == pytest.approx(5.53, rel=0.02)
    assert found.gap_cv == pytest.approx(1.09, rel=0.02)
    assert found.peak_to_mean == pytest.approx(2.89, rel=0.1)
    assert found.input_tokens.p50 == pytest.approx(1020, rel=0.05)
    assert found.input_tokens.p95 == pytest.approx(4083, rel=0.05)
    assert found.output_tokens.p50 == pytest.approx(129, rel=0.05)
    assert found.output_tokens.p95 == pytest.approx(451, rel=0.05)


def test_the_code_is_near_its_published_figures() -> None:
    found = statistics(read_trace(data_dir() / "traces" / "synthetic_code.csv"))
    assert found.rate == pytest.approx(2.57, rel=0.05)
    assert found.gap_cv == pytest.approx(13.15, rel=0.05)
    assert found.peak_to_mean == pytest.approx(26, rel=0.05)
    assert found.input_tokens.p50 == pytest.approx(1500, rel=0.05)
    assert found.output_tokens.p50 == pytest.approx(13, rel=0.05)


def test_the_periods_of_a_burst_follow_from_the_figures() -> None:
    on_seconds, off_seconds = periods(CODE_RATE, CODE_ON_RATE, CODE_CV)
    assert on_off_cv(CODE_RATE, on_seconds, off_seconds) == pytest.approx(13.15, rel=1e-12)
    assert on_seconds / (on_seconds + off_seconds) * 50 == pytest.approx(2.57, rel=1e-12)


@pytest.mark.parametrize("make", [conversation_shaped, code_shaped])
def test_another_seed_makes_another_trace_from_nought(make) -> None:
    one, other = make(120, Random(1)), make(120, Random(2))
    assert one != other
    assert one[0].at == other[0].at == 0
    assert all(earlier.at <= later.at for earlier, later in pairwise(one))
    assert make(0, Random(1)) == []
