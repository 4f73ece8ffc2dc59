"""The real traces, when a learner has them: their published figures come out of our reader.

Set LABKIT_TRACES to the folder that holds them, or keep them in `shared/data` beside the checkout.
"""

import os
from pathlib import Path

import pytest

from labkit.workload import Skips, TraceError, read_trace, statistics

CHECKOUT = Path(__file__).resolve().parents[2]


def public(name: str) -> Path:
    folder = Path(os.environ.get("LABKIT_TRACES") or CHECKOUT.parent / "shared" / "data")
    path = folder / name
    if not path.is_file():
        pytest.skip(f"{name} is not in {folder}; set LABKIT_TRACES to a folder that has it")
    return path


def test_the_azure_conversation_trace_has_its_published_figures() -> None:
    skips = Skips()
    found = statistics(read_trace(public("AzureLLMInferenceTrace_conv.csv"), skips))
    assert skips.count == 0
    assert (found.rows, found.span_s) == (19_366, 3501.721937)
    assert round(found.rate or 0, 6) == 5.530136
    assert round(found.gap_cv or 0, 5) == 1.09417
    assert round(found.peak_to_mean or 0, 2) == 2.89
    assert (found.input_tokens.p50, found.input_tokens.p95) == (1020, 4083)
    assert (found.output_tokens.p50, found.output_tokens.p95) == (129, 451)


def test_the_azure_code_trace_begins_in_bursts() -> None:
    skips = Skips()
    found = statistics(read_trace(public("azure2023_code_head200.csv"), skips))
    assert (found.rows, skips.count) == (200, 0)
    assert (found.gap_cv or 0) > 10
    assert round(found.peak_to_mean or 0) == 26


def test_the_mooncake_trace_repeats_a_third_of_its_blocks() -> None:
    skips = Skips()
    seen: set[int] = set()
    hits = blocks = 0
    rows = list(read_trace(public("mooncake_conversation_trace.jsonl"), skips, hash_ids=True))
    for row in rows:
        assert row.hash_ids is not None
        assert len(row.hash_ids) == -(-row.input_tokens // 512)
        known = [block in seen for block in row.hash_ids]
        hits += [*known, False].index(False)
        blocks += len(known)
        seen.update(row.hash_ids)
    assert (len(rows), skips.count) == (12_031, 0)
    assert (hits, blocks) == (105_710, 288_500)


def test_the_burstgpt_trace_has_ties_and_failures() -> None:
    skips = Skips()
    rows = list(read_trace(public("burstgpt_1_head.csv"), skips))
    assert (len(rows), skips.count) == (102, 0)
    assert [row.line for row in rows if row.failed] == [22, 40, 42, 43, 83]
    assert all(row.at % 1_000_000 == 0 for row in rows)
    assert {row.model for row in rows} == {"ChatGPT", "GPT-4"}


def test_lengths_without_times_are_no_trace() -> None:
    with pytest.raises(TraceError, match="line 1 is 'num_prefill_tokens,num_decode_"):
        read_trace(public("sarathi_sharegpt_8k_filtered_stats_llama2_tokenizer.csv"))
