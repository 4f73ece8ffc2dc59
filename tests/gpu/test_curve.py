"""The curve t(B): measured beside the kernel, and expected of a card that is not here."""

import sys
from dataclasses import replace
from datetime import date

import pytest

from labkit.gpu import curve, records
from labkit.gpu.items import BATCHES
from labkit.gpu.machine import look
from labkit.gpu.records import Record, result


def test_a_card_that_is_not_here_is_predicted_with_the_ceilings_it_was_computed_from() -> None:
    found = curve.expected("H200")
    assert [figure.params["batch"] for figure in found] == list(BATCHES)
    assert {figure.label for figure in found} <= {"PREDICTED", "RECORDED"}
    for figure in found:
        assert figure.label == "RECORDED" or "4,800 GB/s" in figure.ceilings


def test_a_predicted_card_is_flat_until_its_arithmetic_takes_longer_than_its_reading() -> None:
    found = curve.expected("Tesla T4")
    # 1.36 GB at 320 GB/s, against 136 Gflop at 65 Tflop/s.
    assert found[0].p50 == pytest.approx(4.25, rel=0.01)
    assert found[-1].p50 == found[0].p50
    assert found[0].params["parameters"] > 679_477_248


def test_what_was_recorded_stands_before_what_is_predicted(tmp_path, monkeypatch) -> None:
    params = curve.expected("H200")[0].params
    record = Record("NVIDIA H200", date.today().isoformat())
    record.results.append(result("step", params, "ms", [0.9], 0.1))
    record.save(tmp_path / "h200.json")
    monkeypatch.setattr(records, "measured_dir", lambda: tmp_path)
    assert [f.label for f in curve.expected("H200")] == ["RECORDED"] + ["PREDICTED"] * 6


def test_without_torch_nothing_is_measured() -> None:
    assert curve.measured(replace(look(), torch=None)) == []


def test_this_machine_is_measured_in_another_process() -> None:
    pytest.importorskip("torch")
    found = curve.measured()
    assert [figure.params["batch"] for figure in found] == list(BATCHES)
    assert {(figure.label, figure.n) for figure in found} == {("LIVE", curve.ROUNDS)}
    assert all(figure.min > 0 for figure in found)


def test_a_measurement_that_fails_says_why(monkeypatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="the curve could not be measured"):
        curve.measured()
