"""In a browser: the report opens from the file, without network, with every exhibit; JupyterLab
runs a notebook.
"""

import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import nbformat
import pytest
import websocket
import yaml
from conftest import PATIENCE, wait_for
from made_up_runs import Numbers, made_up_runs, points_of, quick, stored
from matplotlib.figure import Figure

from study.exhibits.kit.exhibit import EXHIBITS
from study.exhibits.kit.shown import Shown
from study.workflow.pages import write_html

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine; .ci/run installs Debian's"
)
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
COUNT = """<script>console.error("this is seen"); document.documentElement.dataset.pictures =
[...document.images].map(image => image.naturalWidth > 0 ? "shown" : "broken").join(" ")</script>"""
NAMES = ("main_image", "batch_size", "severity", "cascade_parts", "gradual", "uncertainty", "speed")


def opened(page: Path, folder: Path) -> tuple[str, list[str]]:
    """The page as Chromium has it after loading, and what it wrote to its console."""
    assert CHROMIUM is not None
    dump = ["--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom"]
    command = [CHROMIUM, *OPTIONS, *dump, f"--user-data-dir={folder}", page.as_uri()]
    home = os.environ | {"HOME": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=home)
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.fixture(scope="module")
def exhibits(tmp_path_factory: pytest.TempPathFactory) -> list[Shown]:
    """Some exhibits of made-up runs."""
    results = str(tmp_path_factory.mktemp("results"))
    methods = ["adabn", "tent", "cascade"]
    settings = quick(
        image_methods=methods,
        image_ablation_batch_sizes=[32, 16],
        seeds=[0, 1],
        results_folder=results,
    )
    world = made_up_runs(settings, lambda *_: Numbers(), points_of(settings, NAMES), settings.seeds)
    runs = stored(settings, world)
    return [EXHIBITS[name].show(runs) for name in NAMES]


@pytest.fixture
def report(exhibits: list[Shown], tmp_path: Path) -> Path:
    """A report of them, with the page of its notebook."""
    notebook = nbformat.v4.new_notebook()
    folder = tmp_path / "notebooks"
    notebook.cells.append(nbformat.v4.new_markdown_cell("# Report\n\n## Exhibits"))
    for exhibit in exhibits:
        cell = nbformat.v4.new_code_cell(f"this_is_code = '{'x' * 200}'")
        cell.outputs = [
            nbformat.v4.new_output("display_data", {"text/html": exhibit._repr_html_()})
        ]
        notebook.cells.append(cell)
    folder.mkdir()
    nbformat.write(notebook, folder / "10_report.ipynb")
    write_html(folder / "10_report.ipynb", folder / "10_report.html")
    page = tmp_path / "a report.html"  # a blank in the name, because users have them
    write_html(folder / "10_report.ipynb", page)
    return page


@needs_chromium
def test_the_report_opens_without_an_error_and_shows_every_exhibit(
    exhibits: list[Shown], report: Path, tmp_path: Path
) -> None:
    text = report.read_text(encoding="utf-8")
    assert (
        "<script" not in text
        and not re.search(r'(src|href)="(https?:)?//', text)
        and "this_is_code" not in text
    )
    report.write_text(text.replace("</body>", f"{COUNT}</body>"), encoding="utf-8")

    dom, console = opened(report, tmp_path / "profile")
    assert len(console) == 1 and "this is seen" in console[0], "no line but that of the test"
    pictures = re.search(r'data-pictures="([^"]*)"', dom)
    expected = sum(
        isinstance(part.content, Figure) for exhibit in exhibits for part in exhibit.parts
    )
    assert (
        pictures is not None
        and pictures[1].split() == ["shown"] * expected
        and expected >= len(NAMES)
    )
    contents = dom[dom.index("<nav>") : dom.index("</nav>")]
    for exhibit in exhibits:
        assert f'id="{exhibit.anchor}"' in dom and f'href="#{exhibit.anchor}"' in contents, (
            exhibit.heading
        )
    assert set(re.findall(r'<a href="#([^"]+)"', dom)) <= set(re.findall(r'id="([^"]+)"', dom))


