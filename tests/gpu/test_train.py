"""Training is a function of its seed, and the weights that travel say where they came from."""

import hashlib
import json
import sys

import pytest

torch = pytest.importorskip("torch")

from labkit.gpu import train as script  # noqa: E402
from labkit.gpu import weights  # noqa: E402
from labkit.gpu.decoder import Decoder  # noqa: E402
from labkit.gpu.model import Shape, count  # noqa: E402
from labkit.gpu.tokens import FULL_STEPS, LINE_BYTES  # noqa: E402

SMALL = Shape(width=32, layers=1, heads=2, head=16)


def trained(seed: int) -> tuple[list[str], float]:
    """The texts of a model after a few steps, and its loss."""
    found, loss = script.train(seed, steps=6, shape=SMALL, batch=8)
    decoder = Decoder(loaded=(found, SMALL), seats=4)
    decoder.board(["hello", "request 42", "", "the fog"])
    decoder.run(FULL_STEPS)
    return decoder.lines(4, LINE_BYTES), loss


def test_training_twice_gives_the_same_text_and_another_seed_another() -> None:
    first, again, other = trained(1), trained(1), trained(2)
    assert first == again
    assert first != other


def test_training_learns() -> None:
    _, first = script.train(1, steps=1, shape=SMALL, batch=8)
    _, later = script.train(1, steps=40, shape=SMALL, batch=8)
    assert later < first - 1


def test_weights_come_back_with_their_shape(tmp_path) -> None:
    found, _ = script.train(1, steps=1, shape=SMALL, batch=2)
    weights.save(tmp_path / weights.NAME, found, SMALL)
    loaded, shape = weights.load(tmp_path / weights.NAME)
    assert shape == SMALL
    assert loaded.keys() == found.keys()
    assert all(torch.equal(loaded[name], found[name]) for name in found)


def test_missing_weights_say_how_to_make_them(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match=r"python -m labkit\.gpu\.train --seed 1"):
        weights.load(tmp_path / "none.safetensors")


def test_the_command_writes_weights_and_their_origin(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(
        sys, "argv", ["train", "--seed", "7", "--steps", "2", "--out", str(tmp_path)]
    )
    script.main()
    origin = json.loads((tmp_path / weights.PROVENANCE).read_text())
    assert origin["made_by"] == "python -m labkit.gpu.train --seed 7 --steps 2"
    assert origin["script_sha256"] == script.script_hash()
    assert origin["torch"] == torch.__version__
    assert "step     0" in capsys.readouterr().out


def test_the_weights_that_travel_are_those_their_origin_describes() -> None:
    origin = json.loads((weights.folder() / weights.PROVENANCE).read_text())
    held = (weights.folder() / weights.NAME).read_bytes()
    assert hashlib.sha256(held).hexdigest() == origin["weights_sha256"]
    loaded, _ = weights.load()
    assert count(loaded) == origin["parameters"]
    assert origin["quality"]["belongs"] >= 0.99
    assert origin["quality"]["copied"] >= 0.98
