"""The environment: what is listed where, how run_all.sh makes it, and what CI calls."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml
from conftest import written

from study.workflow.missing_packages import lacking

ROOT = Path(__file__).resolve().parents[1]


def bare(requirement: str) -> str:
    """A requirement as both files write it: lower case, no blanks, conda's names as in
    pyproject.toml.
    """
    name = requirement.replace(" ", "").lower()
    return re.sub("^pytorch", "torch", re.sub("^pysoundfile", "soundfile", name))


def test_environment_yml_lists_what_pyproject_lists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["channels"][0] == "conda-forge"
    conda = [item for item in environment["dependencies"] if isinstance(item, str)]
    (pip,) = [item["pip"] for item in environment["dependencies"] if isinstance(item, Mapping)]
    listed = {bare(item) for item in conda + pip} - {"-e.", "pip"}
    wanted = [f"python{project['requires-python']}", *project["dependencies"]]
    assert listed == {bare(item) for item in wanted + project["optional-dependencies"]["test"]}


@pytest.mark.parametrize(
    "name", ["requirements.txt", "requirements-test.txt", "requirements-docs.txt"]
)
def test_the_pins_cover_pyproject_with_hashes_and_name_no_host(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / name).read_text()
    assert "://" not in text
    hashes: dict[str, int] = {}
    for line in text.splitlines():
        if pin := re.match(r"([\w.-]+)==", line):
            package = pin[1]
            hashes.setdefault(package, 0)
        elif re.fullmatch(r" +--hash=sha256:[0-9a-f]{64}( \\)?", line):
            hashes[package] += 1
        else:
            assert line.startswith("#"), line
    assert [package for package, count in hashes.items() if not count] == []
    extra = name.removeprefix("requirements").removesuffix(".txt").removeprefix("-")
    more = project["optional-dependencies"][extra] if extra else []
    for requirement in project["dependencies"] + more + ["setuptools"]:
        assert re.split("[<>=]", requirement)[0].lower() in hashes


@pytest.mark.parametrize("larger", ["requirements-test.txt", "requirements-docs.txt"])
def test_both_files_have_the_same_pins_and_hashes(larger: str) -> None:
    """The smaller file is a part of the larger, so that adding packages changes none."""
    few, many = (
        set(re.findall(r"^([^#\s].*?)(?: \\)?$|--hash=(\S+)", path.read_text(), re.MULTILINE))
        for path in (ROOT / "requirements.txt", ROOT / larger)
    )
    assert few < many


def test_this_environment_satisfies_pyproject() -> None:
    assert lacking("test") == []


def test_an_older_python_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.version_info", (3, 11, 2))
    assert lacking() == ["Python 3.11.4"]


KERNEL = "share/jupyter/kernels/cascadetta/kernel.json"
UV = """#!/usr/bin/env bash
# A stand-in for uv: notes what it is asked, makes an environment that is this Python.
echo "$*" >>"$UV_CALLS"
case $1 in
  venv) mkdir -p "${@: -1}/bin" && ln -s "$UV_PYTHON" "${@: -1}/bin/python" ;;
  pip) sleep "${UV_SECONDS:-0}" && [[ ! -e $UV_FAILS ]] ;;
esac
"""


class Checkout:
    """run_all.sh in a folder of its own with a stand-in for uv and for the study."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a check out"
        self.calls = folder / "calls"
        self.fails = folder / "fails"
        workflow = self.root / "study" / "workflow"
        workflow.mkdir(parents=True)
        for name in ("run_all.sh", "pyproject.toml", "requirements.txt", "requirements-test.txt"):
            shutil.copy(ROOT / name, self.root)
        shutil.copy(ROOT / "study" / "__init__.py", workflow.parent)
        for name in ("__init__", "arguments", "refusal", "missing_packages"):
            shutil.copy(ROOT / "study" / "workflow" / f"{name}.py", workflow)
        shutil.copytree(ROOT / "profiles", self.root / "profiles")
        shutil.copytree(ROOT / "study" / "workflow" / "kernels", workflow / "kernels")
        (workflow / "__main__.py").write_text("import sys; print('ran', *sys.argv[1:])")
        (folder / "bin").mkdir()
        (folder / "bin" / "uv").write_text(UV)
        (folder / "bin" / "uv").chmod(0o755)
        kept = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
        kept["PATH"] = f"{folder / 'bin'}{os.pathsep}{kept['PATH']}"
        stand_in = {
            "UV_CALLS": str(self.calls),
            "UV_FAILS": str(self.fails),
            "UV_PYTHON": sys.executable,
        }
        self.environment = kept | stand_in

    def told(self, *arguments: str) -> str:
        """What it said on the standard error."""
        command = ["bash", str(self.root / "run_all.sh"), *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True).stderr

    def __call__(self, *arguments: str, **environment: str) -> tuple[str, list[str]]:
        """What it printed, and what uv was asked to do."""
        self.calls.write_text("")
        command = ["bash", str(self.root / "run_all.sh"), *arguments]
        done = subprocess.run(
            command, env=self.environment | environment, capture_output=True, text=True
        )
        asked = [
            " ".join(call.split()[:2])
            for call in self.calls.read_text().splitlines()
            if call != "--version"
        ]
        return done.stdout.strip(), asked


