"""How figures look: one style, one colour per method, one way to write θ_a."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from cascadetta_lib.data.corruptions import CORRUPTIONS
from cascadetta_lib.methods import METHODS

WIDTH = 8.0
"""The width of every figure in inches. All figures have the same width, so that letters have one
size on a page.
"""
_HEADS = "gauss shot impul defoc glass motn zoom snow frost fog brit contr elast pixel jpeg"
SHORT = dict(zip(CORRUPTIONS, _HEADS.split(), strict=True))
"""The heads of the columns in the paper's tables, by the name of the corruption."""
_BLUE, _ORANGE, _GREEN, _RED, _PURPLE, _BROWN, _, _GREY, _, _SKY = sns.color_palette("colorblind")
_DARK = sns.color_palette("dark")
PALETTE = (
    *(_BLUE, _RED, _GREEN, _GREY, _PURPLE, _SKY, _BROWN, _ORANGE, (0.1, 0.1, 0.35)),
    *(_DARK[3], _DARK[2], _DARK[4], _DARK[5], _DARK[6], _DARK[9]),
    *sns.husl_palette(12, l=0.45),
    *sns.husl_palette(8, h=0.05, l=0.7),
)
"""The colours of the methods. The first six are those of the paper's methods. They are far apart,
also for colour-blind readers.
"""
MARKERS = "osD^vP*X<>pdhH8"
ORDER = (
    "adabn",
    "cascade",
    "cotta",
    "erm",
    "tent",
    "ttt",
    "cascade_fixed_classifier",
    "cascade_no_auxiliary",
    "cascade_plus",
    "cascade_same_weights",
    "cascade_source_prior",
    "deyo",
    "eata",
    "eta",
    "lame",
    "rdumb",
    "roid",
    "rotta",
    "rpl",
    "sar",
    "source_prior",
    "tema",
    "tent_adam",
    "tent_source_prior",
    "cmf",
    "memo",
    "note",
    "petta",
    "shot_im",
    "t3a",
    "cascade_rate_selection",
    "tent_rate_selection",
)
"""Methods in the order of their colours and markers. A new method needs no place here: without
one it comes after all of these (`place_of`), and its colour may change when another method is
added. To fix its colour, add it at the end, where it changes no other method's.
"""


def set_style() -> None:
    """Set seaborn's white grid, with letters that can be read in a figure 800 pixels wide."""
    sns.set_theme(context="paper", style="whitegrid", palette="colorblind", font_scale=1.1)
    plt.rcParams |= {
        "figure.dpi": 110,
        "savefig.dpi": 200,
        "savefig.bbox": "tight",
        "legend.frameon": False,
    }
    plt.rcParams |= {"figure.constrained_layout.use": True, "axes.titlesize": 9}


def place_of(method: str) -> int:
    """Return the place of a method among all methods. The place decides the method's colour and
    marker.
    """
    if method in ORDER:
        return ORDER.index(method)
    new = sorted(set(METHODS) - set(ORDER))
    return len(ORDER) + new.index(method)


def colour(method: str) -> tuple[float, float, float]:
    """Return the colour of a method as (red, green, blue). It is the same in every figure."""
    return PALETTE[place_of(method) % len(PALETTE)]


def typeset(text: str) -> str:
    """Return a name as Matplotlib draws it: θ_a with its index below the line.

    A `$` in the name is escaped. Otherwise Matplotlib would read the text between two `$` as a
    formula.
    """
    return re.sub(r"θ_(\w)", r"$\\theta_\1$", text.replace("$", r"\$"))


VARIANTS = {
    "cascade_fixed_classifier",
    "cascade_no_auxiliary",
    "cascade_rate_selection",
    "cascade_same_weights",
    "cascade_source_prior",
    "source_prior",
    "tent_adam",
    "tent_rate_selection",
    "tent_source_prior",
}
"""Methods that change one thing in another method. Their lines are dashed."""


