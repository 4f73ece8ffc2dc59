"""Measuring keeps what it has, says what it could not, and measures only what is missing."""

import json
import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from click.testing import CliRunner  # noqa: E402

from labkit.cli.common import Problem  # noqa: E402
from labkit.cli.measure import check_device  # noqa: E402
from labkit.cli.measure import measure as command  # noqa: E402
from labkit.gpu import items  # noqa: E402
from labkit.gpu.bench import Bench, device_name  # noqa: E402
from labkit.gpu.ceilings import Ceilings  # noqa: E402
from labkit.gpu.measure import ITEMS, Item, code_of, measure, newest, record_path  # noqa: E402
from labkit.gpu.records import BadRecord, load, result  # noqa: E402

DAY = date(2026, 3, 1)
ran: list[str] = []


def first(bench: Bench):
    """One row."""
    ran.append("first")
    yield result("a", {}, "ms", [1.0], 0.0)


def second(bench: Bench):
    """Two rows of two keys."""
    ran.append("second")
    yield result("b", {}, "ms", [2.0], 0.0)
    yield result("c", {"n": 1}, "ms", [3.0], 0.0)


def failing(bench: Bench):
    """Fails after its first row."""
    yield result("d", {}, "ms", [1.0], 0.0)
    raise RuntimeError("CUDA out of memory. Tried to allocate\nand much more")


def fatal(bench: Bench):
    """Loses its device."""
    yield result("e", {}, "ms", [1.0], 0.0)
    raise RuntimeError("CUDA error: device-side assert triggered")


FIRST = Item(("a",), first, 1)
SECOND = Item(("b", "c"), second, 1)


@pytest.fixture(autouse=True)
def forget() -> None:
    ran.clear()


def run(folder: Path, *among: Item, **options):
    options = {"today": DAY, "say": lambda line: None, **options}
    return measure(Bench("cpu"), "Some CPU", folder, among=among, **options)


def keys(path: Path) -> list[str]:
    return [row["key"] for row in load(path).results]


def test_a_record_is_named_for_its_device_and_day(tmp_path: Path) -> None:
    path = run(tmp_path, FIRST, SECOND)
    assert path == tmp_path / "some-cpu-2026-03-01.json"
    assert keys(path) == ["a", "b", "c"]
    assert load(path).software["torch"] == torch.__version__
    assert record_path(tmp_path, "NVIDIA H200 (80/1) ", DAY).name == (
        "nvidia-h200-80-1-2026-03-01.json"
    )


def test_it_is_saved_after_each_item(tmp_path: Path) -> None:
    def interrupted(bench: Bench):
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, FIRST, Item(("z",), interrupted, 1))
    assert keys(tmp_path / "some-cpu-2026-03-01.json") == ["a"]


def test_what_fails_is_listed_with_its_reason_and_the_rest_goes_on(tmp_path: Path) -> None:
    found = load(run(tmp_path, Item(("d",), failing, 1), Item(("g",), first, 1, True), SECOND))
    assert found.unavailable == {
        "d": "failed: CUDA out of memory. Tried to allocate",
        "g": "needs CUDA",
    }
    assert [row["key"] for row in found.results] == ["b", "c"]


def test_what_is_quicker_than_physics_is_not_kept(tmp_path: Path) -> None:
    def impossible(bench: Bench):
        yield result("f", {"n": 2}, "ms", [0.5], floor=0.6)

    found = load(run(tmp_path, FIRST, Item(("f",), impossible, 1)))
    assert found.unavailable == {"f": "impossible: f {'n': 2} took 0.5, under 0.6"}
    assert [row["key"] for row in found.results] == ["a"]


def test_a_busy_moment_at_the_ceilings_makes_no_later_figure_impossible() -> None:
    hasty = Bench("cpu", ceilings=Ceilings(1.0, 0.001, "measured while busy"))
    assert hasty.floor_ms(6e7, 0) == pytest.approx(0.15)
    better = Bench("cpu", ceilings=Ceilings(100.0, 0.6, "measured"))
    assert better.floor_ms(6e7, 0) == pytest.approx(0.08)


def test_nothing_is_measured_on_a_device_that_is_lost(tmp_path: Path) -> None:
    found = load(run(tmp_path, FIRST, Item(("e",), fatal, 1), SECOND))
    assert found.unavailable["e"].startswith("lost the device: CUDA error")
    assert ran == ["first"]


def test_an_item_that_no_longer_fits_the_time_is_left_out(tmp_path: Path) -> None:
    now = iter(range(0, 1000, 50))
    slow = replace(SECOND, usual_s=290)
    found = load(run(tmp_path, FIRST, slow, limit_s=360, clock=lambda: next(now)))
    assert found.unavailable == dict.fromkeys("bc", "no time: 210 s left, usually takes 290 s")
    assert ran == ["first"]


