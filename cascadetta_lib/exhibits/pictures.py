"""What the data look like, corrupted and augmented, and what entropies a model has on them."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from torch import Tensor

from cascadetta_lib.exhibits.style import WIDTH, draw_lines, legend, name_domains, panels
from cascadetta_lib.methods import METHODS
from cascadetta_lib.store import Run

ENTROPIES = {
    "entropy_main": "entropy of z (nats)",
    "entropy_auxiliary": "entropy of a (nats)",
    "agreement": "argmax a = argmax z (share)",
}


def picture_grid(rows: Mapping[str, Sequence[Tensor] | Tensor], heads: Sequence[str] = ()) -> Figure:
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


def entropy_figure(runs: Sequence[Run]) -> Figure:
    """Along the stream, the entropies of z and of a and how often their argmax agrees, of the methods that have θ_a. An
    a that is sure and agrees with z by chance alone has collapsed."""
    batches = pd.concat([tidy_batches(run) for run in runs]).dropna(subset="agreement")
    means = batches.groupby(["label", "method", "objective", "seed", "step"], sort=False)[list(ENTROPIES)].mean()
    figure, grid = panels(3, 3.2)
    classes = len(runs[0].provenance["class_names"])
    for axes, (column, title) in zip(grid, ENTROPIES.items(), strict=True):
        draw_lines(axes, means.reset_index(), "step", column)
        level = 1 / classes if column == "agreement" else np.log(classes)
        axes.axhline(level, color="black", lw=0.8, ls=":", label="uniform; chance")
        axes.set(title=title, xlabel="", ylabel="", ylim=(0, None))
        name_domains(axes, [domain.name for domain in runs[0].request.stream])
    legend(figure)
    return figure


def tidy_batches(run: Run) -> pd.DataFrame:
    """The batches of a run with label, method, objective and seed, and the error of each in percent."""
    objective = run.request.checkpoint.objective
    names: dict[str, Any] = {
        "label": METHODS[run.method].label,
        "method": run.method,
        "objective": objective,
        "seed": run.seed,
    }
    return run.batches.assign(**names, error=100 * run.batches["errors"] / run.batches["count"])
