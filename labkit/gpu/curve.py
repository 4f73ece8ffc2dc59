"""The curve t(B): one step with a seat for each string and no empty ones, here and on a GPU.

`batchstring` computes a hundred seats whatever the size; this is what a device would take if it
computed only the seats that are asked for. `measured` times it in a process of its own, so that a
notebook's kernel loads no torch and holds no CUDA context. Milliseconds.
"""

import json
import subprocess
import sys
import time

from labkit.gpu.calibrate import PRESETS
from labkit.gpu.device import device as best_device
from labkit.gpu.items import BATCHES
from labkit.gpu.machine import Facts, look
from labkit.gpu.records import Figure, figure, live
from labkit.paths import data_dir

ROUNDS, STEPS = 5, 10
PATIENCE_S = 60.0


def measured(facts: Facts | None = None) -> list[Figure]:
    """LIVE figures of a step on this machine, one for each of `BATCHES`; none without torch.

    On a CPU the thread's own time is counted, which stands still while others compute. Takes as
    long as importing torch does, and a second more on a card. Raises RuntimeError when it fails.
    """
    facts = facts or look()
    if not facts.computes:
        return []
    command = [sys.executable, "-m", __name__, best_device(facts)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    if answer.returncode:
        raise RuntimeError(f"the curve could not be measured:\n{answer.stderr.strip()[-500:]}")
    found = json.loads(answer.stdout.splitlines()[-1])
    return [
        live("step", samples, found["device"], batch=batch)
        for batch, samples in zip(BATCHES, found["step_ms"], strict=True)
    ]


def expected(device: str = "H200") -> list[Figure]:
    """The same for a card with the largest ballast: RECORDED where it was measured, else PREDICTED.

    `device` is a part of its name. A prediction says in `ceilings` what it was computed from.
    """
    heavy = PRESETS[-1]
    origin = json.loads((data_dir() / "model" / "ferry.json").read_text())
    parameters = origin["parameters"] + heavy.parameters
    params = {"preset": heavy.name, "parameters": parameters, "launch": "graph"}
    return [figure("step", device, batch=batch, **params) for batch in BATCHES]


def main(device: str) -> None:
    """Measure, and print the device's name and the samples of each size as one line of JSON."""
    import torch

    from labkit.gpu.batchstring import step_times
    from labkit.gpu.bench import device_name
    from labkit.gpu.cuda_plan import heaviest
    from labkit.gpu.decoder import Decoder

    torch.set_num_threads(1)
    on_card = device.startswith("cuda")
    ballast = heaviest(device) if on_card else None
    clock = None if on_card else time.thread_time
    samples = [
        step_times(Decoder(device, ballast=ballast, seats=batch), ROUNDS, STEPS, clock)
        for batch in BATCHES
    ]
    print(json.dumps({"device": device_name(device), "step_ms": samples}))


if __name__ == "__main__":
    main(sys.argv[1])
