"""Exhibits: tables and figures from saved runs alone, beside the paper's numbers, each with what made it.

All numbers are percent. Figures have one style and one colour a method; a band or an error bar is one standard
deviation over seeds.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cascadetta_lib.data import paper_batch_size
from cascadetta_lib.data.corruptions import CORRUPTIONS
from cascadetta_lib.data.image import ImageDataset
from cascadetta_lib.data.speech import SOURCE_DOMAIN, SpeechDataset, log_mel
from cascadetta_lib.data.text import TextDataset
from cascadetta_lib.evaluate import average_accuracy, forward_transfer, mean_online_error, online_errors
from cascadetta_lib.methods import METHODS
from cascadetta_lib.models import LeNetConfig, MLPConfig, ModelConfig, ResNetConfig
from cascadetta_lib.pretrain import OBJECTIVES
from cascadetta_lib.streams import make_stream
from cascadetta_lib.study import Checkpoint, CheckpointConfig, Run, RunConfig, Trained

PAPER_RESULTS = Path(__file__).with_name("paper_results.csv")
"""The paper's published numbers in long form: table, dataset, setup, severity, batch_size, method, …, metric, value."""
METRICS = {"online_error": "E", "average_accuracy": "A", "forward_transfer": "F"}
SHORT = dict(
    zip(
        CORRUPTIONS,
        "gauss shot impul defoc glass motn zoom snow frost fog brit contr elast pixel jpeg".split(),
        strict=True,
    )
)
"""The paper's column heads."""
PALETTE = [*sns.color_palette("colorblind"), *sns.color_palette("Dark2")]
"""Of the methods: ten that colour-blind readers tell apart, and eight more."""
OBJECTIVE_PALETTE = [*sns.color_palette("dark"), *sns.color_palette("Set2")]
"""Of the pre-trainings."""


# ---------------------------------------------------------------- runs and their provenance


PAPER_TRAINING = {"image": {"epochs": 75}, "text": {"iterations": 1000}, "speech": {"epochs": 50}}
"""How long the paper pre-trains."""
PAPER_LEARNING_RATE = 0.001
"""At test time."""
PAPER_MODELS = (
    ResNetConfig(depth=26, width=16),
    ResNetConfig(architecture="resnet34"),
    MLPConfig(hidden=(1024, 512)),
    MLPConfig(hidden=(50, 50)),
    LeNetConfig(),
)
"""The paper's networks, whatever the classes, the inputs, and the kind of block."""


def comparable(runs: Sequence[Run]) -> bool:
    """Whether numbers may be held against the paper's: its own data, whole, its network, a training as long as its, its
    stream and order of prediction, and three seeds or more of each method."""
    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(run.config.method, set()).add(run.seed)
    return all(len(found) >= 3 for found in seeds.values()) and all(
        run.provenance["official_data"]
        and _trained_as_long(run.config.checkpoint)
        and any(_same_size(run.config.checkpoint.model, model) for model in PAPER_MODELS)
        and run.config.checkpoint.source.options.get("features") != "counts"  # the paper's text is mSDA
        and (run.config.predict, run.config.last_batch) == ("after", "kept")
        and paper_table(run.config) is not None
        and run.config.batch_size == paper_batch_size(run.config.checkpoint.source.dataset)
        and run.config.online_learning_rate == PAPER_LEARNING_RATE
        for run in runs
    )


def _trained_as_long(checkpoint: CheckpointConfig) -> bool:
    wanted = PAPER_TRAINING[checkpoint.source.modality]
    return all((getattr(checkpoint.training, name) or 0) >= least for name, least in wanted.items())


def _same_size(model: ModelConfig, other: ModelConfig) -> bool:
    free = {"classes", "inputs", "block", "main_logits"}
    return model.model_dump(exclude=free) == other.model_dump(exclude=free)


def paper_table(config: RunConfig) -> tuple[tuple[str, ...], int | None] | None:
    """The paper's tables for a stream, and its severity or None; None for a stream that the paper has not."""
    modality, stream = config.checkpoint.source.modality, list(config.stream)
    if modality != "image":
        return ((f"tab:{modality}",), None) if stream == make_stream("instantaneous", modality) else None
    if stream == make_stream("gradual", modality):
        return ("tab:gradual-c10",), None
    for severity in range(1, 6):
        if stream == make_stream("instantaneous", modality, severity):
            return ("tab:main-result", "tab:add-result"), severity
    return None


