"""What a worker process does before its first batch, in the order it must be done.

    hide_other_cards(worker.card)     before anything touches CUDA
    function = load(worker, plan)     torch, weights, calibration, a self-test
    outputs = function(inputs)        `labkit.gpu.faults.is_fatal(error)`: report and exit

Only `load` imports torch, so that a timer worker imports this module cheaply. Workers that are
given no plan take the one this machine's workers agree on (`labkit.gpu.agreed`), so that all
write the same text and no calibration is disturbed by neighbours.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from labkit.gpu.device import Worker

if TYPE_CHECKING:
    from labkit.gpu.batchstring import BatchString
    from labkit.gpu.calibrate import Plan

SELF_TEST = ("hello", "request 42", "")


def hide_other_cards(card: str | None) -> None:
    """Leave this process one card, by UUID, which it then knows as `cuda:0`.

    Must run before CUDA is first used in the process; a preloaded torch is no harm.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = card or ""


def load(worker: Worker, plan: Plan | None = None) -> BatchString:
    """The function of a `cpu` or `cuda` worker, self-tested and ready, on one thread.

    Raises ValueError for a timer worker, which needs no function, and RuntimeError when the
    self-test fails.
    """
    if worker.kind == "timer":
        raise ValueError("a timer worker computes nothing; echo with labkit.gpu.tag.stamp")
    import torch

    from labkit.gpu import batchstring

    torch.set_num_threads(1)
    device = "cuda:0" if worker.kind == "cuda" else "cpu"
    function = batchstring.load(device, worker.share, plan)
    self_test(function)
    return function


def self_test(function: BatchString) -> None:
    """One batch of known prompts: each answer must carry its tag and be the line about it."""
    from labkit.gpu.grammar import begins, subject_of
    from labkit.gpu.tag import carries, text_of

    outputs = function.compute(SELF_TEST)
    for prompt, output in zip(SELF_TEST, outputs, strict=True):
        if not carries(output, prompt) or not begins(text_of(output), subject_of(prompt)):
            raise RuntimeError(
                f"self-test: {prompt!r} was answered {output!r}, which is no line about it; "
                "do not route to this worker"
            )
