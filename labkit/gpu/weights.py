"""The trained weights on disk: one safetensors file, and beside it where it came from."""

import json
from dataclasses import asdict
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

from labkit.gpu.model import Shape, Weights
from labkit.paths import data_dir

NAME = "ferry.safetensors"
PROVENANCE = "ferry.json"


def folder() -> Path:
    """Where the weights that travel with the lab lie."""
    return data_dir() / "model"


def save(path: Path, weights: Weights, shape: Shape) -> None:
    """Write weights with their shape in the file's own header."""
    whole = {name: tensor.detach().contiguous() for name, tensor in weights.items()}
    save_file(whole, path, metadata={"shape": json.dumps(asdict(shape))})


def load(path: Path | None = None, device: str = "cpu") -> tuple[Weights, Shape]:
    """Read weights and shape; each tensor is copied, so that every byte is in memory.

    Raises FileNotFoundError with the command that makes the file.
    """
    path = path or folder() / NAME
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: no weights; make them with `python -m labkit.gpu.train --seed 1`"
        )
    with safe_open(path, framework="pt", device="cpu") as file:
        shape = Shape(**json.loads(file.metadata()["shape"]))
        found = {name: file.get_tensor(name).clone().to(device) for name in file.keys()}  # noqa: SIM118
    return found, shape