def label(runs: Sequence[Run]) -> str:
    """What made these numbers, in one paragraph. Raises ValueError without runs."""
    if not runs:
        raise ValueError("no runs, so nothing to say where they come from")

    def each(values: Sequence[Any]) -> str:
        return ", ".join(dict.fromkeys(str(value) for value in values))

    provenance = [run.provenance for run in runs]
    config = runs[0].config
    training, unit = config.checkpoint.training, provenance[0]["unit"]
    sizes = (
        f"{config.checkpoint.source.options['train_size'] or 'all'} source {unit}, "
        f"{each([run.config.test_size or 'all' for run in runs])} {unit} a domain, "
        f"batch {each([run.config.batch_size for run in runs])}"
    )
    length = f"{training.epochs} epochs" if training.iterations is None else f"{training.iterations} iterations"
    verdict = "comparable with the paper's" if comparable(runs) else "NOT comparable with the paper's"
    return (
        f"Data: {each([p['data_source'] for p in provenance])}; "
        f"{each([p['domain_source'] for p in provenance])}; {sizes}. "
        f"Profile {each([p['profile'] for p in provenance])}, {length}, "
        f"seeds {each(sorted({run.seed for run in runs}))}; "
        f"prediction {' and '.join(sorted({run.config.predict for run in runs}))} the update. "
        f"Device: {each([p['device'] for p in provenance])}; "
        f"torch {each([p['packages']['torch'] for p in provenance])}; "
        f"code {each([p['code_revision'] for p in provenance])}. These numbers are {verdict}."
    )


# ---------------------------------------------------------------- numbers


def results(runs: Sequence[Run]) -> pd.DataFrame:
    """Long form, a row a (method, seed, domain, metric): value in percent; domain `all` for E, A and F.

    A stream that meets a domain several times gives the mean of its errors.
    """
    rows = []
    for run in runs:
        base = {"method": run.config.method, "seed": run.seed}
        errors = online_errors(run.batches).groupby("domain", sort=False).mean()
        rows += [base | {"domain": d, "metric": "online_error", "value": 100 * e} for d, e in errors.items()]
        whole = {
            "online_error": mean_online_error(run.batches),
            "average_accuracy": average_accuracy(run.accuracies),
            "forward_transfer": forward_transfer(run.accuracies, run.config.forward_transfer),
        }
        rows += [base | {"domain": "all", "metric": m, "value": 100 * v} for m, v in whole.items() if v is not None]
    return pd.DataFrame(rows, columns=["method", "seed", "domain", "metric", "value"])


def over_seeds(numbers: pd.DataFrame) -> pd.DataFrame:
    """Mean, sample standard deviation (NaN from one seed) and n over seeds; a row a (method, domain, metric)."""
    groups = numbers.groupby(["method", "domain", "metric"], sort=False)["value"]
    return groups.agg(mean="mean", std="std", n="count").reset_index()


def paper_numbers(runs: Sequence[Run]) -> pd.DataFrame:
    """The paper's numbers for the same dataset, stream, severity and batch size (where it says one), in the form of
    `over_seeds` (method and domain by our names). Empty where the paper has none.
    """
    config, compare_with = runs[0].config, runs[0].provenance["compare_with"]
    tables, severity = paper_table(config) or ((), None)
    table = pd.read_csv(PAPER_RESULTS)
    table = table[table["table"].isin(tables) & (table["dataset"] == compare_with)]
    table = table[table["batch_size"].isna() | (pd.to_numeric(table["batch_size"]) == config.batch_size)]
    if severity is not None:
        table = table[pd.to_numeric(table["severity"]) == severity]
    names = {METHODS[name].label: name for name in METHODS if METHODS[name].in_paper} | {"Ours": "cascade"}
    table = table.assign(method=table["method"].map(names), mean=table["value"], std=np.nan, n=1)
    table["domain"] = table["domain"].replace("dvds", "dvd")
    return table[["method", "domain", "metric", "mean", "std", "n"]].dropna(subset="method").reset_index(drop=True)


# ---------------------------------------------------------------- tables


