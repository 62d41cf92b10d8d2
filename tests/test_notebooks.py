"""The notebooks: what stands in them, and one of them run by hand as a user would."""

import ast
import base64
import io
import json
import os
import re
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import Any

import nbformat
import pytest
from conftest import LONGEST_MESSAGE

from study import exhibits
from study.exhibits import EXHIBITS
from study.notebook_parameters import settings_from
from study.papermill_arguments import check_arguments
from study.settings import PARAMETERS, PROFILES, SettingsError, load_profile
from study.study import Study
from study.workflow.notebooks import code_cells, declared_exhibits, read_parameters

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NAMES = [path.stem for path in NOTEBOOKS]
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)


def markdown(path: Path) -> list[str]:
    """The text cells of a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]


def code(path: Path) -> str:
    """All code of a notebook."""
    return "\n".join(cell["source"] for cell in code_cells(path))


@each_notebook
def test_a_notebook_is_stored_without_results(path: Path) -> None:
    nbformat.validate(nbformat.read(path, as_version=4))
    for cell in code_cells(path):
        assert not cell["outputs"] and cell["execution_count"] is None, cell["source"]
    kernel = json.loads(path.read_text(encoding="utf-8"))["metadata"]["kernelspec"]["name"]
    assert kernel == "cascadetta", "so that it opens in the study's environment, or Jupyter asks"


@each_notebook
def test_the_parameters_are_few_and_each_is_explained(path: Path) -> None:
    names = list(read_parameters(path, PARAMETERS))
    assert names[0] == "profile" and ("seed" in names) != ("seeds" in names)
    assert 6 <= len(names) <= 12
    source = next(
        cell["source"]
        for cell in code_cells(path)
        if "parameters" in cell["metadata"].get("tags", ())
    )
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [token.start[0] for token in tokens if token.type == tokenize.COMMENT]
    assert comments == list(range(1, len(names) + 1))


@each_notebook
@pytest.mark.parametrize(
    "profile", sorted(file.stem for file in (ROOT / "profiles").glob("*.yaml"))
)
def test_changing_the_one_line_profile_is_enough(path: Path, profile: str) -> None:
    defaults = read_parameters(path, PARAMETERS)
    assert defaults["profile"] == "quick"
    assert settings_from(defaults | {"profile": profile}) == load_profile(profile)


@each_notebook
def test_the_first_cell_says_which_profile_and_how_to_choose_another(path: Path) -> None:
    said = " ".join(markdown(path)[:2])
    assert "`quick`" in said and re.search(
        rf"notebooks/{path.stem}\.ipynb|--only {path.stem}", said
    )


@each_notebook
def test_what_the_prose_refers_to_exists(path: Path) -> None:
    for name in re.findall(r"`(?:notebooks/)?(\d\d_\w+)", " ".join(markdown(path))):
        assert name in NAMES, f"{path.stem} speaks of {name}"
    for file in re.findall(
        r"`((?:cascadetta_lib|study|profiles|figures|docs|tests|methods)/[\w./]*)`",
        " ".join(markdown(path)),
    ):
        assert (ROOT / file).exists() or (ROOT / "cascadetta_lib" / file).exists(), (
            f"{path.stem} speaks of {file}"
        )


@each_notebook
def test_a_notebook_decides_and_the_library_does(path: Path) -> None:
    if path.stem == "00_tour":
        pytest.skip("the tour shows the algorithm itself, in plain PyTorch")
    for node in ast.walk(ast.parse(code(path))):
        banned = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda | ast.While
        assert not isinstance(node, banned), ast.unparse(node)
        if isinstance(node, ast.For | ast.comprehension):
            assert "batch" not in ast.unparse(node.iter).lower(), (
                f"a loop over batches: {ast.unparse(node.iter)}"
            )


def calls(path: Path, function: str) -> list[str]:
    """The first argument of each call of `function` in a notebook, such as "main_image"."""
    found = []
    for node in ast.walk(ast.parse(code(path))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == function:
            found.append(ast.literal_eval(node.args[0]))
    return found


@each_notebook
def test_a_notebook_runs_the_exhibits_that_it_declares(path: Path) -> None:
    declared = declared_exhibits(path)
    assert set(declared) <= set(EXHIBITS)
    assert calls(path, "exhibits.run") == list(declared), "each once, in their order"
    assert set(calls(path, "exhibits.show")) <= set(declared)


def test_an_exhibit_that_is_not_declared_is_refused(tmp_path: Path) -> None:
    study = Study(load_profile("quick", {"results_folder": str(tmp_path)}))
    study.exhibits = ("main_image",)
    for name in (study, study.varied(batch_size=16)):
        with pytest.raises(ValueError, match=r"'choice' is not declared \(declared: main_image\)"):
            exhibits.run("choice", name)
    assert not list(tmp_path.iterdir())


def test_the_notebooks_make_every_exhibit(tmp_path: Path) -> None:
    settings = load_profile("quick", {"results_folder": str(tmp_path)})
    missing = {name for name in EXHIBITS if EXHIBITS[name].points(settings)}
    for path in NOTEBOOKS:
        missing -= set(declared_exhibits(path))
    assert not missing


@each_notebook
def test_a_notebook_ends_with_what_to_expect_what_came_out_and_what_to_try(path: Path) -> None:
    if path.stem == "10_report":
        pytest.skip("the report is a page of results, and ends with the verdicts")
    last = markdown(path)[-1]
    assert [line.split("**")[1] for line in last.splitlines()[1:]] == [
        "Expected.",
        "Found.",
        "How to read it.",
        "Try next.",
    ]


@each_notebook
def test_the_values_that_the_prose_proposes_can_be_used(path: Path) -> None:
    proposed = re.findall(r"`(\w+) = ([^`]+)`", " ".join(markdown(path)))
    for name, value in proposed:
        settings_from({"profile": "quick", name: ast.literal_eval(value)})


# --- by hand
# --------------------------------------------------------------------------------------------------

LAST = """
import sys
settings = study.settings
found = (settings.profile, settings.seed, settings.text.network.hidden, settings.image.dataset)
print("by", sys.executable, "found", *found)
"""


def test_papermill_by_hand_runs_a_notebook_and_reaches_every_parameter(tmp_path: Path) -> None:
    """Also those that the parameters cell does not name."""
    notebook = nbformat.read(ROOT / "notebooks" / "03_adapt_text.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(LAST))
    nbformat.write(notebook, tmp_path / "own.ipynb")
    values = {
        "seed": "3",
        "results_folder": str(tmp_path),
        "text_training_iterations": "20",
        "text_test_size": "32",
    }
    arguments = [part for name, value in values.items() for part in ("-p", name, value)]
    arguments += [
        "-f",
        "profiles/quick.yaml",
        "-y",
        "text_methods: [adabn, cascade]",
        "--no-progress-bar",
    ]
    command = [
        sys.executable,
        "-m",
        "papermill",
        str(tmp_path / "own.ipynb"),
        str(tmp_path / "out.ipynb"),
        *arguments,
    ]
    kernels = os.environ | {
        "JUPYTER_PATH": str(ROOT / "study" / "workflow")
    }  # run_all.sh copies it from there
    done = subprocess.run(command, cwd=ROOT, env=kernels, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    executed = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    outputs = [output for cell in executed.cells for output in cell.get("outputs", ())]
    assert outputs[-1].text == f"by {sys.executable} found quick 3 (64, 32) digits\n"
    pages = [output.data.get("text/html", "") for output in outputs if output.get("data")]
    assert any("<table" in page and "data:image/png;base64" in page for page in pages)
    entries = list((tmp_path / "runs").iterdir())
    assert len(entries) == 5, "two methods, and three other steps of the two"
    requests = [json.loads((entry / "entry.json").read_text())["request"] for entry in entries]
    assert {request["checkpoint"]["training"]["iterations"] for request in requests} == {20}


IN_BASE64 = base64.b64encode(b"seed: 010").decode()


PAPERMILL = [
    ["/x/bin/papermill"],
    ["/x/python", "-m", "papermill"],
    ["py", "/x/papermill"],
    ["python", "-X", "dev", "-m", "papermill"],
    ["python", "-b", "-W", "error", "-Im", "papermill"],
    ["python", "-u", "/x/papermill"],
]
READ_OTHERWISE = [
    (["-y", "seed: 010"], "seed = 010 (from papermill's -y): papermill reads this as 8"),
    (["-yseed: 010"], "papermill reads this as 8"),
    (["--parameters_yaml=seed: 010"], "papermill reads this as 8"),
    (["-b", IN_BASE64], "seed = 010 (from papermill's -b)"),
    (["-f", "mine.yaml"], "image_test_size = 1:30 (from papermill's -f mine.yaml)"),
    (["-p", "seed", "010"], "papermill reads this as 10"),
    (["-y", "image_test_size: 0b11"], "papermill reads this as 3"),
    (["-y", "seeds: [1, 010]"], "seeds = [1, 010]"),
    (
        ["-y", "image_crop_and_flip: no"],
        "reads this as False, but in a profile it is refused or another value",
    ),
    (["-y", "image_crop_and_flip: on"], "write true if you mean true"),
    (["-y", "image_stream: 2026-01-31"], "datetime.date(2026, 1, 31)"),
    (["-y", "image_crop_and_flip: off"], "reads this as False"),
    (["-y", "image_crop_and_flip: Yes"], "reads this as True"),
    (["-y", "image_test_size: 1:30:00"], "papermill reads this as 5400"),
    (["-y", "image_ablation_batch_sizes: [8, 020]"], "papermill reads this as [8, 16]"),
    (["-p", "image_test_size", "00"], "papermill reads this as 0"),
    (["-f", "list.yaml"], "seeds = - 010 - 1:30 (from papermill's -f list.yaml)"),
    (["-f", "deep.yaml"], "papermill reads this as [[8], {'a': False}]"),
    (["-f", "nowhere.yaml"], "-f nowhere.yaml (from papermill) cannot be checked"),
    (["-f", "mine.yaml", "--cwd", "."], "allowed is an absolute path"),
]


@pytest.mark.parametrize(("given", "told"), READ_OTHERWISE, ids=str)
def test_what_papermill_reads_otherwise_than_a_profile_is_refused(
    given: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("seed: 3\nimage_test_size: 1:30\n")
    Path("list.yaml").write_text("seeds:\n  - 010\n  - 1:30\n")
    Path("deep.yaml").write_text("seeds:\n  - [010]\n  - a: off\n")
    for command in PAPERMILL:
        with pytest.raises(SettingsError) as error:
            check_arguments([*command, "in.ipynb", "out.ipynb", *given])
        assert told in str(error.value) and len(str(error.value)) <= LONGEST_MESSAGE
    check_arguments(["/x/jupyter", "lab", *given])
    check_arguments(["python", "-m", "jupyter", "papermill", *given])
    check_arguments(["python", "-X", "papermill", "x.py", *given])


def test_what_papermill_reads_alike_is_taken() -> None:
    values = "{seed: 8, image_severity: 3, image_training_learning_rate: 1e-3, image_test_size: ~}"
    given = ["-y", values, "-p", "seed", "-3", "-p", "image_predict", "before", "-p", "x", "1e-3"]
    given += ["-p", "image_test_size", "1_000", "-y", "image_test_size: 1_000"]
    given += ["-p", "profile", "*a: [", "-p", "results_folder", "/a: b"]  # no YAML, but texts
    given += ["-y", "{image_dirichlet_delta: &a 1, image_ablation_batch_sizes: [8, *a]}"]
    profiles = [part for path in PROFILES.glob("*.yaml") for part in ("-f", str(path))]
    check_arguments(["papermill", "in.ipynb", "out.ipynb", *given, *profiles, "--cwd", "."])
    check_arguments(["papermill", "in.ipynb", "out.ipynb", "-p", "alone"])
    check_arguments([])


INJECTED = ["seeds = [0]", "lr = 0.1", "_seed = 3", "image = {'depth': 2}"]


@each_notebook
@pytest.mark.parametrize("injected", INJECTED)
def test_what_papermill_injects_must_be_a_parameter(
    path: Path, injected: str, tmp_path: Path
) -> None:
    """A notebook begins with its own names among the variables, and stops at any other."""
    cells = [cell["source"] for cell in code_cells(path)]
    cells.insert(1, f"# Parameters\n{injected}\nresults_folder = {str(tmp_path)!r}")
    ran: list[str] = [""]
    namespace: dict[str, Any] = {"In": ran}

    def begin() -> None:
        for source in cells[:3]:
            ran.append(source)
            exec(compile(source, path.name, "exec"), namespace)

    name = injected.partition(" ")[0]
    if name == "seeds":
        if path.stem != "10_report":  # which makes all its exhibits there
            begin()
    else:
        with pytest.raises(SettingsError, match=rf"{name} \(from the notebook\) is no parameter"):
            begin()


def test_the_report_writes_the_label_of_a_profile_as_text() -> None:
    """`profile: 'a<script>b'` emptied the page."""
    shown = re.findall(
        r"\{[^{}]*settings\.profile[^{}]*\}", code(ROOT / "notebooks/10_report.ipynb")
    )
    assert shown and set(shown) == {"{to_html(settings.profile)}"}


def test_the_tour_gives_the_errors_of_the_library(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = (
        f"\nresults_folder = {str(tmp_path)!r}\nimage_train_size = 200\nimage_training_epochs = 1\n"
    )
    parameters, *others = [cell["source"] for cell in code_cells(NOTEBOOKS[0])]
    namespace: dict[str, Any] = {}
    for source in (parameters + small, *others):
        exec(compile(source, "00_tour", "exec"), namespace)
    told = capsys.readouterr().out
    assert len(re.findall(r"^\w+ +[\d.]+ % here, +[\d.]+ % by", told, flags=re.MULTILINE)) == 3
    for name, run in namespace["runs"].items():
        counts = run.batches.sort_values("position")["errors"].tolist()
        assert namespace["errors"][name] == counts, name


def test_the_first_notebook_trains_all_that_a_profile_names() -> None:
    """Not only what its methods start from: the profile `networks` has seven pre-trainings and four
    of such methods.
    """
    assert "[study.checkpoint(objective) for objective in study.objectives]" in code(NOTEBOOKS[1])
