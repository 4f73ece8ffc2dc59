"""The CUDA path without a card: the calls exist in this torch, and come in the right order."""

import inspect
from contextlib import contextmanager

import pytest

torch = pytest.importorskip("torch")

from labkit.gpu.launch import WARM_UPS, Graph, Loop  # noqa: E402


class Recorder:
    """Stands in for a CUDA device: writes down what is asked of it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        recorder = self

        class Stream:
            def __init__(self, name: str = "side") -> None:
                self.name = name

            def wait_stream(self, other: "Stream") -> None:
                recorder.log.append(f"{self.name} waits for {other.name}")

        class CUDAGraph:
            def replay(self) -> None:
                recorder.log.append("replay")

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                recorder.log.append("record")

            def synchronize(self) -> None:
                recorder.log.append("synchronize")

            def elapsed_time(self, later: "Event") -> float:
                return 12.5

        main = Stream("main")
        self.parts = {
            "Stream": Stream,
            "CUDAGraph": CUDAGraph,
            "Event": Event,
            "current_stream": lambda: main,
            "device": self._scope("device"),
            "stream": self._scope("stream"),
            "graph": self._scope("graph"),
        }

    def _scope(self, name: str):
        @contextmanager
        def scope(*about: object, **options: object):
            if name == "graph":
                assert options["capture_error_mode"] == "thread_local"
                assert options["stream"].name == "side"
                self.log.append("capture begins")
            yield
            if name == "graph":
                self.log.append("capture ends")

        return scope


def test_a_step_is_warmed_up_on_the_side_captured_once_and_replayed(monkeypatch) -> None:
    recorder = Recorder()
    for name, part in recorder.parts.items():
        monkeypatch.setattr(torch.cuda, name, part)
    graph = Graph(lambda: recorder.log.append("step"), "cuda:0")
    assert recorder.log == [
        "side waits for main",
        *["step"] * WARM_UPS,
        "main waits for side",
        "capture begins",
        "step",
        "capture ends",
    ]
    recorder.log.clear()
    assert graph.run(3) == 12.5
    assert recorder.log == ["record", "replay", "replay", "replay", "record", "synchronize"]


def test_this_torch_has_every_call_that_the_cuda_path_makes() -> None:
    graph = inspect.signature(torch.cuda.graph).parameters
    assert {"stream", "capture_error_mode"} <= graph.keys()
    for name in ("mem_get_info", "empty_cache", "get_device_capability", "get_device_properties"):
        assert callable(getattr(torch.cuda, name))
    assert callable(torch._assert_async)
    assert callable(torch.cuda._sleep)
    assert issubclass(torch.cuda.OutOfMemoryError, RuntimeError)


def test_a_loop_calls_the_step_itself() -> None:
    calls = []
    assert Loop(lambda: calls.append(1)).run(4) > 0
    assert calls == [1, 1, 1, 1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA card")
def test_on_a_card_the_graph_writes_what_the_loop_writes() -> None:
    from labkit.gpu.decoder import Decoder
    from labkit.gpu.tokens import FULL_STEPS, LINE_BYTES

    prompts = [f"request {number}" for number in range(100)]
    replayed, looped = Decoder("cuda:0"), Decoder("cuda:0")
    looped._launch = Loop(looped.once)
    texts = []
    for decoder in (replayed, looped):
        decoder.board(prompts)
        decoder.run(FULL_STEPS)
        texts.append(decoder.lines(100, LINE_BYTES))
    assert texts[0] == texts[1]
