"""tab:insensitive: error by batch size."""

import pandas as pd

from study.exhibits.kit.exhibit import exhibit
from study.exhibits.kit.numbers import rounded
from study.exhibits.kit.points import Point, adapting, of_sizes, points_for
from study.exhibits.kit.sweep import Sweep
from study.settings import Settings

PAPER_SIZES = (128, 64, 32, 16)


@exhibit
class BatchSize(Sweep):
    name = "batch_size"
    place = 50
    label = "tab:insensitive"
    title = "Error by batch size"
    question = "Does the cascade depend less on the batch size than the others?"
    over = "batch_size"
    paper = ("tab:insensitive", "method")
    note = (
        "E (%). mean, std: over the paper's batch sizes, at the seeds that have all of these sizes."
    )

    def points(self, settings: Settings) -> list[Point]:
        return points_for(
            adapting(settings), of_sizes(settings, settings.image.exhibits.ablation_batch_sizes)
        )

    def table(self, frame: pd.DataFrame) -> pd.DataFrame:
        wide = frame.pivot_table("E", ["label", "seed"], "batch_size").reindex(columns=PAPER_SIZES)
        wide = wide.dropna()
        seeds = [set(each.index.get_level_values("seed")) for _, each in wide.groupby("label")]
        if seeds:
            shared = set.intersection(*seeds)
            wide = wide[wide.index.get_level_values("seed").isin(shared)]
        means = wide.groupby("label").mean()
        over_sizes = pd.DataFrame({"mean": means.mean(axis=1), "std": means.std(axis=1)})
        return super().table(frame).join(over_sizes.map(rounded).astype(object)).fillna("–")
