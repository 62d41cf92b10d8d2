"""tab:speed: seconds to adapt to one corruption, and how many times the cascade's on the same device."""

import numpy as np
import pandas as pd

from cascadetta_lib.exhibits.base import Exhibit, Part, exhibit
from cascadetta_lib.exhibits.paper import paper_values
from cascadetta_lib.exhibits.runs import Point, Runs, points_for
from cascadetta_lib.exhibits.style import number
from cascadetta_lib.methods import METHODS
from cascadetta_lib.settings import Settings
from cascadetta_lib.store import Run


@exhibit
class Speed(Exhibit):
    name, place, label, title = "speed", 110, "tab:speed", "Seconds to adapt to one corruption"
    question = "What does adapting cost?"

    def points(self, settings: Settings) -> list[Point]:
        return points_for(name for name in settings.image.methods if METHODS[name].adapts)

    def parts(self, runs: Runs) -> list[Part | str]:
        frame = runs.frame(self.points(runs.settings))
        paper = paper_values("tab:speed", frame["run"].iloc[0]).set_index("method")["value"]
        frame["device"] = [run.provenance["device"] for run in frame["run"]]
        frame["seconds"] = [seconds_per_domain(run) for run in frame["run"]]
        means = frame.groupby(["label", "device"], sort=False).agg({"seconds": "mean", "seed": "nunique"}).reset_index()
        rows = {}
        for row in means.to_dict("records"):
            same = means[(means["device"] == row["device"]) & (means["label"] == METHODS["cascade"].label)]["seconds"]
            rows[row["label"], row["device"]] = {
                "seconds a domain": number(row["seconds"]),
                "times the cascade's": number(row["seconds"] / same.mean(), 1),
                "paper, 10,000 on an RTX 2080 Ti": number(paper.get(row["label"], np.nan), 0),
                "n": str(row["seed"]),
            }
        table = pd.DataFrame.from_dict(rows, orient="index").rename_axis(["method", "device"])
        note = "Adapting and predicting, without the measurements of A and F."
        return [Part("speed", table, list(frame["run"]), note)]


def seconds_per_domain(run: Run) -> float:
    """Mean seconds of the online pass over one domain."""
    return float(run.batches.groupby("step")["seconds"].sum().mean())
