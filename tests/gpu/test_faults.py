"""Breaking a worker on purpose, as far as a machine without a card can show it."""

import pytest

torch = pytest.importorskip("torch")

from labkit.gpu import kinds, weights, worker_setup  # noqa: E402
from labkit.gpu.batchstring import BatchString, ContractError  # noqa: E402
from labkit.gpu.calibrate import plan  # noqa: E402
from labkit.gpu.decoder import Decoder  # noqa: E402
from labkit.gpu.device import Worker  # noqa: E402
from labkit.gpu.faults import PoisonedContext, hang, is_fatal, poison  # noqa: E402
from labkit.gpu.machine import GB, Card  # noqa: E402
from labkit.gpu.tag import carries  # noqa: E402


def test_a_poisoned_worker_must_be_replaced() -> None:
    with pytest.raises(PoisonedContext, match="must be replaced") as raised:
        poison("cpu")
    assert is_fatal(raised.value)


def test_only_a_lost_device_is_fatal() -> None:
    assert is_fatal(RuntimeError("CUDA error: device-side assert triggered\nmore"))
    assert not is_fatal(RuntimeError("shapes do not match"))
    assert not is_fatal(torch.cuda.OutOfMemoryError("CUDA error: out of memory"))
    assert not is_fatal(ValueError("CUDA error: not from torch"))


def test_the_error_of_newer_torch_is_fatal(monkeypatch) -> None:
    class AcceleratorError(RuntimeError):
        pass

    monkeypatch.setattr(torch, "AcceleratorError", AcceleratorError, raising=False)
    assert is_fatal(AcceleratorError("illegal address"))


def test_older_torch_has_no_such_error_and_is_understood(monkeypatch) -> None:
    monkeypatch.delattr(torch, "AcceleratorError", raising=False)
    assert is_fatal(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert not is_fatal(RuntimeError("other"))


def test_a_hang_is_bounded() -> None:
    slept = []
    hang("cpu", 2.5, slept.append)
    assert slept == [2.5]
    for seconds in (0, -1, 31, float("inf")):
        with pytest.raises(ValueError, match="at most 30 s"):
            hang("cpu", seconds, slept.append)
    assert slept == [2.5]


def test_a_worker_loads_tests_itself_and_computes_on_one_thread() -> None:
    torch.set_num_threads(2)
    function = worker_setup.load(Worker("cpu"), plan(1.0))
    assert torch.get_num_threads() == 1
    assert function.plan == plan(1.0)
    assert function.timings.batches == 0


def test_a_timer_worker_has_no_function() -> None:
    with pytest.raises(ValueError, match="a timer worker computes nothing"):
        worker_setup.load(Worker("timer"))


def test_a_worker_that_writes_nonsense_is_not_routed_to() -> None:
    function = BatchString(Decoder(), plan(1.0))
    function.decoder.weights["embed"].zero_()
    with pytest.raises(RuntimeError, match="do not route to this worker"):
        worker_setup.self_test(function)


def test_no_worker_is_handed_over_untested(monkeypatch) -> None:
    found, shape = weights.load()
    found["embed"].zero_()
    monkeypatch.setattr(weights, "load", lambda device: (found, shape))
    with pytest.raises(RuntimeError, match="do not route to this worker"):
        worker_setup.load(Worker("cpu"), plan(1.0))


@pytest.mark.parametrize(("card", "seen"), [("GPU-0", "GPU-0"), (None, "")])
def test_a_worker_sees_its_own_card_only(monkeypatch, card, seen) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "all")
    worker_setup.hide_other_cards(card)
    assert __import__("os").environ["CUDA_VISIBLE_DEVICES"] == seen


class Setup:
    """What the shell tells a factory."""

    gpu = 3

    def __init__(self, **options: object) -> None:
        self.options = options


def test_a_cpu_worker_computes_at_once_and_tells_its_facts() -> None:
    runner = kinds.cpu(Setup(plan=plan(1.0)))
    outputs = runner(["hello", "request 42"])
    assert [carries(*pair) for pair in zip(outputs, ["hello", "request 42"], strict=True)] == [
        True,
        True,
    ]
    assert runner.facts["new_bytes"] == plan(1.0).new_bytes
    with pytest.raises(ContractError, match="0 inputs"):
        runner([])


def test_a_lost_device_is_the_only_fatal_error_of_a_worker() -> None:
    def fail(prompts: list[str]) -> list[str]:
        raise RuntimeError(prompts[0])

    runner = kinds.Torch(BatchString(Decoder(), plan(1.0)), "cpu")
    runner.function.compute = fail
    with pytest.raises(PoisonedContext, match="cpu: CUDA error: device-side assert"):
        runner(["CUDA error: device-side assert triggered"])
    with pytest.raises(RuntimeError, match="shapes") as raised:
        runner(["shapes do not match"])
    assert not isinstance(raised.value, runner.fatal)
    with pytest.raises(runner.fatal):
        runner.poison()


def test_a_cuda_worker_without_a_card_says_what_to_start_instead(monkeypatch) -> None:
    monkeypatch.setattr(kinds, "cards", lambda: ())
    with pytest.raises(RuntimeError, match="start cpu or timer workers"):
        kinds.cuda(Setup())


def test_a_cuda_worker_takes_its_card_and_an_even_part_of_it(monkeypatch) -> None:
    asked = []

    def load(worker: Worker, given: object) -> BatchString:
        asked.append((worker, given))
        return BatchString(Decoder(), plan(1.0))

    found = [Card("T4", uuid, 16 * GB, 15 * GB, "570", (7, 5)) for uuid in ("GPU-a", "GPU-b")]
    monkeypatch.setattr(kinds, "cards", lambda: tuple(found))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(worker_setup, "load", load)
    runner = kinds.cuda(Setup(gpus=8, plan="the plan"))
    assert asked == [(Worker("cuda", 0.17, "GPU-b"), "the plan")]
    assert runner.facts["device"] == "GPU-b"
    assert __import__("os").environ["CUDA_VISIBLE_DEVICES"] == "GPU-b"


def test_a_planned_worker_takes_the_place_that_was_planned_for_it(monkeypatch) -> None:
    asked = []

    def load(worker: Worker, given: object) -> BatchString:
        asked.append(worker)
        return BatchString(Decoder(), plan(1.0))

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(worker_setup, "load", load)
    fleet = [Worker("cpu", 0.5)] * 2 + [Worker("cuda", 1.0, "GPU-c"), Worker("cuda", 0.34, "GPU-d")]
    kinds.cuda(Setup(workers=fleet))
    kinds.cpu(Setup(workers=[Worker("cpu", 0.25)] * 4))
    assert asked == [Worker("cuda", 0.34, "GPU-d"), Worker("cpu", 0.25)]


def test_more_workers_than_cores_share_them(monkeypatch) -> None:
    asked = []

    def load(worker: Worker, given: object) -> BatchString:
        asked.append(worker)
        return BatchString(Decoder(), plan(1.0))

    monkeypatch.setattr(worker_setup, "load", load)
    monkeypatch.setattr(kinds, "cores", lambda: range(2))
    kinds.cpu(Setup(gpus=8))
    kinds.cpu(Setup(gpus=2))
    assert asked == [Worker("cpu", 0.25), Worker("cpu", 1.0)]
