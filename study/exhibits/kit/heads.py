"""Draw the entropies of both heads along a stream, and how often the heads agree."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.style import draw_level, draw_lines, legend, name_domains, panels
from study.store import Run

ENTROPIES = {
    "entropy_main": "entropy of z (nats)",
    "entropy_auxiliary": "entropy of a (nats)",
    "agreement": "a and z agree (share)",
}
HEADS = "z: output of the classifier θ_m; a: of θ_a."


def tidy_batches(run: Run) -> pd.DataFrame:
    """Return the batches of a run with the columns label, method, variant, objective, seed, and
    error (in percent).
    """
    return run.batches.assign(
        label=METHODS[run.method].label,
        method=run.method,
        variant="",
        objective=run.request.checkpoint.objective,
        seed=run.seed,
        error=100 * run.batches["errors"] / run.batches["count"],
    )


MOST_LINES = 30
"""The most lines of a panel that are drawn at full width. If there are more, such as those of many
seeds, all are thin.
"""


def entropy_figure(runs: Sequence[Run]) -> Figure:
    """Draw, for methods that have θ_a, the entropies of z and of a along the stream, and how often
    z and a name the same class.

    A line shows means over the batches of each domain. The domains and the number of classes are
    those of the first run.
    """
    batches = pd.concat([tidy_batches(run) for run in runs]).dropna(subset="agreement")
    keys = ["label", "method", "variant", "objective", "seed", "step"]
    means = batches.groupby(keys, sort=False)[list(ENTROPIES)].mean().reset_index()
    figure, grid = panels(3, 3.2)
    classes = len(runs[0].provenance.class_names)
    for axes, (column, title) in zip(grid, ENTROPIES.items(), strict=True):
        draw_lines(axes, means, "step", column)
        crowded = len(axes.lines) > MOST_LINES
        for line in axes.lines:  # Where lines coincide, markers would hide each other.
            line.set(marker="", lw=0.6 if crowded else 1.6)
        draw_level(axes, column, classes)
        axes.set(title=title, xlabel="", ylabel="")
        name_domains(axes, [domain.name for domain in runs[0].request.stream])
    legend(figure)
    return figure
