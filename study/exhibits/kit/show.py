"""What notebooks ask of exhibits: make their runs, show one or all, and save them."""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from cascadetta_lib.data.base import Modality
from study.exhibits.kit.exhibit import EXHIBITS
from study.exhibits.kit.report_folder import ReportFolder
from study.exhibits.kit.shown import Shown
from study.exhibits.kit.stored_runs import Runs
from study.settings import Settings
from study.store import Run
from study.study import Study

VERDICTS = ("verdicts.md", "verdicts.csv")
"""The files that the report writes into the figures folder besides those of the exhibits."""


def save_all(shown: Sequence[Shown], folder: str | Path, verdicts: bool = True) -> str:
    """Write a report's exhibits into a folder, and remove the files of earlier reports. Return what
    was done, as a text.

    verdicts: whether the same report writes VERDICTS there.
    """
    files = ReportFolder(folder, also=VERDICTS if verdicts else ())
    for each in shown:
        each.save(files)
    return files.finish()


def without_runs(shown: Sequence[Shown]) -> str:
    """Return one line that names the exhibits without a stored run; empty if there are none."""
    names = dict.fromkeys(
        f"{each.exhibit.title} ({each.dataset})"
        for each in shown
        if not each.runs and not each.parts and each.belongs_in_report
    )
    return f"No run is stored for: {'; '.join(names)}." if names else ""


def make(name: str, study: Study) -> list[Run]:
    """Make the runs of an exhibit that are not stored yet, at the study's seed.

    Raises ValueError for an unknown name, and as `Exhibit.make` does.
    """
    return EXHIBITS[name].make(study)


def show(name: str, study: Study) -> Shown:
    """Return an exhibit, made from the stored runs of the study's dataset and network.

    Raises ValueError for an unknown name.
    """
    return EXHIBITS[name].show(Runs(study))


def run(name: str, study: Study) -> Shown:
    """Make the runs of an exhibit that are not stored yet, at the study's seed. Then show the
    exhibit.

    Raises ValueError for an unknown name, and as `Exhibit.make` does. In a notebook it also raises
    ValueError for an exhibit that the notebook does not declare.
    """
    if study.exhibits is not None and name not in study.exhibits:
        declared = ", ".join(study.exhibits) or "none"
        raise ValueError(
            f"exhibit {name!r} is not declared (declared: {declared}): add it to exhibits=[…] "
            "of notebook.begin, where the scheduler reads it"
        )
    make(name, study)
    return show(name, study)


def show_all(settings: Settings) -> list[Shown]:
    """Return every exhibit on every dataset of the profile, sorted by `Described.place`."""
    ordered = sorted((EXHIBITS[name] for name in EXHIBITS), key=lambda each: each.place)
    runs: dict[Modality, list[Runs]] = {}
    for modality in get_args(Modality):
        names = settings.datasets(modality)
        runs[modality] = [Runs.of_settings(settings, modality, name) for name in names]
    return [each.show(on) for each in ordered for on in runs[each.modality]]
