"""Where things lie on disk: the data that travels with the lab, and a learner's own folder."""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def checkout_dir() -> Path | None:
    """The root of the checkout this package runs from; None when it was installed from a wheel."""
    root = PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() and (root / "data").is_dir() else None


def data_dir() -> Path:
    """The folder of small files that travel with the lab, in a checkout or an installed wheel.

    Raises FileNotFoundError when neither place has it.
    """
    root = checkout_dir()
    place = root / "data" if root else PACKAGE / "_data"
    if not place.is_dir():
        raise FileNotFoundError(
            f"{place} is missing: this copy of labkit lacks its data; install it again"
        )
    return place


def home_dir() -> Path:
    """A learner's own folder: `LABKIT_HOME` if that is set, else the user's data folder.

    It is not made here; whoever writes there makes it.
    """
    chosen = os.environ.get("LABKIT_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("labkit", appauthor=False)
