"""Tables, figures and sentences as HTML and Markdown, and the paragraph below an exhibit about the
runs that made it. All that comes from names and files is escaped here.
"""

import base64
import html
import io
import re
from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from cascadetta_lib.data import DATASETS
from study.exhibits.kit.stored_runs import weights_of
from study.requests import RunRequest
from study.store import Run


def slug(text: str) -> str:
    """Letters, digits and underscores, the rest as single hyphens."""
    return re.sub(r"\W+", "-", text).strip("-")


def to_html(text: object) -> str:
    """A sentence as HTML: escaped, `**…**` in bold, θ_a with its index below the line."""
    bold = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", html.escape(str(text)))
    return re.sub(r"θ_(\w)", r"θ<sub>\1</sub>", bold)


def plain(text: object) -> str:
    """Without the asterisks of `**…**`."""
    return re.sub(r"\*\*(.+?)\*\*", r"\1", str(text))


def table_html(table: pd.DataFrame) -> str:
    """A table of text, which scrolls sideways where it is too wide."""
    shown = table.map(to_html).rename(index=to_html, columns=to_html)
    with pd.option_context("display.max_colwidth", None):
        return f'<div style="overflow-x: auto">{shown.to_html(border=0, escape=False)}</div>'


def content_html(content: Figure | pd.DataFrame, name: str) -> str:
    """A figure as an image inside the page, or a table."""
    if isinstance(content, pd.DataFrame):
        return table_html(content)
    encoded = base64.b64encode(png(content, 110)).decode()
    return (
        f'<img alt="{html.escape(name)}" style="max-width: 100%" '
        f'src="data:image/png;base64,{encoded}"/>'
    )


_FRAMES: WeakKeyDictionary[Figure, Bbox] = WeakKeyDictionary()
"""What is drawn of each figure that has been laid out, in inches."""


def png(figure: Figure, dpi: float | None = None) -> bytes:
    """Return a figure as a PNG file, cut to what is drawn. It is laid out only once, because laying
    out takes as long as drawing.

    dpi: None is that of saved figures.
    """
    if figure not in _FRAMES:
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        _FRAMES[figure] = figure.get_tightbbox().padded(mpl.rcParams["savefig.pad_inches"])
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi, bbox_inches=_FRAMES[figure])
    return file.getvalue()


def banner_html(text: str) -> str:
    """A sentence that no one can miss."""
    look = "background: #b00020; color: white; font-weight: bold; padding: 0.6em 1em"
    return f'<p style="{look}">{to_html(text)}</p>'


def to_markdown(text: object) -> str:
    """A text as Markdown that makes no HTML and no link of names; `**…**` stays bold."""
    return html.escape(str(text), quote=False).replace("](", r"]\(")


def markdown(table: pd.DataFrame) -> str:
    """A table of text as Markdown, its index as columns."""
    flat = table.reset_index()
    rows = [list(flat.columns), ["---"] * len(flat.columns), *flat.to_numpy().tolist()]
    lines = ["| " + " | ".join(map(_markdown_cell, row)) + " |" for row in rows]
    return "\n".join(lines)


def _markdown_cell(text: object) -> str:
    """A cell, which must neither end before its text nor run over two lines."""
    return " ".join(to_markdown(text).replace("|", r"\|").split())


def each_once(values: Iterable[object]) -> str:
    """Different values in the order they come, with commas."""
    return ", ".join(dict.fromkeys(str(value) for value in values))


def from_to(counts: Iterable[int]) -> str:
    """`3`, or `1–3` where the counts differ."""
    found = sorted(set(counts))
    if len(found) == 1:
        return str(found[0])
    return f"{found[0]}–{found[-1]}"


