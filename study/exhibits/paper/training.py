"""How the networks were pre-trained, whether θ_a has collapsed, and the check of Theorem 1."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from cascadetta_lib.methods import METHODS
from cascadetta_lib.training.pretrain import kept_epoch
from study.exhibits.kit.exhibit import Exhibit, Part, Shown, exhibit, file_name
from study.exhibits.kit.networks import card_of
from study.exhibits.kit.runs import Point, Runs, main_points
from study.exhibits.kit.style import (
    colour,
    draw_level,
    legend,
    line_over,
    number,
    panels,
    reading,
    typeset,
)
from study.exhibits.paper.ablations import MetaLearning
from study.exhibits.paper.uncertainty import ENTROPIES, HEADS
from study.settings import Settings
from study.store import Run
from study.study import Checkpoint, Study

COLLAPSE_SHARE = 0.1
"""θ_a counts as collapsed where the entropy of its mean prediction is below this share of the
uniform's.
"""
PANELS = {
    "held_out_accuracy": "held-out accuracy (share)",
    **ENTROPIES,
    "entropy_of_mean_auxiliary": "entropy of mean a (nats)",
    "gradient_cosine": "cosine of ∇CE and ∇ENT on φ, θ_m",
}
ONE_BATCH = "on the first 200 held-out source examples in one batch, with its statistics"
MEASURED = (
    "Accuracy: on all held-out source examples, with the statistics of each batch, but of erm with "
    "the source's. "
    f"All else: {ONE_BATCH}. {HEADS}"
)
OWNERS = {
    METHODS[name].objective: name
    for name in ("erm", "ttt", "cascade", "cascade_no_auxiliary", "cascade_plus")
}
OWNERS |= dict.fromkeys(METHODS["cascade_plus"].objective_elsewhere.values(), "cascade_plus")
"""The method that a pre-training is for, whose colour it has."""


class Training(Exhibit):
    """The pre-trainings behind the main study of one modality, and on images behind
    tab:ablation-meta.
    """

    label, title = "beyond: training", "Pre-training"
    question = "How were the networks trained, and does θ_a still tell examples apart?"
    elsewhere = ("cifar100", "tiny_imagenet")

    def points(self, settings: Settings) -> list[Point]:
        made = self.modality == "image" and all(
            map(MetaLearning().made_on, settings.datasets("image"))
        )
        return main_points(settings, self.modality) + (
            MetaLearning().points(settings) if made else []
        )

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        return training_parts(f"{self.modality}-training", runs.histories(frame))


@exhibit
class TrainingImage(Training):
    name, place = "training_image", 150


@exhibit
class TrainingText(Training):
    name, place, modality = "training_text", 151, "text"


@exhibit
class TrainingSpeech(Training):
    name, place, modality = "training_speech", 152, "speech"


def show_checkpoints(checkpoints: Sequence[Checkpoint], dataset_name: str) -> Shown:
    """The same of checkpoints that no run has started from yet."""
    histories = []
    for each in checkpoints:
        if each.history is not None:
            table = each.history.assign(objective=each.request.objective, seed=each.request.seed)
            known = each.provenance.get(
                "class_names"
            )  # Of a network that was trained here; others have a card.
            histories.append(
                table.assign(classes=len(known) if known else each.provenance["card"]["classes"])
            )
    parts = training_parts("training", pd.concat(histories) if histories else pd.DataFrame())
    return Shown(TrainingImage(), file_name(dataset_name), parts)


def training_parts(name: str, histories: pd.DataFrame) -> list[Part | str]:
    """Curves, and the table of kept epochs, which says whether θ_a has collapsed."""
    if histories.empty:
        return ["The trainings of these networks are not on record."]
    histories = histories.drop_duplicates(["objective", "seed", "epoch"])
    rows = {}
    for (objective, seed), epochs in histories.groupby(["objective", "seed"], sort=False):
        kept = kept_epoch(epochs)
        rows[f"{objective}, seed {seed}".replace("_", " ")] = {
            "epoch kept": f"{kept['epoch']} of {epochs['epoch'].max()}",
            **{title: number(kept.get(column, np.nan), 3) for column, title in PANELS.items()},
            "θ_a": state_of_auxiliary(kept),
            "seconds": number(epochs["seconds"].sum(), 0),
        }
    names, palette, dashes, others = (
        {},
        dict[str, Any](),
        dict[str, Any](),
        iter(sns.husl_palette(12, l=0.45)),
    )
    for objective in histories["objective"].unique():
        owner, words = OWNERS.get(objective), objective.replace("_", " ")
        names[objective] = f"{words} ({METHODS[owner].label})" if owner else words
        palette[names[objective]] = colour(owner) if owner else next(others)
        dashes[names[objective]] = "" if owner else (4, 2)
    figure = curves(histories.replace({"objective": names}), "objective", PANELS, palette, dashes)
    table = pd.DataFrame(rows).T.rename_axis("pre-training")
    return [
        Part(name, figure, f"{MEASURED} {reading(histories, PANELS)} Dashed: of no method's own."),
        Part(f"{name}-table", table, f"In the epoch kept. {MEASURED}"),
    ]


def curves(
    histories: pd.DataFrame,
    hue: str,
    columns: Mapping[str, str],
    palette: Any = None,
    dashes: Any = True,
) -> Figure:
    """A panel for each of these columns of the history, by epoch; a line for each value of the
    column `hue`, of the same colour in all panels, also where others are missing."""
    figure, grid = panels(len(columns), 2.7, columns=3, sharex=True)
    look = {"hue": hue, "style": hue, "palette": palette, "dashes": dashes}
    look |= dict.fromkeys(("hue_order", "style_order"), list(dict.fromkeys(histories[hue])))
    for axes, (column, title) in zip(grid, columns.items(), strict=True):
        if column in histories:
            rows = histories.dropna(subset=column)
            sns.lineplot(rows, x="epoch", y=column, ax=axes, **look, **line_over(column))
        draw_level(axes, column, histories["classes"].max())
        axes.set(title=typeset(title), ylabel="")
        axes.locator_params(axis="x", integer=True)
    legend(figure, 3)
    return figure


def state_of_auxiliary(kept: pd.Series) -> str:
    """Whether θ_a still tells examples apart in an epoch, and as z does."""
    agreement, classes = kept.get("agreement", np.nan), kept["classes"]
    if np.isnan(agreement):
        return "–"
    if kept["entropy_of_mean_auxiliary"] < COLLAPSE_SHARE * np.log(classes):
        return "**collapsed**"
    # Nearer to chance than to 1, being sure says little about the class.
    return "held" if agreement >= (1 + 1 / classes) / 2 else "**does not agree with z**"


@exhibit
class Theorem(Exhibit):
    """Theorem 1, checked on one batch; the cosine of both gradients along pre-training is a panel
    of the curves.
    """

    name, place, label, title = (
        "theorem",
        75,
        "Theorem 1",
        "Does the meta-gradient decompose as stated?",
    )
    question = (
        "How large is the term that aligns the two gradients, and how large is what the "
        "theorem leaves out?"
    )

    def points(self, settings: Settings) -> list[Point]:
        return [
            Point(one, "cascade", one)
            for one in ("meta", "multi_task")
            if "cascade" in settings.image.methods
        ]

    def make(self, study: Study) -> list[Run]:
        """Also the check of the decomposition, where it is known how a network was trained, and on
        what.
        """
        made = super().make(study)
        for run in made if len(study.dataset.train.y) > 1 else ():
            if run.request.checkpoint.training or card_of(run).get("training"):
                study.theorem(run.request.checkpoint.objective)
        return made

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        """The numbers of theorem.check_theorem, a row a network."""
        found = {
            f"{run.request.checkpoint.objective}, seed {run.seed}": run for run in frame["run"]
        }
        rows = {
            name: told
            for name, run in found.items()
            if (told := runs.study.store.theorem(run)) is not None
        }
        if not rows:
            return ["Missing: the decomposition was not checked."]
        table = pd.DataFrame(rows).T.map(lambda value: f"{value:.2g}".replace("-", "−"))
        table = table.rename_axis("pre-training").rename(
            columns=lambda name: name.replace("_", " ")
        )
        note = (
            "Errors: of a formula for the meta-gradient, as a share of its norm. Chain "
            "rule: α and H at ψ; as"
        )
        note += (
            " printed: β and H at ψ′; first order: no H; with α = β, moved point: H at ψ′, "
            "equal rates: no H."
        )
        note += (
            " Curvatures: of H at ψ, the Hessian of ENT; one clearly below 0 refutes the "
            "theorem's assumption."
        )
        return [Part("theorem", table, note)]
