"""What the data look like, corrupted and augmented, and what entropies a model has on them."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from cascadetta_lib.data.corruptions import CORRUPTIONS
from cascadetta_lib.data.images import ImageDataset
from cascadetta_lib.data.reviews import TextDataset
from cascadetta_lib.data.utterances import SpeechDataset
from cascadetta_lib.exhibits.style import SHORT, WIDTH, draw_lines, legend, name_domains, panels
from cascadetta_lib.methods import METHODS
from cascadetta_lib.store import Run

ENTROPIES = {
    "entropy_main": "entropy of z (nats)",
    "entropy_auxiliary": "entropy of a (nats)",
    "agreement": "argmax a = argmax z (share)",
}


def corruption_figure(dataset: ImageDataset, severities: Sequence[int] = (1, 3, 5), image: int = 0) -> Figure:
    """One test image through the fifteen corruptions, a row a severity."""
    rows = {str(s): [dataset.example(name, s, image) for name in CORRUPTIONS] for s in severities}
    return _pictures(rows, [SHORT[name] for name in CORRUPTIONS])


def augmentation_figure(dataset: ImageDataset, seed: int = 0, count: int = 12) -> Figure:
    """Source images, and below them what a randomised training batch makes of them."""
    x, generator = dataset.train.x[:count], torch.Generator().manual_seed(seed)
    randomised = dataset.randomise(dataset.weak_augment(x, generator), generator)
    return _pictures({"source": list(x), "randomised": list(randomised)})


def spectrogram_figure(dataset: SpeechDataset, utterance: int = 0) -> Figure:
    """The log-mel spectrogram of one test utterance, clean and through the five domains."""
    names = (*dataset.vocabulary.others, *dataset.domain_names)
    return _pictures({"": [dataset.domain(name, 1).x[utterance] for name in names]}, list(names))


def audio_augmentation_figure(dataset: SpeechDataset, seed: int = 0, count: int = 6) -> Figure:
    """The spectrograms of source utterances, and below them what a randomised training batch makes of them."""
    randomised = dataset.randomise(dataset.train.x[:count], torch.Generator().manual_seed(seed))
    return _pictures({"source": list(dataset.plain.x[:count]), "randomised": list(randomised)})


def _pictures(rows: dict[str, list[Tensor]], heads: Sequence[str] = ()) -> Figure:
    """A grid of images (3, height, width), or of spectrograms (1, height, width) in decibels, with names."""
    columns = len(next(iter(rows.values())))
    size = (WIDTH, (WIDTH - 0.6) / columns * len(rows) + 0.3)
    figure, grid = plt.subplots(len(rows), columns, figsize=size, squeeze=False)
    for line, (name, pictures) in zip(grid, rows.items(), strict=True):
        for axes, picture in zip(line, pictures, strict=True):
            image = picture.cpu().permute(1, 2, 0).squeeze(-1)
            # Matplotlib takes the limits and the colours for what has one channel alone.
            axes.imshow(image, vmin=-80, vmax=0, cmap="viridis", origin="lower" if image.ndim == 2 else "upper")
            axes.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, fontsize=8)
    for axes, head in zip(grid[0], heads, strict=False):
        axes.set_title(head, fontsize=8)
    return figure


def sentences_table(dataset: TextDataset, seed: int = 0, count: int = 4) -> pd.DataFrame:
    """The beginnings of the first reviews of the source, each with `count` of its augmented versions; empty where the
    data hold counts alone, without text."""
    rows: list[tuple[str, str]] = []
    generator = torch.Generator().manual_seed(seed)
    for index in range(2 if dataset.has_text else 0):
        rows.append((f"review {index + 1}", dataset.text(index)))
        rows += [(name.replace("_", " "), text) for name, text in dataset.augmented_texts(index, count, generator)]
    shortened = [(name, text if len(text) <= 220 else text[:220].rsplit(" ", 1)[0] + " …") for name, text in rows]
    return pd.DataFrame(shortened, columns=["operation", "text"]).set_index("operation")


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
