"""What this machine can run, found without importing torch and without touching CUDA.

A CUDA context in a notebook's kernel would be lost with its first failed kernel, so facts about
cards come from `nvidia-smi` and facts about torch from its installed files. `plan_workers` turns
the facts into a fleet; `banner` says in one line what that fleet is. Memory is in bytes.
"""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from labkit.gpu.calibrate import share_of

GB = 10**9
MIB = 1 << 20
WORKER_RAM = int(1.2 * GB)
"""What a worker with torch may need of main memory."""

WORKER_VRAM = int(0.7 * GB)
"""What a CUDA context with the small model needs on its card."""

MOST_WORKERS = 8
_WHEELS = "https://download.pytorch.org/whl"
CPU_LINE = f"pip install torch --index-url {_WHEELS}/cpu"
CUDA_LINE = "pip install --force-reinstall torch --index-url " + (
    f"{_WHEELS}/cu128" if os.name == "nt" else "https://pypi.org/simple"
)
"""PyPI's own wheels for Linux are the CUDA build; those for Windows are not."""

_QUERY = "name,uuid,memory.total,memory.free,driver_version,compute_cap"

Kind = Literal["cuda", "cpu", "timer"]


@dataclass(frozen=True, slots=True)
class Card:
    """One NVIDIA card; `capability` is None where the driver does not say."""

    name: str
    uuid: str
    memory: int
    free: int
    driver: str
    capability: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Facts:
    """The machine as found; `torch` and `torch_cuda` are versions, None when absent."""

    cores: int
    free_ram: int
    torch: str | None
    torch_cuda: str | None
    cards: tuple[Card, ...]

    @property
    def cuda(self) -> bool:
        """Whether torch here can use a card."""
        return bool(self.cards) and self.torch_cuda is not None


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


def look() -> Facts:
    """Look at this machine; about 50 ms where there is an NVIDIA driver."""
    torch_version, torch_cuda = _torch_build()
    return Facts(len(_cores()), free_ram(), torch_version, torch_cuda, cards())


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
    with_torch = min(wanted, facts.cores) if facts.torch else 0
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


def describe(facts: Facts | None = None) -> dict[str, Any]:
    """The facts as plain values, with the fleet they allow and the lines that mend what is not.

    `fixes` holds pairs of what is wrong and the exact line to type.
    """
    facts = facts or look()
    fleet = plan_workers(facts=facts)
    return {
        **asdict(facts),
        "device": device(facts),
        "banner": fleet.banner,
        "notes": list(fleet.notes),
        "fixes": [list(pair) for pair in fixes(facts)],
    }


def fixes(facts: Facts) -> list[tuple[str, str]]:
    """What does not run live here, and the line that mends it."""
    found = []
    if facts.torch is None:
        line = CUDA_LINE if facts.cards else CPU_LINE
        found.append(("torch is not installed: only timer workers run", line))
    elif facts.cards and facts.torch_cuda is None:
        found.append(
            (f"torch {facts.torch} is a CPU build beside a {facts.cards[0].name}", CUDA_LINE)
        )
    return found


def cards(environ: Mapping[str, str] = os.environ) -> tuple[Card, ...]:
    """The NVIDIA cards this process may use, in the driver's order; none without a driver."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return ()
    command = [smi, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    return visible(parse_cards(answer.stdout), environ.get("CUDA_VISIBLE_DEVICES"))


def parse_cards(table: str) -> tuple[Card, ...]:
    """The cards in the CSV that `nvidia-smi` prints; a line that says no memory is left out."""
    found = []
    for line in table.strip().splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 6 or not (cells[2].isdigit() and cells[3].isdigit()):
            continue
        digits = re.fullmatch(r"(\d+)\.(\d+)", cells[5])
        capability = (int(digits[1]), int(digits[2])) if digits else None
        memory, free = int(cells[2]) * MIB, int(cells[3]) * MIB
        found.append(Card(cells[0], cells[1], memory, free, cells[4], capability))
    return tuple(found)


def visible(found: Sequence[Card], wanted: str | None) -> tuple[Card, ...]:
    """The cards that `CUDA_VISIBLE_DEVICES` leaves, in its order; all when it is not set.

    As in CUDA, the list ends at the first entry that names no card.
    """
    if wanted is None:
        return tuple(found)
    kept: list[Card] = []
    for name in (part.strip() for part in wanted.split(",")):
        if name.isdigit() and int(name) < len(found):
            kept.append(found[int(name)])
            continue
        match = [card for card in found if name and card.uuid.startswith(name)]
        if len(match) != 1:
            break
        kept.append(match[0])
    return tuple(kept)


def free_ram() -> int:
    """Main memory that is free: what the system says, or less where a container has a limit."""
    free = _meminfo()
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):
        return free
    return min(free, int(limit) - used) if limit.isdigit() else free


def _meminfo() -> int:
    try:
        import psutil

        return int(psutil.virtual_memory().available)
    except ImportError:
        pass
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        found = None
    return int(found[1]) * 1024 if found else MOST_WORKERS * WORKER_RAM


def _cores() -> range | set[int]:
    """The cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return range(os.cpu_count() or 1)


def _torch_build() -> tuple[str | None, str | None]:
    """The installed torch and the CUDA it was built for, read from its files."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None, None
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None, None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text()
    except OSError:
        return version, None
    return version, cuda_of(text)


def cuda_of(version_file: str) -> str | None:
    """The CUDA version in the text of `torch/version.py`; None for a CPU build."""
    found = re.search(r"^cuda[^=\n]*=\s*['\"]([^'\"]+)['\"]", version_file, re.MULTILINE)
    return found[1] if found else None
