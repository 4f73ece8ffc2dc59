"""Reading traces: every public shape, every kind of garbage, and nothing skipped in silence."""

import gzip
import io
import json
import tracemalloc
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.workload import (
    Skip,
    Skips,
    TraceError,
    TraceRow,
    TraceWarning,
    read_trace,
    scale,
    slice,
    statistics,
    trace_requests,
)
from labkit.workload.mix import Mix, Tenant, crowd

AZURE_2023 = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    b"2023-11-16 18:15:46.6805900,374,44\r\n"
    b"2023-11-16 18:15:50.9951690,396,109\r\n"
    b"2023-11-16 18:15:51.2224675,879,55"
)
AZURE_2024 = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
    b"2024-05-10 00:00:00+00:00,1452,3\n"
    b"2024-05-10 00:00:00.009930+00:00,100,7\n"
    b"2024-05-10 02:00:01+02:00,5,6\n"
)
BURST_OLD = (
    b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    b"5,ChatGPT,472,18,490,Conversation log\n"
    b"5,GPT-4,0,0,0,Conversation log\n"
    b"45,ChatGPT,1087,230,1317,API log\n"
)
BURST_NEW = (
    b"Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"
    b"\n5,abc,3.5,ChatGPT,472,18,490,Conversation log\n"
    b"45.25,,,GPT-4,1087,230,1317,API log\n"
)
MOONCAKE = (
    b'{"timestamp": 3000, "input_length": 1000, "output_length": 500, "hash_ids": [0, 1]}\n'
    b'{"timestamp": 6000.5, "input_length": 12, "output_length": 1, "hash_ids": [0]}\n'
)
SHAPES = {
    "azure_2023": AZURE_2023,
    "azure_2024": AZURE_2024,
    "burst_old": BURST_OLD,
    "burst_new": BURST_NEW,
    "mooncake": MOONCAKE,
}


def rows(content: bytes, **options: bool) -> list[TraceRow]:
    """All rows of a trace in which nothing may be skipped."""
    return list(read_trace(io.BytesIO(content), on_skip=refuse, **options))


def refuse(skip: Skip) -> None:
    pytest.fail(f"nothing should be skipped here: {skip}")


def read(content: bytes) -> tuple[list[TraceRow], list[Skip]]:
    """All rows, and all that was skipped."""
    skipped: list[Skip] = []
    return list(read_trace(io.BytesIO(content), on_skip=skipped.append)), skipped


def azure(*lines: bytes) -> bytes:
    """An Azure trace with these lines between two good ones, at 0 s and at 9 s."""
    good = (b"2023-11-16 18:00:00.0000000,1,1", b"2023-11-16 18:00:09.0000000,2,2")
    return b"\n".join((b"TIMESTAMP,ContextTokens,GeneratedTokens", good[0], *lines, good[1], b""))


# What a good file says.


def test_azure_2023_has_seven_digits_and_ends_without_a_newline() -> None:
    assert rows(AZURE_2023) == [
        TraceRow(0, 374, 44, line=2),
        TraceRow(4_314_579, 396, 109, line=3),
        TraceRow(4_541_878, 879, 55, line=4),
    ]


def test_azure_2024_mixes_times_with_and_without_a_fraction() -> None:
    assert rows(AZURE_2024) == [
        TraceRow(0, 1452, 3, line=2),
        TraceRow(9_930, 100, 7, line=3),
        TraceRow(1_000_000, 5, 6, line=4),
    ]


def test_an_offset_from_utc_is_taken_off_and_put_back() -> None:
    content = azure(b"2023-11-16T18:00:02Z,1,1", b"2023-11-16 13:30:03.5-0430,1,1")
    assert [row.at for row in rows(content)] == [0, 2_000_000, 3_500_000, 9_000_000]


def test_a_trace_may_run_past_midnight_and_a_leap_day() -> None:
    content = azure().replace(b"2023-11-16 18:00:00", b"2024-02-28 23:59:59")
    content = content.replace(b"2023-11-16 18:00:09", b"2024-03-01 00:00:01")
    assert [row.at for row in rows(content)] == [0, 86_402_000_000]


def test_old_burstgpt_keeps_failed_requests_and_flags_them() -> None:
    assert rows(BURST_OLD) == [
        TraceRow(0, 472, 18, "ChatGPT", line=2),
        TraceRow(0, 0, 0, "GPT-4", failed=True, line=3),
        TraceRow(40_000_000, 1087, 230, "ChatGPT", line=4),
    ]


