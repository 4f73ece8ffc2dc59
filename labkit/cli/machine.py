"""What this machine has and lacks: Python, packages, cores, memory, GPUs, a browser, a home."""

import importlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from labkit import __version__
from labkit.gpu import device
from labkit.gpu.machine import Card
from labkit.gpu.telemetry import Nvml, Telemetry
from labkit.paths import home_dir

NEEDED = ("click", "platformdirs", "rich", "simpy")
WELCOME = {
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


def _look_at_machine(found: Findings) -> None:
    facts = device.look()
    free = round(facts.free_ram / GIB, 2)
    source = Nvml()
    found.report |= {
        "cores": facts.cores,
        "memory_free_gib": free,
        "torch": {"version": facts.torch, "cuda_build": facts.torch_cuda, "works": False},
        "cards": [_card(card, source) for card in facts.cards],
        "workers": {"timer": True, "cpu": False, "cuda": False},
        "fleet": _fleet(facts),
    }
    if free < 2:
        _advise(found, f"only {free} GiB of memory are free", "close programs, or use fewer GPUs")
    for what, line in device.fixes(facts):
        _advise(found, what, line)


def _card(card: Card, source: Telemetry) -> dict[str, Any]:
    """One card; `why_slow` is what it says of itself, None when it is healthy or silent."""
    reading = source.read(card.uuid)
    return {
        "name": card.name,
        "memory_gib": round(card.memory / GIB, 1),
        "free_gib": round(card.free / GIB, 1),
        "driver": card.driver,
        "why_slow": None if reading is None else reading.why_slow,
    }


def _fleet(facts: device.Facts) -> dict[str, Any]:
    """What a live run starts on such a machine."""
    fleet = device.plan_workers(facts=facts)
    return {"banner": fleet.banner, "notes": list(fleet.notes)}


def _look_at_torch(found: Findings) -> None:
    """Import it, here and nowhere else: only that shows whether it works."""
    facts = found.report.get("torch")
    if facts is None or facts["version"] is None:
        return
    try:
        torch = importlib.import_module("torch")
        usable = bool(torch.cuda.is_available())
    except Exception as error:
        again = _pip("--force-reinstall", f"torch=={facts['version'].partition('+')[0]}")
        what = f"torch {facts['version']} is installed and cannot be imported: {error}"
        _advise(found, what, again)
        found.report["fleet"] = _fleet(replace(device.look(), torch=None, torch_cuda=None))
        return
    facts["works"] = True
    weights = find_spec("safetensors") is not None
    found.report["workers"] |= {"cpu": weights, "cuda": weights and usable}
    if found.report["cards"] and facts["cuda_build"] is not None and not usable:
        what = f"torch {facts['version']} (CUDA {facts['cuda_build']}) cannot use the card"
        _advise(found, what, "update the NVIDIA driver, or install a torch for an older CUDA")
        found.report["fleet"] = _fleet(replace(device.look(), torch_cuda=None))


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