def main_table(runs: Sequence[Run]) -> pd.DataFrame:
    """tab:main-result: methods × domains, then E, A, F and n, the seeds; ours over the paper's; the best of each column
    in bold.

    Cells are text, `mean ± std` in percent; bold is `**…**`. Ours and the paper's are compared each among themselves.
    """
    ours, paper = over_seeds(results(runs)), paper_numbers(runs)
    domains = list(dict.fromkeys(domain.name for domain in runs[0].config.stream))
    columns = [(name, "online_error") for name in domains] + [("all", metric) for metric in METRICS]
    methods = list(dict.fromkeys(run.config.method for run in runs))
    cells: dict[tuple[str, str], dict[str, str]] = {
        (METHODS[m].label, source): {} for m in methods for source in ("ours", "paper")
    }
    for domain, metric in columns:
        head = METRICS[metric] if domain == "all" else SHORT.get(domain, domain)
        for source, numbers in (("ours", ours), ("paper", paper)):
            column = numbers[(numbers["domain"] == domain) & (numbers["metric"] == metric)]
            best = column["mean"].min() if metric == "online_error" else column["mean"].max()
            for method, mean, std, n in column[["method", "mean", "std", "n"]].to_numpy():
                text = f"{mean:.2f}" + (f" ± {std:.2f}" if n > 1 else "")
                if method in methods:
                    cells[METHODS[method].label, source][head] = f"**{text}**" if mean == best else text
    table = pd.DataFrame.from_dict({key: row for key, row in cells.items() if row}, orient="index")
    seeds = {METHODS[m].label: {run.seed for run in runs if run.config.method == m} for m in methods}
    table["n"] = [str(len(seeds[label])) if source == "ours" else "–" for label, source in table.index]
    heads = [METRICS[metric] if domain == "all" else SHORT.get(domain, domain) for domain, metric in columns]
    table = table.reindex(columns=[*heads, "n"]).fillna("–")
    table.index = pd.MultiIndex.from_tuples(table.index, names=["method", "source"])
    return table


def to_markdown(table: pd.DataFrame) -> str:
    """A table of text as Markdown, its index as columns."""
    flat = table.reset_index()
    lines = [list(map(str, flat.columns)), ["---"] * len(flat.columns), *flat.astype(str).to_numpy().tolist()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def bold(text: str) -> str:
    """`**…**` as HTML."""
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)


def plain(text: object) -> str:
    """Without the asterisks of `**…**`."""
    return re.sub(r"\*\*(.+?)\*\*", r"\1", str(text))


def to_html(table: pd.DataFrame, *, escape: bool = True) -> str:
    """A table of text as HTML, `**…**` in bold; escape=False where cells are HTML themselves."""
    with pd.option_context("display.max_colwidth", None):
        return bold(table.to_html(border=0, escape=escape))


LATEX = {"±": r"$\pm$", "–": "--", "−": "$-$", "≥": r"$\geq$", "≤": r"$\leq$", "×": r"$\times$", "′": "$'$"}
LATEX |= {"→": r"$\rightarrow$", "∇": r"$\nabla$", "↑": r"$\uparrow$", "↓": r"$\downarrow$"}
LATEX |= {"α": r"$\alpha$", "β": r"$\beta$", "θ": r"$\theta$", "λ": r"$\lambda$", "φ": r"$\phi$", "ψ": r"$\psi$"}
"""What pdfLaTeX does not know by itself."""


def to_latex(table: pd.DataFrame, comment: str) -> str:
    """A table of text as LaTeX (booktabs), `**…**` in bold; `comment` stands above it as LaTeX comments."""

    def cell(value: object) -> str:
        text = re.sub(r"([&%$#_{}])", r"\\\1", str(value))
        text = re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", text)
        return "".join(LATEX.get(letter, letter) for letter in text)

    flat = table.reset_index().map(cell)
    flat.columns = pd.Index([cell(name) for name in flat.columns])
    lines = "".join(f"% {line}\n" for line in comment.splitlines() if line)
    return lines + str(flat.to_latex(index=False, escape=False, column_format="l" * len(flat.columns)))


# ---------------------------------------------------------------- figures


