"""How networks were pre-trained: curves by epoch, and a table of the epochs that were kept."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from cascadetta_lib.methods import METHODS
from cascadetta_lib.training.pretrain import kept_epoch
from study.exhibits.kit.heads import ENTROPIES, HEADS
from study.exhibits.kit.numbers import number, rounded
from study.exhibits.kit.shown import Part
from study.exhibits.kit.style import colour, draw_level, legend, line_over, panels, reading, typeset

COLLAPSE_SHARE = 0.1
"""θ_a counts as collapsed if the entropy of its mean prediction is below this share of the entropy
of a uniform prediction.
"""
PANELS = {
    "held_out_accuracy": "held-out accuracy (share)",
    **ENTROPIES,
    "entropy_of_mean_auxiliary": "entropy of mean a (nats)",
    "gradient_cosine": "cosine of ∇CE and ∇ENT on φ, θ_m",
}
ONE_BATCH = "on the first 200 held-out source examples in one batch, with its statistics"
MEASURED = (
    "Accuracy: on all held-out source examples, with the statistics of each batch, except for erm, "
    f"which has the source's. All else: {ONE_BATCH}. {HEADS}"
)
SMOOTHED = 5
"""The number of epochs in the trailing mean that smooths a curve."""
MANY = 20
"""The fewest epochs with which curves are smoothed."""
OWNERS = {
    METHODS[name].objective: name
    for name in ("erm", "ttt", "cascade", "cascade_no_auxiliary", "cascade_plus")
}
OWNERS |= dict.fromkeys(METHODS["cascade_plus"].objective_elsewhere.values(), "cascade_plus")
"""For each pre-training, the method that starts from it. The curve of the pre-training has the
colour of the method.
"""


def training_parts(name: str, histories: pd.DataFrame) -> list[Part | str]:
    """Return a figure of the training curves and a table of the kept epochs. The table also says
    whether θ_a has collapsed. Without a history, return a sentence instead.

    name: the name of the figure; the table's is NAME-table.
    histories: a table of `Runs.histories`.
    """
    if histories.empty:
        return ["The trainings of these networks are not on record."]
    histories = histories.drop_duplicates(["objective", "seed", "epoch"])
    return [
        Part(
            name,
            _curves_by_objective(histories),
            f"{MEASURED} {reading(histories, PANELS)} Dashed: a pre-training that is no method's "
            f"own. {_smoothing(histories)}{_without_auxiliary(histories)}".rstrip(),
        ),
        Part(f"{name}-table", _kept_table(histories), f"In the epoch kept. {MEASURED}"),
    ]


def _kept_table(histories: pd.DataFrame) -> pd.DataFrame:
    """Return the kept epoch of each network as text, a row per network."""
    rows = {}
    for (objective, seed), epochs in histories.groupby(["objective", "seed"], sort=False):
        kept = kept_epoch(epochs)
        numbers = {
            title: rounded(kept.get(column, np.nan), alone=3) for column, title in PANELS.items()
        }
        rows[f"{objective}, seed {seed}".replace("_", " ")] = {
            "epoch kept": f"{kept['epoch']} of {epochs['epoch'].max()}",
            **numbers,
            "θ_a": state_of_auxiliary(kept),
            "seconds": number(_seconds(epochs), 0),
        }
    return pd.DataFrame(rows).T.rename_axis("pre-training")


def _seconds(epochs: pd.DataFrame) -> float:
    """Return how long a training took; NaN if its table of epochs does not say it."""
    return float(epochs["seconds"].sum()) if "seconds" in epochs else np.nan


def _smoothing(histories: pd.DataFrame) -> str:
    """Say over how many epochs the curves are smoothed; empty if they are not."""
    if histories["epoch"].nunique() < MANY:
        return ""
    return f"Each point is the mean of {SMOOTHED} epochs. "


def _without_auxiliary(histories: pd.DataFrame) -> str:
    """Name the pre-trainings that lack a line in the panels on θ_a; empty if none does."""
    if "agreement" not in histories:
        return ""
    has = histories.groupby("objective", sort=False)["agreement"].count() > 0
    lacking = [str(name).replace("_", " ") for name in has.index[~has]]
    return f"Without θ_a, so not in every panel: {', '.join(lacking)}." if lacking else ""


def smoothed(histories: pd.DataFrame, column: str, hue: str) -> pd.DataFrame:
    """Smooth each curve by a trailing mean over SMOOTHED epochs, if there are MANY epochs or more.

    hue: the column that distinguishes the curves of one seed.
    """
    rows = histories.dropna(subset=column)
    if rows["epoch"].nunique() < MANY:
        return rows
    ordered = rows.sort_values("epoch", kind="stable")
    each = ordered.groupby([hue, "seed"], sort=False)[column]
    means = each.transform(lambda values: values.rolling(SMOOTHED, min_periods=1).mean())
    return ordered.assign(**{column: means})


def _curves_by_objective(histories: pd.DataFrame) -> Figure:
    """Draw the curves of each pre-training in the colour of its method (OWNERS). If it has no
    method, the curves are dashed, in a colour of their own.
    """
    names: dict[str, str] = {}
    palette: dict[str, Any] = {}
    dashes: dict[str, Any] = {}
    other_colours = iter(sns.husl_palette(12, l=0.45))
    for objective in histories["objective"].unique():
        owner = OWNERS.get(objective)
        name = objective.replace("_", " ")
        if owner:
            name = f"{name} ({METHODS[owner].label})"
        names[objective] = name
        palette[name] = colour(owner) if owner else next(other_colours)
        dashes[name] = "" if owner else (4, 2)
    named = histories.replace({"objective": names})
    return curves(named, "objective", PANELS, palette, dashes)


def curves(
    histories: pd.DataFrame,
    hue: str,
    columns: Mapping[str, str],
    palette: Any = None,
    dashes: Any = True,
) -> Figure:
    """Draw columns of training histories by epoch, a panel per column.

    A value of the column `hue` has the same colour in all panels, even in a panel that lacks other
    values.

    histories: a table of `Runs.histories`.
    columns: the title of each panel, by column.
    palette, dashes: as for seaborn.lineplot.
    """
    figure, grid = panels(len(columns), 2.7, columns=3, sharex=True)
    order = list(dict.fromkeys(histories[hue]))
    look = {
        "hue": hue,
        "hue_order": order,
        "style": hue,
        "style_order": order,
        "palette": palette,
        "dashes": dashes,
    }
    for axes, (column, title) in zip(grid, columns.items(), strict=True):
        if column in histories:
            rows = smoothed(histories, column, hue)
            sns.lineplot(rows, x="epoch", y=column, ax=axes, **look, **line_over(column))
        draw_level(axes, column, histories["classes"].max())
        axes.set(title=typeset(title), ylabel="")
        axes.locator_params(axis="x", integer=True)
    legend(figure, 3)
    return figure


def state_of_auxiliary(kept: pd.Series) -> str:
    """Say whether θ_a held, has collapsed, or does not agree with z; a dash if there is no θ_a.

    kept: one epoch of `Runs.histories`.
    """
    agreement = kept.get("agreement", np.nan)
    classes = kept["classes"]
    if np.isnan(agreement):
        return "–"
    if kept["entropy_of_mean_auxiliary"] < COLLAPSE_SHARE * np.log(classes):
        return "**collapsed**"
    # Where the agreement is nearer to chance than to 1, even a confident θ_a says little about the
    # class.
    if agreement < (1 + 1 / classes) / 2:
        return "**does not agree with z**"
    return "held"
