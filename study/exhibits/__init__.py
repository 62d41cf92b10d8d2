"""Make and show exhibits: the study's tables and figures, made from stored runs alone.

exhibits.run("batch_size", study)      # make the runs that are not stored yet, then show
exhibits.show("batch_size", study)     # show what the stored runs give
exhibits.make("batch_size", study)     # only make the runs

Runs are made at the study's seed. Modules of `paper` and `beyond` add their exhibits to the
registry `EXHIBITS`.
"""

try:
    import matplotlib  # noqa: F401
except ValueError as error:  # Matplotlib's message does not say where the name is from.
    raise ValueError(f"MPLBACKEND (from the environment): {error}") from None

from study.exhibits.kit.exhibit import EXHIBITS
from study.exhibits.kit.show import make, run, save_all, show, show_all, without_runs
from study.exhibits.kit.shown import Shown

__all__ = ["EXHIBITS", "Shown", "make", "run", "save_all", "show", "show_all", "without_runs"]