def line_of(method: str, objective: str, varied: bool = False) -> dict[str, Any]:
    """Return how the line of a method looks in every figure: in its colour, with its marker.

    The line is dashed for a variant, and for a pre-training that is not the method's own. It is
    dotted for `multi_task_light_entropy`, to tell it from `multi_task`. Dashed and dotted lines lie
    above the others.

    varied: whether the line shows a variant, even if the method is not one of VARIANTS.
    """
    own = {METHODS[method].objective, *METHODS[method].objective_elsewhere.values()}
    look = {
        "color": colour(method),
        "marker": MARKERS[place_of(method) % len(MARKERS)],
        "ms": 5,
        "mew": 0.3,
    }
    if not varied and method not in VARIANTS and objective in own:
        return look | {"ls": "-", "zorder": 2}
    line = ":" if objective == "multi_task_light_entropy" else "--"
    return look | {"ls": line, "zorder": 3}


EACH_SEED = {"agreement", "entropy_auxiliary", "entropy_of_mean_auxiliary"}


def line_over(column: str) -> dict[str, Any]:
    """Return how seaborn draws several seeds: as a band of one standard deviation, or as a line per
    seed.

    Columns of EACH_SEED have a line per seed, because their seeds differ so much that a band would
    mislead.
    """
    if column in EACH_SEED:
        return {"units": "seed", "estimator": None, "lw": 0.8}
    return {"errorbar": "sd"}


def reading(frame: pd.DataFrame, columns: Iterable[str] = ()) -> str:
    """Say what bands and dashes mean in figures that are drawn from `frame`; empty if the figures
    have neither.

    columns: the columns of `frame` that are drawn.
    """
    said = ""
    if frame["seed"].nunique() > 1:
        each = ""
        if EACH_SEED & {*columns}:
            each = "; of a's agreement and entropies, a line for each seed"
        said = f"Bands and bars: one standard deviation over seeds{each}. "
    if "method" not in frame:
        return said
    lines = {
        line_of(method, objective)["ls"]
        for method, objective in zip(frame["method"], frame["objective"], strict=True)
    }
    if lines == {"-"}:
        return said
    name = "Dashed and dotted" if ":" in lines else "Dashed"
    return f"{said}{name}: variants, and pre-trainings that are not the method's own."


def draw_lines(axes: Axes, frame: pd.DataFrame, x: str, y: str) -> None:
    """Draw a line for each label of a tidy table with the columns label, method, objective and
    seed.

    If x is the learning rate, a method that does not learn has a dotted horizontal line.
    """
    for label, rows in frame.dropna(subset=y).groupby("label", sort=False):
        method, objective = rows[["method", "objective"]].iloc[0]
        if x == "online_learning_rate" and not METHODS[method].adapts:
            axes.axhline(rows[y].mean(), color=colour(method), ls=":", label=str(label))
            continue
        look = line_over(y) | line_of(method, objective)
        if rows[x].nunique() > 30:
            look["marker"] = None
        sns.lineplot(rows, x=x, y=y, ax=axes, label=str(label), **look)


NEAR = 2.5
"""For `draw_level`: if the level of a head that gives all classes the same probability is above
NEAR times the largest value in the panel, it is written as text instead of drawn as a line.
"""


def draw_level(axes: Axes, column: str, classes: int) -> None:
    """Mark the level of a head that gives all classes the same probability: ln C for an entropy,
    1/C for the agreement with z. Draw nothing for other columns.

    The mark is a dotted line, or a text if the line would squeeze the curves (NEAR).
    """
    if not column.startswith("entropy") and column != "agreement":
        return
    level = 1 / classes if column == "agreement" else math.log(classes)
    drawn = [np.asarray(line.get_ydata(), dtype=float) for line in axes.lines]
    values = np.concatenate(drawn) if drawn else np.array([])
    known = values[~np.isnan(values)]
    most = float(known.max()) if len(known) else level
    if level <= NEAR * most:
        axes.axhline(level, color="0.4", lw=1.2, ls=(0, (1, 3)), label="all classes equally likely")
        axes.set_ylim(0, 1.05 * max(level, most))
        return
    axes.set_ylim(0, 1.3 * most if most > 0 else 1)
    told = f"all classes equally likely: {level:.2g}"
    axes.text(0.98, 0.97, told, ha="right", va="top", fontsize=7, transform=axes.transAxes)


NEAR_ENOUGH = 0.02
"""Lines coincide if their mean distance is below this share of the range of all lines."""


