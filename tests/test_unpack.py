"""The raw runs behind committed figures are drawn again on another machine, with its data in
another folder.
"""

import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from made_up_runs import Numbers, made_up_runs

from study.exhibits.kit.runs import Runs, main_points
from study.settings import load_profile
from study.store import Damaged, Made, Run
from study.study import Study
from study.tools.unpack import unpack

ROOT = Path(__file__).resolve().parents[1]
LAPTOP = ROOT / "figures" / "laptop"


def study_of(folder: Path, tmp_path: Path) -> Study:
    changes = {"image_dataset": f"npz:{folder}", "results_folder": str(tmp_path / "results")}
    return Study(load_profile("laptop", changes | {"data_folder": str(tmp_path)}))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Runs of laptop's main table on made-up data in another folder, packed."""
    settings = study_of(tmp_path / "cifar10", tmp_path / "there").settings
    points = main_points(settings, "image")
    runs = made_up_runs(settings, lambda *_: Numbers(), points, [0])
    store = Study(settings).store
    for run in runs:

        def make(folder: Path, run: Run = run) -> Made:
            run.batches.to_csv(folder / "batches.csv", index=False)
            run.accuracies.to_csv(folder / "accuracies.csv", index=False)
            return Made(run.provenance)

        content = (run.provenance.fingerprint, run.provenance.domain_source, "")
        store.make_once("runs", run.request, content, make)
    path = tmp_path / "runs.tar.xz"
    with tarfile.open(path, "w:xz") as packed:
        packed.add(store.folder / "runs", "runs")
    return path


def test_the_main_table_is_drawn_again_without_the_data(archive: Path, tmp_path: Path) -> None:
    study = study_of(tmp_path / "elsewhere", tmp_path)
    for _ in range(2):  # what is there already stays
        assert unpack(archive, study) == 8
    frame = Runs(study.settings).frame(main_points(study.settings, "image"))
    assert len(frame) == 8 and set(frame["E"].round(6)) == {10.0}
    assert all(
        "made on the same data in another folder, npz:" in run.provenance.filed
        for run in frame["run"]
    )
    assert not Runs(study_of(tmp_path / "a third", tmp_path).settings).stored


def test_an_archive_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="its request is that of another version"):
        unpack(LAPTOP / "runs.tar.xz", study_of(tmp_path / "elsewhere", tmp_path))
    assert not (tmp_path / "results").exists()


def test_runs_on_other_data_are_refused(archive: Path, tmp_path: Path) -> None:
    folder = tmp_path / "others"
    folder.mkdir()
    for split in ("train", "test"):
        pixels = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
        np.savez(folder / f"{split}.npz", x=pixels, y=np.arange(20) % 10)
    study = study_of(folder, tmp_path)
    with pytest.raises(ValueError, match="npz:.*others holds other data than npz:cifar10-"):
        unpack(archive, study)
    assert not list(study.store.runs())


@pytest.mark.parametrize("damage", ["cut short", "changed", "no archive"])
def test_an_archive_that_is_not_whole_is_refused(
    damage: str, archive: Path, tmp_path: Path
) -> None:
    whole = archive.read_bytes()
    if damage == "changed":
        with tarfile.open(archive) as packed:
            packed.extractall(tmp_path / "content", filter="data")
        next((tmp_path / "content").glob("runs/*/batches.csv")).write_text("step\n")
        with tarfile.open(archive, "w:xz") as packed:
            packed.add(tmp_path / "content", ".")
    else:
        archive.write_bytes({"cut short": whole[: len(whole) // 2], "no archive": b"runs"}[damage])
    with pytest.raises(
        Damaged, match="not the one that was written" if damage == "changed" else "no whole .tar.xz"
    ):
        unpack(archive, study_of(tmp_path / "elsewhere", tmp_path))
    assert not (tmp_path / "results").exists()


def test_the_command_says_in_one_line_which_archive_is_bad(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "study/tools/unpack.py",
        "npz:elsewhere",
        "README.md",
        "--results",
        str(tmp_path),
    ]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 2 and not told.stdout
    said = "unpack.py: README.md: it is no whole .tar.xz file ("
    assert told.stderr.startswith(said) and told.stderr.count("\n") == 1


def test_folders_are_those_of_the_caller_as_in_run_all(archive: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "study" / "tools" / "unpack.py"),
        "npz:pets",
        str(archive),
        "--results",
        "here",
    ]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert told.returncode == 0 and told.stdout.endswith("8 entries\n"), told.stderr
    study = load_profile(
        "laptop", {"image_dataset": f"npz:{tmp_path}/pets", "results_folder": f"{tmp_path}/here"}
    )
    assert len(Runs(study).stored) == 8
