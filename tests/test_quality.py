"""The house: ruff and mypy over everything, and imports that only go down."""

import ast
import graphlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cascadetta_lib.public import PUBLIC

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("cascadetta_lib", "study")
FLOORS = (
    {
        "cascadetta_lib.allowed",
        "cascadetta_lib.code",
        "cascadetta_lib.files",
        "cascadetta_lib.registry",
        "cascadetta_lib.progress",
        "cascadetta_lib.models",
    },
    {"cascadetta_lib.augment", "cascadetta_lib.losses"},
    {"cascadetta_lib.data"},
    {"cascadetta_lib.training", "cascadetta_lib.methods"},
    {"cascadetta_lib.evaluation"},
    {
        "study.exhibit_parameters",
        "study.renamed_parameters",
        "study.settings",
        "study.yaml12",
        "study.notebook_parameters",
        "study.modality_parameters",
        "study.provenance",
        "study.published_networks",
        "study.brought_networks",
        "study.shipped_networks",
        "study.clean_errors",
        "study.networks_from_files",
        "study.weights_name",
    },
    {"study.requests"},
    {"study.store"},
    {"study.checkpoints", "study.make_run"},
    {"study.runs"},
    {"study.study"},
    {"study.exhibits.kit"},
    {"study.exhibits.paper"},
    {"study.exhibits.beyond"},
    {"study.exhibits.verdicts"},
    {"study.exhibits"},
    {
        "study.notebook_controls",
        "study.papermill_arguments",
        "study.notebook",
        "study.workflow",
        "study.tools",
    },
)
"""The rooms of the library and of the study, from the ground up."""


@pytest.mark.parametrize(
    "command", [["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]], ids=" ".join
)
def test_checker(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


WAITED_FOR = ("torchvision", "pandas", "scipy.ndimage", "scipy.sparse", "torch._dynamo")
"""Packages that a dry run needs for nothing. Each takes from a fifth of a second to two seconds."""


def test_a_file_that_names_its_interpreter_can_be_run() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("only a git checkout knows its files")
    listed = subprocess.run(
        ["git", "ls-files", "--stage"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    entries = [line.split(maxsplit=3) for line in listed.stdout.splitlines()]
    names = [name for _, _, _, name in entries if (ROOT / name).is_file()]
    named = {name for name in names if (ROOT / name).read_bytes().startswith(b"#!")}
    runnable = {name for mode, _, _, name in entries if mode == "100755"}
    assert "findings/pillow-box-rounds-twice.sh" in named
    assert runnable == named


def test_a_dry_run_and_a_wrong_parameter_wait_for_pytorch_alone() -> None:
    code = (
        "import sys, study.workflow.run; from study.settings import load_profile; "
        "load_profile('quick'); assert 'cascadetta_lib.data.cifar' in sys.modules; "
        f"print(*[name for name in {WAITED_FOR} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stdout.split()


# ---------------------------------------------------------------- the modules and what they import


def name_of(path: Path) -> str:
    """`cascadetta_lib.data.cifar`; a package's __init__ has the name of the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    name_of(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
}


def imports(name: str) -> set[str]:
    """Which of these modules a module imports, wherever in its file."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            within = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {each if each in MODULES else node.module for each in within}
    return found & MODULES.keys()


def floor(name: str) -> int:
    """The floor of a module. A package itself, which everything passes through, lies at 0 with what
    it imports; what has no floor yet, at −1.
    """
    if name in (*PACKAGES, "cascadetta_lib.public", "cascadetta_lib.numerics"):
        return 0
    rooms = [number for number, within in enumerate(FLOORS, 1) if name in within]
    if rooms:
        return rooms[0]
    return floor(name.rpartition(".")[0]) if "." in name else -1


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_nothing_from_above(name: str) -> None:
    assert floor(name) >= 0, "a new room needs a floor: add it to FLOORS"
    above = [other for other in imports(name) if floor(other) > floor(name)]
    assert not above


def test_no_imports_go_in_a_circle() -> None:
    """Imports in functions count, and so do those that the library's public names make when they
    are first used.
    """
    graph = {name: imports(name) - {name} for name in MODULES}
    graph["cascadetta_lib"] |= {module for module, _ in PUBLIC.values()}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


def deferred_imports(text: str) -> list[tuple[int, str]]:
    """The imports inside functions: the line of each, and its text from the end of the last other
    statement on.
    """
    found = []
    lines = text.splitlines()
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef):
            continue
        statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt)]
        others = [node for node in statements if not isinstance(node, ast.Import | ast.ImportFrom)]
        for node in statements:
            if node in others:
                continue
            # The first line of a statement that encloses the import, and the last of any other.
            ends = {other.lineno for other in others} | {other.end_lineno or 0 for other in others}
            last = max(end for end in ends if end < node.lineno)
            found.append((node.lineno, "\n".join(lines[last : node.end_lineno])))
    return found


@pytest.mark.parametrize("name", MODULES)
def test_an_import_in_a_function_has_its_reason(name: str) -> None:
    """In a comment: it takes long, or the package is an optional one."""
    for line, text in deferred_imports(MODULES[name].read_text(encoding="utf-8")):
        assert "#" in text, (
            f"{name}, line {line}: move the import to the top, or say why it is here"
        )


ALONE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ImportError(f"the library needs {name}")

REFUSED = {"study", "papermill", "snakemake", "nbconvert", "jupyterlab", "matplotlib", "seaborn"}
sys.meta_path.insert(0, Refuse())
import torch
from cascadetta_lib import METHODS, Cascade, evaluate, meta_gradient
from torch import nn

phi = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.BatchNorm1d(4))
method = METHODS["cascade"](Cascade(phi, nn.Linear(4, 3), nn.Linear(3, 3)))
print(tuple(method(torch.rand(5, 3, 2, 2)).shape), len(list(METHODS)) > 20)
"""


def test_the_library_is_used_alone(tmp_path: Path) -> None:
    """In a folder of its own, without what only the study needs."""
    shutil.copytree(ROOT / "cascadetta_lib", tmp_path / "cascadetta_lib")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", ALONE]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == "(5, 3) True\n", done.stderr
