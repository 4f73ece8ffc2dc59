"""How many connections a process may have open, once it has asked the system for room."""

SPARE = 200
"""Files of our own: pipes, sockets of workers, the ledger."""


def most_open(wanted: int, spare: int = SPARE) -> int:
    """So many connections, or as many as this process may open; raises its soft limit first."""
    try:
        import resource
    except ImportError:
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + spare
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return min(wanted, max(soft - spare, 1))
    return wanted
