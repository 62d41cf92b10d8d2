"""run_all.sh and what is behind it, with tiny notebooks in place of the real ones."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from cascadetta_lib.settings import Settings
from workflow import run
from workflow.environment import lacking
from workflow.execute import failure_path, partial_path, take_gpu
from workflow.notebooks import NotebookError, find_notebooks, make_jobs, read_notebook, slug

ROOT = Path(__file__).resolve().parents[1]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PRETRAIN = ["seed = 0\nimage_dataset = 'digits'", "import sys; print('kernel', sys.executable)"]
ADAPT = [
    "seed = 0\nimage_dataset = 'digits'\nimage_severity = 5",
    "import os, cascadetta_lib; print('folder', os.getcwd())",
    "# the cell that fails\nif image_severity == 1:\n    raise RuntimeError('no such severity')",
]
REPORT = [
    "seeds = [0]",
    f"from IPython.display import Image; import base64; secret = 1\nImage(base64.b64decode('{PIXEL}'), format='png')",
]


def write_notebook(path: Path, *cells: str, tags: tuple[int, ...] = (0,)) -> Path:
    """A notebook of code cells, those numbered in `tags` tagged `parameters`."""
    code: list[dict[str, object]] = [
        {
            "cell_type": "code",
            "id": f"cell{number}",
            "execution_count": None,
            "outputs": [],
            "metadata": {"tags": ["parameters"]} if number in tags else {},
            "source": source,
        }
        for number, source in enumerate(cells)
    ]
    path.write_text(json.dumps({"cells": code, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notebooks")
    for name, cells in (("01_pretrain", PRETRAIN), ("02_adapt_image", ADAPT), ("07_report", REPORT)):
        write_notebook(folder / f"{name}.ipynb", *cells)
    return folder


@pytest.fixture
def study(notebooks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Study":
    monkeypatch.chdir(tmp_path)
    return Study(notebooks, tmp_path)


class Study:
    """The command line with the made-up notebooks and a results folder of its own."""

    def __init__(self, notebooks: Path, folder: Path) -> None:
        self.notebooks, self.folder = notebooks, folder
        self.quick = folder / "results" / "quick"

    def __call__(self, *arguments: str) -> int:
        os.chdir(self.folder)
        extra = [] if "--set" in arguments else ["--set"]
        return run.main([*arguments, *extra, f"results_folder={self.folder}/results"], self.notebooks)

    def output(self, job: str) -> Path:
        return self.quick / "notebooks" / f"{job}.ipynb"


# --- the whole way -------------------------------------------------------------------------------------------------


@pytest.fixture
def hostile_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whose own Jupyter and IPython would break every notebook."""
    kernel = tmp_path / "share" / "kernels" / "python3" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    kernel.write_text(json.dumps({"argv": ["/bin/false"], "display_name": "wrong", "language": "python"}))
    startup = tmp_path / "ipython" / "profile_default" / "startup" / "wrong.py"
    startup.parent.mkdir(parents=True)
    startup.write_text("import os; os._exit(1)")
    for name in ("JUPYTER_PATH", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "share"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONSTARTUP", str(startup))


def test_a_study_from_the_first_run_to_a_failure_and_on(
    study: Study, hostile_home: None, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs = ["01_pretrain-digits-seed0", "02_adapt_image-digits-seed0", "07_report"]
    assert study() == run.DONE
    out = capfd.readouterr().out
    assert [line for line in out.splitlines() if line.endswith("started")] == [f"{job}: started" for job in jobs]
    assert out.splitlines()[-1] == "report: results/quick/report.html"
    assert f"kernel {sys.executable}" in study.output(jobs[0]).read_text()
    assert f"folder {ROOT}" in study.output(jobs[1]).read_text()
    page = (study.quick / "report.html").read_text()
    assert "data:image/png;base64" in page and "secret" not in page
    assert not list(study.quick.rglob("*.partial*"))

    assert study() == run.DONE
    out = capfd.readouterr().out
    assert "nothing to do" in out and "started" not in out

    # A changed parameter runs only what declares it, and what comes after that. Here it also makes a notebook fail.
    assert study("--set", "image_severity=1") == run.NOTEBOOK_FAILED
    out, err = capfd.readouterr()
    assert "01_pretrain" not in out
    partial = partial_path(study.output(jobs[1]))
    assert partial.exists() and not study.output(jobs[1]).exists()
    for part in ("02_adapt_image.ipynb", "# the cell that fails", "RuntimeError: no such severity", partial.name):
        assert part in err
    assert "\x1b" not in err

    assert study("--only", "02_adapt_image", "--force", "02_adapt_image") == run.DONE
    assert capfd.readouterr().out.splitlines()[-1] == "notebooks: results/quick/notebooks"
    assert study.output(jobs[1]).exists()
    assert not partial.exists() and not failure_path(study.output(jobs[1])).exists()

    # A report that was left out then is older than what it reports.
    assert study("--dry-run") == run.DONE
    assert capfd.readouterr().out.splitlines() == [f"done   {jobs[0]}", f"done   {jobs[1]}", f"to do  {jobs[2]}"]


def start(study: Study, *arguments: str) -> subprocess.Popen[str]:
    code = "import sys; from pathlib import Path; from workflow.run import main; "
    code += "sys.exit(main(sys.argv[2:], Path(sys.argv[1])))"
    command = [sys.executable, "-c", code, str(study.notebooks), *arguments, "--set"]
    return subprocess.Popen(
        [*command, f"results_folder={study.folder}/results"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Whoever runs the tests in the background of a shell has them ignore Ctrl-C, and what they start as well.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_for(path: Path, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_run_leaves_nothing_half_made_and_the_next_goes_on(
    study: Study, tmp_path: Path, number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    study.notebooks, running = tmp_path / "slow", tmp_path / "running"
    study.notebooks.mkdir()
    wait = f"import pathlib, time; pathlib.Path({str(running)!r}).write_text(''); time.sleep(0 if seed else 600)"
    path = write_notebook(study.notebooks / "01_pretrain.ipynb", "seed = 0", wait)
    process = start(study)
    wait_for(running)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == (run.STOPPED if number == signal.SIGINT else -number)
    if number == signal.SIGINT:
        assert "goes on from here" in output
        assert not list(study.quick.rglob("*.ipynb"))
    write_notebook(path, "seed = 0", "print('now it is quick')")
    assert study() == run.DONE, capfd.readouterr().err
    assert [path.name for path in (study.quick / "notebooks").iterdir()] == ["01_pretrain-seed0.ipynb"]


def test_a_kernel_that_dies_is_told(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "01_x.ipynb", "seed = 0", "import os\nos._exit(1)")
    output = tmp_path / "out.ipynb"
    command = [sys.executable, str(ROOT / "workflow" / "execute.py"), "run", str(notebook), str(output), "{}"]
    assert subprocess.run(command, capture_output=True).returncode == run.NOTEBOOK_FAILED
    told = json.loads(failure_path(output).read_text())
    assert "import os" in told["cell"] and told["error"]
    assert not output.exists()


def test_jobs_at_a_time_take_different_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    for gpu in ("3", "5", "3"):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        taken.append(take_gpu("3,5", 3, tmp_path))
        assert taken[-1] is not None and os.environ["CUDA_VISIBLE_DEVICES"] == gpu
    taken.pop(1)
    assert take_gpu("3,5", 3, tmp_path) is not None and os.environ["CUDA_VISIBLE_DEVICES"] == "5"


def test_a_second_run_of_the_same_profile_is_told_of_the_first(
    study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    study.quick.mkdir(parents=True)
    with run.only_run(study.quick):
        assert study("--dry-run") == run.BAD_ARGUMENTS
    assert f"process {os.getpid()}" in capsys.readouterr().err


# --- what is refused before anything starts ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--only", "02_adapt_imag"], ["--only 02_adapt_imag", "did you mean '02_adapt_image'?"]),
        (["--only", "07_report", "--force", "01_pretrain"], ["--force 01_pretrain", "07_report"]),
        (["--profile", "quik"], ["--profile quik", "did you mean 'quick'?"]),
        (["--set", "image_epoch=3"], ["image_epoch", "--set", "did you mean 'image_epochs'?"]),
        (["--set", "image_epochs=many"], ["image_epochs", "'many'", "--set"]),
        (["--set", "image_severity=6"], ["image_severity", "6", "--set"]),
        (["--set", "image_methods=[tentt]"], ["image_methods", "did you mean 'tent'?"]),
        (["--set", "image_dataset=digit"], ["image_dataset", "did you mean 'digits'?"]),
        (["--set", "profile=a/b"], ["profile", "a/b"]),
        (["--set", "image_stream=[fogg]"], ["image_stream", "did you mean 'fog'?"]),
    ],
)
def test_a_wrong_value_is_named_with_the_nearest_valid_one(
    study: Study, capfd: pytest.CaptureFixture[str], arguments: list[str], parts: list[str]
) -> None:
    assert study(*arguments) == run.BAD_ARGUMENTS
    out, err = capfd.readouterr()
    assert out == ""
    for part in parts:
        assert part in err
    assert not study.quick.exists()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--profil", "quick"], "--profile"),
        (["--seeds", "0,x"], "0,x"),
        (["--seeds", "-1"], "--seeds"),
        (["--seeds", "1,1"], "1,1"),
        (["--jobs", "0"], "from 1 on"),
        (["--set", "image_epochs"], "NAME=VALUE"),
        (["quick"], "quick"),
    ],
)
def test_a_wrong_argument_ends_with_2(capsys: pytest.CaptureFixture[str], arguments: list[str], part: str) -> None:
    with pytest.raises(SystemExit) as stop:
        run.parse(arguments)
    assert stop.value.code == run.BAD_ARGUMENTS
    assert part in capsys.readouterr().err


def test_missing_data_ends_with_3_and_paths_are_the_callers(study: Study, capsys: pytest.CaptureFixture[str]) -> None:
    assert study("--set", "image_dataset=npz:nowhere") == run.DATA_MISSING
    assert str(study.folder / "nowhere") in capsys.readouterr().err


def test_help_needs_only_the_standard_library() -> None:
    command = [sys.executable, "-I", "-S", str(ROOT / "workflow" / "run.py"), "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for option in ("--profile", "--only", "--seeds", "--set", "--jobs", "--dry-run", "--force", "-- "):
        assert option in text


# --- notebooks and jobs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tags", [(), (0, 1)])
def test_a_notebook_needs_exactly_one_parameters_cell(tmp_path: Path, tags: tuple[int, ...]) -> None:
    path = write_notebook(tmp_path / "01_x.ipynb", "seed = 0", "seeds = [0]", tags=tags)
    with pytest.raises(NotebookError, match=f"01_x.ipynb: {len(tags)} cells"):
        read_notebook(path)


def test_a_parameter_that_is_none_is_named_with_the_nearest(tmp_path: Path) -> None:
    write_notebook(tmp_path / "01_x.ipynb", "image_epoch: int = 3")
    with pytest.raises(NotebookError, match="'image_epoch'.*did you mean 'image_epochs'"):
        find_notebooks(tmp_path, Settings.model_fields)


def test_a_wrong_notebook_stops_the_run_before_it_starts(study: Study, capsys: pytest.CaptureFixture[str]) -> None:
    study.notebooks = study.folder
    write_notebook(study.folder / "01_x.ipynb", "seed = 0", tags=())
    assert study() == run.BAD_ARGUMENTS
    assert "01_x.ipynb" in capsys.readouterr().err


def test_jobs_have_their_own_values_and_come_after_their_checkpoint(notebooks: Path) -> None:
    values = Settings(seeds=(0, 3), image_dataset=("digits", "npz:/some/pets")).model_dump(mode="json")
    jobs = make_jobs(find_notebooks(notebooks, Settings.model_fields).values(), values)
    pets = slug("image_dataset", "npz:/some/pets")
    assert pets.startswith("npz-pets-") and pets != slug("image_dataset", "npz:/other/pets")
    assert len(jobs) == 2 * 4 + 1
    job = jobs[f"02_adapt_image-{pets}-seed3"]
    assert job.parameters == {"seed": 3, "image_dataset": "npz:/some/pets", "image_severity": 5}
    assert job.after == (f"01_pretrain-{pets}-seed3",)
    assert jobs["07_report"].parameters == {"seeds": [0, 3]}
    assert set(jobs["07_report"].after) == set(jobs) - {"07_report"}


def test_the_ablations_train_beside_the_main_study(notebooks: Path, tmp_path: Path) -> None:
    for path in notebooks.iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    for name in ("05_ablations", "06_uncertainty"):
        write_notebook(tmp_path / f"{name}.ipynb", "seed = 0\nimage_dataset = 'digits'")
    jobs = make_jobs(find_notebooks(tmp_path, Settings.model_fields).values(), Settings().model_dump(mode="json"))
    assert jobs["05_ablations-digits-seed0"].after == ()
    assert jobs["06_uncertainty-digits-seed0"].after == ("01_pretrain-digits-seed0",)
    assert "05_ablations-digits-seed0" in jobs["07_report"].after


# --- the environment -----------------------------------------------------------------------------------------------


def bare(requirement: str) -> str:
    """A requirement as both files write it: lower case, no blanks, conda's names as in pyproject.toml."""
    name = requirement.replace(" ", "").lower()
    return re.sub("^pytorch", "torch", re.sub("^pysoundfile", "soundfile", name))


def test_environment_yml_lists_what_pyproject_lists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["channels"][0] == "conda-forge"
    conda = [item for item in environment["dependencies"] if isinstance(item, str)]
    (pip,) = [item["pip"] for item in environment["dependencies"] if isinstance(item, Mapping)]
    listed = {bare(item) for item in conda + pip} - {"-e.", "pip"}
    wanted = [f"python{project['requires-python']}", *project["dependencies"]]
    assert listed == {bare(item) for item in wanted + project["optional-dependencies"]["test"]}


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-test.txt"])
def test_the_pins_cover_pyproject_and_name_no_host(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / name).read_text()
    assert "://" not in text and "--hash" not in text.split("\n", 2)[2]
    pinned = set(re.findall(r"^([\w.-]+)==", text, flags=re.MULTILINE))
    tests = project["optional-dependencies"]["test"] if "test" in name else []
    for requirement in project["dependencies"] + tests:
        assert re.split("[<>=]", requirement)[0].lower() in pinned


def test_this_environment_satisfies_pyproject() -> None:
    assert lacking("test") == []


UV = """#!/usr/bin/env bash
# A stand-in for uv: notes what it is asked, makes an environment that is this Python.
echo "$*" >>"$UV_CALLS"
case $1 in
  venv) mkdir -p "${@: -1}/bin" && ln -s "$UV_PYTHON" "${@: -1}/bin/python" ;;
  pip) [[ ! -e $UV_FAILS ]] ;;
esac
"""


class Checkout:
    """run_all.sh in a folder of its own with a stand-in for uv and for the study."""

    def __init__(self, folder: Path) -> None:
        self.root, self.calls, self.fails = folder / "a check out", folder / "calls", folder / "fails"
        (self.root / "workflow").mkdir(parents=True)
        for name in ("run_all.sh", "pyproject.toml", "requirements.txt", "requirements-test.txt"):
            shutil.copy(ROOT / name, self.root)
        shutil.copy(ROOT / "workflow" / "environment.py", self.root / "workflow")
        (self.root / "workflow" / "run.py").write_text("import sys; print('ran', *sys.argv[1:])")
        (folder / "bin").mkdir()
        (folder / "bin" / "uv").write_text(UV)
        (folder / "bin" / "uv").chmod(0o755)
        kept = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
        kept["PATH"] = f"{folder / 'bin'}{os.pathsep}{kept['PATH']}"
        stand_in = {"UV_CALLS": str(self.calls), "UV_FAILS": str(self.fails), "UV_PYTHON": sys.executable}
        self.environment = kept | stand_in

    def __call__(self, *arguments: str, **environment: str) -> tuple[str, list[str]]:
        """What it printed, and what uv was asked to do."""
        self.calls.write_text("")
        command = ["bash", str(self.root / "run_all.sh"), *arguments]
        done = subprocess.run(command, env=self.environment | environment, capture_output=True, text=True)
        asked = [" ".join(call.split()[:2]) for call in self.calls.read_text().splitlines() if call != "--version"]
        return done.stdout.strip(), asked


def test_the_environment_is_made_once_and_again_when_half_made(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    made = ["venv --quiet", "pip install", "pip install"]
    checkout.fails.touch()
    assert checkout("--jobs", "2") == ("", made[:2])
    checkout.fails.unlink()
    assert checkout("--jobs", "2") == ("ran --jobs 2", made)
    assert checkout("--jobs", "2") == ("ran --jobs 2", [])
    assert checkout("python", "-c", "print('hello')") == ("hello", made[1:])  # the tests' extras are added
    assert checkout() == ("ran", [])
    with (checkout.root / "requirements.txt").open("a") as file:
        file.write("# changed\n")
    assert checkout() == ("ran", made[1:])


def test_an_activated_environment_is_used_if_it_satisfies(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    good = tmp_path / "good" / "bin"
    good.mkdir(parents=True)
    (good / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (good / "python").chmod(0o755)
    assert checkout("x", CONDA_PREFIX=str(good.parent)) == ("ran x", [])
    bad = tmp_path / "bad" / "bin"
    bad.mkdir(parents=True)
    (bad / "python").write_text("#!/bin/sh\necho torch\nexit 1\n")
    (bad / "python").chmod(0o755)
    _, asked = checkout("x", VIRTUAL_ENV=str(bad.parent))
    assert asked[0] == "venv --quiet"


def test_help_needs_no_environment(tmp_path: Path) -> None:
    assert Checkout(tmp_path)("--help") == ("ran --help", [])


def test_ci_calls_the_tests_of_the_readme() -> None:
    path = ROOT / ".ci" / "run"
    assert os.access(path, os.X_OK) and path.read_text().rstrip().endswith("\n./run_all.sh test")
