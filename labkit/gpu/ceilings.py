"""Physical ceilings and what follows from them: floors under measurements, and predictions.

A step cannot be faster than its arithmetic at the best matmul rate, nor, when its weights do not
fit a cache, than reading them at the copy bandwidth (the roofline of Williams et al. 2009):

    floor = max(flops / matmul rate, bytes / copy bandwidth)

Standard library only. Rates: bandwidth in GB/s, matmul in Tflop/s; times in ms.
"""

from collections.abc import Mapping
from dataclasses import dataclass

CACHED_BYTES = 100_000_000
"""Weights below this size may stay in a cache between steps: bandwidth gives no floor for them."""

TOLERANCE = 0.8
"""A floor is set a fifth below the arithmetic: a measured ceiling is itself a measurement."""

SEATS = 100


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Best rates of one device; `source` says whether they were measured or a maker states them."""

    copy_gb_s: float
    matmul_tflop_s: float
    source: str

    def least_ms(self, flops: float, size: float) -> float:
        """The least time for this arithmetic and this many bytes of weights, without tolerance."""
        compute = flops / (self.matmul_tflop_s * 1e9)
        read = size / (self.copy_gb_s * 1e6) if size > CACHED_BYTES else 0.0
        return max(compute, read)

    def floor_ms(self, flops: float, size: float) -> float:
        """The floor under a measured time."""
        return TOLERANCE * self.least_ms(flops, size)


STATED = {
    "Tesla T4": Ceilings(320, 65, "data sheet: 320 GB/s, 65 Tflop/s fp16"),
    "L4": Ceilings(300, 121, "data sheet: 300 GB/s, 121 Tflop/s fp16"),
    "A100": Ceilings(1555, 312, "data sheet: 1,555 GB/s, 312 Tflop/s bf16"),
    "H100": Ceilings(3350, 989, "data sheet: 3,350 GB/s, 989 Tflop/s bf16"),
    "H200": Ceilings(4800, 989, "data sheet: 4,800 GB/s, 989 Tflop/s bf16"),
    "CPU core": Ceilings(10, 0.06, "assumed for one core: 10 GB/s, 0.06 Tflop/s fp32"),
}
"""What the makers state, by a part of the device's name; dense rates, without sparsity."""

FASTEST_CORE = Ceilings(200, 0.32, "two fused multiply-adds of 16 floats a cycle at 5 GHz")
"""What no core of a CPU exceeds; the one above is assumed, and many a core does exceed it."""


def stated(device: str) -> Ceilings:
    """The stated ceilings of a device by its name; those of one CPU core for any other."""
    for name, found in STATED.items():
        if name in device:
            return found
    return STATED["CPU core"]


def decode_flops(parameters: int, rows: int = SEATS) -> float:
    """Two operations a weight and row: what one decode step of a model computes."""
    return 2.0 * parameters * rows


def predicted_ms(key: str, params: Mapping[str, object], ceilings: Ceilings) -> float | None:
    """The time of a measured thing at the ceilings; None where no formula is known.

    `step` takes batch and parameters (bytes at two a weight), `gemm` takes m, n, k and bytes a
    number, `batchstring` is the contract. Real times are longer: launches cost too.
    """
    numbers = {name: float(value) for name, value in params.items() if isinstance(value, int)}
    match key:
        case "step" if {"batch", "parameters"} <= numbers.keys():
            flops = decode_flops(int(numbers["parameters"]), int(numbers["batch"]))
            return ceilings.least_ms(flops, 2 * numbers["parameters"])
        case "gemm" if {"m", "n", "k"} <= numbers.keys():
            m, n, k = (numbers[name] for name in "mnk")
            return ceilings.least_ms(2 * m * n * k, numbers.get("bytes", 2) * n * k)
        case "batchstring":
            return 100.0
        case _:
            return None
