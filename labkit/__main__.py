"""`python -m labkit`: the commands, and `lab` and `setup` even before anything is installed."""

import importlib.util
import sys

from labkit import bootstrap


def main() -> int:
    """Run what the command line asks for; the exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] in (["lab"], ["setup"]):
        return bootstrap.main(arguments)
    if any(importlib.util.find_spec(name) is None for name in ("click", "rich", "simpy")):
        print(
            "Error: the packages of labkit are not installed in this Python; "
            "`python -m labkit setup` puts them into .venv",
            file=sys.stderr,
        )
        return 2
    from labkit.cli.main import main as command

    command(prog_name="labkit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
