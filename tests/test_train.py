"""Networks of a profile, trained side by side by study/tools/train.py."""

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest
from conftest import PATIENCE, same, wait_for

from study.settings import load_profile
from study.study import Study
from study.tools.train import main
from study.workflow.refusal import STOPPED

ROOT = Path(__file__).resolve().parents[1]
SMALL = {
    "image_train_size": 120,
    "image_network_depth": 8,
    "image_network_width": 4,
    "image_training_epochs": 1,
    "image_methods": ["erm", "cascade"],
    "seeds": [0, 1],
}


LARGE = "image_training_batch_size=9000"
"""More images than there are, so that nothing is ever trained."""


def test_the_networks_are_those_that_a_study_trains(tmp_path: Path) -> None:
    there = tmp_path / "side-by-side"
    changes = SMALL | {"results_folder": there}
    pairs = [f"{name}={value}" for name, value in changes.items()]
    command = [sys.executable, "study/tools/train.py", "quick", "--processes", "2", "--set", *pairs]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"4 networks, 2 at a time, into {there}"
    told = {line.partition(":")[0] for line in lines[1:]}
    assert told == {f"{name}, seed {seed}" for name in ("meta", "erm") for seed in (0, 1)}
    folders = [there, tmp_path / "alone"]
    for seed in (0, 1):
        studies = [
            Study(load_profile("quick", SMALL | {"results_folder": str(folder)})).at_seed(seed)
            for folder in folders
        ]
        assert len(list((there / "checkpoints").glob("[0-9a-f]*"))) == 4
        for name in ("meta", "erm"):
            models = [study.checkpoint(name).model for study in studies]
            assert same(*(model.state_dict() for model in models))
    assert len(list((there / "checkpoints").glob("[0-9a-f]*"))) == 4, "none was trained again"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--objectives", "metta"], "--objectives metta: the profile has erm, meta"),
        (["--processes", "0"], "--processes 0: at least 1 is needed"),
        (["--set", "image_weights=shipped"], "image_weights = shipped: no network is trained"),
        (["--set", "image_weights=shipped", "--set", LARGE], "image_weights = shipped"),
        (["--objectives", "metta", "--objectives", "meta", "--set", LARGE], "--objectives metta"),
        (["--set", "image_train_size", LARGE], "--set image_train_size: allowed is NAME=VALUE"),
        (["--set", LARGE, "--set", LARGE], f"--set {LARGE}: it is given twice"),
        (["--set", "seed=3", LARGE], "--set seed=3: each network has its own; set seeds"),
        (["--set", "data_folder=~nobody-at-all/x", LARGE], "--set data_folder=~nobody-at-all/x"),
        (["--set", LARGE], "image_training_batch_size = 9000"),
        (["--set", "image_lr=1"], "image_lr"),
    ],
    ids=lambda value: str(value),
)
def test_what_cannot_be_trained_is_refused_at_once(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["quick", *arguments])
    assert stopped.value.code == 2
    assert words in capsys.readouterr().err


def test_a_training_that_is_killed_ends_the_tool_with_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    killed = partial(signal.raise_signal, signal.SIGKILL)
    monkeypatch.setattr("study.tools.train.end_with_starter", killed)
    with pytest.raises(SystemExit) as stopped:
        main(command(tmp_path)[2:])
    assert stopped.value.code == 1
    told = capfd.readouterr().err
    assert told.startswith("train.py: a training was killed") and "Traceback" not in told


def command(folder: Path, **changes: object) -> list[str]:
    pairs = [f"{name}={value}" for name, value in (SMALL | changes).items()]
    pairs.append(f"results_folder={folder}")
    tool = str(ROOT / "study" / "tools" / "train.py")
    return [sys.executable, tool, "quick", "--processes", "1", "--set", *pairs]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_with_the_tool_its_trainings_end_too_and_the_next_start_goes_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    endless = command(tmp_path, image_training_epochs=100_000)
    tool = psutil.Popen(
        endless,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background of a shell has them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    locks = tmp_path / "checkpoints"
    wait_for(lambda: list(locks.glob("*.lock")), "a training")
    children = tool.children(recursive=True)
    try:
        tool.send_signal(number)
        _, alive = psutil.wait_procs(children, timeout=30)
        assert alive == [], "a training goes on for nobody"
        _, told = tool.communicate(timeout=PATIENCE)
    finally:
        for process in [tool, *children]:
            if process.is_running():
                process.kill()
    if number == signal.SIGINT:
        assert tool.returncode == STOPPED and "the same command goes on" in told
        assert "Traceback" not in told
    else:
        assert tool.returncode == -number
    assert len(list(locks.glob("*.lock"))) == 1, "no other network was begun"


def test_after_one_that_fails_no_other_is_begun(tmp_path: Path) -> None:
    failing = command(tmp_path, image_training_learning_rate=1e11, seeds=list(range(6)))
    done = subprocess.run(failing, capture_output=True, text=True)
    assert done.returncode == 1 and "not finite" in done.stderr, done.stderr
    assert "train.py: " in done.stderr and "Traceback" not in done.stderr
    begun = {path.stem for path in (tmp_path / "checkpoints").iterdir()}
    assert len(begun) == 1, "of twelve"
