"""What the doctor says of cards, from a stand-in for the driver's own command."""

import json
import os
import subprocess
import sys

import pytest

from labkit.cli.machine import _card
from labkit.gpu.machine import GB, Card
from labkit.gpu.telemetry import Reading, Simulated

CARD = Card("Tesla T4", "GPU-a", 16 * GB, 15 * GB, "550.54", (7, 5))

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the stand-in is a shell script")


@pytest.fixture
def doctor(tmp_path):
    """The doctor of a machine with one T4, whose torch was built for this CUDA."""

    def ask(cuda: str | None) -> dict:
        smi = tmp_path / "nvidia-smi"
        smi.write_text("#!/bin/sh\necho Tesla T4, GPU-a, 15360, 15000, 550.54, 7.5\n")
        smi.chmod(0o755)
        torch = tmp_path / "torch"
        torch.mkdir()
        (torch / "version.py").write_text(f"cuda = {cuda!r}\n")
        (torch / "__init__.py").write_text(
            "class cuda:\n    is_available = staticmethod(lambda: False)\n"
        )
        done = subprocess.run(
            [sys.executable, "-m", "labkit", "doctor", "--json"],
            env={
                **os.environ,
                "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}",
            },
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)

    pytest.importorskip("torch")
    return ask


def advice(report: dict, about: str) -> list[str]:
    return [line["remedy"] for line in report["advice"] if about in line["what"]]


def test_a_cpu_build_beside_a_card_gets_the_line_that_mends_it(doctor) -> None:
    report = doctor(cuda=None)
    assert advice(report, "is a CPU build beside a Tesla T4") == [
        "pip install --force-reinstall torch"
    ]
    assert report["workers"] == {"timer": True, "cpu": True, "cuda": False}
    assert report["fleet"]["banner"].endswith("on this CPU")
    assert report["cards"][0]["free_gib"] == 14.6


def test_a_card_that_torch_cannot_use_is_not_planned_with(doctor) -> None:
    report = doctor(cuda="13.0")
    assert advice(report, "cannot use the card") == [
        "update the NVIDIA driver, or install a torch for an older CUDA"
    ]
    assert report["fleet"]["banner"].endswith("on this CPU")


def test_a_card_that_is_held_down_says_why() -> None:
    hot = Simulated({"GPU-a": Reading(810, 1590, ("hardware thermal slowdown",))})
    assert _card(CARD, hot)["why_slow"] == "810 of 1590 MHz: hardware thermal slowdown"
    assert _card(CARD, Simulated({}))["why_slow"] is None
    assert _card(CARD, Simulated({"GPU-a": Reading(1590, 1590)}))["why_slow"] is None