def seeds_of(runs: Sequence[Run]) -> str:
    """`n = 3 seeds`, `n = 1–3 seeds` where some methods or settings have fewer, or `n = 1 network,
    at 3 seeds` where several seeds ran on the same weights. Several orders of the stream are
    counted besides.
    """
    same = {"checkpoint", "forward_transfer"}
    rows = [
        {
            "asked": run.request.model_dump_json(exclude=same),
            "start": run.request.checkpoint.objective,
            "seed": run.seed,
            "network": weights_of(run),
        }
        for run in runs
    ]
    counts = pd.DataFrame(rows).groupby(["asked", "start"])[["seed", "network"]].nunique()
    seeds = from_to(counts["seed"])
    networks = from_to(counts["network"])
    at_seeds = f"{seeds} seed{'' if seeds == '1' else 's'}"
    orders = {run.request.order_seed for run in runs}
    if len(orders) > 1:
        at_seeds += f", {len(orders)} orders"
    if networks == seeds:
        return f"n = {at_seeds}"
    return f"n = {networks} network{'' if networks == '1' else 's'}, at {at_seeds}"


def order_of(request: RunRequest) -> str:
    """The name of the order of the examples: `stored`, `mixed`, `correlated`, …, or `seed 3's`."""
    if request.order is None and request.order_seed is not None:
        return f"seed {request.order_seed}'s"
    return request.order or "stored"


def network_of(run: Run) -> str:
    """The architecture of the network that a run started from; empty where it is not known."""
    card = run.provenance.card
    asked = run.request.checkpoint.network
    fields = asked.model_dump() if asked else card.get("network", "")
    if isinstance(fields, dict):
        fields = ", ".join(f"{name} {value}" for name, value in fields.items())
    return str(fields).replace("_", " ")


def provenance(runs: Sequence[Run]) -> str:
    """One paragraph: what made these runs, and whether their data are the paper's. Data with one
    fingerprint are named once.
    """
    told = pd.DataFrame([run.provenance for run in runs]).map(str)
    told["data_source"] = told.groupby("fingerprint")["data_source"].transform("first")
    made = told.agg(each_once)
    requests = [run.request for run in runs]
    checkpoints = [request.checkpoint for request in requests]
    networks = each_once(asked.weights for asked in checkpoints)
    architectures = each_once(filter(None, map(network_of, runs)))
    if architectures:
        networks += f" ({architectures})"
    levels = ""
    if checkpoints[0].modality == "image":
        severities = {domain.severity for request in requests for domain in request.stream}
        levels = f" of severity {from_to(severities)}"
    optimizers = {request.online_optimizer for request in requests}
    optimizer = ""
    if len(optimizers) == 1 and None not in optimizers:
        optimizer = f", {optimizers.pop()} in every method"
    scaled = ""
    if any(asked.options.get("input_scaling") == "unit" for asked in checkpoints):
        scaled = ", inputs x/255"
    sizes = each_once(from_to(run.batches.groupby("step")["count"].sum()) for run in runs)
    batch = each_once(request.batch_size for request in requests)
    order = each_once(order_of(request) for request in requests)
    predict = each_once(request.predict for request in requests)
    rate = each_once(request.online_learning_rate for request in requests)
    seeds = each_once(sorted({run.seed for run in runs}))
    torch = each_once(run.provenance.packages["torch"] for run in runs)
    return (
        f"Data: {made['data_source']}; {made['domain_source']}; {sizes} {made['unit']} a "
        f"domain{levels}, batch {batch}, {order} order{scaled}. "
        f"Profile {made['profile']}, seeds {seeds}; networks: {networks}; "
        f"prediction {predict} the update at the rate {rate}{optimizer}. "
        f"Device: {made['device']}; torch {torch}; code {made['code_revision']}. {warning(runs)}"
    ).rstrip()


def stand_in(run: Run) -> bool:
    """Return whether a run is on other data than the paper's (embedded data, or somebody's own), so
    that its numbers must not stand beside the paper's.
    """
    dataset = DATASETS[run.request.checkpoint.dataset_kind]
    return not dataset.real or dataset.own


def warning(runs: Sequence[Run]) -> str:
    """How far the levels of these runs compare with the paper's; empty on the paper's own data."""
    if any(map(stand_in, runs)):
        return "**Not the paper's data: these numbers do not compare with the paper's.**"
    if all(run.provenance.official_data for run in runs):
        return ""
    return "Not the paper's data as published: levels compare with the paper's only roughly."
