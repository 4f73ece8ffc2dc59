"""A recorded figure is believed only with its provenance, and a bad record is refused by name."""

import json
from datetime import date
from pathlib import Path

import pytest

from labkit.gpu.ceilings import Ceilings, predicted_ms, stated
from labkit.gpu.records import (
    BadRecord,
    Record,
    checksum,
    figure,
    live,
    load,
    recorded,
    records,
    result,
)

DAY = date(2026, 3, 1)
CODE = {"step": "abc"}.get
PARAMS = {"batch": 100, "preset": "48M"}


def record(day: str = "2026-02-01", device: str = "Tesla T4", **changes: object) -> Record:
    rows = [result("step", PARAMS, "ms", [0.5, 0.4, 0.6], floor=0.2)]
    found = Record(device, day, {"torch": "2.13.0"}, {"step": "abc"}, results=rows)
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def saved(folder: Path, found: Record, name: str = "tesla-t4.json") -> Path:
    found.save(folder / name)
    return folder / name


def read(folder: Path, key: str = "step", today: date = DAY, code_of=CODE, **params: object):
    return recorded(key, folder=folder, today=today, code_of=code_of, **(params or PARAMS))


def test_a_figure_comes_with_all_that_is_needed_to_believe_it(tmp_path: Path) -> None:
    saved(tmp_path, record())
    found = read(tmp_path)
    assert (found.label, found.n, found.p50, found.min, found.max) == ("RECORDED", 3, 0.5, 0.4, 0.6)
    assert (found.unit, found.floor, found.device) == ("ms", 0.2, "Tesla T4")
    assert found.warnings == ()
    assert str(found) == "0.5 ms [RECORDED, Tesla T4, 2026-02-01]"


def test_what_was_not_recorded_is_none(tmp_path: Path) -> None:
    saved(tmp_path, record())
    assert read(tmp_path, batch=99, preset="48M") is None
    assert read(tmp_path, key="gemm") is None
    assert recorded("step", folder=tmp_path, device="H200", code_of=CODE, **PARAMS) is None
    assert read(tmp_path / "empty") is None


def test_the_newest_record_is_read(tmp_path: Path) -> None:
    saved(tmp_path, record("2026-02-01"), "a.json")
    saved(tmp_path, record("2026-02-20"), "b.json")
    saved(tmp_path, record("2026-01-20"), "c.json")
    assert read(tmp_path).date == "2026-02-20"
    assert [found.date for found in records(tmp_path)] == ["2026-02-20", "2026-02-01", "2026-01-20"]


def test_a_changed_measuring_function_makes_it_older_code(tmp_path: Path) -> None:
    saved(tmp_path, record())
    found = read(tmp_path, code_of={"step": "changed"}.get)
    assert found.older_code
    assert str(found) == "0.5 ms [RECORDED (older code), Tesla T4, 2026-02-01]"
    assert found.warnings == ("step: measured by older code; run `labkit measure` again",)


@pytest.mark.parametrize(
    ("today", "warned"), [(date(2026, 7, 31), False), (date(2026, 8, 1), True)]
)
def test_after_180_days_a_figure_warns(tmp_path: Path, today: date, warned: bool) -> None:
    saved(tmp_path, record())
    warnings = read(tmp_path, today=today).warnings
    assert warnings == (("step: measured 181 days ago, on 2026-02-01",) if warned else ())


def edited(path: Path, change) -> None:
    """Change a record as a person would, leaving its checksum alone."""
    plain = json.loads(path.read_text())
    change(plain)
    path.write_text(json.dumps(plain))


def test_a_record_edited_by_hand_is_refused_by_name(tmp_path: Path) -> None:
    path = saved(tmp_path, record())
    edited(path, lambda plain: plain["results"][0].update(p50=0.45))
    with pytest.raises(BadRecord, match=r"^tesla-t4\.json: edited by hand"):
        read(tmp_path)


