"""Train the tiny model: `python -m labkit.gpu.train --seed 1` (two or three minutes).

One thread, so that sums do not depend on the number of cores; fresh prompts every step, so that
there is no data set to keep. One machine, torch build and seed give the same weights, bit for
bit; on another machine floating point rounds differently and lines may differ, but they still
belong to the grammar.
"""

import argparse
import datetime
import hashlib
import json
import time
from dataclasses import asdict, dataclass
from math import cos, pi
from pathlib import Path
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor

from labkit.gpu import grammar, model, tokens, weights
from labkit.gpu.model import Seats, Shape, Weights

THREADS = 1
WARM_UP = 50
SOURCES = (grammar, tokens, model)


@dataclass(frozen=True, slots=True)
class Quality:
    """How well fresh prompts are answered: shares of lines, and the loss of the last step.

    `belongs`: lines of the grammar; `copied`: lines about the prompt's own subject; `taught`:
    lines with the very words the teacher chose.
    """

    loss: float
    belongs: float
    copied: float
    taught: float
    prompts: int


def train(
    seed: int, steps: int, shape: Shape | None = None, batch: int = 64, rate: float = 8e-3
) -> tuple[Weights, float]:
    """The trained weights and the last loss; prints a line every hundred steps."""
    shape = shape or Shape()
    rng, generator = Random(seed), torch.Generator().manual_seed(seed)
    weights_ = model.initial(shape, generator)
    tensors = [tensor.requires_grad_() for tensor in weights_.values()]
    optimizer = torch.optim.AdamW(tensors, lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    table, loss = model.tables(shape), torch.zeros(())
    started = time.perf_counter()
    for number in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * _schedule(number, steps)
        loss = _loss(weights_, shape, _lessons(rng, batch), table)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 100 == 0:
            took = time.perf_counter() - started
            print(f"step {number:5d}  loss {loss.item():.4f}  {took:5.1f} s", flush=True)
    return {name: tensor.detach() for name, tensor in weights_.items()}, loss.item()


def _schedule(number: int, steps: int) -> float:
    """A short warm-up, then half a cosine down to almost nothing."""
    return min(1.0, (number + 1) / WARM_UP) * (0.5 + 0.5 * cos(pi * number / steps)) + 0.002


def _lessons(rng: Random, batch: int) -> Tensor:
    subjects = [grammar.subject_of(grammar.prompt_for(rng)) for _ in range(batch)]
    return torch.tensor([tokens.lesson(s, str(grammar.line_for(s))) for s in subjects])


def _loss(weights_: Weights, shape: Shape, seats: Tensor, table: model.Tables) -> Tensor:
    """Cross entropy of the line and its first END; the prompt is given, not guessed."""
    logits = model.forward(weights_, shape, seats[:, :-1], table)[:, tokens.FIRST - 1 :]
    wanted = seats[:, tokens.FIRST :]
    counted = (wanted == tokens.END).cumsum(1) <= 1
    return F.cross_entropy(logits[counted], wanted[counted])


@torch.no_grad()
def quality(weights_: Weights, shape: Shape, loss: float, prompts: int = 1000) -> Quality:
    """Answer prompts that were not trained on and count what is right."""
    rng = Random(-1)
    subjects = [grammar.subject_of(grammar.prompt_for(rng)) for _ in range(prompts)]
    seats = Seats(shape, prompts)
    seats.fill(torch.tensor([tokens.encode(subject) for subject in subjects]))
    for _ in range(tokens.FULL_STEPS):
        model.step(weights_, shape, seats)
    written = seats.tokens[:, tokens.FIRST : tokens.FIRST + tokens.FULL_STEPS - tokens.WINDOW]
    lines = [tokens.decode(row) for row in written.tolist()]
    parsed = [grammar.parse(line) for line in lines]
    pairs = list(zip(parsed, subjects, strict=True))
    return Quality(
        loss=round(loss, 5),
        belongs=sum(line is not None for line in parsed) / prompts,
        copied=sum(line is not None and line.subject == subject for line, subject in pairs)
        / prompts,
        taught=sum(line == grammar.line_for(subject) for line, subject in pairs) / prompts,
        prompts=prompts,
    )


def script_hash() -> str:
    """SHA-256 of the code that decides what is learned: this file, grammar, tokens and model."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for module in SOURCES:
        digest.update(Path(str(module.__file__)).read_bytes())
    return digest.hexdigest()


def main() -> None:
    """Train, measure the quality, and write the weights with where they came from."""
    parser = argparse.ArgumentParser(prog="python -m labkit.gpu.train", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--out", type=Path, default=weights.folder())
    asked = parser.parse_args()
    torch.set_num_threads(THREADS)
    code = script_hash()
    shape = Shape()
    trained, loss = train(asked.seed, asked.steps, shape)
    found = quality(trained, shape, loss)
    asked.out.mkdir(parents=True, exist_ok=True)
    weights.save(asked.out / weights.NAME, trained, shape)
    provenance = {
        "made_by": f"python -m labkit.gpu.train --seed {asked.seed} --steps {asked.steps}",
        "script_sha256": code,
        "weights_sha256": hashlib.sha256((asked.out / weights.NAME).read_bytes()).hexdigest(),
        "seed": asked.seed,
        "steps": asked.steps,
        "threads": THREADS,
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
        "parameters": model.count(trained),
        "shape": asdict(shape),
        "quality": asdict(found),
    }
    (asked.out / weights.PROVENANCE).write_text(json.dumps(provenance, indent=2) + "\n")
    print(json.dumps(provenance["quality"]))


if __name__ == "__main__":
    main()
