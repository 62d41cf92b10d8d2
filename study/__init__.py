"""The study: settings, store, weights, exhibits and workflow around `cascadetta_lib`."""

import os
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The repository. Relative folders in a profile begin here."""
STORE_FORMAT = 7
"""Part of every key under which the store keeps a result (requests.py). Raise this number when the
form or the meaning of a stored entry changes.
"""

RUN_MODULE = "study.make_run"
"""The module of this package whose code is part of the key of every run."""
LOADING_MODULES = ("study.published_networks",)
"""The modules of this package whose code is part of the key of every result that is made with a
network from a file.
"""


def other_clone() -> str:
    """Return a warning if the current folder and this code are in different clones of the
    repository.

    In a Python environment this package is installed from one clone. If the environment's Python is
    started in another clone, by hand or through a link, it runs the first clone's code on the
    second clone's notebooks.

    The warning is empty if the current folder is in this clone or in none, or if PYTHONPATH names
    this clone.
    """
    if str(ROOT) in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        return ""
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return ""
    for folder in (here, *here.parents):
        if (folder / "study" / "__init__.py").is_file() and (folder / "run_all.sh").is_file():
            if folder == ROOT:
                return ""
            return (
                f"this Python runs the code in {ROOT}, but the current folder is in the clone "
                f"{folder}: use {folder / '.venv'}, or set PYTHONPATH={folder}"
            )
    return ""


if _told := other_clone():
    warnings.warn(_told, stacklevel=2)
