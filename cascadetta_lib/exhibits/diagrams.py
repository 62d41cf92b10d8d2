"""fig:models and fig:overview: what is chained to what, and what is updated when. Drawn, not measured."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from cascadetta_lib.exhibits.base import Exhibit, Part, Shown, exhibit
from cascadetta_lib.exhibits.runs import Point, Runs
from cascadetta_lib.exhibits.style import WIDTH, typeset
from cascadetta_lib.settings import Settings

SHADES = {"updated": "#fde0b8", "fixed": "#f2f2f2", "loss": "#d6e6f4"}
Box = tuple[str, float, float, str, str]
"""A name with what stands below it, the middle, what happens to it, and the names it leads to, divided by blanks; a
name with a `~` before it is led to by the gradient."""
PARALLEL: list[Box] = [
    ("φ\nshared stages", 1, 0, "updated", "θ_m θ_a"),
    ("θ_m\nmain head → z → class", 5, 0.6, "fixed", ""),
    ("θ_a\nrotation head", 5, -0.6, "fixed", "rotation"),
    ("rotation\ncross-entropy", 9, -0.6, "loss", "~φ"),
]
CASCADING: list[Box] = [
    ("φ\nBatchNorm only", 1, 0, "updated", "θ_m"),
    ("θ_m\nclassifier → z → class", 3.67, 0, "updated", "θ_a"),
    ("θ_a\nauxiliary → a", 6.33, 0, "fixed", "entropy"),
    ("entropy\nof softmax(a)", 9, 0, "loss", "~θ_m ~φ"),
]
PRE_TRAINING: list[Box] = [
    ("x, y\nlabelled source", 1, 0, "fixed", "Ψ"),
    ("Ψ\nrandomisation", 3.67, 0, "fixed", "inner outer"),
    ("inner\nENT(a), meta-train, Eq. 3", 6.33, 0.6, "loss", "ψ′"),
    ("outer\nCE(z) + λ ENT(a), Eq. 4", 6.33, -0.6, "loss", "ψ,"),
    ("ψ′\nψ − α ∇ENT", 9, 0.6, "updated", "outer"),
    ("ψ, θ_a\n− β ∇ at ψ′", 9, -0.6, "updated", ""),
]
FIGURES = {
    "models": {"parallel (TTT), at test time": PARALLEL, "cascading (the paper), at test time": CASCADING},
    "overview": {"pre-training on the source": PRE_TRAINING, "then adaptation to the stream": CASCADING},
}


@exhibit
class Diagrams(Exhibit):
    name, place, label, title = "diagrams", 0, "fig:models, fig:overview", "Parallel and cascading models"
    question = "What is chained to what, and what is updated when?"

    def points(self, settings: Settings) -> list[Point]:
        return []

    def parts(self, runs: Runs) -> list[Part | str]:
        found: list[Part | str] = []
        for name, diagrams in FIGURES.items():
            figure, grid = plt.subplots(len(diagrams), 1, figsize=(WIDTH, 4.4))
            for axes, (title, boxes) in zip(grid, diagrams.items(), strict=True):
                axes.set(title=title, xlim=(-0.3, 10.3), ylim=(-1.5, 1.2))
                axes.axis("off")
                _draw(axes, boxes)
            handles = [Patch(fc=shade, ec="0.25", label=name) for name, shade in SHADES.items()]
            figure.legend(handles=handles, loc="outside lower center", ncols=3)
            found.append(Part(name, figure, (), "Dashed: the gradient."))
        return found

    def show(self, runs: Runs) -> Shown:
        """Without runs."""
        return Shown(self, "", self.parts(runs))


def _draw(axes: Axes, boxes: list[Box]) -> None:
    """The boxes, and arrows between them."""
    drawn = {}
    for text, x, y, shade, _ in boxes:
        outline = {"boxstyle": "round,pad=0.4", "fc": SHADES[shade], "ec": "0.25"}
        label = axes.text(x, y, typeset(text), ha="center", va="center", fontsize=9, bbox=outline)
        drawn[text.split()[0]] = label
    for text, *_, leads_to in boxes:
        for name in leads_to.split():
            back = name.startswith("~")
            style = {"arrowstyle": "-|>", "color": "#b5651d" if back else "0.2", "ls": "--" if back else "-"}
            style["connectionstyle"] = f"arc3,rad={-0.2 if back else 0}"
            start, end = drawn[text.split()[0]], drawn[name.removeprefix("~")]
            axes.annotate("", end.get_position(), start.get_position(), zorder=0,
                          arrowprops=style | {"patchA": start, "patchB": end})  # fmt: skip
