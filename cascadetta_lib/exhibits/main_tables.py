"""tab:main-result, tab:text, tab:speech: E, A, F and the error in every domain, ours beside the paper's; and the same
of tab:gradual-c10, over 135 gradually changing domains."""

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns

from cascadetta_lib.evaluate import online_errors
from cascadetta_lib.exhibits.base import Exhibit, Part, exhibit
from cascadetta_lib.exhibits.paper import paper_main, paper_values
from cascadetta_lib.exhibits.pictures import entropy_figure
from cascadetta_lib.exhibits.runs import Point, Runs, by_label, main_points, methods_of, points_for, reduced
from cascadetta_lib.exhibits.style import SHORT, WIDTH, colour, name_domains, number, panels, typeset
from cascadetta_lib.exhibits.tables import DEFINED, F_NAMES, beside_paper, method_differences, metrics_by_label
from cascadetta_lib.methods import METHODS
from cascadetta_lib.settings import Settings

TITLES = {"E": "E (%) ↓", "A": "A (%) ↑", "F": "F of Eq. 2 (points) ↑", "F_final": "F, final model (points) ↑"}


class MainTable(Exhibit):
    """The main study of one modality."""

    elsewhere = ("cifar100", "tiny_imagenet")

    def points(self, settings: Settings) -> list[Point]:
        return main_points(settings, self.modality)

    def parts(self, runs: Runs) -> list[Part | str]:
        frame, name = runs.frame(self.points(runs.settings)), self.modality
        used, paper = list(frame["run"]), paper_main(frame["run"].iloc[0])
        with_a = [run for run in used if run.batches["agreement"].notna().any()]
        note = "Of the methods that have θ_a. An a that is sure and agrees by chance has collapsed."
        return [
            _metrics_figure(f"{name}-metrics", frame, paper),
            Part(f"{name}-metrics-table", metrics_table(frame, paper), used, DEFINED),
            Part(f"{name}-domains", domains_table(frame), used, "E by domain (%), then E, A, F. Bold: the best."),
            stream_figure(f"{name}-stream", frame),
            Part(f"{name}-entropies", entropy_figure(with_a), with_a, note) if with_a else "No method has θ_a.",
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
        image = settings.image
        changes = {"forward_transfer": image.forward_transfer, "test_size": image.gradual_test_size}
        return points_for(image.methods, reduced(settings, stream="gradual", **changes))

    def parts(self, runs: Runs) -> list[Part | str]:
        frame = runs.frame(self.points(runs.settings))
        values = paper_values("tab:gradual-c10", frame["run"].iloc[0])
        paper = values.pivot(index="method", columns="metric", values="value")
        return [
            Part("gradual", metrics_table(frame, paper), list(frame["run"]), DEFINED),
            stream_figure("gradual-figure", frame),
            *method_differences("gradual-differences", frame),
        ]


def metrics_table(frame: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """E, A and F by all its definitions, mean ± standard deviation over seeds, over the paper's where it has them."""
    return beside_paper(metrics_by_label(frame), paper).rename(columns=F_NAMES)


def domains_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The paper's layout: methods × domains, then E, A, F and n. Means over seeds; the best of each column in bold,
    ours and the paper's each among themselves."""
    rows = {
        label: pd.concat([by_domain(each), each[["E", "A", "F"]].mean()]) for label, each in by_label(frame).items()
    }
    seeds = frame.groupby("label")["seed"].nunique().astype(str)
    ours, paper = pd.DataFrame(rows).T, paper_main(frame["run"].iloc[0])
    return beside_paper(ours.apply(_best_in_bold).assign(n=seeds), paper.apply(_best_in_bold)).rename(columns=SHORT)


def by_domain(frame: pd.DataFrame) -> pd.Series:
    """Online error (%) by the name of the domain, the mean over the runs of `frame`."""
    errors = [100 * online_errors(run.batches).groupby("domain", sort=False).mean() for run in frame["run"]]
    return pd.concat(errors, axis=1).mean(axis=1)


def _best_in_bold(column: pd.Series) -> pd.Series:
    """Numbers as text with one decimal; the most of A and F, the least of all else in bold."""
    best = column.max() if column.name in ("A", "F") else column.min()
    return column.map(lambda value: f"**{number(value, 1)}**" if value == best else number(value, 1))


def _metrics_figure(name: str, frame: pd.DataFrame, paper: pd.DataFrame) -> Part:
    """E, A and F: ours as bars, the paper's as diamonds. F's axis is that of our numbers, since one of the paper's may
    lie ten times as far out."""
    methods, shown = methods_of(frame), [metric for metric in TITLES if frame[metric].notna().any()]
    figure, grid = panels(len(shown), 0.9 + 0.3 * len(methods), sharey=True)
    for axes, metric in zip(grid, shown, strict=True):
        sns.barplot(frame, x=metric, y="label", hue="label", palette=list(methods.map(colour)), errorbar="sd", ax=axes)
        published = paper.reindex(methods.index).get(metric.removesuffix("_final"), pd.Series(dtype=float))
        axes.plot(published, range(len(published)), "D", mfc="white", mec="black", ms=5, zorder=5)
        axes.set(title=TITLES[metric], xlabel="", ylabel="")
        if metric.startswith("F"):
            limit = 2.5 * max(1.0, frame[metric].abs().max())
            axes.set_xlim(-limit, limit)
    grid[0].set_yticks(range(len(methods)), list(map(typeset, methods.index)))
    note = (
        "Bars: ours, whiskers: one standard deviation over seeds. Diamonds, where the axis reaches them: the paper's."
    )
    return Part(name, figure, list(frame["run"]), note)


def stream_figure(name: str, frame: pd.DataFrame) -> Part | str:
    """What each adapting method adds to AdaBN's online error in every domain of the stream, the mean over seeds."""
    domains, base = [domain.name for domain in frame["run"].iloc[0].request.stream], METHODS["adabn"].label
    errors = pd.DataFrame([100 * online_errors(run.batches).to_numpy() for run in frame["run"]], index=frame["label"])
    means, methods = errors.groupby(level=0, sort=False).mean(), methods_of(frame)
    adapting = [label for label, method in methods.items() if METHODS[method].adapts]
    if base not in means.index or len(domains) < 2 or not adapting:
        return "No figure along the stream: it takes AdaBN, a method that adapts, and two domains or more."
    few = len(domains) <= 20
    figure, axes = plt.subplots(figsize=(WIDTH, 1.2 + 0.35 * len(adapting)))
    added = means.loc[adapting] - means.loc[base]
    sns.heatmap(added, ax=axes, cmap="vlag", center=0, robust=True, annot=few, fmt="+.1f", annot_kws={"fontsize": 7})
    axes.set_yticks(axes.get_yticks(), list(map(typeset, adapting)), rotation=0)
    axes.set(title="online error less AdaBN's (points)", ylabel="")
    name_domains(axes, domains, 0.5)
    return Part(
        name,
        figure,
        list(frame["run"]),
        f"In the same domain; blue is less. {base}: {number(means.loc[base].mean())} %.",
    )
