"""Base class of exhibits. An exhibit names its runs, and makes figures, tables and sentences of
them, which are shown in a notebook and saved as files.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from cascadetta_lib.data.base import Modality
from cascadetta_lib.progress import progress
from cascadetta_lib.registry import Registry
from study.exhibits.kit import captions, rendering
from study.exhibits.kit.comparability import BANNER, stand_in
from study.exhibits.kit.compare import APART, has_dagger
from study.exhibits.kit.growing import table_that_grows
from study.exhibits.kit.latex import latex_table
from study.exhibits.kit.numbers import in_full
from study.exhibits.kit.points import Point, cheap_first
from study.exhibits.kit.rendering import (
    banner_html,
    plain,
    slug,
    to_html,
    to_markdown,
)
from study.exhibits.kit.report_folder import ReportFolder
from study.exhibits.kit.stored_runs import Runs, check_labels
from study.settings import Settings
from study.store import Run
from study.study import Study
from study.weights import NetworkError

LESS_IN_THE_PAPER = ("cifar100", "tiny_imagenet")
"""Datasets for which the paper has little more than the main table."""
LEAST_EXAMPLES = 16
"""A run with fewer examples of a domain is not shown: one error would move a number by more than 6
points.
"""


@dataclass(frozen=True)
class Part:
    """A figure or table.

    name: the stem of its files, after the dataset.
    note: what must be known to read it.
    runs: those behind it, if not all of the exhibit's.
    """

    name: str
    content: Figure | pd.DataFrame
    note: str = ""
    runs: Sequence[Run] = ()

    def __post_init__(self) -> None:
        if isinstance(self.content, Figure):
            plt.close(self.content)  # Else a notebook shows it once more at the end of its cell.


class Exhibit(ABC):
    """One table or figure of the paper, or one beyond it.

    To make one, write a subclass under `@exhibit` in a file of study/exhibits/paper/ or
    study/exhibits/beyond/.

    name: what notebooks call it.
    place: a number by which the page is sorted: below 120 for the paper's exhibits, from 120 for
        those beyond it. Equal ones are allowed.
    label: the paper's, or `beyond: …`.
    title: its heading.
    question: the question that it answers.
    elsewhere: which of CIFAR-100 and Tiny-ImageNet it is made on too. The paper has little more
        than the main table for them.
    once: whether it is made at the profile's first seed alone.
    of_several: whether it compares networks of several pre-trainings. Then it cannot be made for a
        network that was brought (Study.bring).
    """

    name: ClassVar[str]
    place: ClassVar[int]
    label: ClassVar[str]
    title: ClassVar[str]
    question: ClassVar[str]
    modality: ClassVar[Modality] = "image"
    elsewhere: ClassVar[tuple[str, ...]] = ()
    once: ClassVar[bool] = False
    of_several: ClassVar[bool] = False

    @abstractmethod
    def points(self, settings: Settings) -> list[Point]:
        """Return the runs that it asks for; none where the profile has none of its methods."""

    @abstractmethod
    def parts(self, frame: pd.DataFrame, runs: Runs) -> list["Part | str"]:
        """Return its figures and tables, and sentences: what stands out, or why something is not
        shown.

        frame: those of its runs that are stored, at least one; see `Runs.frame`.
        """

    def seeds(self, settings: Settings) -> tuple[int, ...]:
        """Return the seeds that it is made at."""
        return settings.seeds[:1] if self.once else settings.seeds

    def made_on(self, dataset: str) -> bool:
        """Say whether it is made on a dataset of that title."""
        return dataset not in LESS_IN_THE_PAPER or dataset in self.elsewhere

    def so_far(self, study: Study, made: Sequence[Run]) -> pd.DataFrame | None:
        """Return a table of the runs that are there while the others are being made, or None."""
        return None

    def make(self, study: Study) -> list[Run]:
        """Make the runs that it lacks at the study's seed, those of methods with augmented copies
        (such as CoTTA) last. A notebook shows the table `so_far` meanwhile.

        Raises ValueError where two methods have one label, and where it compares several networks
        and the study has one that was brought.
        """
        if self.of_several and study.brought:
            name = study.brought.card["name"]
            raise ValueError(f"{self.name} compares the profile's own networks, and {name} is none")
        if not self.made_on(study.dataset_name.title):
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
                    # There is no network of this pre-training and seed; `show` says so.
                    continue
                try:
                    made.append(varied.run(point.method, point.objective))
                except ValueError as error:
                    # Not every method works on every network of somebody's own.
                    if not study.brought or isinstance(error, NetworkError):
                        raise
                    warnings.warn(f"{point.label} is left out: {error}", stacklevel=2)
                else:
                    tell(lambda: self.so_far(study, made))
        return made

    def show(self, runs: Runs) -> "Shown":
        """Return the exhibit, made from stored runs alone."""
        dataset = runs.dataset_name.title
        if not self.made_on(dataset):
            return Shown(self, dataset, ["Not made on this dataset."])
        points = self.points(runs.settings)
        seeds = self.seeds(runs.settings)
        frame = runs.frame(points, seeds if self.once else None)
        lines = runs.missing(points, seeds)
        if lines and self.once and runs.settings.seed not in seeds:
            lines.append(
                f"It is made only at the profile's first seed, {seeds[0]}: run its notebook with "
                f"seed = {seeds[0]}."
            )
        if frame.empty:
            return Shown(self, dataset, lines)
        lines += runs.aside(points)
        examples = frame["run"].map(fewest_examples)
        most = examples.max()
        if most < LEAST_EXAMPLES:
            few = (
                f"Not shown: every run has a domain of at most {most} examples; {LEAST_EXAMPLES} "
                "are needed."
            )
            return Shown(self, dataset, [few, *lines])
        short = examples < LEAST_EXAMPLES
        if short.any():
            lines.append(
                f"Left out: {short.sum()} of {len(frame)} runs, which have a domain of at most "
                f"{examples[short].max()} examples; {LEAST_EXAMPLES} are needed."
            )
            frame = frame[~short]
        revisions = [run.provenance.code_revision for run in frame["run"]]
        numbers = frame.drop(columns="run").assign(code_revision=revisions)
        return Shown(self, dataset, [*self.parts(frame, runs), *lines], numbers, list(frame["run"]))


def fewest_examples(run: Run) -> int:
    """Return how many examples the smallest domain of a run's stream has."""
    return int(run.batches.groupby("step")["count"].sum().min())