def test_only_what_is_missing_is_measured(tmp_path: Path) -> None:
    path = run(tmp_path, FIRST)
    ran.clear()
    later = {"only_missing": True, "today": date(2026, 3, 9)}
    assert run(tmp_path, FIRST, SECOND, **later) == path
    assert ran == ["second"]
    assert keys(path) == ["a", "b", "c"]
    assert load(path).date == "2026-03-01"


def test_what_older_code_measured_is_missing(tmp_path: Path) -> None:
    path = run(tmp_path, FIRST, SECOND)
    record = load(path)
    record.code["b"] = "before"
    record.save(path)
    ran.clear()
    run(tmp_path, FIRST, SECOND, only_missing=True)
    assert ran == ["second"]
    assert keys(path) == ["a", "b", "c"]


def test_a_bad_record_is_not_completed(tmp_path: Path) -> None:
    path = run(tmp_path, FIRST)
    path.write_text(path.read_text().replace("1.0", "0.5"))
    with pytest.raises(BadRecord, match="edited by hand"):
        run(tmp_path, FIRST, SECOND, only_missing=True)


def test_only_the_newest_record_of_the_very_device_is_completed(tmp_path: Path) -> None:
    for name in ("some-cpu-2026-01-01", "some-cpu-2026-02-01", "some-cpu-dry-run-2026-03-01"):
        (tmp_path / f"{name}.json").touch()
    assert newest(tmp_path, "Some CPU") == tmp_path / "some-cpu-2026-02-01.json"
    assert newest(tmp_path, "Other") is None


def test_every_key_has_one_measuring_function_and_a_stable_hash() -> None:
    all_keys = [key for item in ITEMS for key in item.keys]
    assert len(all_keys) == len(set(all_keys))
    assert code_of("step") == code_of("step") != code_of("gemm")
    assert code_of("no such key") is None


def test_the_first_item_gives_the_ceilings_that_the_others_are_held_to() -> None:
    bench = Bench("cpu", dry=True)
    rows = list(items.ceilings(bench))
    assert [row["key"] for row in rows] == ["copy", "matmul"]
    assert bench.ceilings.source == f"measured on {device_name('cpu')}"
    assert bench.ceilings.matmul_tflop_s == pytest.approx(
        2 * 256**3 / rows[1]["min"] / 1e9, rel=1e-4
    )


def test_a_dry_run_measures_everything_small_and_stays_out_of_the_data(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(command, ["--dry", "--out", str(tmp_path), "--device", "cpu"])
    assert outcome.exit_code == 0, outcome.output
    (path,) = tmp_path.glob("*.json")
    found = load(path)
    assert found.device.endswith("(dry run)")
    assert found.unavailable == {"launch": "needs CUDA"}
    measured = {row["key"] for row in found.results}
    assert measured == {key for item in ITEMS for key in item.keys} - {"launch"}
    stages = {row["params"]["stage"] for row in found.results if row["key"] == "cold"}
    assert stages == {"process", "import_torch"}
    assert str(path) in outcome.output
    record = found.as_dict()
    shown = {*record, *record["software"], *record["ceilings"], *record["results"][0]}
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    section = page.partition("## measure\n")[2].partition("\n## ")[0]
    assert shown - set(re.findall(r"`([a-z0-9_]+)`", section)) == set()


def test_json_is_the_record_itself(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("labkit.gpu.measure.ITEMS", (FIRST,))
    outcome = CliRunner().invoke(command, ["--dry", "--json", "--out", str(tmp_path)])
    assert json.loads(outcome.stdout)["results"][0]["key"] == "a"


def test_a_card_that_torch_cannot_use_is_refused_with_the_remedy() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    outcome = CliRunner().invoke(command, ["--dry", "--device", "cuda:0"])
    assert outcome.exit_code == 2
    assert "run `labkit doctor`" in outcome.output


@pytest.mark.parametrize("name", ["foo", "cpu:0", "cuda:x", "CPU", "", "cuda:99999", "mps"])
def test_a_device_that_is_none_is_refused_and_leaves_no_record(tmp_path: Path, name: str) -> None:
    outcome = CliRunner().invoke(command, ["--dry", "--out", str(tmp_path), "--device", name])
    assert outcome.exit_code == 2
    assert f"--device {name}: " in outcome.output
    assert list(tmp_path.iterdir()) == []


def test_a_card_this_machine_has_not_got_is_named_with_those_it_has() -> None:
    check_device("cuda:1", 2)
    with pytest.raises(Problem, match="--device cuda:2: torch can use 2 here, cuda:0 to cuda:1"):
        check_device("cuda:2", 2)


def test_a_run_that_could_measure_nothing_leaves_no_record(tmp_path: Path) -> None:
    with pytest.raises(BadRecord, match=r"not written, nothing could be measured \(e: lost the"):
        run(tmp_path, Item(("e",), fatal, 1), SECOND)
    assert list(tmp_path.iterdir()) == []
