"""Write executed notebooks as pages: HTML for a browser, Markdown with images for GitHub.

    pages.py NOTEBOOK … PAGE …

There are as many pages as notebooks. The command writes HTML.
"""

import ast
import base64
import re
import sys
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import latex2mathml.converter
import nbformat
from nbconvert import HTMLExporter, MarkdownExporter
from nbformat import NotebookNode
from pygments.formatters import HtmlFormatter

from study import ROOT

PLAIN = {"exclude_input_prompt": True, "exclude_output_prompt": True}
IMAGE = re.compile(r'src="data:image/png;base64,([^"]+)"')
HEADING_CODE_OR_FORMULA = re.compile(
    r"^#[^\n]*"
    r"|(?P<ticks>`+).*?(?P=ticks)"
    r"|\$\$(?P<display>[^$]+)\$\$"
    r"|\$(?P<inline>[^\s$](?:[^$]*[^\s$])?)\$",
    re.DOTALL | re.MULTILINE,
)
"""A heading, code, or a formula in Markdown. A formula within a line touches both of its dollar
signs, so the text between two prices is no formula.
"""


def without_paths(text: str) -> str:
    """Return `text` without this machine's folders, so that it can be published."""
    text = text.replace(f"{ROOT}/", "")
    for folder, name in ((ROOT, "."), (Path.home(), "~"), (Path(tempfile.gettempdir()), "…")):
        if folder.name:  # "/" is in every path
            text = re.sub(rf"{re.escape(str(folder))}(?![\w-])", name, text)
    return text


def read(path: Path) -> NotebookNode:
    """Read an executed notebook, and tidy it for readers.

    The parameters cell gets the values of the run. Left out are the cell into which papermill puts
    all values, and the lines of progress.
    """
    notebook = nbformat.read(path, as_version=4)
    given = dict(notebook.metadata.get("papermill", {}).get("parameters", {}))
    # The profile's settings are in a folder of its name, where run.py wrote them.
    label = Path(given.get("profile", "")).parent.name
    if (ROOT / "profiles" / f"{label}.yaml").exists():
        given["profile"] = label
    for name, value in given.items():
        given[name] = (
            [_without_folder(item) for item in value]
            if isinstance(value, list)
            else _without_folder(value)
        )

    tagged = "injected-parameters"
    notebook.cells = [
        cell for cell in notebook.cells if tagged not in cell.metadata.get("tags", ())
    ]
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", ()):
            cell.source = with_values(cell.source, given)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


def with_values(source: str, given: Mapping[str, Any]) -> str:
    """Return the source of a parameters cell with other values. Comments stay, except those inside
    a value that is replaced.

    given: the values, by the parameters' names.
    """
    # In bytes, because the parser counts columns in them.
    lines = source.encode().splitlines(keepends=True)
    # From the last line on, because a value of several lines becomes one line.
    for line in reversed(ast.parse(source).body):
        if not isinstance(line, ast.Assign | ast.AnnAssign) or line.value is None:
            continue
        name = ast.unparse(line.target if isinstance(line, ast.AnnAssign) else line.targets[0])
        if name not in given:
            continue
        first = line.value.lineno - 1
        last = line.value.end_lineno or line.value.lineno
        before = lines[first][: line.value.col_offset]
        after = lines[last - 1][line.value.end_col_offset :]
        lines[first:last] = [before + repr(given[name]).encode() + after]
    return b"".join(lines).decode()


def _without_folder(value: Any) -> Any:
    """Return `npz:/home/me/pets` as `npz:pets`, and any other value unchanged."""
    return re.sub(r"^(\w+:).*/(?=.)", r"\1", value) if isinstance(value, str) else value


def _take_out_formulas(notebook: NotebookNode) -> dict[str, str]:
    """Put a word of its own in the place of each formula in the notebook's Markdown cells. Return
    the formulas by these words, as MathML, which browsers show without a script or a network.

    Headings, from whose words their anchors are made, stay as they are; so do code and what is no
    LaTeX. The outputs stay, too: they may hold words of the user's data, and latex2mathml does not
    escape what stands in a formula.
    """
    formulas: dict[str, str] = {}

    def take_out(found: re.Match[str]) -> str:
        latex = found["inline"] or found["display"]
        if not latex:
            return found[0]
        display = "block" if found["display"] else "inline"
        try:
            mathml = latex2mathml.converter.convert(latex, display=display)
        except Exception:  # The errors of latex2mathml have no other common base class.
            return found[0]
        word = f"formula-{uuid.uuid4()}"
        formulas[word] = mathml
        return word

    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = HEADING_CODE_OR_FORMULA.sub(take_out, cell.source)
    return formulas


