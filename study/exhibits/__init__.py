"""Every table and figure, from stored runs only: one file per exhibit, found by the registry
`EXHIBITS`.

exhibits.run("batch_size", study)      # make the runs that it lacks at the study's seed; show it
exhibits.show("batch_size", study)     # show it from what is stored
exhibits.make("batch_size", study)     # only make the runs
"""

try:
    import matplotlib  # noqa: F401
except ValueError as error:  # Its own message does not say where the name came from.
    raise ValueError(f"MPLBACKEND (from the environment): {error}") from None

from study.exhibits.kit.exhibit import EXHIBITS
from study.exhibits.kit.show import make, run, save_all, show, show_all, without_runs
from study.exhibits.kit.shown import Shown

__all__ = ["EXHIBITS", "Shown", "make", "run", "save_all", "show", "show_all", "without_runs"]
