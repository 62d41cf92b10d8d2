"""Executed notebooks as pages: with the values that they ran with, and no path of this machine in
what is kept.
"""

import re
import tempfile
from pathlib import Path

import nbformat
import pytest
import yaml
from test_workflow import PIXEL, ROOT

from study.workflow.arguments import notebooks_in
from study.workflow.pages import without_paths, write_html, write_markdown

TABLE = f"""<style>
td {{ color: red }}

</style><table>

    <tr><td>41.5</td></tr></table><img src="data:image/png;base64,{PIXEL}"/>"""


@pytest.fixture
def executed(tmp_path: Path) -> Path:
    """A notebook as papermill leaves it: parameters, a table with a picture, a picture, lines with
    paths.
    """
    cell = nbformat.v4.new_code_cell
    output = nbformat.v4.new_output
    here = tmp_path / "notebooks"
    values = {
        "profile": "/results/released/profile.yaml",
        "seed": 3,
        "image_dataset": "npz:/mnt/somebody/pets",
    }
    values["text_dataset"] = ["amazon", "amazon:/mnt/somebody/reviews"]
    lines = (
        'profile = "quick"  # which\nseed = 0  # of what\ndevice = None\nimage_dataset = '
        "None\ntext_dataset = None"
    )
    said = f"{ROOT}/data {ROOT} {Path.home()}/x {tempfile.gettempdir()}/y"
    metadata = {"language_info": {"name": "python"}, "papermill": {"parameters": values}}
    notebook = nbformat.v4.new_notebook(metadata=metadata)
    notebook.cells = [
        nbformat.v4.new_markdown_cell("# A title\n## A part\nwith $z$"),
        nbformat.v4.new_markdown_cell("how to change it", metadata={"tags": ["not-in-the-report"]}),
        cell(lines, metadata={"tags": ["parameters"]}),
        cell(repr(values), metadata={"tags": ["injected-parameters"]}),
        cell(
            "secret = 1",
            outputs=[output("stream", name="stderr", text="1 of 9"), output("stream", text=said)],
        ),
        cell("table", outputs=[output("display_data", {"text/html": TABLE})]),
        cell(
            "picture",
            outputs=[output("display_data", {"image/png": PIXEL, "text/plain": "<Figure>"})],
        ),
    ]
    here.mkdir()
    nbformat.write(notebook, here / "08_x.ipynb")
    return here / "08_x.ipynb"


def test_a_page_for_github_has_all_but_paths_of_this_machine(
    executed: Path, tmp_path: Path
) -> None:
    page = tmp_path / "figures" / "08_x.md"
    for _ in range(2):  # a second time replaces the first
        write_markdown(executed, page)
    text = page.read_text()
    assert "data . ~/x …/y" in text and "1 of 9" not in text and "<style" not in text
    used = (
        "profile = 'released'  # which\nseed = 3  # of what\ndevice = None\nimage_dataset = "
        "'npz:pets'\n"
    )
    used += "text_dataset = ['amazon', 'amazon:reviews']\n"
    assert f"```python\n{used}```" in text and "secret = 1" in text
    assert not [path for path in (ROOT, Path.home(), tempfile.gettempdir()) if str(path) in text]
    assert "<table>\n<tr><td>41.5</td></tr></table>" in text
    assert re.findall('src="(.*?)"', text) == ["08_x/1.png", "08_x/2.png"]
    assert sorted(path.name for path in page.with_suffix("").iterdir()) == ["1.png", "2.png"]


def test_a_page_has_the_values_of_the_run_however_they_are_assigned(tmp_path: Path) -> None:
    source = (
        "seed: int = 0  # δ of what\nseeds: list = [\n    0,  # the first\n    1,\n]  # all\n"
        "rate = (0.1)\nname = '#'; size = 2"
    )
    values = {"seed": 3, "seeds": [3, 4], "rate": 0.5, "size": 7}
    metadata = {"language_info": {"name": "python"}, "papermill": {"parameters": values}}
    notebook = nbformat.v4.new_notebook(metadata=metadata)
    notebook.cells = [nbformat.v4.new_code_cell(source, metadata={"tags": ["parameters"]})]
    nbformat.write(notebook, tmp_path / "08_x.ipynb")
    write_markdown(tmp_path / "08_x.ipynb", tmp_path / "08_x.md")
    used = "seed: int = 3  # δ of what\nseeds: list = [3, 4]  # all\nrate = (0.5)\n"
    used += "name = '#'; size = 7"
    assert f"```python\n{used}\n```" in (tmp_path / "08_x.md").read_text()


def test_a_folder_whose_name_only_begins_alike_is_another() -> None:
    assert without_paths(f"{ROOT}-z").endswith(f"{ROOT.name}-z")


def test_a_page_beside_its_notebook_has_code_and_the_report_links_to_it(
    executed: Path, tmp_path: Path
) -> None:
    beside = executed.with_suffix(".html")
    report = tmp_path / "report.html"
    write_html(executed, beside)
    write_html(executed, report)
    assert "how to change it" in beside.read_text() and "how to change it" not in report.read_text()
    assert "secret" in beside.read_text() and "1 of 9" not in beside.read_text()
    assert "secret" not in report.read_text() and 'href="notebooks/08_x.html"' in report.read_text()
    for page in (beside, report):
        assert "41.5" in page.read_text() and "<script" not in page.read_text()
        assert page.stat().st_size < 20_000


@pytest.mark.parametrize(
    ("text", "expected", "formulas"),
    [
        ("with $z$.", "<mi>z</mi>", 1),
        (r"of $R(T_i \mid T_{1:j})$", "<msub><mi>T</mi><mi>i</mi></msub>", 1),
        ("if $a < b$", "<mi>a</mi><mo>&#x0003C;</mo><mi>b</mi>", 1),
        ("so\n\n$$\\frac{1}{N}$$\n\n", 'display="block"', 1),
        ("the line `echo $A$B`", "<code>echo $A$B</code>", 0),
        ("```\n$z$\n```", "$z$", 0),
        ("from 5$ to 6$", "from 5$ to 6$", 0),
        ("## Of $z$", "Of $z$</h2>", 0),
        ("no LaTeX: $a_$", "no LaTeX: $a_$", 0),
        ("| a | b |\n|---|---|\n| $z$ | $a_1$ |", "<msub><mi>a</mi><mn>1</mn></msub>", 2),
    ],
)
def test_a_page_shows_formulas_without_a_script(
    tmp_path: Path, text: str, expected: str, formulas: int
) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)])
    nbformat.write(notebook, tmp_path / "x.ipynb")
    write_html(tmp_path / "x.ipynb", tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert expected in page and page.count("<math") == formulas


@pytest.mark.parametrize("notebook", notebooks_in(ROOT / "notebooks"), ids=lambda path: path.stem)
def test_each_formula_of_our_notebooks_is_shown(tmp_path: Path, notebook: Path) -> None:
    write_html(notebook, tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "$" not in re.sub(r"<(pre|code)\b.*?</\1>", "", page, flags=re.DOTALL)


@pytest.mark.parametrize("profile", ["released", "study"])
def test_the_notebooks_that_a_profile_keeps_exist(profile: str) -> None:
    values = yaml.safe_load((ROOT / "profiles" / f"{profile}.yaml").read_text())
    for name in values["figures_notebooks"]:
        assert (ROOT / "notebooks" / f"{name}.ipynb").is_file()


def test_committed_pages_name_no_path_of_a_machine() -> None:
    for page in (ROOT / "figures").rglob("*.md"):
        assert not re.search(r"/(home|root|tmp|work|Users)/", page.read_text(encoding="utf-8")), (
            page
        )
