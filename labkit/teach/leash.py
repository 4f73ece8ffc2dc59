"""A lab command that ends when its standard input does: `python -m labkit.teach.leash serve ...`.

Whoever starts it holds the other end of the pipe. However that process ends, SIGKILL included, the
operating system closes the pipe, and the command takes its leave as on SIGTERM.
"""

import os
import runpy
import signal
import threading
import time

LAST_RESORT_S = 20.0
"""A command that has not ended this long after the pipe did is ended without its consent."""


def hold(last_resort_s: float = LAST_RESORT_S) -> threading.Thread:
    """Watch standard input from now on; the thread that watches."""
    watching = threading.Thread(target=_watch, args=(last_resort_s,), name="leash", daemon=True)
    watching.start()
    return watching


def _watch(last_resort_s: float) -> None:
    # The bare descriptor: a buffered reader would hold its lock while the interpreter ends.
    while os.read(0, 1_024):
        pass
    if os.name == "posix":
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        # There os.kill would end the process at once.
        signal.raise_signal(signal.SIGTERM)
    time.sleep(last_resort_s)
    os._exit(1)


def main() -> None:
    """Run the command line after this module's name as `python -m labkit` would."""
    hold()
    runpy.run_module("labkit", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
