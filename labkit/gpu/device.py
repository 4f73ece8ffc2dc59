"""Which device computes here, the fleet of workers a machine allows, and its banner.

Decided from facts alone (`labkit.gpu.machine`), without torch and without touching CUDA.
"""

from dataclasses import dataclass
from typing import Literal

from labkit.gpu.calibrate import share_of
from labkit.gpu.machine import GB
from labkit.gpu.machine import Facts as Facts
from labkit.gpu.machine import look as look

WORKER_RAM = int(1.2 * GB)
"""What a worker with torch may need of main memory."""

WORKER_VRAM = int(0.7 * GB)
"""What a CUDA context with the small model needs on its card."""

MOST_WORKERS = 8
CPU_LINE = "pip install torch safetensors"
CUDA_LINE = "pip install --force-reinstall torch"
WEIGHTS_LINE = "pip install safetensors"
"""The wheels that pip finds by itself are the CUDA build on Linux and the CPU build elsewhere."""

Kind = Literal["cuda", "cpu", "timer"]


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker process to start: its kind, its part of the device, its card's UUID (cuda)."""

    kind: Kind
    share: float = 1.0
    card: str | None = None


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers to start, the banner, and what is less than was asked for."""

    workers: tuple[Worker, ...]
    banner: str
    notes: tuple[str, ...] = ()


def device(facts: Facts | None = None) -> str:
    """The one choice of device: `cuda:0` where torch can use a card, else `cpu`."""
    return "cuda:0" if (facts or look()).cuda else "cpu"


def plan_workers(wanted: int = MOST_WORKERS, facts: Facts | None = None) -> Fleet:
    """Up to `wanted` workers: on the cards if there are any, else torch a core and timers.

    One process a card while there are enough cards, else the processes share the cards evenly.
    Raises ValueError for fewer than 1.
    """
    if wanted < 1:
        raise ValueError(f"{wanted} workers: ask for at least 1")
    facts = facts or look()
    return _on_cards(wanted, facts) if facts.cuda else _on_cpu(wanted, facts)


def workers_that_fit(wanted: int, free: int, each: int) -> int:
    """How many of the wanted workers this much memory holds; 0 when not even one."""
    return min(wanted, free // each)


def _on_cards(wanted: int, facts: Facts) -> Fleet:
    count = workers_that_fit(wanted, facts.free_ram, WORKER_RAM)
    room = {card.uuid: card.free // WORKER_VRAM for card in facts.cards}
    placed: list[str] = []
    while len(placed) < count and any(room.values()):
        emptiest = min((c for c in room if room[c]), key=lambda c: placed.count(c))
        placed.append(emptiest)
        room[emptiest] -= 1
    if not placed:
        return _on_cpu(wanted, facts, "no memory for a worker on a card: free some and try again")
    crowd = {card: placed.count(card) for card in placed}
    workers = tuple(Worker("cuda", share_of(crowd[card]), card) for card in placed)
    notes = () if len(placed) == wanted else (_fewer(len(placed), wanted, facts),)
    return Fleet(workers, _cards_banner(len(placed), len(crowd)), notes)


def _cards_banner(workers: int, cards: int) -> str:
    if workers == cards:
        return f"{workers} real GPU{'s' * (workers > 1)}"
    where = "one card" if cards == 1 else f"{cards} cards"
    part = f"1/{workers // cards}" if workers % cards == 0 else f"about 1/{workers / cards:.1f}"
    return f"{workers} processes on {where}, {part} each"


def _on_cpu(wanted: int, facts: Facts, note: str | None = None) -> Fleet:
    with_torch = min(wanted, facts.cores) if facts.computes else 0
    computing = workers_that_fit(with_torch, facts.free_ram, WORKER_RAM)
    timers = wanted - computing
    parts = [f"{computing} torch"] * bool(computing) + [f"{timers} timer"] * bool(timers)
    plural = "s" * (wanted > 1)
    notes = [note] if note else []
    if computing < with_torch:
        notes.append(_fewer(computing, with_torch, facts))
    if timers:
        notes.append("timer workers keep the contract by the clock and echo the tag, no torch")
    fleet = (*[Worker("cpu")] * computing, *[Worker("timer")] * timers)
    return Fleet(fleet, f"{' + '.join(parts)} worker{plural} on this CPU", tuple(notes))


def _fewer(count: int, wanted: int, facts: Facts) -> str:
    vram = "".join(f", {card.free / GB:.1f} GB on {card.name}" for card in facts.cards)
    return (
        f"{count} torch workers instead of {wanted}: each may need {WORKER_RAM / GB:g} GB of main "
        f"memory (and {WORKER_VRAM / GB:g} GB on a card); free now {facts.free_ram / GB:.1f} GB"
        f"{vram}"
    )


def fixes(facts: Facts) -> list[tuple[str, str]]:
    """What does not run live here, and the line that mends it."""
    found = []
    if facts.torch is None:
        found.append(("torch is not installed: only timer workers run", CPU_LINE))
    elif facts.cards and facts.torch_cuda is None:
        found.append(
            (f"torch {facts.torch} is a CPU build beside a {facts.cards[0].name}", CUDA_LINE)
        )
    if facts.torch is not None and not facts.safetensors:
        found.append(
            ("safetensors is not installed: torch workers cannot read weights", WEIGHTS_LINE)
        )
    return found
