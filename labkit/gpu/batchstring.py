"""The GPU function: `batchstring(inputs: list[str]) -> list[str]`.

One to a hundred strings in, one output each, same order, a hundred milliseconds whatever the
size. The size cannot matter, because all hundred seats are computed every time, empty ones too;
for the same reason the bits of a row do not depend on its neighbours or its place. What is left
of the hundred milliseconds is waited out, and the raw time is kept beside the padded one. If the
computation takes longer than the contract, the answer comes late and is counted.

An output is the text and the tag of its input, see `labkit.gpu.tag`. Of a prompt the model reads
the last words that fit in twelve bytes, see `grammar.subject_of`; the tag covers all of it.
"""

import os
import time
from collections.abc import Sequence
from functools import cache

import torch

from labkit.gpu import calibrate
from labkit.gpu.agreed import agreed
from labkit.gpu.calibrate import CONTRACT_MS, Plan
from labkit.gpu.decoder import SEATS, Decoder
from labkit.gpu.machine import cores, cpu_name
from labkit.gpu.pace import Clock, Sleep, Timings, wait_until
from labkit.gpu.tag import stamp
from labkit.gpu.tokens import FULL_STEPS


class ContractError(ValueError):
    """A call the contract does not allow: says what, the value, and the remedy."""


def check(inputs: object) -> None:
    """Refuse what the contract refuses: no input, too many inputs, anything but strings."""
    if isinstance(inputs, str):
        raise ContractError(f"inputs is the string {inputs[:20]!r}; put it in a list: [text]")
    if not isinstance(inputs, (list, tuple)):
        raise ContractError(f"inputs is {inputs!r:.40}; give a list of strings")
    if not 1 <= len(inputs) <= SEATS:
        raise ContractError(f"{len(inputs)} inputs: a batch is 1 to {SEATS} strings; split it")
    for place, value in enumerate(inputs):
        if not isinstance(value, str):
            raise ContractError(
                f"inputs[{place}] is {value!r:.40}, a {type(value).__name__}; make it a str"
            )


class BatchString:
    """`batchstring` on one device, loaded once: call it with a list of strings.

    `timings` tells raw from padded. Clock and sleep (seconds) are handed in, so that the padding
    can be tested without waiting.
    """

    def __init__(
        self,
        decoder: Decoder,
        plan: Plan,
        clock: Clock = time.perf_counter,
        sleep: Sleep = time.sleep,
        contract_ms: float = CONTRACT_MS,
    ) -> None:
        self.decoder, self.plan, self.timings = decoder, plan, Timings(contract_ms)
        self._clock, self._sleep = clock, sleep

    def __call__(self, inputs: Sequence[str]) -> list[str]:
        """One output for each input, in order, not before the contract's time."""
        began = self._clock()
        check(inputs)
        outputs = self.compute(inputs)
        raw = self._clock() - began
        wait_until(began + self.timings.contract_ms / 1000, self._clock, self._sleep)
        self.timings.note(1000 * raw, 1000 * (self._clock() - began))
        return outputs

    def compute(self, inputs: Sequence[str]) -> list[str]:
        """The outputs as soon as they are there: no check, no padding, no count."""
        self.decoder.board(inputs)
        self.decoder.run(self.plan.steps)
        texts = self.decoder.lines(len(inputs), self.plan.new_bytes)
        return [stamp(text, prompt) for text, prompt in zip(texts, inputs, strict=True)]


def load(
    device: str = "cpu", share: float = calibrate.ALONE, plan: Plan | None = None
) -> BatchString:
    """`batchstring` on a device, calibrated unless a plan is given (workers of a fleet share one).

    `share` is this worker's part of the device's time. The first calibration on a machine takes
    well under a second on a CPU and a few seconds on CUDA; it is kept, see `agreed`.
    """
    if device.startswith("cuda"):
        from labkit.gpu.cuda_plan import cuda_decoder

        decoder, plan = cuda_decoder(device, share, plan)
    else:
        decoder = Decoder(device)
        plan = plan or agreed(cpu_key(share), lambda: cpu_plan(decoder, share))
    return BatchString(decoder, plan)


def cpu_key(share: float) -> str:
    """What a plan for a CPU depends on."""
    return f"{cpu_name()}, {len(cores())} cores, torch {torch.__version__}, {share:g}"


def cpu_plan(decoder: Decoder, share: float) -> Plan:
    """A plan from the quickest of some rounds, for a part of a core.

    The rounds are counted in the thread's own time, which stands still while others compute.
    """
    quickest = min(step_times(decoder, clock=time.thread_time))
    return calibrate.plan(quickest, share * calibrate.CPU_PART)


def step_times(
    decoder: Decoder, rounds: int = 5, steps: int = FULL_STEPS, clock: Clock | None = None
) -> list[float]:
    """The time of one step in each of some rounds, after one to warm up; milliseconds.

    By the device's own account, or by a clock in seconds.
    """
    decoder.board([])
    decoder.run(steps)
    taken = []
    for _ in range(rounds):
        began = clock() if clock else 0.0
        decoder.run(steps)
        taken.append((1000 * (clock() - began) if clock else decoder.run_ms) / steps)
    return taken


@cache
def default() -> BatchString:
    """The function loaded once a process: on `LABKIT_DEVICE`, or else on the CPU.

    The CPU is the default so that a notebook kernel never holds a CUDA context, which one failed
    kernel would poison; worker processes load the card they are given.
    """
    return load(os.environ.get("LABKIT_DEVICE", "cpu"))


def batchstring(inputs: list[str]) -> list[str]:
    """One output a string, same order, about 100 ms for 1 to 100 strings.

    Raises ContractError for 0 or more than 100 inputs and for anything that is no string.
    """
    check(inputs)
    return default()(inputs)
