"""Networks of a profile, trained side by side by study/tools/train.py."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import same

from study.settings import load_profile
from study.study import Study
from study.tools.train import main

ROOT = Path(__file__).resolve().parents[1]
SMALL = {
    "image_train_size": 120,
    "image_network_depth": 8,
    "image_network_width": 4,
    "image_training_epochs": 1,
    "image_methods": ["erm", "cascade"],
    "seeds": [0, 1],
}


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
        (["--set", "image_weights=shipped"], "image_weights = shipped: nothing is trained"),
        (["--set", "image_training_batch_size=9000"], "image_training_batch_size = 9000"),
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
