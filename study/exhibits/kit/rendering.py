"""Tables, figures and sentences as HTML and Markdown, and what is said below an exhibit of the runs
that made it. All that comes from names and files is escaped here."""

import html
import re
from collections.abc import Iterable, Sequence

import pandas as pd
from IPython.core.pylabtools import print_figure
from matplotlib.figure import Figure

from cascadetta_lib.data import entry
from study.store import Run

COPIES = {"a00a2d567b459d7a": "CIFAR-10-C"}
"""Fingerprints of whole copies of the paper's data: the 60,000 images of CIFAR-10 as JPEG."""


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
    encoded = print_figure(content, dpi=110, base64=True)
    return (
        f'<img alt="{html.escape(name)}" style="max-width: 100%" '
        f'src="data:image/png;base64,{encoded}"/>'
    )


def markdown(table: pd.DataFrame) -> str:
    """A table of text as Markdown, its index as columns."""
    flat = table.reset_index().map(lambda cell: str(cell).replace("|", r"\|"))
    lines = [list(map(str, flat.columns)), ["---"] * len(flat.columns), *flat.to_numpy().tolist()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def each_once(values: Iterable[object]) -> str:
    """Different values in the order they come, with commas."""
    return ", ".join(dict.fromkeys(str(value) for value in values))


def from_to(counts: Iterable[int]) -> str:
    """`3`, or `1–3` where the counts differ."""
    return "–".join(map(str, sorted({min(counts := list(counts)), max(counts)})))


def seeds_of(runs: Sequence[Run]) -> str:
    """`n = 3 seeds`, or `n = 1–3 seeds, means over each one's own` where some methods or settings
    have fewer.
    """
    alike, start = (
        {"checkpoint", "forward_transfer"},
        [run.request.checkpoint.objective for run in runs],
    )
    asked = [run.request.model_dump_json(exclude=alike) for run in runs]
    found = pd.DataFrame({"asked": asked, "start": start, "seed": [run.seed for run in runs]})
    seeds = from_to(found.groupby(["asked", "start"])["seed"].nunique())
    return f"n = {seeds} seed{'' if seeds == '1' else 's'}" + (
        ", means over each one's own" if "–" in seeds else ""
    )


def network_of(run: Run) -> str:
    """The architecture of the network that a run started from; empty where it is not known."""
    card = (run.provenance.get("network") or {}).get("card") or {}
    asked = run.request.checkpoint.network
    fields = asked.model_dump() if asked else card.get("network", "")
    words = (
        fields
        if isinstance(fields, str)
        else ", ".join(f"{name} {value}" for name, value in fields.items())
    )
    return words.replace("_", " ")


def provenance(runs: Sequence[Run]) -> str:
    """What made these runs, in one paragraph, and whether they are on the paper's data. The same
    data have one name.
    """
    told = pd.DataFrame([run.provenance for run in runs]).map(str)
    made = told.assign(
        data_source=told.groupby("fingerprint")["data_source"].transform("first")
    ).agg(each_once)
    requests = [run.request for run in runs]
    asked = pd.DataFrame(
        [
            (
                r.batch_size,
                r.checkpoint.weights,
                r.predict,
                r.order or "stored",
                r.online_learning_rate,
            )
            for r in requests
        ]
    )
    seeds = each_once(sorted({run.seed for run in runs}))
    batch, weights, predict, order, rate = asked.agg(each_once)
    architectures = each_once(filter(None, map(network_of, runs)))
    networks = f"{weights} ({architectures})" if architectures else weights
    optimizers = {each.online_optimizer for each in requests}
    optimizer = (
        f", {optimizers.pop()} in every method"
        if len(optimizers) == 1 and None not in optimizers
        else ""
    )
    scaled = (
        ", inputs x/255"
        if any(r.checkpoint.options.get("input_scaling") == "unit" for r in requests)
        else ""
    )
    severities = sorted({domain.severity for each in requests for domain in each.stream})
    levels = (
        f" of severity {from_to(severities)}" if requests[0].checkpoint.modality == "image" else ""
    )
    sizes = each_once(run.batches.groupby("step")["count"].sum().max() for run in runs)
    return (
        f"Data: {made['data_source']}; {made['domain_source']}; {sizes} {made['unit']} a "
        f"domain{levels}, "
        f"batch {batch}, {order} order{scaled}. Profile {made['profile']}, seeds {seeds}; "
        f"networks: {networks}; "
        f"prediction {predict} the update at the rate {rate}{optimizer}. Device: {made['device']}; "
        "torch "
        f"{each_once(run.provenance['packages']['torch'] for run in runs)}; code "
        f"{made['code_revision']}. "
        f"{warning(runs)}"
    ).rstrip()


def warning(runs: Sequence[Run]) -> str:
    """How far the levels of these runs compare with the paper's; empty on the paper's own data."""
    official = all(run.provenance["official_data"] for run in runs)
    made_up = any(
        not entry(dataset).real or (dataset.startswith("npz") and said["fingerprint"] not in COPIES)
        for dataset, said in ((run.request.checkpoint.dataset, run.provenance) for run in runs)
    )
    if made_up:
        return "**Not the paper's data: these numbers do not compare with the paper's.**"
    return (
        ""
        if official
        else "Not the paper's data as published: levels compare with the paper's only roughly."
    )
