"""fig:models and fig:overview: what is chained to what, and what is updated when. Drawn, not measured."""

import matplotlib.pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

FIXED, UPDATED, LOSS = "#f2f2f2", "#fde0b8", "#d6e6f4"
"""Colours of a part that stays, of one that is updated, and of a loss."""


def models_figure() -> Figure:
    """fig:models: the parallel paradigm of TTT beside the cascade, at test time."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 2.9))
    for axes, title in ((left, "parallel (TTT)"), (right, "cascading (the paper)")):
        _stage(axes, title, (0, 10), (0, 4))
    _box(left, 1.9, 2, "φ", UPDATED, "shared stages")
    _box(left, 5.2, 3.1, r"$\theta_m$", FIXED, "main head")
    _box(left, 5.2, 0.9, r"$\theta_a$", FIXED, "rotation head")
    _text(left, 8.4, 3.1, "z  →  class")
    _box(left, 8.6, 0.9, "rotation", LOSS, "cross-entropy")
    _arrows(left, ((0.2, 2), (1.1, 2)), ((2.7, 2.2), (4.4, 3)), ((2.7, 1.8), (4.4, 1)), ((6, 3.1), (7.3, 3.1)))
    _arrows(left, ((6, 0.9), (7.6, 0.9)))
    _back(left, (8.6, 0.35), (1.9, 1.35))
    _box(right, 1.7, 2, "φ", UPDATED, "BatchNorm only")
    _box(right, 4.2, 2, r"$\theta_m$", UPDATED, "main classifier")
    _box(right, 6.7, 2, r"$\theta_a$", FIXED, "auxiliary")
    _box(right, 9.1, 2, "entropy", LOSS, "of softmax(a)")
    _text(right, 4.7, 3.65, "z  →  class")
    _arrows(right, ((0.2, 2), (0.9, 2)), ((2.5, 2), (3.4, 2)), ((5, 2), (5.9, 2)), ((7.5, 2), (8.3, 2)))
    _arrows(right, ((4.7, 2.65), (4.7, 3.4)))
    _back(right, (9.1, 1.35), (4.2, 1.3))
    _back(right, (9.1, 1.35), (1.7, 1.3))
    _legend(figure, gradient=True)
    return figure


def overview_figure() -> Figure:
    """fig:overview: pre-training by meta-learning on the source, and adaptation to the stream."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.3), width_ratios=(3, 2))
    _stage(left, "pre-training, on the labelled source", (0, 12), (0, 5))
    _box(left, 1.2, 2.5, "source", FIXED, "x, y")
    _box(left, 3.6, 2.5, "π ~ Ψ", FIXED, "randomisation")
    _box(left, 6.3, 3.9, "inner, Eq. 3", LOSS, "ENT(a), meta-train", 1.1)
    _box(left, 6.3, 1.1, "outer, Eq. 4", LOSS, "CE(z) + λ ENT(a)", 1.1)
    _box(left, 10.1, 3.9, "ψ′", UPDATED, "ψ − α ∇ENT", 1.1)
    _box(left, 10.1, 1.1, r"ψ, $\theta_a$", UPDATED, "−β ∇ at ψ′", 1.1)
    _arrows(left, ((2, 2.5), (2.7, 2.5)), ((4.4, 2.8), (5.1, 3.7)), ((4.4, 2.2), (5.1, 1.3)))
    _arrows(left, ((7.5, 3.9), (8.9, 3.9)), ((9.3, 3.3), (7.3, 1.75)), ((7.5, 1.1), (8.9, 1.1)))
    _stage(right, "adaptation, on the unlabelled stream", (0, 8), (0, 5))
    _box(right, 1.4, 3.6, "batch t", FIXED, "of domain T_i")
    _box(right, 4.6, 3.6, "one step", LOSS, "on ENT(a)", 1)
    _box(right, 4.6, 1.2, r"BN of φ, $\theta_m$", UPDATED, "never reset", 1.3)
    _box(right, 7.2, 3.6, "z", FIXED, "predict", 0.7)
    _arrows(right, ((2.2, 3.6), (3.5, 3.6)), ((4.6, 2.95), (4.6, 1.85)), ((5.9, 1.5), (7.1, 2.9)))
    _legend(figure, gradient=False)
    return figure


def _stage(axes: Axes, title: str, width: tuple[float, float], height: tuple[float, float]) -> None:
    axes.set(xlim=width, ylim=height, title=title)
    axes.axis("off")


def _box(axes: Axes, x: float, y: float, name: str, shade: str, about: str, half: float = 0.8) -> None:
    """A box around (x, y), `half` its half width; `about` in small print under the name."""
    style = {"boxstyle": "round,pad=0.02,rounding_size=0.15", "ec": "0.25", "lw": 0.9}
    axes.add_patch(FancyBboxPatch((x - half, y - 0.6), 2 * half, 1.2, fc=shade, **style))  # type: ignore[arg-type]
    axes.text(x, y + 0.14, name, ha="center", va="center", fontsize=10)
    axes.text(x, y - 0.34, about, ha="center", va="center", fontsize=5.8, color="0.25")


def _text(axes: Axes, x: float, y: float, text: str) -> None:
    axes.text(x, y, text, ha="center", va="center", fontsize=9)


def _arrows(axes: Axes, *ends: tuple[tuple[float, float], tuple[float, float]]) -> None:
    for start, end in ends:
        axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=10, color="0.2", lw=1))


def _back(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """The way of the gradient: dashed, bent below the boxes."""
    style = {"arrowstyle": "-|>", "mutation_scale": 10, "color": "#b5651d", "lw": 1, "ls": "--"}
    axes.add_patch(FancyArrowPatch(start, end, connectionstyle="arc3,rad=-0.3", **style))  # type: ignore[arg-type]


def _legend(figure: Figure, *, gradient: bool) -> None:
    names = {"updated": UPDATED, "fixed": FIXED, "loss": LOSS}
    handles: list[Artist] = [plt.Rectangle((0, 0), 1, 1, fc=shade, ec="0.25") for shade in names.values()]
    if gradient:
        handles.append(plt.Line2D([], [], color="#b5651d", ls="--"))
    every = [*names, "gradient"][: len(handles)]
    figure.legend(handles, every, loc="lower center", ncols=4, bbox_to_anchor=(0.5, -0.07), fontsize=8)
    figure.tight_layout()
