"""How figures and numbers look: one style, one colour a method, one way to write θ_a and a minus sign."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from cascadetta_lib.data.corruptions import CORRUPTIONS
from cascadetta_lib.methods import METHODS

WIDTH = 8.0
"""Inches of every figure, so that its letters have one size on a page."""
BANDS = "Bands: one standard deviation over seeds."
_HEADS = "gauss shot impul defoc glass motn zoom snow frost fog brit contr elast pixel jpeg"
SHORT = dict(zip(CORRUPTIONS, _HEADS.split(), strict=True))
"""The paper's column heads."""
_BLUE, _ORANGE, _GREEN, _RED, _PURPLE, _BROWN, _PINK, _GREY, _, _SKY = sns.color_palette("colorblind")
PALETTE = [_BLUE, _RED, _GREEN, _GREY, _PURPLE, _SKY, _BROWN, _ORANGE, (0.1, 0.1, 0.35), _PINK]
PALETTE += [sns.color_palette("dark")[place] for place in (2, 3, 5, 6, 9)] + sns.husl_palette(12, l=0.45)
"""Of the methods: the paper's six first, far apart, also for colour-blind readers."""


def set_style() -> None:
    """Seaborn's white grid, with letters that can be read where a figure is 800 pixels wide."""
    sns.set_theme(context="paper", style="whitegrid", palette="colorblind", font_scale=1.1)
    plt.rcParams |= {"figure.dpi": 110, "savefig.dpi": 200, "savefig.bbox": "tight", "legend.frameon": False}
    plt.rcParams |= {"figure.constrained_layout.use": True, "axes.titlesize": 9}


def colour(method: str) -> tuple[float, float, float]:
    """The colour of a method, by its place in the registry, the paper's methods first."""
    place = sorted(METHODS, key=lambda name: (not METHODS[name].in_paper, name)).index(method)
    return PALETTE[place % len(PALETTE)]


def number(value: Any, digits: int = 2, *, sign: bool = False) -> str:
    """With a minus sign in place of a hyphen, no negative zero, and a dash for what there is not."""
    if math.isnan(value):
        return "–"
    return f"{value:{'+' if sign else ''}z.{digits}f}".replace("-", "−")


def spread(values: pd.Series, digits: int = 2) -> str:
    """`mean ± standard deviation` over seeds, the one value, or a dash."""
    deviation = f" ± {number(float(values.std()), digits)}" if values.count() > 1 else ""
    return number(float(values.mean()), digits) + deviation


def typeset(text: str) -> str:
    """θ_a as mathematics, for the letters of a figure."""
    return re.sub(r"θ_(\w)", r"$\\theta_\1$", text)


def draw_lines(axes: Axes, frame: pd.DataFrame, x: str, y: str) -> None:
    """A line for each label of a tidy table with the columns label, method and objective: the mean over seeds within
    one standard deviation, in the method's colour, dashed where the pre-training is not the method's own. By learning
    rate a method that has none is a dotted level."""
    for label, rows in frame.dropna(subset=y).groupby("label", sort=False):
        method, objective = rows[["method", "objective"]].iloc[0]
        own = {METHODS[method].objective, *METHODS[method].objective_elsewhere.values()}
        if x == "online_learning_rate" and not METHODS[method].adapts:
            axes.axhline(rows[y].mean(), color=colour(method), ls=":", label=str(label))
            continue
        dashed = "-" if objective in own else "--"
        marker = "o" if rows[x].nunique() <= 30 else None
        line = {"color": colour(method), "ls": dashed, "marker": marker, "ms": 4, "label": str(label)}
        sns.lineplot(rows, x=x, y=y, errorbar="sd", ax=axes, **line)


def draw_level(axes: Axes, column: str, classes: int) -> None:
    """A dotted line where a head is that tells no class from another: uniform entropy, or agreement by chance."""
    if column.startswith("entropy") or column == "agreement":
        level = 1 / classes if column == "agreement" else math.log(classes)
        axes.axhline(level, color="black", lw=0.8, ls=":", label="uniform; chance")


def legend(figure: Figure, columns: int = 5) -> None:
    """One legend below all panels, a name once."""
    names: dict[str, Artist] = {}
    for axes in figure.axes:
        names |= {typeset(name): handle for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)}
        if seaborns := axes.get_legend():
            seaborns.remove()
    if names:
        figure.legend(list(names.values()), list(names), loc="outside lower center", ncols=min(columns, len(names)))


def name_domains(axes: Axes, names: Iterable[str], first: float = 0.0) -> None:
    """The domains of a stream below an axis that counts them from `first`; several in a row of one name get it once."""
    ticks = {}
    for name, group in groupby(enumerate(names), key=lambda pair: pair[1]):
        places = [place for place, _ in group]
        ticks[first + sum(places) / len(places)] = SHORT.get(name, name)
    axes.set_xticks(list(ticks), list(ticks.values()), rotation=90, fontsize=8)


def panels(count: int, height: float, columns: int = 4, **style: Any) -> tuple[Figure, list[Axes]]:
    """`count` panels of that height in inches, at most `columns` in a row."""
    columns = min(count, columns)
    rows = -(-count // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(WIDTH, height * rows), squeeze=False, **style)
    for axes in grid.flat[count:]:
        axes.remove()
    return figure, list(grid.flat[:count])


def picture_grid(rows: Mapping[str, Sequence[Tensor] | Tensor], heads: Iterable[str] = ()) -> Figure:
    """A grid of images (3, height, width), or of spectrograms (1, height, width) in decibels, with names."""
    columns = len(next(iter(rows.values())))
    size = (WIDTH, (WIDTH - 0.6) / columns * len(rows) + 0.3)
    figure, grid = plt.subplots(len(rows), columns, figsize=size, squeeze=False)
    for line, (name, row) in zip(grid, rows.items(), strict=True):
        for axes, picture in zip(line, row, strict=True):
            image = picture.cpu().permute(1, 2, 0).squeeze(-1)
            # Matplotlib takes the limits and the colours for what has one channel alone.
            axes.imshow(image, vmin=-80, vmax=0, cmap="viridis", origin="lower" if image.ndim == 2 else "upper")
            axes.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, fontsize=8)
    for axes, head in zip(grid[0], heads, strict=False):
        axes.set_title(head, fontsize=8)
    return figure
