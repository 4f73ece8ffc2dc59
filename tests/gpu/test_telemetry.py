"""A card's own account of itself, from a stand-in for the driver's library."""

from types import SimpleNamespace

import pytest

from labkit.gpu.telemetry import Nvml, Reading, Simulated, reasons


class NVMLError(Exception):
    """What the driver's library raises."""


class Driver:
    """Answers like the library of a card with two links, but for the questions it `refuses`."""

    NVMLError = NVMLError

    def __init__(self, *refuses: str, broken: bool = False) -> None:
        self.refuses, self.broken, self.starts = refuses, broken, 0

    def nvmlInit(self) -> None:
        self.starts += 1
        if self.broken:
            raise NVMLError("driver not loaded")

    def __getattr__(self, name: str):
        answers = {
            "nvmlDeviceGetHandleByUUID": lambda uuid: {"GPU-0": "card"}[uuid],
            "nvmlDeviceGetClockInfo": lambda card, kind: {1: 810}[kind],
            "nvmlDeviceGetMaxClockInfo": lambda card, kind: {1: 1980}[kind],
            "nvmlDeviceGetCurrentClocksEventReasons": lambda card: 0x1 | 0x40,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda card: 0x4,
            "nvmlDeviceGetTemperature": lambda card, sensor: 91,
            "nvmlDeviceGetPowerUsage": lambda card: 250_500,
            "nvmlDeviceGetMemoryInfo": lambda card: SimpleNamespace(used=7),
            "nvmlDeviceGetTotalEccErrors": lambda card, kind, counter: 0,
            "nvmlDeviceGetNvLinkState": lambda card, link: 1 if link < 2 else 0,
            "nvmlDeviceGetNvLinkErrorCounter": lambda card, link, counter: 10 + link,
        }
        if name not in answers:
            raise AttributeError(name)

        def answer(*about: object) -> object:
            if name in self.refuses:
                raise NVMLError("not supported")
            try:
                return answers[name](*about)
            except KeyError:
                raise NVMLError("not found") from None

        return answer


def test_a_reading_explains_a_straggler() -> None:
    driver = Driver()
    source = Nvml(driver)
    reading = source.read("GPU-0")
    assert reading == Reading(810, 1980, ("hardware thermal slowdown",), 91, 250.5, 7, 0, 21)
    assert reading.why_slow == "810 of 1980 MHz: hardware thermal slowdown, 21 link replays"
    source.read("GPU-0")
    assert driver.starts == 1


def test_what_the_driver_refuses_is_none() -> None:
    refused = Nvml(Driver("nvmlDeviceGetPowerUsage", "nvmlDeviceGetNvLinkState")).read("GPU-0")
    assert (refused.power, refused.link_replays, refused.temperature) == (None, None, 91)


def test_an_older_driver_is_asked_by_the_older_name() -> None:
    older = Nvml(Driver("nvmlDeviceGetCurrentClocksEventReasons")).read("GPU-0")
    assert older.reasons == ("power cap",)


def test_no_card_no_driver_or_no_library_is_no_reading(monkeypatch) -> None:
    assert Nvml(Driver()).read("GPU-9") is None
    broken = Driver(broken=True)
    source = Nvml(broken)
    assert source.read("GPU-0") is source.read("GPU-0") is None
    assert broken.starts == 1
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    assert Nvml().read("GPU-0") is None


def test_an_idle_card_has_no_reason_to_worry() -> None:
    assert reasons(0x1) == ()
    assert reasons(0x1 | 0x4 | 0x20) == ("power cap", "software thermal slowdown")
    assert reasons(0x8000) == ("reason 0x8000",)
    assert Reading(clock=300, top_clock=1980).why_slow is None
    assert Reading(ecc_errors=2).why_slow == "2 uncorrected memory errors"


@pytest.mark.parametrize("uuid", ["GPU-0", "GPU-9"])
def test_a_simulated_source_says_what_its_table_says(uuid: str) -> None:
    table = {"GPU-0": Reading(clock=900)}
    assert Simulated(table).read(uuid) == table.get(uuid)
