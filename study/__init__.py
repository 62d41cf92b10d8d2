"""The study: settings, store, weights, exhibits and workflow around `cascadetta_lib`."""

import os
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The repository, where relative folders in a profile start."""
STORE_FORMAT = 7
"""Part of every key. Raise it when the form or the meaning of an entry changes."""

RUN_MODULE = "study.make_run"
LOADING_MODULES = ("study.published_networks",)
"""The modules of this package whose text is part of keys: of runs, and of networks from files."""


def other_clone() -> str:
    """Say that the current folder lies in another clone of the repository than this code.

    An environment knows one clone. Started in another one, by hand or through a link, its Python
    would run the first clone's code on the second one's notebooks. Empty if it is the same clone,
    if the folder is in none, or if PYTHONPATH names this clone.
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
                f"this Python runs the code in {ROOT}, and the current folder is in another clone, "
                f"{folder}: use that one's .venv, or set PYTHONPATH={folder}"
            )
    return ""


if _told := other_clone():
    warnings.warn(_told, stacklevel=2)
