"""Beyond the paper: how far a blend of the source's BatchNorm statistics with the batch's goes without learning."""

import math

import matplotlib.pyplot as plt
import pandas as pd

from cascadetta_lib.methods import METHODS
from cascadetta_lib.settings import Settings
from exhibits.base import Exhibit, Part, exhibit
from exhibits.released import over_images
from exhibits.runs import Point, Runs, by_label, points_for
from exhibits.style import WIDTH, colour, legend, number
from exhibits.tables import metrics_by_label

PRIORS = (8, 16, 32, 64, 128)
"""How many examples the source counts against the batch."""


@exhibit
class SourceStatistics(Exhibit):
    name, place, label, title = "source_statistics", 143, "beyond: statistics", "What statistics give without learning"
    question = "How much of what learning gains does a share of the source's BatchNorm statistics give?"

    def points(self, settings: Settings) -> list[Point]:
        """All on the cascade's network: those of the main study that are asked for, and the curve from AdaBN to ERM."""
        learning = [name for name in ("tent", "cascade") if name in settings.image.methods]
        changes = [{"statistics_memory": count, "forward_transfer": False} for count in PRIORS]
        priors = [Point(f"N = {one['statistics_memory']}", "source_prior", None, one) for one in changes]
        return [*points_for(["adabn"]), *priors, Point(METHODS["erm"].label, "erm", "meta"), *points_for(learning)]

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        size, labels = frame["run"].iloc[0].request.batch_size, by_label(frame)
        counts = frame["method"].map({"adabn": 0, "erm": math.inf}).fillna(frame["statistics_memory"].astype(float))
        frame["share"] = 100 * (1 - size / (size + counts))
        table = metrics_by_label(frame)[["E", "A", "n"]].rename_axis("method")
        table.insert(
            0, "the source's share (%)", frame.groupby("label")["share"].mean().map(lambda one: number(one, 0))
        )
        table.insert(2, "95 %, over images", pd.Series({label: over_images(each) for label, each in labels.items()}))
        figure, axes = plt.subplots(figsize=(WIDTH, 3.4))
        axes.plot(frame.groupby("share")["E"].mean(), color=colour("adabn"), marker="o", label="without learning")
        for label, each in labels.items():
            if each["method"].iloc[0] in ("tent", "cascade"):
                axes.axhline(each["E"].mean(), color=colour(each["method"].iloc[0]), ls="--", label=label)
        axes.set(xlabel="the source's share of the statistics (%); 0: AdaBN, 100: ERM", ylabel="online error E (%)")
        legend(figure)
        told = "Where the curve is below a dashed line, statistics alone do better than that method by learning."
        note = "N: examples that the source counts against a batch. None was chosen: the best of them flatters."
        return [Part("source-statistics-figure", figure, told), Part("source-statistics", table, note)]