def set_style() -> None:
    """One style for every figure: seaborn's whitegrid, readable at column width."""
    sns.set_theme(context="paper", style="whitegrid", palette="colorblind", font_scale=1.0)
    plt.rcParams |= {"figure.dpi": 110, "savefig.dpi": 200, "savefig.bbox": "tight", "legend.frameon": False}
    # With a salt of our own the same figure is the same SVG.
    plt.rcParams["svg.hashsalt"] = "cascadetta"


def colour(method: str) -> tuple[float, float, float]:
    return PALETTE[METHODS[method].colour]


def band(axes: Axes, curves: Sequence[pd.Series], shade: Any, **style: Any) -> None:
    """The mean of curves, one a seed, and where there are several one standard deviation around it."""
    table = pd.concat(curves, axis=1)
    mean, std = table.mean(axis=1), table.std(axis=1)
    axes.plot(mean.index, mean, color=shade, **style)
    if len(curves) > 1:
        axes.fill_between(mean.index, mean - std, mean + std, color=shade, alpha=0.2, linewidth=0)


def objective_colour(objective: str) -> tuple[float, float, float]:
    """The colour of a pre-training, which is none of the methods'."""
    return OBJECTIVE_PALETTE[list(OBJECTIVES).index(objective)]


def save(figure: Figure, name: str, caption: str, folder: Path) -> Path:
    """Write NAME.png, NAME.svg and NAME.txt, which holds the caption with what made the figure."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in ("png", "svg"):
        # No date in the file: the same figure is the same bytes.
        figure.savefig(folder / f"{name}.{suffix}", metadata={"Date": None} if suffix == "svg" else None)
    (folder / f"{name}.txt").write_text(caption + "\n", encoding="utf-8")
    return folder / f"{name}.png"


def stream_figure(runs: Sequence[Run], window: int = 8) -> Figure:
    """Online error along the stream: the mean of the last `window` batches of the same domain, over seeds."""
    figure, axes = plt.subplots(figsize=(9, 3.4))
    for method in dict.fromkeys(run.config.method for run in runs):
        curves = []
        for run in runs:
            if run.config.method != method:
                continue
            batches = run.batches
            sums = batches.groupby("step")[["errors", "count"]].rolling(window, min_periods=1).sum()
            curves.append((100 * sums["errors"] / sums["count"]).to_numpy())
            seen = batches["count"].cumsum() - batches["count"]
            starts = seen[batches["position"] == 0].tolist()
        stacked = np.stack(curves)
        mean, x = stacked.mean(0), (seen + batches["count"]).to_numpy()
        axes.plot(x, mean, color=colour(method), label=METHODS[method].label, linewidth=1.1)
        if len(stacked) > 1:
            std = stacked.std(0, ddof=1)
            axes.fill_between(x, mean - std, mean + std, color=colour(method), alpha=0.2, linewidth=0)
    config = runs[0].config
    for step, start in enumerate(starts):
        axes.axvline(start, color="0.7", linewidth=0.6, zorder=0)
        if len(starts) <= 20:
            name = config.stream[step].name
            axes.text(start, 1.01, " " + SHORT.get(name, name), transform=axes.get_xaxis_transform(), fontsize=7)
    axes.set(xlabel=f"{runs[0].provenance['unit']} of the stream", ylabel="online error (%)")
    axes.set(xlim=(0, x[-1]), ylim=(0, None))
    axes.grid(axis="x", visible=False)
    entries = len({run.config.method for run in runs})
    columns = -(-entries // -(-entries // 8))  # rows of one length
    axes.legend(ncols=columns, loc="upper center", bbox_to_anchor=(0.5, -0.16), columnspacing=1.2, handlelength=1.5)
    name_data(figure, runs, 1.0)
    return figure


def metrics_figure(runs: Sequence[Run]) -> Figure:
    """E, A and F of every method: ours as bars (± std over seeds), the paper's as open diamonds."""
    ours, paper = over_seeds(results(runs)), paper_numbers(runs)
    methods = list(dict.fromkeys(run.config.method for run in runs))
    figure, panels = plt.subplots(1, 3, figsize=(9, 2.8), sharey=True)
    titles = {"online_error": "E: online error (%) ↓", "average_accuracy": "A: average accuracy (%) ↑"}
    titles["forward_transfer"] = "F: forward transfer (points) ↑"
    for axes, metric in zip(panels, METRICS, strict=True):
        for place, method in enumerate(methods):
            row = ours[(ours["method"] == method) & (ours["domain"] == "all") & (ours["metric"] == metric)]
            if len(row):
                error = row["std"].to_numpy() if row["n"].iloc[0] > 1 else None
                axes.barh(place, row["mean"], xerr=error, color=colour(method), height=0.65)
            published = paper[(paper["method"] == method) & (paper["domain"] == "all") & (paper["metric"] == metric)]
            axes.plot(published["mean"], [place] * len(published), "D", mfc="white", mec="black", ms=5, zorder=5)
        axes.set(title=titles[metric])
        axes.grid(axis="y", visible=False)
    panels[0].set_yticks(range(len(methods)), [METHODS[method].label for method in methods])
    panels[0].invert_yaxis()
    panels[2].axvline(0, color="black", linewidth=0.8)
    panels[0].plot([], [], "D", mfc="white", mec="black", ms=5, label=_paper_name(runs))
    panels[0].plot([], [], "s", color="0.5", label="ours")
    figure.legend(loc="lower center", ncols=2, bbox_to_anchor=(0.5, -0.09))
    figure.tight_layout()
    name_data(figure, runs, 1.0)
    return figure


