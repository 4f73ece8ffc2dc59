"""Traces made from published statistics alone, in the shape of Azure's of 2023.

Nobody's requests are in them: arrivals and lengths are drawn from a seed so that rate, variation,
peak and percentiles come near the figures published for the real traces (Patel et al.,
"Splitwise", ISCA 2024, and its trace in github.com/Azure/AzurePublicDataset).
`python -m labkit.workload.synthetic data/traces` writes the two files that travel with the lab.
"""

import sys
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import IO, Final

from labkit.workload.arrivals import gamma_renewal, on_off
from labkit.workload.draws import lognormal
from labkit.workload.streams import fork, stream
from labkit.workload.traces import TraceRow

CONVERSATION_RATE: Final = 5.53
CONVERSATION_CV: Final = 1.09
CODE_RATE: Final = 2.57
CODE_CV: Final = 13.15
CODE_ON_RATE: Final = 50.0
"""While a burst lasts: the fullest second of a few dozen bursts then holds some 26 * 2.57."""

EPOCH: Final = datetime(2000, 1, 1)
"""When a synthetic trace begins; no real one does, so the two cannot be taken for each other."""

Lengths = tuple[float, float, int]
"""Median, standard deviation of the logarithm, most; in tokens."""

# sigma = ln(p95 / p50) / 1.645 for the conversation; the code trace is given the same spread,
# since only its medians are published.
CONVERSATION_INPUT: Final[Lengths] = (1020, 0.843, 16_384)
CONVERSATION_OUTPUT: Final[Lengths] = (129, 0.761, 2_000)
CODE_INPUT: Final[Lengths] = (1500, 0.843, 16_384)
CODE_OUTPUT: Final[Lengths] = (13, 0.761, 2_000)


def conversation_shaped(seconds: float, rng: Random) -> list[TraceRow]:
    """A chat service: 5.53 requests a second, gaps of CV 1.09 (Gamma), long prompts."""
    arrivals, lengths = fork(rng), fork(rng)
    instants = gamma_renewal(CONVERSATION_RATE, seconds, arrivals, cv=CONVERSATION_CV)
    return _rows(instants, CONVERSATION_INPUT, CONVERSATION_OUTPUT, lengths)


def code_shaped(seconds: float, rng: Random) -> list[TraceRow]:
    """A code service: 2.57 requests a second in bursts of 50 a second, gaps of CV 13.15."""
    arrivals, lengths = fork(rng), fork(rng)
    on_seconds, off_seconds = periods(CODE_RATE, CODE_ON_RATE, CODE_CV)
    instants = on_off(CODE_RATE, seconds, arrivals, on_seconds, off_seconds)
    return _rows(instants, CODE_INPUT, CODE_OUTPUT, lengths)


def periods(rate: float, on_rate: float, cv: float) -> tuple[float, float]:
    """Mean seconds on and off that give `on_off` this rate, rate while on, and CV of gaps.

    From cv^2 = 1 + 2 b x / (x + y)^2 (see `on_off_cv`) with y / (x + y) = rate / on_rate.
    """
    share = rate / on_rate
    both = 2.0 * on_rate * (1.0 - share) / (cv * cv - 1.0)
    return 1.0 / (both * (1.0 - share)), 1.0 / (both * share)


def write_azure_2023(rows: Iterable[TraceRow], file: IO[bytes]) -> None:
    """The rows as Azure published its own: CRLF, seven digits, no newline at the end."""
    file.write(b"TIMESTAMP,ContextTokens,GeneratedTokens")
    for row in rows:
        at = EPOCH + timedelta(microseconds=row.at)
        stamp = at.strftime("%Y-%m-%d %H:%M:%S.%f") + "0"
        file.write(f"\r\n{stamp},{row.input_tokens},{row.output_tokens}".encode("ascii"))


FILES: Final[dict[str, Callable[[], list[TraceRow]]]] = {
    "synthetic_conversation.csv": lambda: conversation_shaped(600, stream(6, "conversation")),
    "synthetic_code.csv": lambda: code_shaped(1500, stream(6, "code")),
}
"""The files that travel with the lab, and how each is made."""


def write_all(folder: Path) -> list[Path]:
    """Write every file of `FILES` into `folder`; the same bytes every time."""
    written = []
    for name, rows in FILES.items():
        path = folder / name
        with path.open("wb") as file:
            write_azure_2023(rows(), file)
        written.append(path)
    return written


def _rows(instants: list[int], inputs: Lengths, outputs: Lengths, rng: Random) -> list[TraceRow]:
    return [
        TraceRow(at - instants[0], _length(rng, *inputs), _length(rng, *outputs)) for at in instants
    ]


def _length(rng: Random, median: float, sigma: float, most: int) -> int:
    return min(max(round(lognormal(rng, median, sigma)), 1), most)


if __name__ == "__main__":
    for path in write_all(Path(sys.argv[1])):
        print(path)