def dodged(frame: pd.DataFrame, x: str, y: str, log: bool) -> pd.DataFrame:
    """Return a table for `draw_lines` in which lines that coincide stand apart.

    A line moves right by 1/50 of the axis for each earlier line that it coincides with.

    log: whether the axis of x is logarithmic. A value of 0, such as a rate, has no place on it.
    """
    means = frame.pivot_table(y, "label", x, sort=False)
    places = frame[x].unique().astype(float)
    if log:
        places = np.log(places[places > 0])
    step = np.ptp(places) / 50 if len(places) else 0.0
    span = float(np.nanmax(means.to_numpy()) - np.nanmin(means.to_numpy()))
    moved = frame.assign(**{x: frame[x].astype(float)})
    for place, label in enumerate(means.index):
        apart = (means.iloc[:place] - means.loc[label]).abs().mean(axis=1)
        shift = step * int((apart < NEAR_ENOUGH * span).sum())
        rows = moved["label"] == label
        moved.loc[rows, x] = moved[x] * math.exp(shift) if log else moved[x] + shift
    return moved


def legend(figure: Figure, columns: int = 5) -> None:
    """Draw one legend below all panels, with each name once, in at most `columns` columns that fit
    the figure.
    """
    names: dict[str, Artist] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            names.setdefault(typeset(name), handle)
        if seaborns := axes.get_legend():
            seaborns.remove()
    for count in range(min(columns, len(names)), 0, -1):
        box = figure.legend(
            list(names.values()), list(names), loc="outside lower center", ncols=count
        )
        if count == 1 or box.get_window_extent().width <= figure.bbox.width:
            break
        box.remove()


LETTER = 0.065
"""The width of a letter in a domain's name, in inches."""


def name_domains(axes: Axes, names: Iterable[str], first: float = 0.0) -> None:
    """Name the domains of a stream below an axis that counts them from `first`.

    Neighbours with one name share it. The names are vertical if they would touch otherwise.
    """
    ticks = {}
    for name, group in groupby(enumerate(names), key=lambda pair: pair[1]):
        places = [place for place, _ in group]
        # A corruption's first word is unique and short.
        ticks[first + sum(places) / len(places)] = name.split("_")[0] if name in SHORT else name
    letters = [typeset(name) for name in ticks.values()]
    inches = axes.get_window_extent().width / axes.figure.dpi
    crowded = LETTER * sum(len(name) + 2 for name in ticks.values()) > inches
    axes.set_xticks(list(ticks), letters, rotation=90 if crowded else 0, fontsize=8)


def panels(count: int, height: float, columns: int = 4, **style: Any) -> tuple[Figure, list[Axes]]:
    """Make `count` panels of `height` inches, with at most `columns` in a row.

    The lowest panel of each column has the numbers of its axis, even if it is not in the last row.

    style: further arguments of plt.subplots.
    """
    columns = min(count, columns)
    rows = math.ceil(count / columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(WIDTH, height * rows), squeeze=False, **style
    )
    for axes in grid.flat[count:]:
        axes.remove()
    for axes in grid.flat[max(0, count - columns) : count]:
        axes.tick_params(labelbottom=True)  # With sharex only the last row has them.
    return figure, list(grid.flat[:count])


def picture_grid(
    rows: Mapping[str, Sequence[Tensor] | Tensor], heads: Iterable[str] = ()
) -> Figure:
    """Draw a grid of images (3, height, width), or of spectrograms (1, height, width) in decibels.

    rows: the pictures of each row, by the name of the row; all rows have equally many.
    heads: the names of the columns.
    """
    columns = len(next(iter(rows.values())))
    size = (WIDTH, (WIDTH - 0.6) / columns * len(rows) + 0.3)
    figure, grid = plt.subplots(len(rows), columns, figsize=size, squeeze=False)
    for line, (name, row) in zip(grid, rows.items(), strict=True):
        for axes, picture in zip(line, row, strict=True):
            image = picture.cpu().permute(1, 2, 0).squeeze(-1)
            # Matplotlib ignores vmin, vmax and cmap for images with three channels.
            axes.imshow(
                image,
                vmin=-80,
                vmax=0,
                cmap="viridis",
                origin="lower" if image.ndim == 2 else "upper",
            )
            axes.set(xticks=[], yticks=[])
        line[0].set_ylabel(typeset(name), fontsize=8)
    for axes, head in zip(grid[0], heads, strict=False):
        axes.set_title(typeset(head), fontsize=8)
    return figure