def test_the_environment_is_made_once_and_again_when_half_made(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    made = ["venv --quiet", "pip install", "pip install"]
    checkout.fails.touch()
    assert checkout("--jobs", "2") == ("", made[:2])
    checkout.fails.unlink()
    assert checkout("--jobs", "2") == ("ran --jobs 2", made)
    assert checkout("--jobs", "2") == ("ran --jobs 2", [])
    assert checkout("python", "-c", "print('hello')") == (
        "hello",
        made[1:],
    )  # the tests' extras are added
    assert checkout() == ("ran", [])
    kernel = ROOT / "study/workflow/kernels/cascadetta/kernel.json"
    assert (checkout.root / ".venv" / KERNEL).read_text() == kernel.read_text()
    with (checkout.root / "requirements.txt").open("a") as file:
        file.write("# changed\n")
    assert checkout() == ("ran", made[1:])


def test_an_addition_that_fails_leaves_the_environment_as_it_was(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    assert checkout()[0] == "ran"
    checkout.fails.touch()  # as without a network
    assert checkout("python", "-c", "print('hello')") == ("", ["pip install"])
    assert checkout() == ("ran", []), "what was there does as before"
    checkout.fails.unlink()
    assert checkout("python", "-c", "print('hello')") == ("hello", ["pip install", "pip install"])


def test_an_environment_of_the_users_own_is_left_alone(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    own = checkout.root / ".venv" / "own"
    own.parent.mkdir()
    own.touch()
    assert checkout() == ("", []) and own.exists()
    (own.parent / "bin").mkdir()
    (own.parent / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (own.parent / "bin" / "python").chmod(0o755)
    assert checkout("--dry-run") == ("ran --dry-run", []), "it has all packages"
    shutil.rmtree(own.parent / "bin")
    (link := tmp_path / "run_all.sh").symlink_to(checkout.root / "run_all.sh")
    (tmp_path / ".venv").mkdir()  # beside the link, where nothing of the study is
    done = subprocess.run(
        ["bash", str(link)], env=checkout.environment, capture_output=True, text=True
    )
    assert (
        f"did not make {own.parent}" in done.stderr and list((tmp_path / ".venv").iterdir()) == []
    )


@pytest.mark.skipif(not shutil.which("flock"), reason="this system has no flock")
def test_two_at_once_make_one_environment(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    command = ["bash", str(checkout.root / "run_all.sh"), "--dry-run"]
    environment = checkout.environment | {"UV_SECONDS": "1"}
    both = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.communicate()[0].strip() for process in both] == [
        "ran --dry-run",
        "ran --dry-run",
    ]
    assert [call.split()[0] for call in checkout.calls.read_text().splitlines()].count("venv") == 1


def test_an_activated_environment_is_used_if_it_satisfies(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    good = tmp_path / "good" / "bin"
    good.mkdir(parents=True)
    (good / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (good / "python").chmod(0o755)
    assert checkout("--dry-run", CONDA_PREFIX=str(good.parent)) == ("ran --dry-run", [])
    assert (good.parent / KERNEL).is_file() and not (checkout.root / ".venv").exists()
    bad = tmp_path / "bad" / "bin"
    bad.mkdir(parents=True)
    (bad / "python").write_text("#!/bin/sh\necho torch\nexit 1\n")
    (bad / "python").chmod(0o755)
    _, asked = checkout("--dry-run", VIRTUAL_ENV=str(bad.parent))
    assert asked[0] == "venv --quiet"


def test_the_environment_of_another_clone_is_left_alone(tmp_path: Path) -> None:
    """Whether it is reached by a link, whole or half made, or was copied with the folder."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first = Checkout(tmp_path / "first")
    second = Checkout(tmp_path / "second")
    assert first()[0] == "ran"
    stamp = first.root / ".venv" / "made-from"
    made = stamp.read_text()
    (second.root / ".venv").symlink_to(first.root / ".venv")
    for content in (made, ""):
        stamp.write_text(content)
        told = second.told("--dry-run")
        assert "changes no environment of another clone" in told
        assert stamp.read_text() == content
        assert second("--dry-run") == ("", [])
    assert "CASCADETTA_PYTHON=" in told
    stamp.write_text(made)
    assert first() == ("ran", [])
    (second.root / ".venv").unlink()
    shutil.copytree(first.root / ".venv", second.root / ".venv", symlinks=True)
    assert f"belongs to {first.root}" in second.told()


class Two:
    """Two clones whose environments are made, each of which says which one it is."""

    def __init__(self, folder: Path) -> None:
        clones = []
        for name in ("first", "second"):
            (folder / name).mkdir()
            clone = Checkout(folder / name)
            main = clone.root / "study" / "workflow" / "__main__.py"
            main.write_text(f"import study; print({name!r}, study.__file__)")
            assert clone()[0].startswith(name)
            clones.append(clone)
        self.first, self.second = clones
        self.folder = folder

    def run(self, *, place: Path | None = None, script: Path | None = None, **more: str) -> str:
        """Run the second clone's run_all.sh, and return what it printed."""
        command = ["bash", str(script or self.second.root / "run_all.sh")]
        environment = self.second.environment | more
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
        return done.stdout

    @property
    def others(self) -> Path:
        """The environment of the first clone."""
        return self.first.root / ".venv"


def by_a_link_elsewhere(two: Two) -> str:
    link = two.folder / "link"
    link.symlink_to(two.second.root / "run_all.sh")
    return two.run(place=two.first.root, script=link)


def with_a_link_for_bin(two: Two) -> str:
    shutil.rmtree(two.second.root / ".venv" / "bin")
    (two.second.root / ".venv" / "bin").symlink_to(two.others / "bin")
    return two.run()


MIXED_UP: dict[str, Callable[[Two], str]] = {
    "in the other's folder": lambda two: two.run(place=two.first.root),
    "in the other's study": lambda two: two.run(place=two.first.root / "study" / "workflow"),
    "the other's code on PYTHONPATH": lambda two: two.run(PYTHONPATH=str(two.first.root)),
    "the other's Python by name": lambda two: two.run(
        CASCADETTA_PYTHON=str(two.others / "bin" / "python")
    ),
    "the other's environment activated": lambda two: two.run(VIRTUAL_ENV=str(two.others)),
    "the other's environment activated by conda": lambda two: two.run(CONDA_PREFIX=str(two.others)),
    "by a link, in the other's folder": by_a_link_elsewhere,
    "a link to the other's programs": with_a_link_for_bin,
}


@pytest.mark.parametrize("name", MIXED_UP)
def test_a_clone_runs_its_own_code_and_leaves_the_others_environment_alone(
    tmp_path: Path, name: str
) -> None:
    two = Two(tmp_path)
    before = written(two.others)
    told = MIXED_UP[name](two)
    assert told.startswith("second") and str(two.second.root) in told
    assert written(two.others) == before


def test_after_a_clone_was_moved_its_environment_is_made_again(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    assert checkout()[0] == "ran"
    checkout.root = checkout.root.rename(tmp_path / "moved")
    assert checkout() == ("ran", ["venv --quiet", "pip install", "pip install"])
    assert checkout() == ("ran", [])


def test_what_is_installed_is_checked_by_hashes(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    assert checkout()[0] == "ran"
    packages, study = [
        call for call in checkout.calls.read_text().splitlines() if call.startswith("pip install")
    ]
    assert "--require-hashes -r" in packages
    assert "--no-deps --no-build-isolation -e" in study


def test_code_of_another_clone_than_the_one_one_stands_in_is_not_imported_without_a_word(
    tmp_path: Path,
) -> None:
    (tmp_path / "study").mkdir()
    for name in ("study/__init__.py", "run_all.sh"):
        (tmp_path / name).write_text("")
    (tmp_path / "notebooks").mkdir()
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import study"

    def told(**variables: str) -> str:
        """What importing the study says to somebody who stands in the other clone."""
        command = [sys.executable, "-P", "-c", code]
        environment = {"PATH": os.environ["PATH"]} | variables
        place = tmp_path / "notebooks"
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stderr

    assert str(ROOT) in told() and str(tmp_path) in told()
    assert told(PYTHONPATH=str(ROOT)) == "", "then it was chosen"


def test_help_needs_no_environment(tmp_path: Path) -> None:
    assert Checkout(tmp_path)("--help") == ("ran --help", [])


def test_no_environment_is_made_for_a_misspelled_argument(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    for arguments, told in (
        (("--dryrun",), "did you mean '--dry-run'?"),
        (("--profile", "quik"), "did you mean 'quick'?"),
    ):
        assert checkout(*arguments) == ("", [])
        assert told in checkout.told(*arguments)
    assert not (checkout.root / ".venv").exists()


def test_ci_calls_the_tests_of_the_readme() -> None:
    path = ROOT / ".ci" / "run"
    assert os.access(path, os.X_OK) and path.read_text().rstrip().endswith("\n./run_all.sh test")
