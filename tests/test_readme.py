"""The pages do not rot: their examples run on made-up images, their commands are accepted, what
they point to is there, and README.md's numbers are those of the committed tables.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml

from cascadetta_lib import __version__
from study.settings import settings_from
from study.workflow.arguments import parse
from study.workflow.configuration import load_settings

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "README.md",
    "RESULTS.md",
    "VERDICTS.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "weights/README.md",
    "docs/extending.md",
    "docs/methods.md",
    "docs/profiles.md",
)


def read(page: str) -> str:
    """The text of a page of the repository."""
    return (ROOT / page).read_text(encoding="utf-8")


README = read("README.md")
EXTENDING = read("docs/extending.md")
CONTRIBUTING = read("CONTRIBUTING.md")


def blocks(language: str, page: str = EXTENDING) -> list[str]:
    """The fenced blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)


def commands(start: str) -> list[list[str]]:
    """The arguments of every command of README.md and docs/extending.md that begins with `start`:
    those in bash blocks, and those in README.md's table."""
    lines = []
    for page in (README, EXTENDING):
        for block in blocks("bash", page):
            lines += block.splitlines()
    for row in README.splitlines():
        if row.startswith("|"):
            lines += re.findall(r"`([^`]+)`", row)
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith(start)]


NAMED = re.compile(r"# \S+\.py\n")
"""How an example begins that is a file in the place that it names."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code, with each example that names a file in the place that it names."""
    copy = tmp_path_factory.mktemp("repository")
    leave = shutil.ignore_patterns("__pycache__")
    for folder in ("cascadetta_lib", "study", "benchmarks", "profiles", "tests", "notebooks"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=leave)
    for name in (".mypy_cache", "pyproject.toml"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name)
        elif (ROOT / name).exists():
            shutil.copy2(ROOT / name, copy / name)
    named = [block for block in blocks("python") if NAMED.match(block)]
    assert len(named) == 2
    for block in named:
        place, text = block.removeprefix("# ").split("\n", 1)
        assert not (copy / place).exists()
        (copy / place).write_text(text, encoding="utf-8")
    return copy


