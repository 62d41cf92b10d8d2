"""The base class of exhibits. An exhibit names the runs that it needs, and makes figures, tables
and sentences from these runs.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import pandas as pd

from cascadetta_lib.progress import progress
from cascadetta_lib.registry import Registry
from study.exhibits.kit.growing import table_that_grows
from study.exhibits.kit.points import Point, cheap_first, lacking_stream
from study.exhibits.kit.shown import Described, Part, Shown
from study.exhibits.kit.stored_runs import Runs, check_labels
from study.published_networks import NetworkError
from study.settings import Settings
from study.store import Run
from study.study import Study

LEAST_EXAMPLES = 16
"""The fewest examples per domain of a run that is shown. With fewer, one wrong prediction would
move a domain's error by more than 6.25 points.
"""


class Exhibit(Described, ABC):
    """Base class of exhibits, those of the paper and those beyond it.

    To add an exhibit, write a subclass under `@exhibit` in a file of study/exhibits/paper/ or
    study/exhibits/beyond/. It has these class attributes, and those of `Described`: name, place,
    label and the rest.

    once: whether the exhibit is made only at the profile's first seed.
    of_several: whether the exhibit compares networks of several pre-trainings. If so, it cannot be
        made for a network that the user brings (Study.bring).
    by_severity: whether the exhibit compares severities. If so, it is not made for domains of the
        user's own, which have none.
    """

    once: ClassVar[bool] = False
    of_several: ClassVar[bool] = False
    by_severity: ClassVar[bool] = False

    def __repr__(self) -> str:
        """Return a text that stays the same when a notebook's cell defines the class again."""
        return f"{type(self).__module__}.{type(self).__qualname__}()"

    @abstractmethod
    def points(self, settings: Settings) -> list[Point]:
        """Return the runs that the exhibit asks for; an empty list if the profile has none of its
        methods.
        """

    @abstractmethod
    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        """Return the exhibit's figures, tables and sentences. A sentence says what stands out, or
        why something is not shown.

        frame: the stored runs of `points`, at least one; see `Runs.frame`.
        runs: the stored runs from which `frame` was made.
        """

    def seeds(self, settings: Settings) -> tuple[int, ...]:
        """Return the seeds at which the exhibit is made."""
        return settings.seeds[:1] if self.once else settings.seeds

    def not_made(self, settings: Settings) -> str:
        """Return why the exhibit is not made on the dataset of the settings, as a sentence; empty
        if it is made.

        An exhibit is not made on a dataset that `made_on` excludes. A dataset with domains of its
        own may have no severities, or may lack a stream such as the gradual one. An exhibit that
        compares severities, or that runs on the lacking stream, is not made on such a dataset.
        """
        name = settings.datasets(self.modality)[0]
        if not self.made_on(name.title):
            return "Not made on this dataset."
        if name.entry.vocabulary is None:  # The dataset has the domains of its modality.
            return ""
        if self.by_severity and len(name.vocabulary.severities) == 1:
            return f"Not made: the domains of {name.title} have no severities."
        lacking = lacking_stream(self.points(settings), name.vocabulary)
        if lacking:
            return (
                f"Not made: the exhibit needs the stream {lacking}, and {name.title} has only its "
                "own domains."
            )
        return ""

    def so_far(self, study: Study, made: Sequence[Run]) -> pd.DataFrame | None:
        """Return a table of the runs made so far, which a notebook shows until all are made. None:
        no table is shown.
        """
        return None

    def make(self, study: Study) -> list[Run]:
        """Make the runs that are not stored yet, at the study's seed. Return all of the exhibit's
        runs at this seed.

        A run is left out if its network is missing. It is left out with a warning if its method
        refuses a network that the user brought. Methods with augmented copies (such as CoTTA) come
        last. Until all runs are made, a notebook shows the table `so_far`. Nothing is made if
        `not_made` gives a reason. Nor is anything made if the exhibit is made `once` and the study
        is not at the first seed.

        Raises ValueError if two methods have the same label, or if the exhibit compares several
        networks and the user brought one (`of_several`).
        """
        if self.of_several and study.brought:
            name = study.brought.card["name"]
            raise ValueError(
                f"{self.name} compares several networks of the profile, so it cannot be made for "
                f"{name}"
            )
        if self.not_made(study.settings):
            return []
        if self.once and study.settings.seed != self.seeds(study.settings)[0]:
            return []
        points = self.points(study.settings)
        check_labels(points)
        made: list[Run] = []
        with table_that_grows() as tell:
            for point in progress(cheap_first(points), self.title, len(points)):
                varied = study.varied(**point.changes)
                try:
                    varied.request(point.method, point.objective)
                except NetworkError:
                    # No network has this pre-training and seed; `show` says so.
                    continue
                try:
                    made.append(varied.run(point.method, point.objective))
                except ValueError as error:
                    # A method may refuse a network that the user brought.
                    if not study.brought or isinstance(error, NetworkError):
                        raise
                    warnings.warn(f"{point.label} is left out: {error}", stacklevel=2)
                else:
                    tell(lambda: self.so_far(study, made))
        return made

    def show(self, runs: Runs) -> Shown:
        """Return the exhibit, made from stored runs alone."""
        dataset = runs.dataset_name.title
        told = self.not_made(runs.settings)
        if told:
            return Shown(self, dataset, [told], can_be_made=False)
        points = self.points(runs.settings)
        seeds = self.seeds(runs.settings)
        frame = runs.frame(points, seeds if self.once else None)
        missing = runs.missing(points, seeds)
        lines = list(missing)
        if missing and self.once and runs.settings.seed not in seeds:
            lines.append(
                f"It is made only at the profile's first seed, {seeds[0]}: run its notebook with "
                f"seed = {seeds[0]}."
            )
        if frame.empty:
            return Shown(self, dataset, lines)
        lines += runs.aside(points)
        examples = frame["run"].map(lambda run: run.examples_by_domain.min())
        most = examples.max()
        if most < LEAST_EXAMPLES:
            few = (
                f"Not shown: in every run the smallest domain has {most} examples or fewer; "
                f"{LEAST_EXAMPLES} are needed."
            )
            return Shown(self, dataset, [few, *lines], runs=list(frame["run"]), missing=missing)
        short = examples < LEAST_EXAMPLES
        if short.any():
            lines.append(
                f"Left out: {short.sum()} of {len(frame)} runs, whose smallest domain has "
                f"{examples[short].max()} examples or fewer; {LEAST_EXAMPLES} are needed."
            )
            frame = frame[~short]
        revisions = [run.provenance.code_revision for run in frame["run"]]
        numbers = frame.drop(columns="run").assign(code_revision=revisions)
        content = [*self.parts(frame, runs), *lines]
        return Shown(self, dataset, content, numbers, list(frame["run"]), missing)


EXHIBITS: Registry[Exhibit] = Registry("exhibit", "study.exhibits")


def exhibit(kind: type[Exhibit]) -> type[Exhibit]:
    """Register a subclass of `Exhibit`, so that notebooks and the report find it."""
    EXHIBITS.add(kind.name)(kind())
    return kind