# --- by mouse and keys
# -----------------------------------------------------------------------------------------------

TINY = {
    "image_train_size": 120,
    "image_training_epochs": 1,
    "image_test_size": 16,
    "image_methods": ["erm", "adabn"],
    "image_forward_transfer": False,
}
PROMPTS = (
    "[...document.querySelectorAll('.jp-CodeCell .jp-InputArea-prompt')].map(prompt => "
    "prompt.innerText.trim())"
)
TABLE = (
    "[...document.querySelectorAll('.jp-OutputArea table')].map(table => table.innerText)"
    ".find(text => text.includes('AdaBN'))"
)
PLACE = """(() => {
    const found = [...document.querySelectorAll(%s)]
        .find(each => each.innerText.trim().startsWith(%s));
    if (!found) return null;
    found.scrollIntoView({block: "center"});
    const texts = document.createTreeWalker(found, NodeFilter.SHOW_TEXT);
    const range = document.createRange();
    while (texts.nextNode() && !texts.currentNode.data.includes(%s));
    range.selectNodeContents(texts.currentNode);
    const box = range.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
})()"""


LINE = (
    "[...document.querySelectorAll('.cm-line')].map(line => line.innerText).find(text => "
    "text.startsWith('%s'))"
)


class Tab:
    """A page in Chromium, driven as a user drives it: by what is on the screen, a mouse and
    keys."""

    def __init__(self, port: int) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
            (page,) = [each for each in json.load(answer) if each["type"] == "page"]
        self.socket = websocket.create_connection(
            page["webSocketDebuggerUrl"], timeout=PATIENCE, suppress_origin=True
        )
        self.numbers = itertools.count()

    def ask(self, method: str, **values: Any) -> Any:
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": values}))
        while (answer := json.loads(self.socket.recv())).get("id") != number:
            pass
        return answer["result"]

    def wait(self, expression: str) -> Any:
        """The value of an expression when it has one."""

        def value_of(expression: str) -> Any:
            return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)[
                "result"
            ].get("value")

        try:
            return wait_for(lambda: value_of(expression), expression)
        except AssertionError as error:
            raise AssertionError(
                f"{error}\nThe page then:\n{value_of('document.body.innerText')}"
            ) from None

    def click(self, kind: str, start: str, on: str = "", times: int = 1) -> None:
        """Click on the text `on` in the element of a CSS `kind` whose text begins with `start`."""
        x, y = self.wait(PLACE % (json.dumps(kind), json.dumps(start), json.dumps(on or start)))
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for count in range(1, times + 1):
            for event in ("mousePressed", "mouseReleased"):
                where = {"x": x, "y": y, "button": "left", "clickCount": count}
                self.ask("Input.dispatchMouseEvent", type=event, **where)

    def open(self, address: str) -> None:
        """Go to a page, as soon as it is served."""
        wait_for(lambda: not self.ask("Page.navigate", url=address).get("errorText"), address)

    def run_all(self) -> str:
        """Run all cells by the menu; the table of the methods."""
        before = max(
            [int(number) for number in re.findall(r"\d+", str(self.wait(PROMPTS)))], default=0
        )
        self.click(".lm-MenuBar-itemLabel", "Run")
        self.click(".lm-Menu-itemLabel", "Run All Cells")
        finished = (
            f"every(prompt => /[0-9]/.test(prompt) && Number(prompt.match(/[0-9]+/)[0]) > {before})"
        )
        self.wait(f"{PROMPTS}.{finished}")
        return str(self.wait(TABLE))


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    """An empty page in a Chromium of its own."""
    assert CHROMIUM is not None
    command = [
        CHROMIUM,
        *OPTIONS,
        "--remote-debugging-port=0",
        f"--user-data-dir={tmp_path / 'chromium'}",
    ]
    quiet = subprocess.DEVNULL
    home = os.environ | {"HOME": str(tmp_path)}
    process = subprocess.Popen(
        [*command, "--window-size=1500,1000", "about:blank"], env=home, stdout=quiet, stderr=quiet
    )
    try:
        port = tmp_path / "chromium" / "DevToolsActivePort"
        lines = wait_for(lambda: port.exists() and port.read_text().splitlines(), "Chromium")
        yield Tab(int(lines[0]))
    finally:
        process.kill()
        process.wait()


