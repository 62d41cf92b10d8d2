"""The report in a browser: it opens from the file, without network, and shows every exhibit."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import nbformat
import pytest
from made_up_runs import Numbers, made_up_runs, points_of, quick, stored
from matplotlib.figure import Figure

from cascadetta_lib.exhibits.base import EXHIBITS
from workflow.pages import write_html

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine; .ci/run installs Debian's")
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --enable-logging=stderr --virtual-time-budget=5000 --dump-dom"
).split()
COUNT = """<script>document.documentElement.dataset.pictures =
[...document.images].map(image => image.naturalWidth > 0 ? "shown" : "broken").join(" ")</script>"""
NAMES = ("main_image", "batch_size", "severity", "cascade_parts", "gradual", "uncertainty", "speed")


def opened(page: Path, folder: Path) -> tuple[str, list[str]]:
    """The page as Chromium has it after loading, and what it wrote to its console."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *OPTIONS, f"--user-data-dir={folder}", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | {"HOME": str(folder)})
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@needs_chromium
def test_the_report_opens_without_an_error_and_shows_every_exhibit(tmp_path: Path) -> None:
    methods = ["adabn", "tent", "cascade"]
    settings = quick(image_methods=methods, image_batch_sizes=[32, 16], seeds=[0, 1], results_folder=str(tmp_path))
    world = made_up_runs(settings, lambda *_: Numbers(), points_of(settings, NAMES), settings.seeds)
    runs = stored(settings, world)
    shown = [EXHIBITS[name].show(runs) for name in NAMES]
    notebook = nbformat.v4.new_notebook()
    notebook.cells.append(nbformat.v4.new_markdown_cell("# Report\n\n## Exhibits"))
    for exhibit in shown:
        cell = nbformat.v4.new_code_cell("this_is_code")
        cell.outputs = [nbformat.v4.new_output("display_data", {"text/html": exhibit._repr_html_()})]
        notebook.cells.append(cell)
    nbformat.write(notebook, tmp_path / "report.ipynb")
    page = tmp_path / "a report.html"  # a blank in the name, because users have them
    write_html(tmp_path / "report.ipynb", page)
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text and not re.search(r'(src|href)="(https?:)?//', text) and "this_is_code" not in text
    page.write_text(text.replace("</body>", f"{COUNT}</body>"), encoding="utf-8")

    dom, console = opened(page, tmp_path / "profile")
    assert console == []
    pictures = re.search(r'data-pictures="([^"]*)"', dom)
    expected = sum(isinstance(part.content, Figure) for exhibit in shown for part in exhibit.parts)
    assert pictures is not None and pictures[1].split() == ["shown"] * expected and expected >= len(NAMES)
    contents = dom[dom.index("<nav>") : dom.index("</nav>")]
    for exhibit in shown:
        assert f'id="{exhibit.anchor}"' in dom and f'href="#{exhibit.anchor}"' in contents, exhibit.heading
    assert set(re.findall(r'<a href="#([^"]+)"', dom)) <= set(re.findall(r'id="([^"]+)"', dom))


@needs_chromium
def test_an_error_on_a_page_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text('<!doctype html><html><body><img src="absent.png"><script>absent()</script></body></html>')
    _, console = opened(page, tmp_path / "profile")
    assert any("absent" in line for line in console)
