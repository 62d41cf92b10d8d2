"""Beyond the paper: how far a blend of the source's BatchNorm statistics with the batch's goes without learning."""

import math

import matplotlib.pyplot as plt
import pandas as pd

from cascadetta_lib.methods import METHODS
from cascadetta_lib.settings import Settings
from exhibits.base import Exhibit, Part, exhibit
from exhibits.released import NETWORKS, networks_of, over_images
from exhibits.runs import Point, Runs, by_label
from exhibits.style import WIDTH, legend, number
from exhibits.tables import differences, metrics_by_label

PRIORS = (8, 16, 32, 64, 128)
"""How many examples the source counts against the batch."""


@exhibit
class SourceStatistics(Exhibit):
    name, place, label, title = "source_statistics", 143, "beyond: statistics", "What statistics give without learning"
    question = "How much of what learning gains does a share of the source's BatchNorm statistics give?"

    def points(self, settings: Settings) -> list[Point]:
        """On each network the curve from AdaBN to ERM, and those methods that learn which the profile has."""
        points, objectives = [], networks_of(settings)
        for objective in objectives:
            network = f", {NETWORKS[objective]}" if len(objectives) > 1 else ""
            learning = [name for name in ("tent", "cascade") if name in settings.image.methods]
            names = ["adabn", "erm", *(name for name in learning if (name, objective) != ("cascade", "erm"))]
            points += [Point(METHODS[name].label + network, name, objective) for name in names]
            for count in PRIORS:
                changes = {"statistics_memory": count, "forward_transfer": False}
                points.append(Point(f"N = {count}{network}", "source_prior", objective, changes))
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        size, labels = frame["run"].iloc[0].request.batch_size, by_label(frame)
        counts = frame["method"].map({"adabn": 0, "erm": math.inf}).fillna(frame["statistics_memory"].astype(float))
        frame["share"] = 100 * (1 - size / (size + counts))
        table = metrics_by_label(frame)[["E", "A", "n"]].rename_axis("method")
        table.insert(
            0, "the source's share (%)", frame.groupby("label")["share"].mean().map(lambda one: number(one, 0))
        )
        table.insert(2, "95 %, over images", pd.Series({label: over_images(each) for label, each in labels.items()}))
        table = table.loc[frame.sort_values(["objective", "share"], kind="stable")["label"].unique()]
        note = "N: examples that the source counts against a batch. None was chosen: the best of them flatters."
        pairs = {
            f"{prior} − {learning}": (labels[learning], labels[prior])
            for _, network in frame.groupby("objective", sort=False)
            for learning in network.loc[network["share"].isna(), "label"].unique()
            for prior in network.loc[network["method"] == "source_prior", "label"].unique()
        }
        contrasts = differences("source-statistics-differences", pairs)
        return [_curves(frame), Part("source-statistics", table, note), *contrasts]


def _curves(frame: pd.DataFrame) -> Part:
    """A curve a network, and lines for the methods that learn."""
    figure, axes = plt.subplots(figsize=(WIDTH, 3.4))
    for place, (objective, each) in enumerate(frame.groupby("objective", sort=False)):
        curve = each.groupby("share")["E"].mean()
        axes.plot(curve, color=f"C{place}", marker="o", label=f"statistics alone, {NETWORKS[str(objective)]}")
        for style, (label, one) in zip(("--", ":"), by_label(each[each["share"].isna()]).items(), strict=False):
            axes.axhline(one["E"].mean(), color=f"C{place}", ls=style, label=label)
    axes.set(xlabel="the source's share of the statistics (%); 0: AdaBN, 100: ERM", ylabel="online error E (%)")
    legend(figure)
    told = "Where a curve is below a line of its colour, statistics alone do better than that method by learning."
    return Part("source-statistics-figure", figure, told)
