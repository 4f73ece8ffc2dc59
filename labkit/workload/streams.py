"""Where random numbers come from: one seed, and one stream for each random source."""

from random import Random


def stream(seed: int, *names: str | int) -> Random:
    """The stream of one random source, such as `stream(7, "arrivals")`.

    Streams of different names are independent, so that drawing more from one of them (more
    tenants, jitter switched on) leaves every other as it was. The same on any machine.
    """
    return Random("/".join(str(part) for part in (seed, *names)))


def fork(rng: Random) -> Random:
    """A new stream that starts from one draw of `rng`."""
    return Random(int(rng.random() * (1 << 53)))
