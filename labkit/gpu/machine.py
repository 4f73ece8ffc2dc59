"""The facts of this machine, found without importing torch and without touching CUDA.

A CUDA context in a notebook's kernel would be lost with its first failed kernel, so facts about
cards come from `nvidia-smi` and facts about torch from its installed files. Memory is in bytes.
"""

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GB = 10**9
MIB = 1 << 20
ENOUGH_RAM = 10 * GB
"""What is assumed to be free where the system cannot be asked."""

_QUERY = "name,uuid,memory.total,memory.free,driver_version,compute_cap"


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
    """The machine as found; `torch` and `torch_cuda` are versions, None when absent.

    `safetensors`: whether the package that reads the weights is there.
    """

    cores: int
    free_ram: int
    torch: str | None
    torch_cuda: str | None
    cards: tuple[Card, ...]
    safetensors: bool = True

    @property
    def computes(self) -> bool:
        """Whether a worker here can load torch and the weights."""
        return self.torch is not None and self.safetensors

    @property
    def cuda(self) -> bool:
        """Whether torch here can use a card."""
        return self.computes and bool(self.cards) and self.torch_cuda is not None


def look() -> Facts:
    """Look at this machine; about 50 ms where there is an NVIDIA driver."""
    torch_version, torch_cuda = _torch_build()
    weights = importlib.util.find_spec("safetensors") is not None
    return Facts(len(cores()), free_ram(), torch_version, torch_cuda, cards(), weights)


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
    """What the system says is free; where it cannot be asked, enough for eight workers."""
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        found = None
    if found:
        return int(found[1]) * 1024
    try:
        import psutil
    except ImportError:
        return ENOUGH_RAM
    return int(psutil.virtual_memory().available)


def cores() -> range | set[int]:
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


def cpu_name() -> str:
    """The processor's name, as a record is filed under it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"CPU {next(named, platform.processor() or platform.machine())}"
