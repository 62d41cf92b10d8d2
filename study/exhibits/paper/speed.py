"""tab:speed: the seconds and the work of adaptation."""

import math

import pandas as pd

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.numbers import number
from study.exhibits.kit.paper_numbers import paper_values
from study.exhibits.kit.points import Point, points_for
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs
from study.settings import Settings
from study.store import Run

LEFT_OUT = (
    "Left out: runs that also measured the agreement with the source. Their seconds include one "
    "more forward pass per batch, and no run of the same method without it is stored."
)


@exhibit
class Speed(Exhibit):
    name = "speed"
    place = 110
    label = "tab:speed"
    title = "Seconds to adapt to one corruption"
    question = "What does adapting cost?"

    def points(self, settings: Settings) -> list[Point]:
        return points_for([name for name in settings.image.methods if METHODS[name].adapts])

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        frame = frame.assign(run=frame["run"].map(lambda run: _plainest(run, runs)))
        also_agreement = frame["run"].map(lambda run: run.request.source_agreement)
        told: list[Part | str] = [LEFT_OUT] if also_agreement.any() else []
        frame = frame[~also_agreement]
        if frame.empty:
            return told
        paper = paper_values("tab:speed", frame["run"].iloc[0]).set_index("method")["value"]
        domains = [run.batches.groupby("step")[["seconds", "count"]].sum() for run in frame["run"]]
        timed = frame.assign(
            seconds=[each["seconds"].mean() for each in domains],
            images=[each["count"].max() for each in domains],
            work=[run.provenance.cost["work"] for run in frame["run"]],
            device=[run.provenance.device for run in frame["run"]],
        )
        rows = timed.groupby(["label", "device"], sort=False)
        means = rows.agg({"seconds": "mean", "work": "mean", "network": "nunique"})
        labels = means.index.get_level_values("label")
        is_cascade = labels == METHODS["cascade"].label
        cascade = means["seconds"].where(is_cascade).groupby("device").transform("max")
        columns = {
            f"seconds per domain of {timed['images'].max():,} images": means["seconds"].map(number),
            "times the cascade's": (means["seconds"] / cascade).map(lambda times: number(times, 1)),
            "work, in forward passes": means["work"].map(number),
            "the paper's, for 10,000 images on an RTX 2080 Ti": [
                number(paper.get(label, math.nan), 0) for label in labels
            ],
            "n": means["network"].astype(str),
        }
        if paper.empty:
            del columns["the paper's, for 10,000 images on an RTX 2080 Ti"]
        table = pd.DataFrame(columns).rename_axis(["method", "device"])
        note = (
            "Adapting and predicting, without measuring A and F. Seconds change with the "
            "load; work is counted."
        )
        return [Part("speed", table, note), *told]


def _plainest(run: Run, runs: Runs) -> Run:
    """Return a run of the same request that measured no agreement with the source. If there is
    none, return `run`.
    """
    for other in runs.of_one_state:
        is_plain = not other.request.source_agreement
        if is_plain and other.request.fullest == run.request.fullest:
            return other
    return run