def test_new_burstgpt_is_read_by_the_names_of_its_columns() -> None:
    assert rows(BURST_NEW) == [
        TraceRow(0, 472, 18, "ChatGPT", line=2),
        TraceRow(40_250_000, 1087, 230, "GPT-4", line=3),
    ]


def test_azure_may_insert_columns_too() -> None:
    content = b"TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15 00:00:00,3,7,9\n"
    assert rows(content) == [TraceRow(0, 7, 9, line=2)]


def test_mooncake_hands_out_block_ids_only_when_asked() -> None:
    assert rows(MOONCAKE) == [TraceRow(0, 1000, 500, line=1), TraceRow(3_000_500, 12, 1, line=2)]
    assert [row.hash_ids for row in rows(MOONCAKE, hash_ids=True)] == [(0, 1), (0,)]


def test_a_header_may_be_quoted_spaced_and_in_any_case() -> None:
    row = [TraceRow(0, 5, 6, line=2)]
    quoted = b'"timestamp","Context_Tokens","GENERATED TOKENS"\n"2024-05-10 00:00:00","5","6"\n'
    spaced = b"timestamp , Context_Tokens , GENERATED TOKENS\n 2024-05-10 00:00:00 , 5.0 , 6 \n"
    assert rows(quoted) == row
    assert rows(spaced) == row


# Where it may come from.


@pytest.mark.parametrize("name", SHAPES)
def test_every_source_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    content = SHAPES[name]
    plain, packed, misnamed = (tmp_path / end for end in ("a.csv", "a.csv.gz", "packed.csv"))
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content))
    misnamed.write_bytes(gzip.compress(content[:50]) + gzip.compress(content[50:]))
    expected = rows(content)
    with plain.open("rb") as binary, plain.open(encoding="utf-8") as text, packed.open("rb") as gz:
        sources = (plain, str(plain), packed, misnamed, binary, text, gz, io.StringIO(text.read()))
        text.seek(0)
        for source in sources:
            assert list(read_trace(source, on_skip=refuse)) == expected
        assert not binary.closed
        assert not text.closed


def test_a_pipe_that_cannot_be_rewound_is_read() -> None:
    class Pipe(io.RawIOBase):
        def __init__(self, content: bytes) -> None:
            self.left = content

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: bytearray) -> int:
            size = min(len(buffer), 1 if len(self.left) % 2 else 3)
            piece, self.left = self.left[:size], self.left[size:]
            buffer[: len(piece)] = piece
            return len(piece)

    assert list(read_trace(Pipe(AZURE_2024))) == rows(AZURE_2024)
    assert list(read_trace(Pipe(gzip.compress(AZURE_2024)))) == rows(AZURE_2024)


def test_a_byte_order_mark_is_no_part_of_the_header() -> None:
    assert rows(b"\xef\xbb\xbf" + AZURE_2023) == rows(AZURE_2023)
    assert list(read_trace(io.StringIO("\ufeff" + MOONCAKE.decode()))) == rows(MOONCAKE)


