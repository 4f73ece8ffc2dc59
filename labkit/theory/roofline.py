"""What the hardware allows: the slower of memory and arithmetic (Williams and others, 2009)."""

from dataclasses import dataclass

from labkit.theory.checks import above_zero, whole, zero_or_more


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A GPU's published ceilings: memory in TB/s, dense bf16 arithmetic in TFLOP/s."""

    name: str
    terabytes_per_second: float
    teraflops: float

    def __post_init__(self) -> None:
        above_zero("terabytes_per_second", self.terabytes_per_second)
        above_zero("teraflops", self.teraflops)

    @property
    def ridge(self) -> float:
        """FLOP a byte from which on arithmetic is the limit."""
        return self.teraflops / self.terabytes_per_second

    def attainable(self, intensity: float) -> float:
        """TFLOP/s at this many FLOP a byte: min(peak, intensity * bandwidth)."""
        return min(self.teraflops, zero_or_more("intensity", intensity) * self.terabytes_per_second)

    def read_ms(self, gigabytes: float) -> float:
        """Milliseconds to read so many GB from memory once."""
        return zero_or_more("gigabytes", gigabytes) / self.terabytes_per_second


A100_80 = Accelerator("A100-80GB", 2.039, 312.0)
H100 = Accelerator("H100", 3.35, 989.0)
H200 = Accelerator("H200", 4.8, 989.0)


def decode_floor_ms(weights_gb: float, gpu: Accelerator) -> float:
    """No decode step is faster than reading every weight once: W / bandwidth."""
    return gpu.read_ms(weights_gb)


def decode_intensity(batch: int, width: int = 2) -> float:
    """FLOP a byte of a decode step: 2 a parameter and row over `width` bytes a parameter."""
    return 2 * whole("batch", batch) / whole("width", width)


def decode_step_ms(weights_gb: float, batch: int, gpu: Accelerator, kv_gb: float = 0.0) -> float:
    """The longer of reading (weights and KV) and computing (2 FLOP a 16-bit weight and row)."""
    reading = gpu.read_ms(weights_gb + zero_or_more("kv_gb", kv_gb))
    return max(reading, weights_gb * whole("batch", batch) / gpu.teraflops)