def forged(folder: Path, **row: object) -> Path:
    """A record with an impossible row and a checksum that matches."""
    found = record()
    found.results[0].update(row)
    return saved(folder, found)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"min": 0.1}, r"tesla-t4\.json: step .* is below the physical floor of 0\.2"),
        ({"p50": 0.9}, r"tesla-t4\.json: step .* out of order"),
        ({"max": None}, r"tesla-t4\.json: step .* not all numbers"),
        ({"floor": "low"}, r"tesla-t4\.json: step .* not all numbers"),
    ],
)
def test_an_impossible_record_is_refused_by_name(tmp_path: Path, row, message) -> None:
    path = forged(tmp_path, **row)
    with pytest.raises(BadRecord, match=message):
        load(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"device": "x"}', '{"checksum": "", "a": 1}'])
def test_what_is_no_record_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.json").write_text(text)
    with pytest.raises(BadRecord, match=r"^odd\.json: "):
        read(tmp_path)


def test_another_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRecord, match="schema 2, not 1"):
        load(saved(tmp_path, record(schema=2)))


def test_the_checksum_covers_everything_but_itself() -> None:
    plain = record().as_dict()
    assert checksum(plain) == plain["checksum"]
    assert checksum({**plain, "date": "2026-02-02"}) != plain["checksum"]


def test_an_interrupted_save_leaves_the_last_whole_file(tmp_path: Path) -> None:
    path = saved(tmp_path, record())
    with pytest.raises(TypeError):
        saved(tmp_path, record(ceilings={"copy": object()}))
    assert load(path).date == "2026-02-01"


def test_a_figure_measured_now_is_live() -> None:
    found = live("step", [2.0, 1.0, 3.0], "this CPU", batch=100)
    assert str(found) == "2 ms [LIVE, this CPU, now]"
    assert (found.n, found.params) == (3, {"batch": 100})


def test_without_a_record_a_figure_is_predicted_from_stated_ceilings(tmp_path: Path) -> None:
    found = figure("step", "NVIDIA H200", folder=tmp_path, batch=100, parameters=680_000_000)
    assert (found.label, found.n) == ("PREDICTED", 0)
    # 1.36 GB at 4,800 GB/s, more than 136 Gflop at 989 Tflop/s.
    assert found.p50 == pytest.approx(1.36e9 / 4.8e12 * 1000)
    assert found.ceilings == "data sheet: 4,800 GB/s, 989 Tflop/s bf16"


def test_a_record_is_preferred_to_a_prediction(tmp_path: Path) -> None:
    saved(tmp_path, record(device="NVIDIA H200"))
    assert figure("step", "NVIDIA H200", folder=tmp_path, **PARAMS).label == "RECORDED"


def test_neither_record_nor_formula_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="run `labkit measure` there"):
        figure("cold", "NVIDIA H200", folder=tmp_path, stage="context")


def test_many_rows_are_bound_by_arithmetic_and_few_by_reading() -> None:
    ceilings = Ceilings(1000, 100, "round numbers")
    # A matrix of 128 MB; reading it takes 0.134 ms.
    few, many = ({"m": m, "n": 8192, "k": 8192, "bytes": 2} for m in (1, 512))
    assert predicted_ms("gemm", few, ceilings) == pytest.approx(0.134, abs=0.001)
    assert predicted_ms("gemm", many, ceilings) == pytest.approx(0.687, abs=0.001)
    # In fp32 the same matrix has twice the bytes.
    assert predicted_ms("gemm", {**few, "bytes": 4}, ceilings) == pytest.approx(0.268, abs=0.001)


def test_weights_that_fit_a_cache_give_no_floor_by_reading() -> None:
    ceilings = Ceilings(1000, 100, "round numbers")
    assert ceilings.least_ms(0.0, 100_000_000) == 0.0
    assert ceilings.floor_ms(0.0, 200_000_000) == pytest.approx(0.16)


def test_an_unknown_device_is_one_cpu_core() -> None:
    assert stated("Some CPU").source.startswith("assumed for one core")
    assert stated("NVIDIA H200").copy_gb_s == 4800
    assert stated("NVIDIA H100 80GB HBM3").copy_gb_s == 3350