def test_a_long_trace_is_streamed_in_constant_memory() -> None:
    class Endless(io.RawIOBase):
        """Says the same row again and again."""

        def __init__(self) -> None:
            self.head = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
            self.block = b"2023-11-16 18:00:00.0000000,1,1\n"

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: bytearray) -> int:
            piece, self.head = self.head[: len(buffer)], self.head[len(buffer) :]
            piece = piece or self.block * (len(buffer) // len(self.block))
            buffer[: len(piece)] = piece
            return len(piece)

    skips = Skips()
    stream = read_trace(Endless(), skips)
    tracemalloc.start()
    for _, row in zip(range(10_000), stream, strict=False):
        last = row
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert last.at == 0
    assert peak < 500_000


def test_a_file_opened_here_is_closed_when_the_rows_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(AZURE_2023)
    next(read_trace(path))
    with pytest.raises(TraceError):
        read_trace(tmp_path / "none.csv")
    # An open file left to the collector is a ResourceWarning, which fails the suite.


# Rows that say nothing usable.

BAD = {
    b"": "blank",
    b"   ": "blank",
    b"TIMESTAMP,ContextTokens,GeneratedTokens": "the header again",
    b"2023-11-16 18:0": "1 fields where the header has 3",
    b"2023-11-16 18:00:01.0000000,1": "2 fields where the header has 3",
    b"2023-11-16 18:00:01.0000000,1,2,3": "4 fields where the header has 3",
    b"2023-11-16 18:00:01.0000000,-5,2": "ContextTokens '-5' is not a whole number, 0 or more",
    b"2023-11-16 18:00:01.0000000,5,nan": "GeneratedTokens 'nan' is not a whole number",
    b"2023-11-16 18:00:01.0000000,5,1.5": "GeneratedTokens '1.5' is not a whole number",
    b"2023-11-16 18:00:01.0000000,5,": "GeneratedTokens '' is not a whole number",
    b"2023-11-16 18:00:01.0000000,1_0,1": "ContextTokens '1_0' is not a whole number",
    b"2023-11-16 18:00:01.0000000,3\x007,1": r"ContextTokens '3\x007' is not a whole number",
    b"2023-11-16 18:00:01.0000000,\xff\xfe,1": r"ContextTokens '\ufffd\ufffd' is not a whole",
    "2023-11-16 18:00:01.0000000,٣,1".encode(): r"ContextTokens '\u0663' is not a whole number",
    b"2023-11-16 18:00:01.0000000,1000000000,1": "ContextTokens '1000000000' is more tokens than",
    b"2023-11-16 18:00:01," + b"9" * 9000 + b",1": "... (9,002 characters) is more tokens than",
    b"\x00\x00\x00,1,1": r"time '\x00\x00\x00' is not like 2023-11-16 18:15:46.680590",
    b"2023-13-16 18:00:01.0000000,1,1": "date '2023-13-16'",
    b"2023-11-16 25:00:01.0000000,1,1": "time '2023-11-16 25:00:01.0000000' is not like",
    b"5,1,1": "time '5' is not like",
    b'"2023-11-16 18:00:01.0000000,1,1': "1 fields where the header has 3",
    b'"' + b"x" * 200_000 + b'",1,1': "not a row of CSV (field larger than field limit",
    b"2023-11-16 17:59:59.5,1,1": "0.500000 s earlier than line 2: out of order",
}


@pytest.mark.parametrize("line", BAD, ids=lambda line: ascii(line[:44]))
def test_a_bad_row_is_skipped_with_its_line_and_reason(line: bytes) -> None:
    kept, skipped = read(azure(line))
    assert [row.at for row in kept] == [0, 9_000_000]
    assert [row.line for row in kept] == [2, 4]
    assert [skip.line for skip in skipped] == [3]
    assert BAD[line] in skipped[0].reason
    assert len(skipped[0].reason) < 150


BAD_JSON = {
    b'{"timestamp": 4000, "input_len': "not a JSON object",
    b"[" * 100_000: "not a JSON object",
    b"[1, 2]": "a JSON list, not an object",
    b'{"timestamp": 4000, "input_length": 5}': "no field 'output_length'",
    b'{"timestamp": NaN, "input_length": 5, "output_length": 5}': "NaN is not a number",
    b'{"timestamp": true, "input_length": 5, "output_length": 5}': "timestamp True is not a number",
    b'{"timestamp": "4", "input_length": 5, "output_length": 5}': "timestamp '4' is not a number",
    b'{"timestamp": -1, "input_length": 5, "output_length": 5}': "timestamp -1 is not a number",
    b'{"timestamp": 1e999, "input_length": 5, "output_length": 5}': "timestamp inf is not a number",
    b'{"timestamp": 4000, "input_length": "5", "output_length": 5}': "input_length '\"5\"' is not",
    b'{"timestamp": 4000, "input_length": 5, "output_length": null}': "output_length 'null' is not",
}


@pytest.mark.parametrize("line", BAD_JSON, ids=lambda line: ascii(line[:44]))
def test_a_bad_json_line_is_skipped_with_its_line_and_reason(line: bytes) -> None:
    first, second = MOONCAKE.splitlines()
    kept, skipped = read(b"\n".join((first, line, second)))
    assert [row.at for row in kept] == [0, 3_000_500]
    assert [skip.line for skip in skipped] == [2]
    assert BAD_JSON[line] in skipped[0].reason


def test_block_ids_that_were_asked_for_must_be_whole_numbers() -> None:
    skips = Skips()
    content = MOONCAKE + MOONCAKE.splitlines()[1].replace(b"[0]", b'["a"]')
    kept = list(read_trace(io.BytesIO(content), skips, hash_ids=True))
    assert [row.line for row in kept] == [1, 2]
    assert skips.first == [Skip(3, "hash_ids ['a'] is not a list of whole numbers")]


def test_a_line_of_many_megabytes_is_skipped_and_the_next_one_read() -> None:
    kept, skipped = read(azure(b"7" * 3_000_000))
    assert [row.line for row in kept] == [2, 4]
    assert skipped == [Skip(3, "longer than 1,048,576 characters")]


def test_a_row_is_held_against_the_latest_kept_and_ties_stay() -> None:
    kept, skipped = read(azure(*[b"2023-11-16 18:00:0%d,7,7" % second for second in (5, 3, 5, 4)]))
    assert [row.at for row in kept] == [0, 5_000_000, 5_000_000, 9_000_000]
    assert skipped == [
        Skip(4, "2.000000 s earlier than line 3: out of order"),
        Skip(6, "1.000000 s earlier than line 5: out of order"),
    ]


def test_time_starts_at_the_first_usable_row() -> None:
    kept, skipped = read(azure().replace(b",1,1", b",x,1"))
    assert [row.at for row in kept] == [0]
    assert len(skipped) == 1


def test_skips_count_all_and_remember_the_first_few() -> None:
    skips = Skips(keep=2)
    list(read_trace(io.BytesIO(azure(*[b"junk"] * 50)), skips))
    assert skips.count == 50
    assert [skip.line for skip in skips.first] == [3, 4]
    assert str(skips).startswith("50 lines skipped (line 3: 1 fields where the header has 3; line")
    assert str(Skips()) == "no lines skipped"


def test_nobody_asking_is_warned_once_with_the_count() -> None:
    with pytest.warns(TraceWarning, match=r"2 lines skipped \(line 3: blank; line 4: 1 field") as w:
        list(read_trace(io.BytesIO(azure(b"", b"junk"))))
    assert len(w) == 1


@given(st.binary(max_size=200))
def test_no_bytes_at_all_break_the_reader(junk: bytes) -> None:
    skips = Skips()
    kept = list(read_trace(io.BytesIO(azure(junk)), skips))
    assert kept[0].at == 0
    assert len(kept) + skips.count == azure(junk).count(b"\n") - 1


@given(st.binary(max_size=200))
def test_any_file_is_read_or_refused_with_its_remedy(junk: bytes) -> None:
    with pytest.raises(TraceError, match=r"expected|UTF-8|usable|damaged"):
        list(read_trace(io.BytesIO(junk), Skips()))


# Files that are no trace.


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.csv", b"", "empty.csv: is empty; expected TIMESTAMP,ContextTokens"),
        ("blank.csv", b"\n\n \n", "blank.csv: is empty"),
        ("a.csv", b"a,b\n1,2\n", "a.csv: line 1 is 'a,b', which begins no trace known here; exp"),
        ("tail.csv", AZURE_2023[41:], "line 1 is '2023-11-16 18:15:46.6805900,374,44', which"),
        ("wide.csv", b"x" * 2_000_000, "wide.csv: line 1 is more than 1,048,576 characters"),
        ("16.csv", AZURE_2023.decode().encode("utf-16"), "16.csv: is UTF-16 text; save it as UTF"),
        ("head.csv", AZURE_2023[:41], "no usable row in this Azure trace; no lines skipped"),
        ("bad.csv", AZURE_2023[:41] + b"x\n" * 9, "9 lines skipped .line 2: 1 fields.*; check"),
        ("bad.jsonl", b"{\n{}\n", "no usable row in this Mooncake trace; 2 lines skipped"),
        ("named.csv.gz", AZURE_2023, "named.csv.gz: is named .gz, but begins with b'TI' where gz"),
        ("empty.csv.gz", b"", "empty.csv.gz: is named .gz, but begins with b'' where gzip has"),
        ("cut.gz", gzip.compress(AZURE_2023)[:60], "cut.gz: cannot be read after line .*download"),
        ("junk.gz", b"\x1f\x8bnonsense at all", "junk.gz: cannot be read after line 0"),
    ],
)
def test_a_file_that_is_no_trace_is_named_with_what_it_is(
    name: str, content: bytes, said: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TraceError, match=said) as refused:
        read_trace(tmp_path / name, Skips())
    assert str(tmp_path / name) in str(refused.value)


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.csv: no such file; check the path \(from /"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(TraceError, match="is a directory; name one trace file in it"):
        read_trace(tmp_path)
    with pytest.raises(TraceError, match="cannot be opened"):
        read_trace("nul\0.csv")
    with pytest.raises(TraceError, match="the given list: not a path or an open file"):
        read_trace([b"TIMESTAMP,ContextTokens,GeneratedTokens"])  # type: ignore[arg-type]


def test_a_file_that_gives_nothing_is_named(tmp_path: Path) -> None:
    closed = io.BytesIO(AZURE_2023)
    closed.close()
    with pytest.raises(TraceError, match=r"the given BytesIO: cannot be read .*open it for read"):
        read_trace(closed)
    path = tmp_path / "packed.gz"
    path.write_bytes(gzip.compress(AZURE_2023))
    with (
        path.open(encoding="utf-8") as text,
        pytest.raises(TraceError, match=r"is not text after line 0 .*open it in binary mode"),
    ):
        read_trace(text)


# What one does with the rows.

TEN = [TraceRow(at * 1_000_000, at, 1, line=at + 2) for at in range(10)]


def test_twice_the_rate_is_half_the_time_and_the_same_lengths() -> None:
    assert list(scale(TEN, 2))[3] == TraceRow(1_500_000, 3, 1, line=5)
    assert list(scale(TEN, 0.5))[3] == TraceRow(6_000_000, 3, 1, line=5)
    assert list(scale(TEN, 1)) == TEN


def test_a_slice_is_half_open_and_starts_at_nought() -> None:
    cut = list(slice(TEN, 2, 4.5))
    assert [(row.at, row.input_tokens) for row in cut] == [(0, 2), (1_000_000, 3), (2_000_000, 4)]
    assert [row.at for row in slice(TEN, 0.5, 2)] == [500_000]
    assert list(slice(TEN)) == TEN
    assert list(slice(TEN, 8)) == list(slice(TEN, 8, 1e6))


def test_a_slice_reads_no_further_than_its_end() -> None:
    stream = iter(TEN)
    assert len(list(slice(stream, 0, 3))) == 3
    assert next(stream).at == 4_000_000


@pytest.mark.parametrize("factor", [0, -1, float("nan"), float("inf"), 1e-300])
def test_a_scale_that_cannot_be_is_refused_at_once(factor: float) -> None:
    with pytest.raises(TraceError, match=r"scale .*: must be more than 0 and finite"):
        scale(TEN, factor)


@pytest.mark.parametrize(
    ("start", "end"), [(-1, 2), (float("nan"), 2), (2, 2), (3, 2), (0, float("nan"))]
)
def test_a_slice_that_cannot_be_is_refused_at_once(start: float, end: float) -> None:
    with pytest.raises(TraceError, match=r"must be (0 or more|later than the start)"):
        slice(TEN, start, end)


def test_statistics_by_hand() -> None:
    instants = (0, 100_000, 900_000, 1_500_000, 4_000_000)
    found = statistics(TraceRow(at, tokens, 10) for tokens, at in enumerate(instants, 1))
    assert (found.rows, found.failed, found.span_s, found.rate) == (5, 0, 4.0, 1.0)
    # Gaps .1 .8 .6 2.5: mean 1, variance (.81 + .04 + .16 + 2.25) / 4.
    assert found.gap_cv == pytest.approx(0.815**0.5, rel=1e-12)
    assert found.peak_to_mean == 3.0
    lengths = found.input_tokens
    assert (lengths.mean, lengths.p50, lengths.p95, lengths.max) == (3.0, 3, 5, 5)


def test_statistics_leave_the_lengths_of_failed_rows_out() -> None:
    found = statistics(rows(BURST_OLD))
    assert (found.rows, found.failed) == (3, 1)
    assert found.input_tokens.p50 == 472
    assert json.loads(json.dumps(found.as_dict()))["output_tokens"]["max"] == 230


@pytest.mark.parametrize("few", [[], TEN[:1], [TEN[0], TEN[0]]])
def test_statistics_of_too_few_rows_are_none(few: list[TraceRow]) -> None:
    found = statistics(few)
    assert (found.rate, found.gap_cv, found.peak_to_mean) == (None, None, None)
    assert found.rows == len(few)


def test_requests_come_at_the_instants_of_the_trace() -> None:
    sent = list(trace_requests(slice(TEN, 0, 3), first_id=5))
    assert [(one.id, one.arrived_at) for one in sent] == [(5, 0), (6, 1_000_000), (7, 2_000_000)]
    assert {one.tenant for one in sent} == {"default"}


def test_requests_of_a_trace_come_from_the_mix() -> None:
    sent = list(trace_requests(TEN, crowd(2), Random(1)))
    assert len({one.tenant for one in sent}) > 1
    named = Mix((Tenant("solo"),), model="small")
    assert next(trace_requests(TEN, named)).model == "small"


def test_the_text_of_a_request_may_follow_its_row() -> None:
    said = trace_requests(TEN, text=lambda row: "word " * row.input_tokens)
    assert [len(one.prompt) for one in said] == [5 * tokens for tokens in range(10)]
