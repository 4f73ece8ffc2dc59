"""Random variates from `rng.random()` alone, so that a seed means the same everywhere."""

from math import exp, log, sqrt
from random import Random


def exponential(rng: Random) -> float:
    """An exponential variate of mean 1, by inverse transform."""
    return -log(1.0 - rng.random())


def normal(rng: Random) -> float:
    """A standard normal variate, by Marsaglia's polar method (the second of the pair is left)."""
    while True:
        x = 2.0 * rng.random() - 1.0
        y = 2.0 * rng.random() - 1.0
        square = x * x + y * y
        if 0.0 < square < 1.0:
            return x * sqrt(-2.0 * log(square) / square)


def lognormal(rng: Random, median: float, sigma: float) -> float:
    """A lognormal variate; `sigma` is the standard deviation of its logarithm."""
    return median * exp(sigma * normal(rng))


def gamma(rng: Random, shape: float) -> float:
    """A Gamma variate of mean `shape` and scale 1 (Marsaglia and Tsang, ACM TOMS 26, 2000).

    A shape below 1 draws at shape + 1 and multiplies by U^(1/shape), as the paper's section 6.
    """
    if shape < 1.0:
        return gamma(rng, shape + 1.0) * float((1.0 - rng.random()) ** (1.0 / shape))
    d = shape - 1.0 / 3.0
    c = 1.0 / sqrt(9.0 * d)
    while True:
        x = normal(rng)
        v = (1.0 + c * x) ** 3
        if v <= 0.0:
            continue
        u = 1.0 - rng.random()
        if log(u) < 0.5 * x * x + d - d * v + d * log(v):
            return d * v
