"""README.md does not rot: its examples run on made-up images, its commands are accepted, what it
points to is there.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from cascadetta_lib import __version__
from cascadetta_lib.methods import METHODS
from study import settings
from study.settings import settings_from
from study.store import Store
from study.workflow.arguments import parse
from study.workflow.configuration import load_settings

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = (
    "README.md",
    "RESULTS.md",
    "VERDICTS.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "weights/README.md",
)
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of README.md in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def commands(start: str) -> list[list[str]]:
    """The arguments of every command of README.md that begins with `start`."""
    lines = [
        line for block in blocks("bash") for line in block.splitlines() if line.startswith(start)
    ]
    return [shlex.split(line, comments=True)[1:] for line in lines]


@pytest.fixture
def namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A reader's own variables, in an empty folder that stands for the repository."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(settings, "ROOT", tmp_path)
    monkeypatch.setattr(METHODS, "_entries", {name: METHODS[name] for name in METHODS})
    (tmp_path / "pets").mkdir()
    generator = np.random.default_rng(0)
    return {
        f"{part}_{kind}": values
        for part, count in (("train", 60), ("test", 20))
        for kind, values in (
            ("images", generator.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)),
            ("labels", np.arange(count, dtype=np.int64) % 10),
        )
    }


def test_the_examples_run_one_after_the_other(
    namespace: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), namespace)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 3 and all(
        0 <= float(value) <= 1 for line in lines[:-1] for value in line[:2]
    )
    assert 0 <= float(lines[-1][0]) <= 1
    assert namespace["logits"].shape == (32, 10), "of the cascade on a backbone"
    run = namespace["plain"].run("sharp_tent")
    assert run.batches["count"].sum() == 15 * 20, "all test images under every corruption"
    assert len(list(Store(tmp_path / "results").runs())) == 4

    assert commands("./run_all.sh")
    for arguments in commands("./run_all.sh"):  # they name the example's data and method
        if arguments[:1] != ["test"]:
            asked = parse(arguments)
            known = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
            assert set(asked.only) <= known
            found = load_settings(asked, tmp_path)
            assert (found.profile == asked.profile) == (not asked.set), (
                "other values have results of their own"
            )


def test_the_example_of_a_shipped_network_runs() -> None:
    text = (ROOT / "weights" / "README.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    found: dict[str, Any] = {}
    with pytest.warns(UserWarning, match="networks trained on .* meet 5,000 MNIST digits"):
        exec(compile(block, "weights/README.md", "exec"), found)
    main, auxiliary = found["model"](
        found["study"].dataset.prepare(found["study"].dataset.held_out.x[:4])
    )
    assert main.shape == auxiliary.shape == (4, 10)


def test_the_example_of_a_training_moves_every_parameter() -> None:
    [block] = re.findall(r"^```python\n(.*?)^```", CONTRIBUTING, flags=re.DOTALL | re.MULTILINE)
    found: dict[str, Any] = {}
    exec(compile(block, "CONTRIBUTING.md", "exec"), found)
    assert found["loss"].isfinite() and not found["cascade"].training
    assert all(parameter.grad.abs().sum() > 0 for parameter in found["cascade"].parameters())


def test_the_papermill_command_means_what_it_says() -> None:
    assert commands(".venv/bin/papermill")
    for arguments in commands(".venv/bin/papermill"):
        assert (ROOT / arguments[0]).is_file()
        place = arguments.index("-p")
        name, value = arguments[place + 1], yaml.safe_load(arguments[place + 2])
        profile = yaml.safe_load(
            (ROOT / arguments[arguments.index("-f") + 1]).read_text(encoding="utf-8")
        )
        assert getattr(settings_from(profile | {name: value}), name) == value


def test_every_profile_is_in_the_table() -> None:
    named = re.findall(r"^\| `(\w+)` \|", README, flags=re.MULTILINE)
    assert sorted(named) == sorted(path.stem for path in (ROOT / "profiles").glob("*.yaml"))


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_links_to_is_there(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8"))
    assert not [link for link in links if "://" not in link and not (path.parent / link).exists()]


def test_the_table_of_the_released_network_is_the_measured_one() -> None:
    official, *copies = (
        pd.read_csv(ROOT / "figures" / "released" / f"{name}.csv", index_col="method")
        for name in (
            "cifar10_sample-updates",
            "npz-cifar10-jpeg-updates",
            "npz-cifar10-jpeg-released",
        )
    )
    rows = [
        line.strip("| ").split(" | ")
        for line in README.splitlines()
        if re.match(r"\| .* \| \d+\.\d \[", line)
    ]
    assert len(rows) == 5
    for name, *shown in rows:
        ours = {name.lower(): name for name in official.index}[
            name.lower().replace("same weights", "cascade, same weights")
        ]
        row, of_its_own = (
            official.loc[ours],
            ours != "Cascade, same weights without θ_a",
        )  # the paper has no such row
        wanted = [
            f"{row['E']:.1f} {row['95 % of E, over images']}",
            row["the paper's E"] if of_its_own else "–",
        ]
        wanted += [", ".join(dict.fromkeys(f"{one_cpu.loc[ours, 'E']:.1f}" for one_cpu in copies))]
        assert shown == [value if isinstance(value, str) else f"{value:.1f}" for value in wanted]


@pytest.mark.parametrize(
    ("name", "file"), re.findall(r"`([\w-]+)` in \[`[^`]+`\]\(([^)]+)\)", CONTRIBUTING)
)
def test_what_is_said_to_be_in_a_file_is_in_it(name: str, file: str) -> None:
    assert re.search(rf"(?<![\w-]){name}(?![\w-])", (ROOT / file).read_text(encoding="utf-8"))


def test_the_citation_is_of_this_version_and_names_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    assert citation["references"][0]["doi"] == "10.1145/3627673.3679801"