@needs_chromium
def test_no_page_is_wider_than_a_small_screen(report: Path, tab: Tab) -> None:
    for page in (report, report.parent / "notebooks" / "10_report.html"):
        tab.open(page.as_uri())
        for width in (400, 1400):
            tab.ask(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=900,
                deviceScaleFactor=1,
                mobile=False,
            )
            widest = "document.readyState == 'complete' && document.documentElement.scrollWidth"
            assert 0.9 * width < tab.wait(widest) <= width, page.name  # a scroll bar takes some


@pytest.fixture
def lab(tab: Tab, tmp_path: Path) -> Iterator[Tab]:
    """JupyterLab as a new user has it, with 02_adapt_image open, whose `profile` is a tiny one."""
    values = yaml.safe_load((ROOT / "profiles" / "quick.yaml").read_text(encoding="utf-8"))
    (tmp_path / "tiny.yaml").write_text(
        yaml.safe_dump(values | TINY | {"results_folder": str(tmp_path / "results")})
    )
    (tmp_path / "notebooks").mkdir()
    text = (ROOT / "notebooks" / "02_adapt_image.ipynb").read_text(encoding="utf-8")
    (tmp_path / "notebooks" / "02.ipynb").write_text(
        text.replace(r"\"quick\"", rf"\"{tmp_path}/tiny.yaml\"")
    )
    shown = (
        tmp_path / "settings" / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
    )
    shown.parent.mkdir(parents=True)
    shown.write_text(
        '{"windowingMode": "none"}'
    )  # all cells are on the page, not only those on the screen
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    places = {
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "spaces",
        "HOME": "",
    }
    places |= {
        "JUPYTER_CONFIG_DIR": "jupyter",
        "JUPYTER_DATA_DIR": "jupyter",
        "IPYTHONDIR": "jupyter",
    }
    variables = os.environ | {name: str(tmp_path / folder) for name, folder in places.items()}
    variables |= {
        "PYTHONPATH": str(ROOT),
        "JUPYTER_PATH": str(ROOT / "study" / "workflow"),
    }  # run_all.sh copies the kernel
    command = [
        sys.executable,
        "-m",
        "jupyter",
        "lab",
        str(tmp_path / "notebooks"),
        "--no-browser",
        "--allow-root",
    ]
    command += [f"--ServerApp.port={port}", "--IdentityProvider.token=", "--LabApp.news_url=None"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, env=variables, stdout=log, stderr=log)
    try:
        tab.open(f"http://127.0.0.1:{port}/lab/tree/02.ipynb")
        yield tab
    finally:
        process.kill()  # the kernel sees that its server is gone, and ends
        process.wait()


@needs_chromium
def test_a_notebook_runs_in_jupyterlab_and_its_table_follows_the_parameters(lab: Tab) -> None:
    lab.wait(
        "document.querySelector('.jp-KernelName, .jp-Toolbar-kernelName')?.innerText == "
        "'CascadeTTA'"
    )
    lab.wait("document.querySelector('.jp-Notebook-ExecutionIndicator')?.dataset.status == 'idle'")
    first = lab.run_all()
    lab.click(".jp-CodeCell .cm-line", "image_severity", "None", times=2)
    lab.ask("Input.insertText", text="1")
    assert lab.wait(LINE % "image_severity").startswith("image_severity = 1  #")
    second = lab.run_all()
    assert "AdaBN" in first and "AdaBN" in second and first != second
