"""run_all.sh and what is behind it, with tiny notebooks in place of the real ones."""

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
import yaml
from conftest import PATIENCE, wait_for

from study.settings import flat, load_profile
from study.shipped_networks import SHIPPED, read_card
from study.workflow import command, refusal, run
from study.workflow.arguments import parse
from study.workflow.configuration import settings_of_command_line
from study.workflow.execute import FAILURE, PARTIAL, take_gpu
from study.workflow.jobs import Job, make_jobs, outdated_reports, write_plan
from study.workflow.notebooks import declared_exhibits

ROOT = Path(__file__).resolve().parents[1]
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9"
    "awAAAABJRU5ErkJggg=="
)
PRETRAIN = [
    "profile = 'quick'\nseed = 0\nimage_dataset = None",
    "import sys; print('kernel', sys.executable)",
]
ADAPT = [
    "profile = 'quick'\nseed = 0\nimage_dataset = None\nimage_severity = None",
    "import os; from study.notebook_parameters import settings_from\n"
    "settings = settings_from(globals())\n"
    "image = settings.image\n"
    "print('folder', os.getcwd(), 'of', settings.profile, 'epochs', image.training.epochs, "
    "settings.text.training.iterations)",
    "# the cell that fails\nif settings.image.severity == 1:\n    raise RuntimeError('no such "
    "severity')",
]
REPORT = [
    "seeds = None\nimage_dataset = None",
    "from IPython.display import Image; import base64; secret = "
    f"1\nImage(base64.b64decode('{PIXEL}'), format='png')",
]
JOBS = ["01_pretrain-digits-seed0", "02_adapt_image-digits-seed0", "10_report"]


def write_notebook(path: Path, *cells: str) -> Path:
    """A notebook of code cells, of which the first is tagged `parameters`."""
    code = [nbformat.v4.new_code_cell(source) for source in cells]
    code[0].metadata["tags"] = ["parameters"]
    nbformat.write(nbformat.v4.new_notebook(cells=code), path)
    return path


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("note {books}")
    for name, cells in (
        ("01_pretrain", PRETRAIN),
        ("02_adapt_image", ADAPT),
        ("10_report", REPORT),
    ):
        write_notebook(folder / f"{name}.ipynb", *cells)
    return folder


