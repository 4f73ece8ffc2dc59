"""The batch function that every contestant runs: 100 ms by the clock, each prompt with its tag.

Imported by the services beside it, each in its peer's own environment: standard library and the
tag alone.
"""

import time
from collections.abc import Sequence

from labkit.gpu.tag import stamp

BATCH_S = 0.1
WINDOW_S = 0.05
MOST = 100


def stamped(prompts: Sequence[str]) -> list[str]:
    """One answer a prompt, in order; what `labkit serve --workers timer` computes."""
    return [stamp(prompt, prompt) for prompt in prompts]


def answers(prompts: Sequence[str]) -> list[str]:
    """The same, 100 ms later."""
    time.sleep(BATCH_S)
    return stamped(prompts)
