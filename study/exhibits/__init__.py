"""Every table and figure, from stored runs alone: one file an exhibit, found by the registry
`base.EXHIBITS`.

exhibits.show("batch_size", study)     # in a notebook: the exhibit from what is stored
exhibits.make("batch_size", study)     # the runs that it lacks at the study's seed
"""

from study.exhibits.kit.exhibit import EXHIBITS, Shown, make, show, show_all

__all__ = ["EXHIBITS", "Shown", "make", "show", "show_all"]