def _paper_name(runs: Sequence[Run]) -> str:
    name = runs[0].provenance["compare_with"]
    return f"paper, {name}" if name else "the paper has no such data"


def name_data(figure: Figure, runs: Sequence[Run], height: float, width: int = 130) -> None:
    """In the picture itself, which may be shown without its caption: the data, and the profile that made it; `width`
    characters a line."""
    provenance = runs[0].provenance
    text = f"{provenance['data_source']}. Profile {provenance['profile']}."
    figure.text(0.5, height, textwrap.fill(text, width), ha="center", va="bottom", fontsize=7, color="0.35")


def training_figure(checkpoints: Sequence[Trained]) -> Figure:
    """Along pre-training: held-out accuracy, entropies of z and a, agreement of their argmax, gradients on ψ."""
    figure, panels = plt.subplots(1, 4, figsize=(11, 2.7))
    accuracy, entropies, agreement, gradients = panels
    for checkpoint in checkpoints:
        history, name = checkpoint.history, checkpoint.config.objective
        shade = objective_colour(name)
        accuracy.plot(history["epoch"], 100 * history["held_out_accuracy"], color=shade, label=name, marker=".")
        if "entropy_auxiliary" in history:
            entropies.plot(history["epoch"], history["entropy_main"], color=shade)
            entropies.plot(history["epoch"], history["entropy_auxiliary"], color=shade, ls="--")
            mean = history["entropy_of_mean_auxiliary"]
            entropies.plot(history["epoch"], mean, color=shade, ls=":")
            agreement.plot(history["epoch"], 100 * history["agreement"], color=shade, marker=".")
        if "gradient_norm_main" in history:
            ratio = history["gradient_norm_self_supervised"] / history["gradient_norm_main"]
            gradients.plot(history["epoch"], ratio, color=shade)
            gradients.plot(history["epoch"], history["gradient_cosine"], color=shade, ls="--")
    classes = checkpoints[0].config.model.classes
    agreement.axhline(100 / classes, color="black", lw=0.8, ls=":")
    entropies.axhline(np.log(classes), color="black", lw=0.8, ls=":")
    accuracy.set(title="held-out accuracy (%)")
    entropies.set(title="entropy (nats): z solid, a dashed,\nmean of a dotted; black: uniform", ylim=(0, None))
    agreement.set(title="argmax a = argmax z (%)\nblack: chance", ylim=(0, 100))
    gradients.set(title="self-supervised gradient on ψ:\nnorm ratio solid, cosine dashed")
    for axes in panels:
        axes.set_xlabel("epoch")
        axes.title.set_fontsize(8)
    figure.tight_layout()
    # One legend below: the curves leave no room for their names.
    handles, names = accuracy.get_legend_handles_labels()
    figure.legend(handles, names, loc="upper center", ncols=4, bbox_to_anchor=(0.5, 0.02), fontsize=7)
    return figure


