"""Beyond the paper: how far a blend of the source's BatchNorm statistics with the batch's goes
without learning.
"""

import math

import matplotlib.pyplot as plt
import pandas as pd

from cascadetta_lib.methods import METHODS
from study.exhibits.beyond.released import interval_over_images, interval_text
from study.exhibits.beyond.whose_gain import NETWORKS, networks_of
from study.exhibits.kit.exhibit import Exhibit, Part, exhibit
from study.exhibits.kit.runs import Point, Runs, by_label
from study.exhibits.kit.style import WIDTH, colour, legend, number
from study.exhibits.kit.tables import differences, metrics_by_label
from study.settings import Settings

PRIORS, LEARNING_PRIOR = (8, 16, 32, 64, 128), 32
"""How many examples the source counts against the batch, and where methods that learn are put on
top.
"""


@exhibit
class SourceStatistics(Exhibit):
    name, place, label, title = (
        "source_statistics",
        144,
        "beyond: statistics",
        "What statistics give without learning",
    )
    question = (
        "How much of what learning gains does a share of the source's BatchNorm statistics give?"
    )
    of_several = True

    def points(self, settings: Settings) -> list[Point]:
        """On each network the curve from AdaBN to ERM; Tent and the cascade on a batch's statistics
        and on a blend.
        """
        points, objectives = [], networks_of(settings)
        for objective in objectives:
            network = f", {NETWORKS[objective]}" if len(objectives) > 1 else ""
            named = ("tent",) if objective == "erm" else ("tent", "cascade")
            learning = [name for name in named if name in settings.image.methods]
            for name in ("adabn", "erm", *learning):
                points.append(
                    Point(
                        METHODS[name].label + network, name, objective, {"statistics_memory": None}
                    )
                )
            blended = [(f"N = {count}", "source_prior", count) for count in PRIORS]
            for name in learning:
                blended.append(
                    (
                        f"{METHODS[name].label}, N = {LEARNING_PRIOR}",
                        f"{name}_source_prior",
                        LEARNING_PRIOR,
                    )
                )
            for label, method, count in blended:
                changes = {"statistics_memory": count, "forward_transfer": False}
                points.append(Point(label + network, method, objective, changes))
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        size, labels = frame["run"].iloc[0].request.batch_size, by_label(frame)
        counts = (
            frame["method"]
            .map({"adabn": 0, "erm": math.inf})
            .fillna(frame["statistics_memory"].astype(float))
        )
        frame["share"] = 100 * (1 - size / (size + counts))
        frame["learns"] = [METHODS[name].adapts for name in frame["method"]]
        table = metrics_by_label(frame)[["E", "A", "n"]].rename_axis("method")
        shares = frame.groupby("label")["share"].mean().map(lambda share: number(share, 0))
        table.insert(0, "the source's share (%)", shares)
        intervals = {
            label: interval_text(*interval_over_images(each)) for label, each in labels.items()
        }
        table.insert(2, "95 %, over images", pd.Series(intervals))
        table = table.loc[
            frame.sort_values(["objective", "learns", "share"], kind="stable")["label"].unique()
        ]
        note = (
            "N: examples that the source counts against a batch; its share is that of a full one. "
            "All that were run "
            f"are shown, so the best flatters; N = {LEARNING_PRIOR} for learning was taken after "
            "the first curve."
        )
        pairs: dict[str, tuple[pd.DataFrame, pd.DataFrame]] = {}
        for _, network in frame.groupby("objective", sort=False):
            blends, rivals = (
                network[network["method"] == "source_prior"],
                network[network["learns"]],
            )
            for rival, each in by_label(
                pd.concat([network[network["method"] == "adabn"], rivals])
            ).items():
                on_top = (
                    each["learns"].all() and each["share"].notna().all()
                )  # Held against its own blend alone.
                others = blends[blends["share"] == each["share"].iloc[0]] if on_top else blends
                pairs |= {
                    f"{label} − {rival}": (each, rows) for label, rows in by_label(others).items()
                }
        contrasts = differences("source-statistics-differences", pairs)
        # Networks of one kind differ by more than the curves do, so a figure holds the same seeds
        # of all.
        common = set.intersection(*(set(each["seed"]) for each in labels.values()))
        figure = (
            _curves(frame[frame["seed"].isin(common)])
            if common
            else "No figure: no seed has all of these."
        )
        return [figure, Part("source-statistics", table, note), *contrasts]


def _curves(frame: pd.DataFrame) -> Part:
    """A curve a network, a line for a method that learns, and a mark for one that does so on a
    blend.
    """
    figure, axes = plt.subplots(figsize=(WIDTH, 3.4))
    for objective, each in frame.groupby("objective", sort=False):
        network = f", {NETWORKS[str(objective)]}" if frame["objective"].nunique() > 1 else ""
        curve, dash = (
            each[~each["learns"]].groupby("share")["E"].mean(),
            "--" if objective == "erm" else "-",
        )
        axes.plot(curve, color="black", ls=dash, marker="o", label=f"statistics alone{network}")
        for label, one in by_label(each[each["learns"]]).items():
            error, shade = (
                one["E"].mean(),
                colour("tent" if one["method"].iloc[0].startswith("tent") else "cascade"),
            )
            if one["share"].isna().all():
                axes.axhline(error, color=shade, ls=dash, label=label)
            else:
                inside = "white" if objective == "erm" else shade
                axes.plot(one["share"].iloc[0], error, "D", color=shade, mfc=inside, label=label)
    axes.set(
        xlabel="the source's share of the statistics (%); 0: AdaBN, 100: ERM",
        ylabel="online error E (%)",
    )
    legend(figure, columns=3)
    told = (
        "Level: methods that learn. Where a curve is below a level of its kind, statistics "
        "alone err less."
    )
    told += (
        " Dashed and hollow: the plainly trained network. Diamonds: learning on a blend, "
        f"N = {LEARNING_PRIOR}."
    )
    told += f" Seeds that all of these have: {', '.join(map(str, sorted(set(frame['seed']))))}."
    return Part("source-statistics-figure", figure, told, list(frame["run"]))
