"""What this machine has and lacks: Python, packages, cores, memory, GPUs, a browser, a home."""

import importlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from labkit import __version__
from labkit.paths import home_dir

NEEDED = ("click", "platformdirs", "rich", "simpy")
WELCOME = {
    "torch": "real models on the CPU or a GPU",
    "jupyterlab": "the notebooks",
    "ipywidgets": "sliders in the notebooks",
    "anywidget": "moving pictures in the notebooks",
    "matplotlib": "charts",
    "numpy": "charts",
    "hypothesis": "checks of your own policies",
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "microsoft-edge")
GIB = 1 << 30


@dataclass(slots=True)
class Findings:
    """What was found; a problem that stops the lab makes it `broken`, any other is advice."""

    report: dict[str, Any] = field(default_factory=dict)
    broken: list[dict[str, str]] = field(default_factory=list)
    advice: list[dict[str, str]] = field(default_factory=list)


def examine() -> Findings:
    """Look at everything; a look that fails becomes a line of advice and never a traceback."""
    found = Findings()
    looks: tuple[Callable[[Findings], None], ...] = (
        _look_at_python,
        _look_at_packages,
        _look_at_machine,
        _look_at_torch,
        _look_at_browser,
        _look_at_home,
        _look_at_workers,
    )
    for look in looks:
        try:
            look(found)
        except Exception as error:
            what = look.__name__.removeprefix("_look_at_")
            _advise(found, f"could not look at {what}: {error!r}", "the rest still holds")
    report = {"ok": not found.broken, **found.report}
    found.report = {**report, "broken": found.broken, "advice": found.advice}
    return found


def _advise(found: Findings, what: str, remedy: str) -> None:
    found.advice.append({"what": what, "remedy": remedy})


def _pip(*words: str) -> str:
    """A pip line for this very Python."""
    python = Path(sys.executable)
    try:
        shown = str(python.relative_to(Path.cwd()))
    except ValueError:
        shown = str(python)
    return " ".join([shown, "-m", "pip", "install", *words])


def _look_at_python(found: Findings) -> None:
    version = platform.python_version()
    found.report |= {"labkit": __version__, "python": version, "platform": platform.platform()}
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        remedy = "make a new environment with Python 3.11, 3.12 or 3.13"
        found.broken.append({"what": f"Python {version} is not supported", "remedy": remedy})


def _version(package: str) -> str | None:
    """The installed version, None when it is absent."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _look_at_packages(found: Findings) -> None:
    versions = {name: _version(name) for name in (*NEEDED, *WELCOME)}
    found.report["packages"] = versions
    for name in NEEDED:
        if versions[name] is None:
            found.broken.append({"what": f"{name} is not installed", "remedy": _pip(name)})
    for name, use in WELCOME.items():
        if versions[name] is None:
            _advise(found, f"{name} is not installed: {use}", _pip(name))


def _cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _free_memory() -> int | None:
    """Bytes that can be had without swapping; None where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def _look_at_machine(found: Findings) -> None:
    memory = _free_memory()
    free = None if memory is None else round(memory / GIB, 2)
    found.report |= {"cores": _cores(), "memory_free_gib": free}
    if free is not None and free < 2:
        _advise(found, f"only {free} GiB of memory are free", "close programs, or use fewer GPUs")


def _nvidia_card() -> bool:
    """Whether an NVIDIA driver says there is a card, torch or not."""
    return any(map(os.path.exists, ("/proc/driver/nvidia/version", "/dev/nvidia0"))) or (
        shutil.which("nvidia-smi") is not None
    )


def _look_at_torch(found: Findings) -> None:
    card = _nvidia_card()
    facts: dict[str, Any] = {"version": None, "cuda_build": None, "gpus": [], "nvidia_card": card}
    found.report["torch"] = facts
    if found.report["packages"]["torch"] is None:
        return
    try:
        torch = importlib.import_module("torch")
    except Exception as error:
        version = found.report["packages"]["torch"]
        again = _pip("--force-reinstall", f"torch=={version.partition('+')[0]}")
        _advise(found, f"torch {version} is installed and cannot be imported: {error}", again)
        return
    facts |= {"version": str(torch.__version__), "cuda_build": torch.version.cuda}
    facts["gpus"] = _gpus(torch) if torch.cuda.is_available() else []
    if card and not facts["gpus"]:
        _advise(found, *_why_no_gpu(facts))


def _gpus(torch: Any) -> list[dict[str, Any]]:
    """What CUDA says of each device."""
    devices = []
    for index in range(torch.cuda.device_count()):
        seen = torch.cuda.get_device_properties(index)
        capability = f"{seen.major}.{seen.minor}"
        memory = round(seen.total_memory / GIB, 1)
        devices.append({"name": seen.name, "memory_gib": memory, "capability": capability})
    return devices


def _why_no_gpu(facts: dict[str, Any]) -> tuple[str, str]:
    """What is wrong when there is a card that torch cannot use, and the exact line."""
    version = facts["version"]
    if facts["cuda_build"] is None and getattr(sys, "platform", "") == "win32":
        wheel = "https://download.pytorch.org/whl/cu128"
        line = _pip(
            "--force-reinstall", f"torch=={version.partition('+')[0]}", "--index-url", wheel
        )
        return f"torch {version} is a CPU-only build beside an NVIDIA card", line
    if facts["cuda_build"] is None:
        line = _pip("--force-reinstall", f"torch=={version.partition('+')[0]}")
        return f"torch {version} is a CPU-only build beside an NVIDIA card", line
    what = f"torch {version} (CUDA {facts['cuda_build']}) finds no usable GPU"
    return what, "run nvidia-smi: update the driver, or unset CUDA_VISIBLE_DEVICES"


def _browser() -> str | None:
    """A Chromium on the path, or one that Playwright keeps."""
    named = os.environ.get("CHROMIUM_PATH")
    for name in (*([named] if named else []), *BROWSERS):
        if path := shutil.which(name):
            return path
    kept = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or "~/.cache/ms-playwright").expanduser()
    return next((str(path) for path in sorted(kept.glob("chromium-*/*/chrome*"))), None)


def _look_at_browser(found: Findings) -> None:
    found.report["chromium"] = _browser()
    if found.report["chromium"] is None:
        _advise(found, "no Chromium: browser tests will be skipped", "apt-get install chromium")


def _look_at_home(found: Findings) -> None:
    home = home_dir()
    found.report |= {"home": str(home), "home_writable": _writable(home)}
    if not found.report["home_writable"]:
        remedy = "set LABKIT_HOME to a folder of your own"
        _advise(found, f"{home} cannot be written: progress will not be kept", remedy)


def _writable(home: Path) -> bool:
    """Whether a file can be made there, tried in the nearest folder that exists."""
    place = next(folder for folder in (home, *home.parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=place):
            return True
    except OSError:
        return False


def _look_at_workers(found: Findings) -> None:
    torch = found.report["torch"]
    found.report["workers"] = {
        "timer": True,
        "cpu": torch["version"] is not None,
        "cuda": bool(torch["gpus"]),
    }
