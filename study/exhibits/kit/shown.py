"""What an exhibit shows: figures, tables and sentences, in a notebook and as saved files."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from cascadetta_lib.data.base import Modality
from study.exhibits.kit import captions, rendering
from study.exhibits.kit.comparability import BANNER, stand_in
from study.exhibits.kit.comparable_runs import APART, has_dagger
from study.exhibits.kit.latex import latex_table
from study.exhibits.kit.numbers import in_full
from study.exhibits.kit.rendering import banner_html, plain, slug, to_html, to_markdown
from study.exhibits.kit.report_folder import ReportFolder
from study.store import Run

LESS_IN_THE_PAPER = ("cifar100", "tiny_imagenet")
"""The datasets for which the paper has little more than the main table."""


@dataclass(frozen=True)
class Part:
    """A figure or table of an exhibit.

    name: its files are called DATASET-NAME.
    note: what a reader must know to read the figure or table.
    runs: the runs behind it; empty for all runs of the exhibit.
    """

    name: str
    content: Figure | pd.DataFrame
    note: str = ""
    runs: Sequence[Run] = ()

    def __post_init__(self) -> None:
        if isinstance(self.content, Figure):
            plt.close(self.content)  # Otherwise a notebook shows it again at the end of the cell.


class Described:
    """The description of an exhibit, which does not depend on its runs.

    name: what notebooks call the exhibit.
    place: a number by which a page sorts its exhibits. Exhibits of the paper have numbers below
        120, and exhibits beyond the paper have 120 or more. Exhibits on named streams that the
        paper does not have, such as `mixed`, are an exception: they have 85 to 89, and so stand
        near the paper's exhibit `gradual`, which has 80. Two exhibits may have the same number.
    label: its label in the paper, or `beyond: …`.
    title: its heading.
    question: the question that it answers.
    modality: the modality of its runs.
    elsewhere: the datasets of LESS_IN_THE_PAPER on which the exhibit is made, too; none by default.
        A dataset that is not in LESS_IN_THE_PAPER need not be named (`made_on`).
    """

    name: ClassVar[str]
    place: ClassVar[int]
    label: ClassVar[str]
    title: ClassVar[str]
    question: ClassVar[str]
    modality: ClassVar[Modality] = "image"
    elsewhere: ClassVar[tuple[str, ...]] = ()

    def made_on(self, dataset: str) -> bool:
        """Return whether the exhibit is made on the dataset with this title."""
        return dataset not in LESS_IN_THE_PAPER or dataset in self.elsewhere


@dataclass
class Shown:
    """An exhibit on one dataset: its parts and sentences in their order, and the runs behind them.

    numbers: a row per run, with the columns of `Runs.frame` except `run`, and the code's revision.
    missing: the sentences of `content` that say which runs are not stored.
    can_be_made: False if `Exhibit.not_made` gives a reason.
    """

    exhibit: Described
    dataset: str
    # A notebook asks for the repr of what it shows. The repr of many runs takes seconds.
    content: Sequence[Part | str] = field(repr=False)
    numbers: pd.DataFrame | None = field(default=None, repr=False)
    runs: list[Run] = field(default_factory=list, repr=False)
    missing: Sequence[str] = field(default=(), repr=False)
    can_be_made: bool = True

    @property
    def parts(self) -> list[Part]:
        """The figures and tables."""
        return [part for part in self.content if isinstance(part, Part)]

    @property
    def lines(self) -> list[str]:
        """The sentences, `**…**` in bold."""
        return [line for line in self.content if isinstance(line, str)]

    @property
    def belongs_in_report(self) -> bool:
        """Whether the exhibit can be made on its dataset. If so, a report without its runs names it
        as missing.
        """
        return self.exhibit.made_on(self.dataset) and self.can_be_made

    @property
    def anchor(self) -> str:
        """The identifier of the exhibit's heading on a page, and the name of its Markdown file."""
        return slug(f"{self.dataset}-{self.exhibit.name}")

    @property
    def heading(self) -> str:
        """Its title and its dataset."""
        return f"{self.exhibit.title} ({self.dataset})"

    @property
    def place_in_paper(self) -> str:
        """A sentence that names the exhibit's table or figure in the paper; empty without one."""
        label = self.exhibit.label
        if label.startswith("beyond"):
            return ""
        words = label.replace("tab:", "table ").replace("fig:", "figure ").replace("-", " ")
        return f"In the paper: {words}."

    @property
    def question_and_place(self) -> str:
        """Its question, and its place in the paper."""
        return f"{self.exhibit.question} {self.place_in_paper}".rstrip()

    def caption(self, part: Part) -> str:
        """Return a part's note, the meaning of † if the part has one, and the number of seeds."""
        notes = [part.note]
        if isinstance(part.content, pd.DataFrame) and has_dagger(part.content):
            notes.append(APART)
        if self.runs:
            notes.append(f"{captions.count_of_seeds(part.runs or self.runs)}.")
        return " ".join(" ".join(notes).split())

    @property
    def banner(self) -> str:
        """A warning if data of the runs stand in for the paper's; empty otherwise."""
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
        pieces.append(f"<p>{to_html(self.question_and_place)}</p>")
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

    def save(self, folder: "str | Path | ReportFolder") -> None:
        """Write ANCHOR.md, the numbers as CSV, each table as CSV and LaTeX, and each figure as PNG.

        Nothing is written if there is no part. Raises ValueError if two files would have one name.

        From the folder of a report, study/tools/file_figures.py copies these files into `figures/`.
        study/tools/fill.py writes the numbers of the tables there into RESULTS.md and other pages.
        """
        if not self.parts:
            return
        files = folder if isinstance(folder, ReportFolder) else ReportFolder(folder)
        text = [f"# {to_markdown(self.heading)}"]
        if self.banner:
            text.append(f"> **{self.banner}**")
        text.append(self.question_and_place)
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
