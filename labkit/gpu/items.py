"""The measurements, each a function of a bench that yields rows of a record.

Every row has a floor: the least time physics allows by the ceilings measured first. torch is
imported inside the functions, so that reading a record needs none.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from labkit.gpu.ceilings import TOLERANCE, Ceilings, decode_flops, stated
from labkit.gpu.records import result

if TYPE_CHECKING:
    from labkit.gpu.ballast import Ballast
    from labkit.gpu.bench import Bench
    from labkit.gpu.calibrate import Preset

Row = dict[str, Any]
BATCHES = (1, 2, 5, 10, 20, 50, 100)
ROWS = (1, 4, 16, 64, 128, 256, 512)
FEW_BATCHES = (1, 100)
CONTRACT_FLOOR = 100.0


def ceilings(bench: Bench) -> Iterator[Row]:
    """Copy bandwidth and matmul rate; they become the bench's ceilings."""
    import torch

    from labkit.gpu.bench import device_name, fastest

    name = device_name(bench.device)
    believed = stated(name) if bench.on_cuda else Ceilings(1e9, 1e9, "none")
    size = bench.size(cuda=1 << 30, cpu=1 << 27, dry=1 << 22)
    source = torch.zeros(size, dtype=torch.uint8, device=bench.device)
    target = torch.zeros_like(source)
    copies = bench.time_ms(lambda: target.copy_(source))
    floor = TOLERANCE * 2 * size / (believed.copy_gb_s * 1e6)
    yield result("copy", {"bytes": size}, "ms", copies, floor)
    side = bench.size(cuda=8192, cpu=1024, dry=256)
    kind = bench.wide_type()
    left = torch.randn(side, side, device=bench.device).to(kind)
    products = bench.time_ms(lambda: left @ left)
    floor = TOLERANCE * 2 * side**3 / (believed.matmul_tflop_s * 1e9)
    params = {"n": side, "type": str(kind).removeprefix("torch.")}
    yield result("matmul", params, "ms", products, floor)
    bench.ceilings = Ceilings(
        copy_gb_s=2 * size / fastest(copies) / 1e6,
        matmul_tflop_s=2 * side**3 / fastest(products) / 1e9,
        source=f"measured on {name}",
    )


def steps(bench: Bench) -> Iterator[Row]:
    """One decode step by batch and ballast: the curve t(B), flat where weights dominate."""
    from labkit.gpu import model
    from labkit.gpu.decoder import Decoder

    replays = bench.size(cuda=100, cpu=40, dry=2)
    for preset in _carried(bench):
        ballast = _ballast(bench, preset)
        for batch in FEW_BATCHES if bench.dry else BATCHES:
            decoder = Decoder(bench.device, ballast=ballast, seats=batch)
            samples = []
            for _ in range(1 + bench.samples):
                decoder.board([])
                decoder.run(replays)
                samples.append(decoder.run_ms / replays)
            parameters = model.count(decoder.weights) + (preset.parameters if preset else 0)
            floor = bench.floor_ms(decode_flops(parameters, batch), 2 * parameters)
            params = {
                "batch": batch,
                "preset": preset.name if preset else "none",
                "parameters": parameters,
                "launch": "graph" if bench.on_cuda else "loop",
            }
            yield result("step", params, "ms", samples[1:], floor)


def contract(bench: Bench) -> Iterator[Row]:
    """The calibrated batchstring at three sizes: raw beside padded."""
    from labkit.gpu import batchstring, model

    function = batchstring.load(bench.device)
    parameters = model.count(function.decoder.weights)
    floor = bench.floor_ms(decode_flops(parameters), 0) * function.plan.steps
    for count in (1, 10, 100):
        prompts = [f"request {number}" for number in range(count)]
        raw, padded = [], []
        for _ in range(1 + bench.samples):
            function(prompts)
            raw.append(function.timings.raw_ms)
            padded.append(function.timings.padded_ms)
        params = {"inputs": count}
        yield result("batchstring", params, "ms", padded[1:], CONTRACT_FLOOR)
        yield result("batchstring_raw", params, "ms", raw[1:], floor)


def gemm(bench: Bench) -> Iterator[Row]:
    """One weight matrix against more and more rows: flat up to the ridge, then linear."""
    import torch

    side = bench.size(cuda=8192, cpu=1024, dry=128)
    kind = bench.wide_type()
    weight = torch.randn(side, side, device=bench.device).to(kind)
    for count in FEW_BATCHES if bench.dry else ROWS:
        rows = torch.randn(count, side, device=bench.device).to(kind)
        samples = bench.time_ms(partial(torch.matmul, rows, weight), calls=bench.size(20, 4, 1))
        size = weight.element_size() * side * side
        floor = bench.floor_ms(2.0 * count * side * side, size)
        params = {"m": count, "n": side, "k": side, "bytes": weight.element_size()}
        yield result("gemm", params, "ms", samples, floor)


def launches(bench: Bench) -> Iterator[Row]:
    """One step at 100 seats launched kernel by kernel, and as one graph (CUDA only)."""
    from labkit.gpu import model
    from labkit.gpu.decoder import Decoder

    for preset in _carried(bench):
        decoder = Decoder(bench.device, ballast=_ballast(bench, preset))
        decoder.board([])
        eager = bench.time_ms(decoder.once, calls=20)
        decoder.board([])
        replayed = bench.time_ms(partial(decoder.run, 20))
        parameters = model.count(decoder.weights) + (preset.parameters if preset else 0)
        floor = bench.floor_ms(decode_flops(parameters), 2 * parameters)
        name = preset.name if preset else "none"
        yield result("launch", {"how": "eager", "preset": name}, "ms", eager, floor)
        graph = [sample / 20 for sample in replayed]
        yield result("launch", {"how": "graph", "preset": name}, "ms", graph, floor)


_COLD = """
import json, time
began = time.perf_counter()
import torch
imported = time.perf_counter()
found = {"import_torch": imported - began}
if DEVICE.startswith("cuda"):
    torch.zeros(1, device=DEVICE); torch.cuda.synchronize(DEVICE)
    context = time.perf_counter()
    x = torch.ones(64, 64, device=DEVICE); x @ x; torch.cuda.synchronize(DEVICE)
    found["context"] = context - imported
    found["first_matmul"] = time.perf_counter() - context
print(json.dumps(found))
"""


def cold(bench: Bench) -> Iterator[Row]:
    """What a new process pays before its first batch: start, import, context, first product."""
    found: dict[str, list[float]] = {}
    for _ in range(1 if bench.dry else 3):
        began = time.perf_counter()
        script = _COLD.replace("DEVICE", repr(bench.device))
        answer = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
        )
        found.setdefault("process", []).append(1000 * (time.perf_counter() - began))
        for stage, seconds in json.loads(answer.stdout.splitlines()[-1]).items():
            found.setdefault(stage, []).append(1000 * seconds)
    for stage, samples in found.items():
        yield result("cold", {"stage": stage}, "ms", samples, 0.0)


def _carried(bench: Bench) -> list[Preset | None]:
    """No ballast, and on CUDA each preset that fits a quarter of the free memory."""
    import torch

    from labkit.gpu.calibrate import PRESETS, may_carry

    if not bench.on_cuda:
        return [None]
    free, _ = torch.cuda.mem_get_info(torch.device(bench.device))
    return [None, *(preset for preset in PRESETS if may_carry(preset.bytes, free))]


def _ballast(bench: Bench, preset: Preset | None) -> Ballast | None:
    from labkit.gpu.ballast import Ballast

    return Ballast(preset, bench.device, bench.wide_type()) if preset else None