EXHIBITS: Registry[Exhibit] = Registry("exhibit", "study.exhibits")


def exhibit(kind: type[Exhibit]) -> type[Exhibit]:
    """Put an exhibit into the registry."""
    EXHIBITS.add(kind.name)(kind())
    return kind


@dataclass
class Shown:
    """An exhibit on one dataset: parts and sentences in their order, and the runs behind them."""

    exhibit: Exhibit
    dataset: str
    # A notebook asks for the repr of what it shows, and that of many runs takes seconds.
    content: Sequence[Part | str] = field(repr=False)
    numbers: pd.DataFrame | None = field(default=None, repr=False)
    runs: list[Run] = field(default_factory=list, repr=False)

    @property
    def parts(self) -> list[Part]:
        """Its figures and tables."""
        return [part for part in self.content if isinstance(part, Part)]

    @property
    def lines(self) -> list[str]:
        """Its sentences, `**…**` in bold."""
        return [line for line in self.content if isinstance(line, str)]

    @property
    def anchor(self) -> str:
        """The identifier of its heading on a page, and the beginning of its files' names."""
        return slug(f"{self.dataset}-{self.exhibit.name}")

    @property
    def heading(self) -> str:
        """What it is, and of which data."""
        return f"{self.exhibit.title} ({self.dataset})"

    @property
    def place(self) -> str:
        """Where the paper has it, in words; empty for an exhibit beyond the paper."""
        label = self.exhibit.label
        if label.startswith("beyond"):
            return ""
        words = label.replace("tab:", "table ").replace("fig:", "figure ").replace("-", " ")
        return f"In the paper: {words}."

    @property
    def asked(self) -> str:
        """The question, and where the paper asks it."""
        return f"{self.exhibit.question} {self.place}".rstrip()

    def caption(self, part: Part) -> str:
        """Return a part's note, with the meaning of † where the part has one, and the number of
        seeds.
        """
        notes = [part.note]
        if isinstance(part.content, pd.DataFrame) and has_dagger(part.content):
            notes.append(APART)
        if self.runs:
            notes.append(f"{captions.seeds_of(part.runs or self.runs)}.")
        return " ".join(" ".join(notes).split())

    @property
    def banner(self) -> str:
        """A warning that the data stand in for the paper's; empty where they are the paper's."""
        if any(map(stand_in, self.runs)):
            return BANNER
        return ""

    @property
    def provenance(self) -> str:
        """What made the runs, in one paragraph; empty without runs."""
        return captions.what_made(self.runs) if self.runs else ""

    def _repr_html_(self) -> str:
        """Return the whole exhibit as HTML that needs no other file."""
        pieces = [f'<h3 id="{self.anchor}">{to_html(self.heading)}</h3>']
        if self.banner:
            pieces.append(banner_html(self.banner))
        pieces.append(f"<p>{to_html(self.asked)}</p>")
        for part in self.content:
            if isinstance(part, Part):
                pieces.append(rendering.content_html(part.content, part.name))
                pieces.append(f"<p><small>{to_html(self.caption(part))}</small></p>")
            else:
                pieces.append(f"<p>{to_html(part)}</p>")
        if self.runs:
            pieces.append(
                "<details><summary>What made "
                f"this</summary><p>{to_html(self.provenance)}</p></details>"
            )
        return "\n".join(pieces)

    def save(self, folder: "Path | ReportFolder") -> None:
        """Write ANCHOR.md, the numbers as CSV, each table as CSV and LaTeX, and each figure as PNG.

        Nothing is written where there is no part.
        """
        if not self.parts:
            return
        files = ReportFolder(folder) if isinstance(folder, Path) else folder
        text = [f"# {to_markdown(self.heading)}"]
        if self.banner:
            text.append(f"> **{self.banner}**")
        text.append(self.asked)
        for part in self.content:
            if isinstance(part, str):
                text.append(to_markdown(part))
                continue
            stem = slug(f"{self.dataset}-{part.name}")
            caption = self.caption(part)
            if isinstance(part.content, Figure):
                files.write_bytes(f"{stem}.png", rendering.png(part.content))
                text.append(f"![{part.name}]({stem}.png)")
            else:
                table = part.content
                files.write_text(f"{stem}.csv", table.map(in_full).map(plain).to_csv())
                files.write_text(f"{stem}.tex", latex_table(table, caption, stem))
                text.append(rendering.markdown(table))
            text.append(to_markdown(caption))
        if self.numbers is not None:
            numbers = self.numbers.to_csv(index=False, float_format="%.7g")
            files.write_text(f"{self.anchor}-numbers.csv", numbers)
        text.append(to_markdown(self.provenance))
        files.write_text(f"{self.anchor}.md", "\n\n".join(text).rstrip() + "\n")
