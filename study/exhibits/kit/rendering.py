"""Tables, figures and sentences as HTML and Markdown. Names and texts from files are escaped."""

import base64
import html
import io
import re
from collections.abc import Iterable
from weakref import WeakKeyDictionary

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox


def slug(text: str) -> str:
    """Replace all characters except letters, digits and underscores by single hyphens, and remove
    hyphens at both ends.
    """
    return re.sub(r"\W+", "-", text).strip("-")


def to_html(text: object) -> str:
    """Write a sentence as HTML: escaped, `**…**` in bold, and θ_a with its index below the line."""
    bold = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", html.escape(str(text)))
    return re.sub(r"θ_(\w)", r"θ<sub>\1</sub>", bold)


def plain(text: object) -> str:
    """Remove the asterisks of `**…**`."""
    return re.sub(r"\*\*(.+?)\*\*", r"\1", str(text))


def table_html(table: pd.DataFrame) -> str:
    """Write a table of text as HTML. A table that is too wide scrolls sideways."""
    shown = table.map(to_html).rename(index=to_html, columns=to_html)
    with pd.option_context("display.max_colwidth", None):
        return f'<div style="overflow-x: auto">{shown.to_html(border=0, escape=False)}</div>'


def content_html(content: Figure | pd.DataFrame, name: str) -> str:
    """Write a table as HTML, or a figure as an image inside the page.

    name: what stands in place of a figure that is not displayed.
    """
    if isinstance(content, pd.DataFrame):
        return table_html(content)
    encoded = base64.b64encode(png(content, 110)).decode()
    return (
        f'<img alt="{html.escape(name)}" style="max-width: 100%" '
        f'src="data:image/png;base64,{encoded}"/>'
    )


_FRAMES: WeakKeyDictionary[Figure, Bbox] = WeakKeyDictionary()
"""The bounding box, in inches, of what each figure draws, for figures that have been laid out."""


def png(figure: Figure, dpi: float | None = None) -> bytes:
    """Return a figure as a PNG file, cut to what is drawn.

    A figure is laid out only once, because laying it out takes as long as drawing it.

    dpi: None is the resolution of saved figures.
    """
    if figure not in _FRAMES:
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        _FRAMES[figure] = figure.get_tightbbox().padded(mpl.rcParams["savefig.pad_inches"])
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi, bbox_inches=_FRAMES[figure])
    return file.getvalue()


def banner_html(text: str) -> str:
    """Write a sentence as HTML, in white on red."""
    look = "background: #b00020; color: white; font-weight: bold; padding: 0.6em 1em"
    return f'<p style="{look}">{to_html(text)}</p>'


def to_markdown(text: object) -> str:
    """Write a text as Markdown. HTML and links in the text are escaped; `**…**` stays bold."""
    return html.escape(str(text), quote=False).replace("](", r"]\(")


def markdown(table: pd.DataFrame) -> str:
    """Write a table of text as Markdown. The index becomes the first columns."""
    flat = table.reset_index()
    rows = [list(flat.columns), ["---"] * len(flat.columns), *flat.to_numpy().tolist()]
    lines = ["| " + " | ".join(map(_markdown_cell, row)) + " |" for row in rows]
    return "\n".join(lines)


def _markdown_cell(text: object) -> str:
    """Write a cell on one line, with its vertical bars escaped."""
    return " ".join(to_markdown(text).replace("|", r"\|").split())


def each_once(values: Iterable[object]) -> str:
    """Join the different values by commas, in the order in which they first come."""
    return ", ".join(dict.fromkeys(str(value) for value in values))


def from_to(counts: Iterable[int]) -> str:
    """Write the smallest and the largest count, as `1–3`, or `3` if all are equal. There must be a
    count.
    """
    found = sorted(set(counts))
    if len(found) == 1:
        return str(found[0])
    return f"{found[0]}–{found[-1]}"
