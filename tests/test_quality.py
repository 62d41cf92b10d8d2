"""ruff and mypy over everything, and what a notebook must not hold."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cascadetta_lib.settings import Settings
from workflow.notebooks import code_cells, read_notebook

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.mark.parametrize("command", [["ruff", "check"], ["mypy"]], ids=lambda command: command[0])
def test_checker(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_settings_do_not_load_torchvision() -> None:
    """It takes seconds, which every notebook and every dry run would wait for."""
    code = "import sys; from cascadetta_lib.settings import load_profile; load_profile('quick')"
    code += "; assert 'cascadetta_lib.data.cifar' in sys.modules and 'torchvision' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@each_notebook
def test_notebook_is_stored_without_results(path: Path) -> None:
    for cell in code_cells(path):
        assert not cell["outputs"] and cell["execution_count"] is None, cell["source"]
    kernel = json.loads(path.read_text())["metadata"]["kernelspec"]["name"]
    assert kernel == "python3", "the kernel of an environment is python3; another name opens only on your machine"


@each_notebook
def test_defaults_of_the_parameters_are_those_of_the_settings(path: Path) -> None:
    defaults = Settings().model_dump(mode="json")
    for name, value in read_notebook(path).defaults.items():
        assert json.loads(json.dumps(value)) == defaults[name], name


def statements(path: Path) -> Iterator[ast.AST]:
    """Every node of the notebook's Python; lines of IPython's own (%magic, !command) are left out."""
    for cell in code_cells(path):
        lines = [line for line in cell["source"].splitlines() if not line.lstrip().startswith(("%", "!"))]
        yield from ast.walk(ast.parse("\n".join(lines)))


@each_notebook
def test_notebook_leaves_the_how_to_the_library(path: Path) -> None:
    for node in statements(path):
        assert not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef), ast.unparse(node)
        if isinstance(node, ast.For | ast.While):
            head = ast.unparse(node).splitlines()[0]
            assert "batch" not in head.lower(), f"a loop over batches: {head}"