def entropy_figure(runs: Sequence[Run]) -> Figure:
    """Entropy of z and of a, a point a domain along the stream, for the methods that have θ_a at hand."""
    uniform = np.log(runs[0].config.checkpoint.model.classes)
    columns = {"entropy_main": "entropy of z (nats)", "entropy_auxiliary": "entropy of a (nats)"}
    figure, panels = plt.subplots(1, 2, figsize=(9, 3))
    for axes, (column, title) in zip(panels, columns.items(), strict=True):
        for method in dict.fromkeys(run.config.method for run in runs):
            tables = [run.batches.groupby("step")[column].mean() for run in runs if run.config.method == method]
            if not tables[0].isna().all():
                band(axes, tables, colour(method), marker=".", label=METHODS[method].label)
        axes.axhline(uniform, color="black", lw=0.8, ls=":", label="uniform")
        axes.set(title=title, ylim=(0, 1.05 * uniform))
        _name_domains(axes, runs[0])
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="upper center", ncols=len(names), bbox_to_anchor=(0.5, 0.02), fontsize=7)
    figure.tight_layout()
    return figure


def _name_domains(axes: Axes, run: Run) -> None:
    names = [SHORT.get(domain.name, domain.name) for domain in run.config.stream]
    if len(names) <= 20:
        axes.set_xticks(range(len(names)), names, rotation=60, fontsize=7)


def corruption_figure(dataset: ImageDataset, severities: Sequence[int] = (1, 3, 5), image: int = 0) -> Figure:
    """One test image through the 15 corruptions, a row a severity."""
    figure, panels = plt.subplots(len(severities), len(CORRUPTIONS), figsize=(11, 0.85 * len(severities)))
    for row, severity in zip(panels, severities, strict=True):
        for axes, name in zip(row, CORRUPTIONS, strict=True):
            axes.imshow(dataset.example(name, severity, image).permute(1, 2, 0))
            axes.set(xticks=[], yticks=[])
            if severity == severities[0]:
                axes.set_title(SHORT[name], fontsize=8)
        row[0].set_ylabel(severity, rotation=0, labelpad=8, va="center")
    figure.subplots_adjust(wspace=0.05, hspace=0.05)
    return figure


def augmentation_figure(dataset: ImageDataset, seed: int = 0, count: int = 12) -> Figure:
    """Source images, and below them what a randomised training batch makes of them."""
    x = dataset.train.x[:count]
    generator = torch.Generator().manual_seed(seed)
    rows = (x, dataset.randomise(dataset.weak_augment(x, generator), generator))
    figure, panels = plt.subplots(2, count, figsize=(11, 2))
    for row, images in zip(panels, rows, strict=True):
        for axes, image in zip(row, images, strict=True):
            axes.imshow(image.permute(1, 2, 0).cpu())
            axes.set(xticks=[], yticks=[])
    figure.subplots_adjust(wspace=0.05, hspace=0.05)
    return figure


def sentences_table(dataset: TextDataset, seed: int = 0, count: int = 4) -> str:
    """The beginnings of the first reviews of the source, each with `count` of its EDA versions, as HTML; a line where
    there is no text."""
    if not dataset.has_text:
        return "<p>counts alone: there is no text to show or to augment</p>"
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for index in range(2):
        rows.append({"operation": f"review {index + 1}", "text": _beginning(dataset.text(index))})
        for operation, text in dataset.augmented_texts(index, count, generator):
            rows.append({"operation": operation.replace("_", " "), "text": _beginning(text)})
    with pd.option_context("display.max_colwidth", None):
        return str(pd.DataFrame(rows).to_html(index=False, border=0))


def _beginning(text: str, characters: int = 220) -> str:
    return text if len(text) <= characters else text[:characters].rsplit(" ", 1)[0] + " …"


def spectrogram_figure(dataset: SpeechDataset, utterance: int = 0) -> Figure:
    """The log-mel spectrogram of one test utterance, clean and through the five domains."""
    names = (SOURCE_DOMAIN, *dataset.domain_names)
    figure, panels = plt.subplots(1, len(names), figsize=(11, 2.2), sharey=True)
    for axes, name in zip(panels, names, strict=True):
        _spectrogram(axes, dataset.domain(name, 1).x[utterance, 0])
        axes.set_title(name)
    figure.tight_layout()
    return figure


