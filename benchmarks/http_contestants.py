"""Who takes part in the HTTP contest: what each is, what is on, and where a peer is installed."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from labkit import __version__

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "build" / "peers"


class PeerMissing(ValueError):
    """A peer's environment cannot be made: says what failed and how to make it."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One server. `pins`: what is installed for a peer, none for ours; `features`: what is on."""

    name: str
    label: str
    features: str
    pins: tuple[str, ...] = ()
    module: str = ""
    path: str = "/v1/completions"
    listed: bool = False
    tagged: bool = True

    @property
    def home(self) -> Path:
        """Of the peer's environment."""
        return PEERS / self.name

    @property
    def version(self) -> str:
        """As pinned, or our own."""
        return self.pins[0].partition("==")[2] if self.pins else __version__


CONTESTANTS: dict[str, Contestant] = {
    contestant.name: contestant
    for contestant in (
        Contestant(
            "labkit",
            "`labkit serve`",
            "bearer keys in two tiers, fair queue, caps on body, prompt and queue, deadlines, one "
            "receipt a batch, tags, metrics, idempotency keys on one request in ten",
        ),
        Contestant(
            "constant",
            "ours, a constant answer",
            "all of `labkit serve` but queue, batches and GPUs: keys, caps, idempotency, metrics",
            module="benchmarks.http_constant",
            tagged=False,
        ),
        Contestant(
            "late",
            "ours, a constant answer after 100 ms",
            "the same, and as many calls open at a time as where a batch takes that long",
            module="benchmarks.http_constant",
            tagged=False,
        ),
        Contestant(
            "bare",
            "our protocol, a constant answer",
            "the HTTP protocol of `labkit serve` alone",
            module="benchmarks.http_constant",
            tagged=False,
        ),
        Contestant(
            "mosec",
            "Mosec",
            "metrics, a queue bound (set out of reach), a timeout (30 s)",
            ("mosec==0.9.8",),
            "benchmarks.peers.mosec_service",
            "/inference",
        ),
        Contestant(
            "litserve",
            "LitServe",
            "a timeout (30 s); two HTTP processes",
            ("litserve==0.2.19",),
            "benchmarks.peers.litserve_service",
            "/predict",
        ),
        Contestant(
            "ray_serve",
            "Ray Serve",
            "metrics, health checks, a bound of 200 requests a replica; optimized for throughput",
            ("ray[serve]==2.60.0",),
            "benchmarks.peers.ray_service",
            "/",
        ),
        Contestant(
            "bentoml",
            "BentoML",
            "metrics, validation of the body, a timeout (30 s)",
            ("bentoml==1.4.40",),
            "benchmarks.peers.bentoml_service",
            "/echo",
            listed=True,
        ),
    )
}


def peer_python(contestant: Contestant, install: bool) -> Path:
    """The interpreter of a peer's environment, made on the first call; raises `PeerMissing`."""
    python = contestant.home / ("Scripts" if os.name == "nt" else "bin") / "python"
    mark = contestant.home / "installed"
    pins = " ".join(contestant.pins)
    if mark.exists() and mark.read_text(encoding="utf-8") == pins and python.exists():
        return python
    place = contestant.home.relative_to(ROOT)
    if not install:
        raise PeerMissing(f"{pins} is not installed under {place}; run: labkit bench http")
    steps = (
        [sys.executable, "-m", "venv", str(contestant.home)],
        [
            str(python),
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            *contestant.pins,
        ],
    )
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            told = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
            raise PeerMissing(f"{pins} could not be installed under {place}: {told[-1]}")
    mark.write_text(pins, encoding="utf-8")
    return python
