"""The house: ruff and mypy over everything, small files, a thin library, and imports that only go down."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LONGEST_FILE, MOST_LINES = 250, {"cascadetta_lib": 5927, "exhibits": 2994}
"""Lines. The library was to come down to 6,000; neither package grows beyond what has been reached
(since then the library by 19, for messages on networks and files, and the exhibits by 309, for missing claims, faults
that were found, the gate in print, Tent by rate, and a waterfall, distances from the paper's rows and 08's answer)."""
FIELD = {"eata", "sar", "roid", "rotta", "rdumb", "lame", "tema", "deyo", "rpl", "source_prior"}
"""The field's methods, a file each, which joined the library after it had been thinned and are not counted."""
FLOORS = (
    {"registry", "progress", "models", "features", "losses", "streams", "augment"},
    {"data", "objectives", "meta", "methods", "sections", "settings"},
    {"pretrain", "theorem", "evaluate", "provenance", "store", "networks", "published"},
    {"study"},
)
"""The rooms of the library, from the ground up. The exhibits stand above them all."""


@pytest.mark.parametrize(
    "command", [["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]], ids=" ".join
)
def test_checker(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_settings_do_not_load_torchvision() -> None:
    """It takes seconds, which every notebook and every dry run would wait for."""
    code = "import sys; from study.settings import load_profile; load_profile('quick')"
    code += (
        "; assert 'cascadetta_lib.data.cifar' in sys.modules and 'torchvision' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- the modules and what they import


def name_of(path: Path) -> str:
    """`cascadetta_lib.data.cifar`; a package's __init__ has the name of the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    name_of(path): path for package in MOST_LINES for path in sorted((ROOT / package).rglob("*.py"))
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
    """The floor of a module; the library itself, which everything passes through, lies below the ground."""
    package, *rooms = name.split(".")
    if package == "exhibits" or not rooms:
        return len(FLOORS) + 1 if package == "exhibits" else 0
    return next((number for number, within in enumerate(FLOORS, 1) if rooms[0] in within), -1)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_small_and_imports_nothing_from_above(name: str) -> None:
    assert len(MODULES[name].read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE
    assert floor(name) >= 0, "a new module needs a floor: add it to FLOORS"
    above = [other for other in imports(name) if floor(other) > floor(name)]
    assert not above


def test_no_imports_go_in_a_circle() -> None:
    graphlib.TopologicalSorter(
        {name: imports(name) - {name} for name in MODULES}
    ).prepare()  # raises CycleError


@pytest.mark.parametrize("package", MOST_LINES)
def test_a_package_is_thin(package: str) -> None:
    paths = [
        path
        for name, path in MODULES.items()
        if name.split(".")[0] == package and path.stem not in FIELD
    ]
    assert (
        sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
        <= MOST_LINES[package]
    )