def audio_augmentation_figure(dataset: SpeechDataset, seed: int = 0, count: int = 6) -> Figure:
    """Source utterances, and below them what a randomised training batch makes of them, as log-mel spectrograms."""
    x = dataset.train.x[:count]
    rows = (log_mel(x), dataset.randomise(x, torch.Generator().manual_seed(seed)))
    figure, panels = plt.subplots(2, count, figsize=(11, 3.6))
    for row, pictures in zip(panels, rows, strict=True):
        for axes, picture in zip(row, pictures, strict=True):
            _spectrogram(axes, picture[0])
    figure.tight_layout()
    return figure


def _spectrogram(axes: Axes, decibels: torch.Tensor) -> None:
    axes.imshow(decibels.cpu(), origin="lower", vmin=-80, vmax=0, cmap="viridis")
    axes.set(xticks=[], yticks=[])


# ---------------------------------------------------------------- checkpoints


def checkpoint_table(checkpoints: Sequence[Checkpoint]) -> pd.DataFrame:
    """A row a network: parameters, the epoch kept, its held-out accuracy (%), seconds, and where it was made."""
    rows = []
    for checkpoint in checkpoints:
        history, kept = checkpoint.history, kept_epoch(checkpoint.history)
        rows.append(
            {
                "objective": checkpoint.config.objective,
                "parameters": f"{sum(p.numel() for p in checkpoint.model.parameters()):,}",
                "epoch kept": f"{kept['epoch']:.0f} of {len(history)}",
                "held-out accuracy (%)": round(100 * kept["held_out_accuracy"], 2),
                "seconds": round(checkpoint.provenance["seconds"], 1),
                "device": checkpoint.provenance["device"],
                "code": checkpoint.provenance["code_revision"],
            }
        )
    columns = "objective, parameters, epoch kept, held-out accuracy (%), seconds, device, code".split(", ")
    return pd.DataFrame(rows, columns=columns).set_index("objective")


DRIFT = 5.0
"""Points of error above AdaBN in the last domain from which on a method counts as having lost its way."""


def drift_lines(runs: Sequence[Run]) -> list[str]:
    """A sentence for each method that ends the stream worse than the same network without any update (AdaBN)."""
    last = runs[0].config.stream[-1].name if runs else ""
    errors = over_seeds(results(runs)).query("metric == 'online_error' and domain == @last").set_index("method")["mean"]
    if "adabn" not in errors:
        return []
    objectives = {run.config.method: run.config.checkpoint.objective for run in runs}
    return [
        f"**{METHODS[method].label} loses its way**: in the last domain, {last}, it errs on {error:.1f} %, "
        f"AdaBN on {errors['adabn']:.1f} %."
        for method, error in zip(map(str, errors.index), errors, strict=True)
        if METHODS[method].adapts and objectives[method] == objectives["adabn"]
        if error > errors["adabn"] + DRIFT
    ]


COLLAPSE_SHARE = 0.1
"""θ_a counts as collapsed where the entropy of its mean prediction is below this share of the uniform's."""


def kept_epoch(history: pd.DataFrame) -> pd.Series:
    """The row of the epoch whose weights were kept: the last of the best by held-out accuracy."""
    return history[history["held_out_accuracy"] == history["held_out_accuracy"].max()].iloc[-1]


def collapse_lines(trained: Iterable[Trained]) -> list[str]:
    """A sentence for each network with θ_a, from its history: whether θ_a still tells examples apart, and as z does."""
    lines = []
    for each in trained:
        config, history, classes = each.config, each.history, each.config.model.classes
        if "entropy_of_mean_auxiliary" not in history:
            continue
        last = kept_epoch(history)
        collapsed = last["entropy_of_mean_auxiliary"] < COLLAPSE_SHARE * np.log(classes)
        # Nearer to chance than to 1: what a becomes sure of says little about the class.
        apart = last["agreement"] < (1 + 1 / classes) / 2
        verdict = "**collapsed**" if collapsed else "not collapsed, **but does not agree with z**" if apart else "held"
        lines.append(
            f"**{config.objective}, seed {config.seed}**: θ_a has {verdict}. In the epoch kept the "
            f"entropy of a is {last['entropy_auxiliary']:.3f} nats (z: {last['entropy_main']:.3f}), that of its mean "
            f"prediction {last['entropy_of_mean_auxiliary']:.3f} of {np.log(classes):.3f}; argmax a = argmax z on "
            f"{100 * last['agreement']:.0f} % of held-out examples (chance {100 / classes:.0f} %)."
        )
    return lines
