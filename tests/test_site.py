"""The site: its pages, and that each link on them leads to something."""

import importlib.util
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest

from study.tools import site

ROOT = Path(__file__).resolve().parents[1]
needs_sphinx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("sphinx", "myst_nb", "furo")),
    reason="Sphinx and what it needs are not installed: pip install -e '.[docs]'",
)


def test_an_executed_notebook_takes_the_place_of_its_source(tmp_path: Path) -> None:
    executed = tmp_path / "executed"
    executed.mkdir()
    notebook = nbformat.read(ROOT / "notebooks" / "02_adapt_image.ipynb", as_version=4)
    said = nbformat.v4.new_output("stream", text=f"{ROOT}/data")
    notebook.cells[3].outputs = [said]
    nbformat.write(notebook, executed / "02_adapt_image-digits-seed0.ipynb")
    site.write_notebooks(tmp_path / "pages", executed)
    pages = {path.name for path in (tmp_path / "pages").iterdir()}
    assert pages == {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    written = nbformat.read(tmp_path / "pages" / "02_adapt_image.ipynb", as_version=4)
    assert written.cells[3].outputs[0].text == "data", "the results, without this machine's paths"


def test_every_module_of_the_library_has_a_place(tmp_path: Path) -> None:
    site.write_api(tmp_path / "api")
    said = "\n".join(page.read_text(encoding="utf-8") for page in (tmp_path / "api").iterdir())
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / "cascadetta_lib").rglob("*.py")
    } - {"cascadetta_lib"}
    assert {module for module in modules if f"automodule:: {module}\n" not in said} == set()


def test_every_page_of_docs_is_in_the_contents() -> None:
    contents = (ROOT / "docs" / "site" / "contents.md").read_text(encoding="utf-8").split()
    pages = {f"docs/{path.stem}" for path in (ROOT / "docs").glob("*.md")}
    assert pages - set(contents) == set()


class Links(HTMLParser):
    """What a page links to, what it shows, and the anchors that it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            if name in ("href", "src") and value:
                self.targets.add(value)


@needs_sphinx
def test_the_site_is_made_without_a_warning_and_each_link_leads_somewhere(tmp_path: Path) -> None:
    command = [sys.executable, "study/tools/site.py", "--sources", "--into", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    html = tmp_path / "html"
    assert (html / "searchindex.js").is_file() and (html / "index.html").is_file()
    pages = {path: Links(path) for path in html.rglob("*.html")}
    assert len(pages) > 40
    broken = []
    for page, links in pages.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            found = path.exists()
            if found and parts.fragment and path in pages:
                found = unquote(parts.fragment) in pages[path].anchors
            if not found:
                broken.append(f"{page.relative_to(html)}: {target}")
    assert broken == []
