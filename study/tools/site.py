"""Make the site: README, results, executed notebooks, tables and the library's docstrings as pages
with a search.

    ./run_all.sh site [--profile NAME] [--into FOLDER]

The profile's notebooks run first, except those that are up to date. With `--sources` nothing runs,
and the notebooks have no results. The site is written to `build/site/html`, or to FOLDER/html. Its
index.html opens without a server. A broken link is an error.
"""

import argparse
import importlib.util
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat

import cascadetta_lib
from study import ROOT
from study.workflow.command import main as run_study
from study.workflow.pages import read, without_paths

SITE = ROOT / "docs" / "site"
STAGED = (
    "RESULTS.md VERDICTS.md CONTRIBUTING.md CHANGELOG.md LICENSE CITATION.cff run_all.sh "
    "pyproject.toml environment.yml requirements.txt requirements-test.txt requirements-docs.txt"
).split()
FOLDERS = "cascadetta_lib study profiles docs figures findings weights benchmarks tests".split()
LINK = re.compile(r"\]\(([\w./-]+)\)")
OF_README = re.compile(r"(\]\((?:\.\./)*)README\.md")
LEFT_OUT = ("__pycache__", "*.pt", "*.safetensors", "*.tar.xz", "templates", "site")


def stage(source: Path, notebooks: Path) -> None:
    """Write the sources of the site: the repository's pages, and the files that they link to. What
    was in `source` is removed.

    notebooks: the folder of executed notebooks. A notebook that it lacks is shown without results.
    """
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    for name in STAGED:
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    for name in FOLDERS:
        leave = shutil.ignore_patterns(*LEFT_OUT)
        if (ROOT / name).exists():
            shutil.copytree(ROOT / name, source / name, ignore=leave)
    for path in SITE.iterdir():
        shutil.copy(path, source)
    contents = (source / "contents.md").read_text(encoding="utf-8")
    (source / "contents.md").unlink()
    first = (ROOT / "README.md").read_text(encoding="utf-8")
    (source / "index.md").write_text(f"{first}\n{contents}", encoding="utf-8")
    for page in source.rglob("*.md"):
        page.write_text(for_site(page), encoding="utf-8")
    write_notebooks(source / "notebooks", notebooks)
    write_api(source / "api")


def for_site(page: Path) -> str:
    """Return the text of a staged page for the site. A page without a title gets one. Links to
    README.md become links to index.md, and links to a package become links to its `__init__.py`.
    """

    def followed(link: re.Match[str]) -> str:
        first = page.parent / link[1] / "__init__.py"
        return f"]({link[1]}/__init__.py)" if first.is_file() else link[0]

    text = page.read_text(encoding="utf-8")
    if not text.startswith("#"):
        text = f"# {page.stem.capitalize()} of {page.parent.name}\n\n{text}"
    return LINK.sub(followed, OF_README.sub(r"\1index.md", text))


def write_notebooks(folder: Path, executed: Path) -> None:
    """Write the notebooks for readers, without paths of this machine. A notebook that has run is
    written as executed.

    If a notebook has run several times, such as on several datasets, the first run by name is
    taken.
    """
    folder.mkdir()
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        runs = sorted(executed.glob(f"{path.stem}*.ipynb"))
        text = nbformat.writes(read(runs[0] if runs else path))
        (folder / path.name).write_text(without_paths(text), encoding="utf-8")


def write_api(folder: Path) -> None:
    """Write a page for each package of the library, with all of its modules' docstrings."""
    folder.mkdir()
    pages: dict[str, list[str]] = {}
    for module in pkgutil.walk_packages(cascadetta_lib.__path__, "cascadetta_lib."):
        package = module.name if module.ispkg else module.name.rpartition(".")[0]
        pages.setdefault(package, []).append(module.name)
    for package, modules in pages.items():
        lines = [f"# {package}"]
        for name in modules:
            if name != package:
                lines.append(f"## {name}")
            lines.append(f"```{{eval-rst}}\n.. automodule:: {name}\n```")
        (folder / f"{package}.md").write_text("\n\n".join(lines) + "\n", encoding="utf-8")


def build(source: Path, output: Path) -> int:
    """Run Sphinx, with warnings as errors, and return its exit status. What was in `output` is
    removed.
    """
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    return subprocess.run([*command, str(source), str(output)]).returncode


def main() -> int:
    """Make the site as the arguments say; return an exit status."""
    parser = argparse.ArgumentParser(description="Make the site.")
    profiles = sorted(path.stem for path in (ROOT / "profiles").glob("*.yaml"))
    parser.add_argument(
        "--profile", default="quick", choices=profiles, help="whose notebooks (default: quick)"
    )
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "site", help="a folder")
    parser.add_argument("--sources", action="store_true", help="notebooks without results")
    asked = parser.parse_args()
    into = asked.into.resolve()
    if importlib.util.find_spec("sphinx") is None:
        parser.error("Sphinx is missing: pip install -e '.[docs]', or ./run_all.sh site")
    if not asked.sources:
        ran = run_study(["--profile", asked.profile])
        if ran:
            return ran
    notebooks = ROOT / "results" / asked.profile / "notebooks"
    stage(into / "source", Path("/nowhere") if asked.sources else notebooks)
    status = build(into / "source", into / "html")
    if status == 0:
        print(f"site: {into / 'html' / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
