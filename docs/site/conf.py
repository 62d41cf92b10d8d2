"""How Sphinx makes the site of `study/tools/site.py`: Markdown and notebooks by MyST, the
library's docstrings by autodoc, formulas as MathML, which browsers show without a script.
"""

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

from cascadetta_lib import __version__

project = "CascadeTTA, the study"
release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"{project} {release}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_copyright = False
html_math_renderer = "mathml"
exclude_patterns = ["docs/templates"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "off"
nb_render_markdown_format = "myst"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_inherit_docstrings = False
autodoc_default_options = {"members": True, "no-value": True}
autodoc_preserve_defaults = True
suppress_warnings = [
    "myst.header",  # An exhibit's heading in a notebook may begin below the cell's level.
    "mystnb.mime_priority",  # A progress bar has a picture for JupyterLab alone.
    "misc.highlighting_failure",
]
FIELD = re.compile(r"(\w+(?:, \w+)*): (.*)")


def to_rest(text: str) -> str:
    """A line of a docstring as reStructuredText: code in double backticks, no other marks."""
    pieces = re.split(r"`([^`]*)`", text)  # The odd ones are code.
    for place, piece in enumerate(pieces):
        if place % 2:
            pieces[place] = f"``{piece}``"
        else:
            escaped = re.sub(r"(?<!\*)\*(?!\*)|\||_(?!\w)", r"\\\g<0>", piece)
            pieces[place] = escaped
    return "".join(pieces)


def write_rest(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Turn a docstring's lines, which are nearly Markdown, into reStructuredText.

    A line `name: what it is` becomes an item, and an indented paragraph becomes code.
    """
    found: list[str] = []
    inside = "text"
    for line in lines:
        indented = line.startswith("    ")
        after_blank = not found or not found[-1].strip()
        if not line.strip():
            found.append("")
        elif indented and (inside == "code" or (after_blank and inside != "item")):
            if inside != "code":
                found += [".. code-block:: text", ""]
            inside = "code"
            found.append(line)
        elif indented:
            found.append(
                f"  {to_rest(line.strip())}" if inside == "item" else to_rest(line.strip())
            )
        elif FIELD.fullmatch(line) or line.startswith("- "):
            if inside != "item" and found and found[-1].strip():
                found.append("")
            inside = "item"
            named = FIELD.fullmatch(line)
            item = line.removeprefix("- ")
            if named and not line.startswith("- "):
                found.append(f"- ``{named[1]}``: {to_rest(named[2])}")
            else:
                found.append(f"- {to_rest(item)}")
        elif inside == "item" and not after_blank:
            found.append(f"  {to_rest(line)}")
        else:
            inside = "text"
            found.append(to_rest(line))
    lines[:] = found


def visit_math(translator: Any, node: nodes.Element) -> None:
    """Write a formula within a line."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def visit_displaymath(translator: Any, node: nodes.Element) -> None:
    """Write a formula on a line of its own."""
    translator.body.append(f"<p>{convert(node.astext(), display='block')}</p>")
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Register what this file adds to Sphinx."""
    app.connect("autodoc-process-docstring", write_rest)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