def run_in(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the copy of the code, in its folder."""
    variables = os.environ | {"PYTHONPATH": str(repository)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=repository, env=variables, capture_output=True, text=True)


MADE_UP = """
import numpy as np
generator = np.random.default_rng(0)
train_images = generator.integers(0, 256, (60, 32, 32, 3), dtype=np.uint8)
test_images = generator.integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
train_labels = np.arange(60, dtype=np.int64) % 10
test_labels = np.arange(20, dtype=np.int64) % 10
"""
CHECKED = """
assert logits.shape == (32, 10), "of the cascade on a backbone"
assert loss.isfinite()
assert gradients.keys() == {name for name, _ in method.model.named_parameters()}
assert all(gradient.abs().sum() > 0 for gradient in gradients.values())
assert plain.run("sharp_tent").batches["count"].sum() == 15 * 20, "images times corruptions"
[table] = [part.content for part in shown.parts if part.name == "worst-domain"]
assert list(table.index) == ["AdaBN", "Tent"], table
assert len(list(study.store.runs())) == 6
"""


def test_the_examples_run_one_after_the_other(repository: Path) -> None:
    (repository / "pets").mkdir()
    session = [MADE_UP, *(block for block in blocks("python") if not NAMED.match(block)), CHECKED]
    done = run_in(repository, "-c", "\n".join(session))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [len(line) for line in lines] == [1, 3, 3, 1]
    errors_and_accuracies = [float(value) for line in lines for value in line[:2]]
    assert all(0 <= value <= 1 for value in errors_and_accuracies)


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "cascadetta_lib", "study"],
        ["ruff", "format", "--check", "cascadetta_lib", "study"],
        ["mypy", "cascadetta_lib", "study"],
        ["pytest", "-q", "-p", "no:cacheprovider", "tests/test_quality.py", "-k", "not checker"],
        ["pytest", "-q", "-p", "no:cacheprovider", "tests/test_methods.py", "-k", "sharp_tent"],
        ["study.workflow", "--only", "02_adapt_image", "--dry-run", "--set"]
        + ["image_methods=[adabn, tent, cascade, sharp_tent]"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_an_example_that_names_a_file_works_in_its_place(
    repository: Path, command: list[str]
) -> None:
    done = run_in(repository, "-m", *command)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_is_accepted(tmp_path: Path) -> None:
    known = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    asked = [arguments for arguments in commands("./run_all.sh") if arguments[:1] != ["test"]]
    assert len(asked) > 10
    for arguments in asked:
        if any("sharp_tent" in argument for argument in arguments):
            continue  # of the method that the example adds; see the test of files in their places
        options = parse(arguments)
        assert set(options.only) <= known
        found = load_settings(options, tmp_path)
        assert (found.profile == options.profile) == (not options.set), (
            "other values have results of their own"
        )


def test_the_example_of_a_shipped_network_runs() -> None:
    [block] = blocks("python", read("weights/README.md"))
    found: dict[str, Any] = {}
    exec(compile(block, "weights/README.md", "exec"), found)
    main, auxiliary = found["model"](torch.rand(4, 3, 32, 32) * 2 - 1)
    assert main.shape == auxiliary.shape == (4, 10)


def test_the_papermill_command_means_what_it_says() -> None:
    assert commands(".venv/bin/papermill")
    for arguments in commands(".venv/bin/papermill"):
        assert (ROOT / arguments[0]).is_file()
        place = arguments.index("-p")
        name = arguments[place + 1]
        value = yaml.safe_load(arguments[place + 2])
        profile = yaml.safe_load(
            (ROOT / arguments[arguments.index("-f") + 1]).read_text(encoding="utf-8")
        )
        assert getattr(settings_from(profile | {name: value}), name) == value


def test_every_profile_is_in_the_table() -> None:
    named = re.findall(r"^\| `(\w+)` \|", read("docs/profiles.md"), flags=re.MULTILINE)
    assert sorted(named) == sorted(path.stem for path in (ROOT / "profiles").glob("*.yaml"))


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_links_to_is_there(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\(([^)#\s]+)", read(page))
    assert not [link for link in links if "://" not in link and not (path.parent / link).exists()]


def released(folder: str, exhibit: str) -> pd.DataFrame:
    """A committed table of the authors' network on official pixels, by method."""
    path = ROOT / "figures" / folder / f"cifar10_sample-{exhibit}.csv"
    return pd.read_csv(path, index_col="method")


def tenths(value: str | float) -> str:
    """A number of a committed table as README.md shows it; "–" stays."""
    return value if value == "–" else f"{float(value):.1f}"


def test_the_table_of_the_released_network_is_the_measured_one() -> None:
    measured = released("released-long", "released")
    rows = {}
    for line in README.splitlines():
        if re.match(r"\| [^|]+ \| \d+\.\d", line):
            name, *shown = line.strip("| ").split(" | ")
            rows[name] = shown
    slow = rows.pop("Tent, a tenth of the rate")
    assert slow[:2] == [
        tenths(released("released", f"tent-rates-{metric}").loc["Tent", "0.0001"])
        for metric in "EA"
    ]
    assert len(rows) == 6
    for name, shown in rows.items():
        row = measured.loc[name]
        wanted = [f"{tenths(row['E'])} {row['95 % of E, over images']}", tenths(row["A"])]
        if name == "Cascade, same weights without θ_a":  # the paper has no such row
            wanted += ["–", "–"]
        else:
            wanted += [tenths(row["the paper's E"]), tenths(row["the paper's A"])]
        assert shown == wanted


def test_the_findings_are_the_measured_ones() -> None:
    long = released("released-long", "released")
    slow = released("released", "tent-rates-E")
    short = released("released", "source-statistics")
    gain = long.loc["AdaBN", "E"] - long.loc["Cascade", "E"]
    in_the_paper = long.loc["AdaBN", "the paper's E"] - long.loc["Cascade", "the paper's E"]
    pairs = [
        (long.loc["Cascade", "E"], long.loc["Cascade", "the paper's E"]),
        (gain, in_the_paper),
        (long.loc["Tent", "E"], long.loc["Cascade", "E"]),
        (slow.loc["Tent", "0.0001"], long.loc["Cascade", "E"]),
        (short.loc["N = 16", "E"], short.loc["Cascade", "E"]),
    ]
    findings = re.findall(r"^\d\. \*\*.*", README, flags=re.MULTILINE)
    assert [re.findall(r"\d+\.\d", finding) for finding in findings] == [
        [tenths(value) for value in pair] for pair in pairs
    ]


@pytest.mark.parametrize(
    ("name", "file"), re.findall(r"`([\w-]+)` in \[`[^`]+`\]\(([^)]+)\)", CONTRIBUTING)
)
def test_what_is_said_to_be_in_a_file_is_in_it(name: str, file: str) -> None:
    assert re.search(rf"(?<![\w-]){name}(?![\w-])", (ROOT / file).read_text(encoding="utf-8"))


def test_the_citation_is_of_this_version_and_names_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    assert citation["references"][0]["doi"] == "10.1145/3627673.3679801"
