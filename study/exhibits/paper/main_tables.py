"""tab:main-result, tab:text, tab:speech: E, A, F and the error in every domain, ours beside the
paper's; and the same of tab:gradual-c10, over 135 gradually changing domains."""

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns

from cascadetta_lib.evaluation.metrics import online_errors
from cascadetta_lib.methods import METHODS
from study.exhibits.kit.exhibit import Exhibit, Part, exhibit
from study.exhibits.kit.runs import (
    Point,
    Runs,
    by_label,
    main_points,
    points_with_transfer,
    reduced,
)
from study.exhibits.kit.style import WIDTH, name_domains, number, reading, typeset
from study.exhibits.kit.tables import (
    DEFINED,
    domains_table,
    method_differences,
    metrics_table,
    paper_main,
    paper_values,
)
from study.exhibits.paper.uncertainty import ENTROPIES, HEADS, entropy_figure
from study.settings import Settings


class MainTable(Exhibit):
    """The main study of one modality."""

    elsewhere = ("cifar100", "tiny_imagenet")

    def points(self, settings: Settings) -> list[Point]:
        return main_points(settings, self.modality)

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        name, paper = self.modality, paper_main(frame["run"].iloc[0])
        with_a = frame[[run.batches["agreement"].notna().any() for run in frame["run"]]]
        told = (
            "Of methods with θ_a, each on its own network. An a that is sure and agrees by "
            "chance tells nothing."
        )
        note = f"{HEADS} {told} {reading(with_a, ENTROPIES)}"
        return [
            Part(f"{name}-metrics", metrics_table(frame, paper), DEFINED),
            Part(
                f"{name}-domains",
                domains_table(frame),
                "E by domain (%), then E, A, F. Bold: the best.",
            ),
            stream_figure(f"{name}-stream", frame),
            Part(
                f"{name}-entropies", entropy_figure(list(with_a["run"])), note, list(with_a["run"])
            )
            if len(with_a)
            else "No method has θ_a.",
            *method_differences(f"{name}-differences", frame),
        ]


@exhibit
class MainImage(MainTable):
    name, place, label, title = "main_image", 10, "tab:main-result", "Images"
    question = "How do the methods compare on corrupted images?"


@exhibit
class MainText(MainTable):
    name, place, label, title, modality = "main_text", 30, "tab:text", "Text", "text"
    question = "How do the methods compare on reviews of other products?"


@exhibit
class MainSpeech(MainTable):
    name, place, label, title, modality = "main_speech", 40, "tab:speech", "Speech", "speech"
    question = "How do the methods compare on changed recordings?"


@exhibit
class Gradual(Exhibit):
    name, place, label, title = "gradual", 80, "tab:gradual-c10", "135 gradually changing domains"
    question = "Does a method that is never reset hold over a long stream?"

    def points(self, settings: Settings) -> list[Point]:
        changes = reduced(settings, stream="gradual", test_size=settings.image.gradual_test_size)
        return points_with_transfer(settings, settings.image.methods, changes)

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        values = paper_values("tab:gradual-c10", frame["run"].iloc[0])
        paper = values.pivot(index="method", columns="metric", values="value")
        return [
            Part("gradual", metrics_table(frame, paper), DEFINED),
            stream_figure("gradual-figure", frame),
            *method_differences("gradual-differences", frame),
        ]


def stream_figure(name: str, frame: pd.DataFrame) -> Part | str:
    """What each adapting method adds to AdaBN's online error in every domain, the mean over the
    seeds of both.
    """
    domains, labels = (
        [domain.name for domain in frame["run"].iloc[0].request.stream],
        by_label(frame),
    )
    base = labels.get(METHODS["adabn"].label, frame[:0])
    adapting = [label for label, rows in labels.items() if METHODS[rows["method"].iloc[0]].adapts]
    rows = {label: errors_less(labels[label], base).to_numpy() for label in adapting}
    added, few = (
        pd.DataFrame({label: row for label, row in rows.items() if len(row)}).T,
        len(domains) <= 20,
    )
    if added.empty or len(domains) < 2:
        return (
            "No figure along the stream: it takes AdaBN, a method that adapts, and two "
            "domains or more."
        )
    texts = added.map(lambda value: number(value, 1, sign=True)) if few else False
    figure, axes = plt.subplots(figsize=(WIDTH, 1.2 + 0.35 * len(added)))
    # One method that fails would leave the others without colour.
    end = max(1.0, float(added.abs().max(axis=1).median()))
    look: Any = {"cmap": "vlag", "vmin": -end, "vmax": end, "cbar_kws": {"extend": "both"}}
    sns.heatmap(added, ax=axes, annot=texts, fmt="", annot_kws={"fontsize": 7}, **look)
    other = {
        label for label in added.index if set(labels[label]["objective"]) != set(base["objective"])
    }
    names = [typeset(label) + (" *" if label in other else "") for label in added.index]
    axes.set_yticks(axes.get_yticks(), names, rotation=0)
    axes.set(title="online error less AdaBN's (points)", ylabel="")
    name_domains(axes, domains, 0.5)
    note = (
        "In the same domain, on the same seeds; blue is less. Colours end at "
        f"±{number(end)} points."
    )
    if other:
        note += " *: on another network than AdaBN; the difference is the network's, too."
    note += f" Only methods that adapt are shown. E of AdaBN: {number(base['E'].mean())} %."
    shown = pd.concat([base, *(labels[label] for label in added.index)])
    return Part(name, figure, note, list(shown["run"]))


def errors_less(frame: pd.DataFrame, base: pd.DataFrame) -> pd.Series:
    """Online error (points) in the domains of the stream, in their order, less that of `base` (a
    run a seed each): the mean over the seeds that both have; empty where they have none."""
    both = frame.merge(base, on="seed")
    runs = zip(both["run_x"], both["run_y"], strict=True)
    apart = [100 * (online_errors(one.batches) - online_errors(two.batches)) for one, two in runs]
    return (
        pd.concat(apart, axis=1).mean(axis=1).droplevel(["step", "severity"])
        if apart
        else pd.Series(dtype=float)
    )