@pytest.fixture
def study(notebooks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Study":
    folder = tmp_path / "my {seed} st{ud}y"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Study(notebooks, folder)


class Study:
    """The command line with the made-up notebooks and a results folder of its own, in a place with
    an odd name.
    """

    def __init__(self, notebooks: Path, folder: Path) -> None:
        self.notebooks = notebooks
        self.folder = folder
        self.results = folder / "results"
        self.quick = self.results / "quick"

    def __call__(self, *arguments: str) -> int:
        os.chdir(self.folder)
        ours, theirs = (
            (arguments.index("--"), len(arguments)) if "--" in arguments else (len(arguments), 0)
        )
        extra = [] if "--set" in arguments else ["--set"]
        given = [*arguments[:ours], *extra, "results_folder=results", *arguments[ours:theirs]]
        return command.main(given, self.notebooks)

    def output(self, job: str) -> Path:
        return self.quick / "notebooks" / f"{job}.ipynb"


# --- the whole way
# -------------------------------------------------------------------------------------------------


@pytest.fixture
def hostile_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whose own Jupyter and IPython would break every notebook."""
    kernel = tmp_path / "share" / "kernels" / "cascadetta" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    kernel.write_text(
        json.dumps({"argv": ["/bin/false"], "display_name": "wrong", "language": "python"})
    )
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
    mine = study.folder / "mine.yaml"
    values = yaml.safe_load((ROOT / "profiles" / "quick.yaml").read_text())
    values |= {
        "figures_folder": str(study.folder / "kept"),
        "figures_notebooks": ["02_adapt_image"],
    }
    mine.write_text(yaml.safe_dump(values))
    profile = ("--profile", "mine.yaml")
    assert study(*profile, "--", "--dry-run") == refusal.DONE and not study.output(JOBS[0]).exists()
    capfd.readouterr()
    assert study(*profile) == refusal.DONE
    out, err = capfd.readouterr()
    assert [line for line in out.splitlines() if line.endswith("started")] == [
        f"{job}: started" for job in JOBS
    ]
    assert out.splitlines()[-1] == "report: results/quick/report.html"
    assert "unknown parameter" not in (out + err).lower()
    assert f"kernel {sys.executable}" in study.output(JOBS[0]).read_text()
    # What is not in the cell reaches the notebook as well, also what its own modality does not
    # need.
    lengths = f"{values['image_training_epochs']} {values['text_training_iterations']}"
    assert f"folder {ROOT} of quick epochs {lengths}" in study.output(JOBS[1]).read_text()
    page = (study.quick / "report.html").read_text()
    assert "data:image/png;base64" in page and "secret" not in page
    for job in JOBS:  # the page of a notebook has its code, and the report links to it
        page_of_job = (study.quick / "notebooks" / f"{job}.html").read_text()
        assert f'href="notebooks/{job}.html"' in page and ("secret" in page_of_job) == (
            job == "10_report"
        )
    assert (
        f"folder . of quick epochs {lengths}"
        in (study.folder / "kept" / "02_adapt_image.md").read_text()
    )
    assert not list(study.quick.rglob("*.partial*"))

    assert study(*profile) == refusal.DONE
    out = capfd.readouterr().out
    assert "nothing to do" in out and "started" not in out
    assert (
        study(*profile, "--", "--dry-run") == refusal.DONE
        and "nothing to do" not in capfd.readouterr().out
    )

    # A changed parameter runs the notebooks of its modality again. Here it also makes one fail.
    mine.write_text(yaml.safe_dump(values | {"image_severity": 1, "text_training_iterations": 7}))
    assert study(*profile, "--only", "02_adapt_image") == refusal.NOTEBOOK_FAILED
    err = capfd.readouterr().err
    partial = study.output(JOBS[1]).with_suffix(PARTIAL)
    assert partial.exists() and not study.output(JOBS[1]).exists()
    for part in (
        "02_adapt_image.ipynb",
        "# the cell that fails",
        "RuntimeError: no such severity",
        partial.name,
    ):
        assert part in err
    assert "\x1b" not in err

    mine.write_text(yaml.safe_dump(values | {"text_training_iterations": 7}))
    assert study(*profile, "--only", "02_adapt_image", "--force", "02_adapt_image") == refusal.DONE
    assert capfd.readouterr().out.splitlines()[-1] == "notebooks: results/quick/notebooks"
    assert study.output(JOBS[1]).exists()
    assert not partial.exists() and not study.output(JOBS[1]).with_suffix(FAILURE).exists()

    # The notebook of images did not see what changed about text; a report that was left out is
    # older than it reports.
    assert study(*profile, "--dry-run") == refusal.DONE
    listed = capfd.readouterr().out.splitlines()
    assert listed[:4] == [f"done   {JOBS[0]}", f"done   {JOBS[1]}", f"to do  {JOBS[2]}", ""]
    assert "stored in " in listed[4] and "networks" in listed[4]


def test_values_from_the_command_line_do_not_overwrite_the_results_of_the_profile(
    tmp_path: Path,
) -> None:
    def label(*arguments: str) -> str:
        settings = settings_of_command_line(parse(arguments), tmp_path)
        assert settings.figures_path == settings.results_path / settings.profile / "figures"
        return settings.profile

    changed = {label("--set", f"image_training_epochs={epochs}") for epochs in (3, 4)}
    assert len(changed) == 2 and all(name.startswith("quick-") for name in changed)
    assert label("--seeds", "0,1") == label("--set", "image_training_epochs=2") == "quick", (
        "this is what the profile says"
    )
    assert label("--set", "image_training_epochs=3", "profile=mine") == "mine"
    assert label("--profile", "study", "--set", "image_severity=2").startswith("study-"), (
        "which has such a folder"
    )
    assert label("--profile", "study", "--set", "image_severity=2", "profile=mine") == "mine"
    assert label("--seeds", "5").startswith("quick-"), "the exhibits choose at the first seed"
    assert label("--seeds", "5") == label("--seeds", "5,6") != label("--seeds", "6,5")


def test_a_hang_up_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        with (tmp_path / ".lock").open("w") as held:
            hang_up = "import os, signal; os.kill(os.getppid(), signal.SIGHUP)"
            assert (
                run.run_snakemake([sys.executable, "-c", hang_up], None, dict(os.environ), held)
                == 0
            )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def command_line(notebooks: Path, *arguments: str) -> list[str]:
    """The program of run_all.sh with notebooks of one's own."""
    code = "import sys; from pathlib import Path; from study.workflow.command import main; "
    code += "sys.exit(main(sys.argv[2:], Path(sys.argv[1])))"
    return [sys.executable, "-c", code, str(notebooks), *arguments]


def start(study: Study, *arguments: str) -> subprocess.Popen[str]:
    given = [*arguments, "--set", f"results_folder={study.folder}/results"]
    return subprocess.Popen(
        command_line(study.notebooks, *given),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Whoever runs the tests in the background of a shell has them ignore Ctrl-C, and what they
        # start as well.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_run_leaves_nothing_half_made_and_the_next_goes_on(
    study: Study, tmp_path: Path, number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    study.notebooks = tmp_path / "slow"
    running = tmp_path / "running"
    study.notebooks.mkdir()
    wait = f"import os, pathlib, time; pathlib.Path({str(running)!r}).write_text(str(os.getpid()))"
    path = write_notebook(
        study.notebooks / "01_pretrain.ipynb", "seed = 0", f"{wait}; time.sleep(0 if seed else 600)"
    )
    process = start(study)
    try:
        wait_for(running.exists, "the notebook")
    except AssertionError:
        process.kill()
        raise
    process.send_signal(number)
    if number == signal.SIGINT:
        time.sleep(0.3)
        process.send_signal(number)  # an impatient user changes nothing
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == (refusal.STOPPED if number == signal.SIGINT else -number)
    if number == signal.SIGINT:
        assert output.count("goes on from here") == 1
        assert not list(study.quick.rglob("*.ipynb"))
    write_notebook(path, "seed = 0", "print('now it is quick')")
    assert study() == refusal.DONE, capfd.readouterr().err
    left = sorted(path.name for path in (study.quick / "notebooks").iterdir())
    assert left == ["01_pretrain-seed0.html", "01_pretrain-seed0.ipynb"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(running.read_text()), 0)  # the kernel of the run that was stopped is gone


def test_on_a_cluster_too_no_job_is_begun_after_a_kill(study: Study, tmp_path: Path) -> None:
    """A cluster's jobs do not watch run.py, so Snakemake has to."""
    study.notebooks = tmp_path / "notes"
    study.notebooks.mkdir()
    goes_on = tmp_path / "goes on"
    wait = f"import pathlib, time; place = pathlib.Path({str(tmp_path)!r})"
    wait += "; (place / f'begun-{seed}').touch()"
    wait += "\nwhile not (place / 'goes on').exists():\n    time.sleep(0.2)"
    write_notebook(study.notebooks / "01_pretrain.ipynb", "seed = 0", wait)
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "config.yaml").write_text("executor: local\ncores: 1\n")
    process = start(study, "--cluster", str(tmp_path / "cluster"), "--seeds", "0,1,2")
    try:
        wait_for(lambda: list(tmp_path.glob("begun-*")), "the notebook")
        family = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        goes_on.touch()
    _, alive = psutil.wait_procs(family, timeout=PATIENCE)
    assert alive == [] and len(list(tmp_path.glob("begun-*"))) == 1
    process.communicate()


def test_a_kernel_that_dies_is_told(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "01_x.ipynb", "seed = 0", "import os\nos._exit(1)")
    output = tmp_path / "out.ipynb"
    arguments = [
        sys.executable,
        str(ROOT / "study" / "workflow" / "execute.py"),
        str(notebook),
        str(output),
        "{}",
    ]
    assert subprocess.run(arguments, capture_output=True).returncode
    told = output.with_suffix(FAILURE).read_text()
    assert "cell: the last one there" in told and "Kernel died" in told
    assert not output.exists()


def test_jobs_at_a_time_take_different_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    for gpu in ("3", "5", "3"):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        taken.append(take_gpu(["3", "5", "3"], tmp_path))
        assert taken[-1] is not None and os.environ["CUDA_VISIBLE_DEVICES"] == gpu
    taken.pop(1)
    assert (
        take_gpu(["3", "5", "3"], tmp_path) is not None
        and os.environ["CUDA_VISIBLE_DEVICES"] == "5"
    )


def test_a_second_run_of_the_same_profile_is_told_of_the_first(
    tmp_path: Path,
) -> None:
    told = f"process {os.getpid()}, or its Snakemake"
    with run.lock(tmp_path), pytest.raises(refusal.Refusal, match=told) as error:
        run.lock(tmp_path, patience=1)
    assert error.value.code == refusal.BAD_ARGUMENTS


def test_two_profile_files_of_one_name_do_not_share_a_results_folder(
    study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("a", "b"):
        (study.folder / folder).mkdir()
        (study.folder / folder / "mine.yaml").write_text("seeds: [0]")
    assert study("--profile", "a/mine.yaml", "--dry-run") == refusal.DONE
    assert study("--profile", "a/mine.yaml", "--dry-run") == refusal.DONE
    capsys.readouterr()
    assert study("--profile", "b/mine.yaml", "--dry-run") == refusal.BAD_ARGUMENTS
    told = capsys.readouterr().err
    assert f"{study.results / 'mine'} holds the results of {study.folder / 'a/mine.yaml'}" in told
    assert "--set profile=NAME" in told and told.count("\n") == 1
    assert study("--profile", "b/mine.yaml", "--dry-run", "--set", "profile=other") == refusal.DONE

    (study.folder / "a" / "mine.yaml").rename(study.folder / "a" / "moved.yaml")
    assert study("--profile", "b/mine.yaml", "--dry-run") == refusal.DONE, "it is the only one now"


def test_a_profile_that_takes_the_name_of_another_does_not_replace_its_results(
    study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    (study.folder / "mine.yaml").write_text("profile: quick")
    assert study("--dry-run") == refusal.DONE
    assert study("--profile", "mine.yaml", "--dry-run") == refusal.BAD_ARGUMENTS
    assert "holds the results of profiles/quick.yaml" in capsys.readouterr().err
    assert study("--dry-run") == refusal.DONE


def test_a_file_system_without_locks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*given: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    # Such a file system is not at hand.
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(
        refusal.Refusal, match=r"cannot be locked \(No locks available\); set results_folder"
    ):
        run.lock(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--help", "--dry-run"),
        ("--hlp", "did you mean '--help'?"),
        ("--jobs 0", "from 1 on"),
        ("--profile quik", "did you mean 'quick'?"),
        ("--only 10_reprot", "did you mean '10_report'?"),
        ("--set image_training_epochs", "NAME=VALUE"),
        ("--set seed=3", "use --seeds"),
    ],
)
def test_help_and_what_is_wrong_at_first_sight_need_only_the_standard_library(
    arguments: str, told: str
) -> None:
    command_of_help = [sys.executable, "-PS", "-m", "study.workflow", *arguments.split()]
    done = subprocess.run(
        command_of_help, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == (0 if arguments == "--help" else refusal.BAD_ARGUMENTS), done.stderr
    assert told in done.stdout + done.stderr


def test_help_names_all_options_and_profiles(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"])
    text = capsys.readouterr().out
    for option in ("--profile", "--only", "--seeds", "--set", "--jobs", "--dry-run", "--force"):
        assert f"{option} " in text
    for profile in (ROOT / "profiles").glob("*.yaml"):
        assert profile.stem in text


# --- notebooks and jobs
# --------------------------------------------------------------------------------------------


def jobs_of(folder: Path, root: Path = ROOT, **changes: Any) -> dict[str, Job]:
    return make_jobs(folder, flat(load_profile("quick", changes)), root)


def planned(jobs: dict[str, Job], folder: Path, data: dict[str, str], **changes: Any) -> Any:
    """The jobs as write_plan leaves them for Snakemake."""
    write_plan(load_profile("quick", changes), jobs, folder, data)
    return json.loads((folder / "plan.json").read_text())["jobs"]


@pytest.mark.parametrize("content", ["", "[]", '{"data": [1]}'])
def test_a_damaged_plan_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(content)
    with pytest.raises(ValueError, match=r"plan\.json is damaged: remove it and run again"):
        planned({}, tmp_path, {})


def test_jobs_have_their_own_values_and_come_after_their_checkpoint(notebooks: Path) -> None:
    jobs = jobs_of(notebooks, seeds=[0, 3], image_dataset=["digits", "npz:/some/my pets"])
    assert len(jobs) == 2 * 4 + 1
    job = jobs["02_adapt_image-npz-my%20pets-seed3"]
    assert job.parameters["seed"] == 3
    assert job.parameters["image_dataset"] == "npz:/some/my pets"
    assert job.parameters["image_training_epochs"] == 2, (
        "what its modality has and its cell does not name"
    )
    assert not [name for name in job.parameters if name.startswith(("text_", "speech_"))]
    assert job.after == ("01_pretrain-npz-my%20pets-seed3",)
    assert jobs["10_report"].parameters["seeds"] == [0, 3]
    gpus = {name: job.gpu for name, job in jobs_of(notebooks, device="cuda").items()}
    assert gpus == dict.fromkeys(gpus, 1) | {"10_report": 0}, "the report computes nothing"
    assert set(jobs["10_report"].after) == set(jobs) - {"10_report"}


def test_the_report_waits_for_all_notebooks_and_all_on_images_for_the_networks() -> None:
    """Also for those with a higher number than its own, and those with a lower one than theirs."""
    jobs = jobs_of(ROOT / "notebooks")
    assert set(jobs["10_report"].after) == set(jobs) - {"10_report"}
    pretrain = "01_pretrain-digits-seed0"
    waiting = {name for name, job in jobs.items() if pretrain in job.after}
    on_digits = {name for name, job in jobs.items() if "image_dataset" in job.axes}
    assert waiting == on_digits - {pretrain, "05_ablations-digits-seed0"} | {"10_report"}


def test_other_data_or_another_seed_of_the_choices_is_another_job(study: Study) -> None:
    def inputs(data: dict[str, str]) -> list[Any]:
        jobs = planned(jobs_of(study.notebooks), study.folder, data)
        return [jobs[name]["inputs"] for name in JOBS]

    first = inputs({"digits": "generated corruptions"})
    assert first == [[0, "generated corruptions"], [0, "generated corruptions"], [0]]
    assert inputs({}) == first, "a run that reads no data"
    assert inputs({"reviews": "other data"}) == first
    assert inputs({"digits": "the archive"})[0] == [0, "the archive"]
    jobs = jobs_of(study.notebooks, image_dataset="npz:pets")
    done = planned(jobs, study.folder, {"npz-pets": "their content"})
    assert done["01_pretrain-npz-pets-seed0"]["inputs"] == [0, "their content"]
    jobs = jobs_of(study.notebooks, seeds=[3, 0])
    done = planned(jobs, study.folder, {}, seeds=[3, 0])
    assert {job["inputs"][0] for job in done.values()} == {3}


def test_other_exhibits_or_library_or_another_format_of_the_store_are_other_jobs(
    notebooks: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def texts(root: Path = ROOT) -> set[str]:
        return {job.sha256 for job in jobs_of(notebooks, root).values()}

    first = texts()
    assert texts() == first
    # The format is a number in the code, which only another version changes.
    monkeypatch.setattr("study.workflow.jobs.STORE_FORMAT", 99)
    other = texts()
    assert not other & first
    for folder in ("study/exhibits", "cascadetta_lib/methods", "cascadetta_lib/evaluation"):
        (tmp_path / folder).mkdir(parents=True)
        before = texts(tmp_path)
        mine = tmp_path / folder / "mine.py"
        mine.write_text("x = 1")
        now = texts(tmp_path)
        assert not now & (before | first | other)
        mine.write_text('"""What it is for."""\nx = 1  # a comment')
        assert texts(tmp_path) == now
        for text in ("x = 2", "x = "):
            mine.write_text(text)
            assert not texts(tmp_path) & now, "another value, or no Python yet"
    for module in ("make_run", "published_networks"):
        before = texts(tmp_path)
        (tmp_path / "study" / f"{module}.py").write_text("x = 1")
        assert not texts(tmp_path) & before, "its text is in the keys of runs"


def test_a_report_since_which_a_run_has_come_is_made_again(tmp_path: Path) -> None:
    values = {"path": "", "sha256": "", "exhibits": (), "axes": {}, "parameters": {}, "gpu": 0}
    jobs = {
        name: Job(name=name, notebook=name, report=name == "10_report", **values)  # type: ignore[arg-type]
        for name in ("02_adapt_image", "10_report")
    }
    runs = tmp_path / "runs"
    assert outdated_reports(jobs, tmp_path, runs) == set()
    for path in (runs, report := tmp_path / "notebooks" / "10_report.ipynb"):
        path.mkdir(parents=True)
    os.utime(runs, (0, 0))
    assert outdated_reports(jobs, tmp_path, runs) == set()
    os.utime(report, (0, 0))
    (runs / "of another seed").mkdir()
    assert outdated_reports(jobs, tmp_path, runs) == {"10_report"}


def test_another_network_in_the_folder_of_weights_is_another_job(
    study: Study, tmp_path: Path
) -> None:
    def networks() -> list[list[str]]:
        jobs = jobs_of(study.notebooks, image_weights=str(tmp_path), seeds=[0, 1])
        done = planned(jobs, study.folder, {})
        return [done[f"02_adapt_image-digits-seed{seed}"]["inputs"][1:] for seed in (0, 1)]

    assert networks() == [[], []]
    for file in SHIPPED.glob("erm-1.*"):
        shutil.copy(file, tmp_path)
    [at_0, first] = networks()
    assert not at_0 and len(first) == 1
    card = read_card(tmp_path / "erm-1.safetensors")
    retold = card.model_copy(update={"weights_sha256": "0123"}).model_dump_json()
    (tmp_path / "erm-1.json").write_text(retold, encoding="utf-8")
    [at_0, second] = networks()
    assert not at_0 and len(second) == 1 and second != first


def test_the_ablations_train_beside_the_main_study(notebooks: Path, tmp_path: Path) -> None:
    for path in notebooks.iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    for name in ("05_ablations", "06_uncertainty"):
        write_notebook(tmp_path / f"{name}.ipynb", "seed = 0\nimage_dataset = 'digits'")
    write_notebook(tmp_path / "08_released_network.ipynb", "profile = 'quick'")
    jobs = jobs_of(tmp_path)
    assert jobs["05_ablations-digits-seed0"].after == jobs["08_released_network"].after == ()
    assert jobs["06_uncertainty-digits-seed0"].after == ("01_pretrain-digits-seed0",)
    assert {"05_ablations-digits-seed0", "08_released_network"} <= set(jobs["10_report"].after)


def test_where_a_notebook_chooses_the_other_seeds_wait_for_the_first() -> None:
    jobs = jobs_of(ROOT / "notebooks", seeds=[4, 0, 1])
    for name in ("07_collapse", "09_field"):
        waits = {
            seed: f"{name}-digits-seed4" in jobs[f"{name}-digits-seed{seed}"].after
            for seed in (4, 0, 1)
        }
        assert waits == {4: False, 0: True, 1: True}, name
    assert "02_adapt_image-digits-seed4" not in jobs["02_adapt_image-digits-seed0"].after


def test_exhibits_are_declared_where_a_notebook_begins_and_only_there(tmp_path: Path) -> None:
    begin = "from study import notebook\nstudy = notebook.begin(globals(){})"
    later = "exhibits.run('choice', study)  # notebook.begin(globals(), exhibits=['other'])"
    path = write_notebook(
        tmp_path / "01_x.ipynb", "seed = 0", begin.format(", exhibits=['a', 'b']"), later
    )
    assert declared_exhibits(path) == ("a", "b")
    assert declared_exhibits(write_notebook(path, "seed = 0", begin.format(""), later)) == ()
    assert declared_exhibits(write_notebook(path, "seed = 0", later)) == ()
    computed = write_notebook(path, "seed = 0", begin.format(", exhibits=names"))
    with pytest.raises(refusal.Refusal, match="exhibits=names: allowed is a list of names"):
        declared_exhibits(computed)
    by_place = write_notebook(path, "seed = 0", begin.format(", ['a']"))
    assert declared_exhibits(by_place) == ("a",)


@pytest.mark.parametrize("value", ["None", "'main_image'", "[1]", "{'a'}", "{[]}"])
def test_exhibits_that_are_no_list_of_names_are_refused(value: str, tmp_path: Path) -> None:
    begin = f"study = notebook.begin(globals(), exhibits={value})"
    path = write_notebook(tmp_path / "01_x.ipynb", "seed = 0", begin)
    with pytest.raises(refusal.Refusal, match=r"01_x.ipynb: exhibits=.*: allowed is a list of "):
        declared_exhibits(path)


def test_a_magic_in_the_cell_that_begins_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = "study = notebook.begin(globals())\n%matplotlib inline"
    write_notebook(tmp_path / "01_x.ipynb", "seed = 0", begin)
    code = command.main(["--set", f"results_folder={tmp_path}", "--dry-run"], tmp_path)
    assert code == refusal.BAD_ARGUMENTS
    told = "01_x.ipynb: the cell with notebook.begin is not plain Python (line 2: %matplotlib inl"
    assert told in capsys.readouterr().err
