"""Kills at random moments and a full disk: what a small study has made afterwards is what it makes
undisturbed.
"""

import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from conftest import PATIENCE, stored_numbers
from test_workflow import command_line, write_notebook

from study.workflow.refusal import DONE

ROOT = Path(__file__).resolve().parents[1]
SMALL = [
    *(
        "--jobs",
        "2",
        "--set",
        "profile=small",
        "image_test_size=16",
        "image_train_size=400",
        "image_training_epochs=3",
    ),
    *("image_methods=[erm, adabn, tent]", "image_stream=[fog, snow]"),
]
PARAMETERS = "profile = 'quick'\nseed = 0\nimage_dataset = None"
STUDY = "from study.notebook_parameters import settings_from; from study.study import Study\n"
STUDY += "study = Study(settings_from(globals()))"
NOTEBOOKS = {
    "01_pretrain": "for objective in study.objectives:\n    study.checkpoint(objective)",
    "02_adapt_image": "for method in study.methods:\n    study.run(method)",
}
"""What the notebooks of these names ask the store for, without what they show."""
KILLS = 3


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notebooks")
    for name, work in NOTEBOOKS.items():
        write_notebook(folder / f"{name}.ipynb", PARAMETERS, STUDY, work)
    return folder


def start(notebooks: Path, results: Path) -> subprocess.Popen[str]:
    """The small study with its results in a folder of its own."""
    command = command_line(notebooks, *SMALL, f"results_folder={results}")
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=ROOT, **output)  # type: ignore[call-overload, no-any-return]


def finish(notebooks: Path, results: Path) -> None:
    process = start(notebooks, results)
    told, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == DONE, told


def made(results: Path) -> dict[str, int]:
    """When each whole entry of the store was sealed."""
    return {
        str(path.parent.relative_to(results)): path.stat().st_mtime_ns
        for path in results.glob("*/*/SHA256SUMS")
    }


@pytest.fixture(scope="module")
def undisturbed(notebooks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("undisturbed")
    finish(notebooks, results)
    assert len(made(results)) == 5 and len(stored_numbers(results)) == 10, (
        "two networks and three runs"
    )
    return results


def test_a_study_killed_at_random_moments_ends_in_the_same_results_and_makes_nothing_twice(
    notebooks: Path, undisturbed: Path, tmp_path: Path
) -> None:
    ended = max(path.stat().st_mtime for path in undisturbed.glob("small/notebooks/*.ipynb"))
    seconds = (
        ended - (undisturbed / "small" / "plan.json").stat().st_mtime
    )  # from its plan to its last notebook
    seed = random.SystemRandom().randrange(2**32)
    print("seed of the kills:", seed)  # pytest shows it when something below fails
    draws = random.Random(seed)
    before: dict[str, int] = {}
    for _ in range(KILLS):
        process = start(notebooks, tmp_path)
        time.sleep(draws.uniform(0.2, 1) * seconds)
        if process.poll() is None:
            family = [
                psutil.Process(process.pid),
                *psutil.Process(process.pid).children(recursive=True),
            ]
            victim = draws.choice(family)
            print("killed:", victim.cmdline()[:4])
            victim.kill()
        process.communicate(timeout=PATIENCE)
        after = made(tmp_path)
        assert before.items() <= after.items(), "an entry that was whole was made again"
        before = after
    finish(notebooks, tmp_path)
    assert before.items() <= made(tmp_path).items()
    assert made(tmp_path).keys() == made(undisturbed).keys()
    assert stored_numbers(tmp_path) == stored_numbers(undisturbed)
    assert not list(tmp_path.glob("*/*.part")) + list(undisturbed.glob("*/[!.]*.lock"))
    # A kill between the naming of an entry and the removal of its lock leaves the lock, an empty
    # file beside the entry.
    assert all(path.with_suffix("").is_dir() for path in tmp_path.glob("*/[!.]*.lock"))


# Root of a namespace of its own may mount a small disk. $1: the results folder, $2 and $3: kB that
# are left at first, and then; after them the command.
ON_A_SMALL_DISK = """
mount -t tmpfs -o size=32m tmpfs "$1" || exit 77
results=$1; first=$2; then=$3; shift 3
for left in $first $then; do
  rm -f "$results/ballast"
  used=$(du --summarize --block-size=1024 "$results" | cut -f 1)
  head -c $((32 * 1024 * 1024 - (used + left) * 1024)) /dev/zero > "$results/ballast" || exit 77
  "$@"; echo "EXIT $?"; echo "EXIT" >&2
  echo "NETWORKS $(find "$results/checkpoints" -name SHA256SUMS | wc --lines)"
done
rm "$results/ballast"
"$@"; echo "EXIT $?"
cp -r "$results" "$results-copy"
"""
LEFT = (150, 170)
"""kB of the 400 that the study takes: full in its trainings, and full again after them."""


def test_a_full_disk_is_told_in_one_line_and_with_space_the_same_command_goes_on(
    notebooks: Path, undisturbed: Path, tmp_path: Path
) -> None:
    if not shutil.which("unshare"):
        pytest.skip("no unshare here, which gives a test a small disk of its own")
    results = tmp_path / "small disk"
    results.mkdir()
    command = command_line(notebooks, *SMALL, f"results_folder={results}")
    sizes = map(str, LEFT)
    script = ["unshare", "-rm", "bash", "-c", ON_A_SMALL_DISK, "bash", str(results), *sizes]
    done = subprocess.run(
        [*script, *command], cwd=ROOT, capture_output=True, text=True, env=os.environ
    )
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip(f"no mount here: {done.stderr}")

    def numbers(word: str) -> list[int]:
        lines = done.stdout.splitlines()
        return [int(line.split()[1]) for line in lines if line.startswith(word)]

    codes = numbers("EXIT")
    assert DONE not in codes[:2] and codes[2] == DONE, done.stdout + done.stderr
    networks = numbers("NETWORKS")
    assert networks[0] < networks[1] == 2, "full in the trainings, and after them"
    for errors in done.stderr.split("EXIT")[:2]:
        told = [line for line in errors.splitlines() if line.startswith("run_all.sh: ")]
        assert len(told) == 1 and "full" in told[0] and "repeat the command" in told[0], errors
    assert "Traceback" not in done.stderr
    assert stored_numbers(Path(f"{results}-copy")) == stored_numbers(undisturbed)
