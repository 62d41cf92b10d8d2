"""Beyond the paper: how inexact a batch's variance is at each BatchNorm layer, and the gain of
blending in the source's statistics.
"""

import pandas as pd

from cascadetta_lib.evaluation.batch_variance import EXAMPLES
from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.numbers import number
from study.exhibits.kit.points import Point, source_prior_points
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs, weights_of
from study.exhibits.kit.style import colour, legend, panels
from study.settings import Settings
from study.store import Run
from study.study import Study

ADABN = "adabn"
ERRORS = {"variance_error": "measured", "independent_error": "independent values"}
FIXED = 16
"""N of the source prior, chosen before any run."""
EFFECTIVE = (
    "Effective independent values: how many independent values per example would give the measured "
    "error of the variance."
)


@exhibit
class BatchVariance(Exhibit):
    """Show how inexact a batch's variance is at each BatchNorm layer, beside the gain of the source
    prior over AdaBN.

    Neither AdaBN nor the source prior learns or remembers. They differ only in the statistics of
    BatchNorm: AdaBN takes those of the batch, and the source prior blends in the source's. So if
    the source prior has a lower E, its statistics are the cause. How far a batch's variance is from
    that of all examples shows how inexact the statistics of a small batch are.
    """

    name = "batch_variance"
    place = 145
    label = "beyond: a batch's variance"
    title = "What a batch knows of the variance"
    question = "Does AdaBN err more than the source prior because a batch's variance is inexact?"

    def points(self, settings: Settings) -> list[Point]:
        """Return points of AdaBN and the source prior on the meta-learned network."""
        return source_prior_points("meta")

    def make(self, study: Study) -> list[Run]:
        """Make the runs. Also measure how inexact a batch's variance is, unless the domains are too
        small.

        The measurement uses at most EXAMPLES examples of each domain, and these must hold two
        batches.
        """
        made = super().make(study)
        if not made:
            return []
        run = made[0]
        fewest = run.batches.groupby("step")["count"].sum().min()
        if min(fewest, EXAMPLES) >= 2 * run.request.batch_size:
            study.batch_variance(run)
        return made

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        base = frame[frame["method"] == ADABN].drop_duplicates("network")
        measured = []
        for run in base["run"]:
            layers = runs.study.store.batch_variance(run)
            if layers is not None:
                measured.append(pd.DataFrame(layers).assign(network=weights_of(run)))
        if not measured:
            return [
                "Missing: how inexact a batch's variance is. This was not measured. It needs two "
                f"batches among the first {EXAMPLES:,} examples of each domain."
            ]
        errors = pd.concat(measured, ignore_index=True)
        size = base["run"].iloc[0].request.batch_size
        count = errors["network"].nunique()
        note = (
            f"Compared: batches of {size} and all examples, at the inputs of each BatchNorm layer. "
            "All layers normalise by the statistics of all examples, so each layer shows only its "
            "own error. The root of the mean square over batches, channels and domains; mean over "
            f"{count} network{'' if count == 1 else 's'}. Independent values: what n values of a "
            "batch would give if they were independent and normal, √(2n − 1) / n."
        )
        return [
            _figure(errors, gains(frame), note),
            Part("batch-variance", _table(errors, size), f"{note} {EFFECTIVE}"),
        ]


def gains(frame: pd.DataFrame) -> pd.Series:
    """Return the gain of the source prior over AdaBN by N of the prior: AdaBN's E minus the source
    prior's, in points.

    The values are means over the seeds that both have.
    """
    base = frame[frame["method"] == ADABN].set_index("seed")["E"]
    blends = frame[frame["method"] != ADABN]
    gain = base.reindex(blends["seed"]).to_numpy() - blends["E"]
    return gain.groupby(blends["statistics_memory"].astype(int)).mean()


def _table(errors: pd.DataFrame, size: int) -> pd.DataFrame:
    """Return the errors as text, a row per layer in the order of the network."""
    rows = errors.groupby("layer", sort=False).mean(numeric_only=True)
    # Find the number n of independent values whose variance would have the measured error e:
    # √(2n − 1) / n = e, so e² n² − 2 n + 1 = 0.
    square = rows["variance_error"].clip(upper=1) ** 2
    known = (1 + (1 - square) ** 0.5) / square / size
    columns = {
        "channels": rows["channels"].map("{:.0f}".format),
        "values per example": rows["values"].map("{:.0f}".format),
        "error of the variance (%)": (100 * rows["variance_error"]).map(number),
        "if independent (%)": (100 * rows["independent_error"]).map(number),
        "effective independent values per example": known.map(lambda value: number(value, 1)),
        "error of the mean (standard deviations)": rows["mean_error"].map(
            lambda value: number(value, 3)
        ),
    }
    return pd.DataFrame(columns)


def _figure(errors: pd.DataFrame, gain: pd.Series, note: str) -> Part:
    """Draw the errors by layer on the left, and the gain by N of the prior on the right."""
    figure, (left, right) = panels(2, 3.2)
    rows = errors.groupby("layer", sort=False).mean(numeric_only=True)
    for (column, label), shade in zip(ERRORS.items(), ("black", "0.6"), strict=True):
        values = (100 * rows[column]).to_numpy()
        left.plot(range(1, len(values) + 1), values, color=shade, marker="o", ms=3, label=label)
    left.set(
        title="error of a batch's variance (%)",
        xlabel="BatchNorm layer, from the input on",
        yscale="log",
    )
    left.locator_params(axis="x", integer=True)
    right.plot(gain.index, gain.to_numpy(), color=colour("source_prior"), marker="o", ms=3)
    if FIXED in gain.index:
        right.plot(FIXED, gain[FIXED], "D", color=colour("source_prior"), ms=7, label="N = 16")
    right.axhline(0, color="0.4", lw=1)
    right.set(
        title="gain over AdaBN (points of E)",
        xlabel="N: the source counts as N examples",
        xscale="log",
    )
    legend(figure)
    told = (
        f"{note} Right: the source prior on the same network. The diamond was set beforehand, the "
        "other N are shown for the curve."
    )
    return Part("batch-variance-figure", figure, told)