def write_html(notebook: Path, output: Path) -> None:
    """Write an executed notebook as one page that needs no other file and no network.

    The page has no scripts, embeds its images, and has a table of contents made from its headings.
    A page in another folder than its notebook is the report. The report shows no code and links to
    the pages beside the notebook.
    """
    code = output.parent == notebook.parent
    options = PLAIN | {
        "exclude_input": not code,
        "embed_images": True,
        "exclude_anchor_links": True,
    }
    content = read(notebook)
    if not code:
        left_out = "not-in-the-report"  # of use only with the notebook open
        content.cells = [
            cell for cell in content.cells if left_out not in cell.metadata.get("tags", ())
        ]
    formulas = _take_out_formulas(content)
    body, _ = HTMLExporter(template_name="basic", **options).from_notebook_node(content)
    for word, mathml in formulas.items():
        body = body.replace(word, mathml)
    headings = re.findall(r'<(h[23]) id="([^"]+)"[^>]*>(.*?)</h[23]>', body)
    contents = [
        f'<a class="{level}" href="#{anchor}">{title}</a>' for level, anchor, title in headings
    ]
    pages = [] if code else sorted(notebook.parent.glob("*.html"))
    links = [
        f'<a href="{quote(f"{page.parent.name}/{page.name}")}">{page.stem}</a>' for page in pages
    ]
    nav = f"<details><summary>Contents</summary>{''.join(contents)}</details>"
    style = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    if code:
        style += HtmlFormatter().get_style_defs(".highlight")
    else:
        summary = "The notebooks as they ran, with their code"
        nav += f"<details><summary>{summary}</summary>{''.join(links)}</details>"
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><link '
        'rel="icon" href="data:,">'
    )
    head += f"<title>{output.stem}</title><style>{style}</style>"
    page = f'<html lang="en"><head>{head}</head>\n<body><nav>{nav}</nav>\n{body}</body></html>\n'
    _write(output, f"<!doctype html>\n{page}".encode())


def write_markdown(notebook: Path, output: Path) -> None:
    """Write an executed notebook as Markdown for GitHub, with its code, tables and formulas.

    The images are files in a folder of the page's name. All other files in this folder are removed.
    A file replaces an earlier one only when it is complete.
    """
    images = output.with_suffix("")
    written: list[Path] = []

    def as_file(image: re.Match[str]) -> str:
        path = images / f"{len(written) + 1}.png"
        _write(path, base64.b64decode(image[1]))
        written.append(path)
        return f'src="{quote(images.name)}/{path.name}"'

    content = read(notebook)
    for cell in content.cells:
        for result in cell.get("outputs", ()):
            data = result.get("data", {})
            if png := data.pop("image/png", None):
                data["text/html"] = (
                    f'<img alt="" src="data:image/png;base64,{png.replace(chr(10), "")}"/>'
                )
            if page := data.get("text/html"):
                page = IMAGE.sub(as_file, re.sub(r"<style.*?</style>", "", page, flags=re.DOTALL))
                # An empty line or a deep indent would end the HTML in Markdown.
                data["text/html"] = re.sub(r"\n\s*", "\n", page)
    text, _ = MarkdownExporter(**PLAIN).from_notebook_node(content)
    _write(output, without_paths(text).encode())
    for path in images.glob("*"):
        if path not in written:
            path.unlink()


def _write(path: Path, content: bytes) -> None:
    """Write a file that gets its name only when it is complete.

    The library's `write_atomically` does more, but importing the library takes longer than writing
    all pages.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(content)
    part.replace(path)


if __name__ == "__main__":
    paths = [Path(name) for name in sys.argv[1:]]
    for source, target in zip(paths[: len(paths) // 2], paths[len(paths) // 2 :], strict=True):
        write_html(source, target)
