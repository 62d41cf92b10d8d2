"""The profile `quick` as a user runs it, in a copy of the tree: all notebooks and the report."""

import os
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
from independent_check import check_report

from study.exhibits import EXHIBITS
from study.exhibits.kit.rendering import to_html

ROOT = Path(__file__).resolve().parents[1]
NOT_SHOWN = {
    "rate_selection": "the profile has no method that selects its rate",
    "standard": "made-up digits stand beside no published number",
    "tent_row": "the paper has no row of Tent on digits",
}
"""The exhibits that the profile `quick` cannot show, and why. All others are in its report, with no
run missing.
"""
ELSEWHERE = {"imagenet"}
"""The exhibits that are made on other datasets alone. The report of `quick` does not count them."""


def test_quick_makes_the_report(tmp_path: Path) -> None:
    """In a copy of the files of the repository, tracked or not, without what git ignores."""
    if not (ROOT / ".git").exists():
        pytest.skip("only a git checkout knows its files")
    checkout = tmp_path / "end {to} end"  # blanks and braces in the path, because users have them
    results = checkout / "results" / "quick"
    listing = [
        "git",
        "-C",
        str(ROOT),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    for name in subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split(
        "\0"
    ):
        if (ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, checkout / name)
    sources = {path.stem for path in (checkout / "notebooks").glob("*.ipynb")}
    environment = os.environ | {"CASCADETTA_PYTHON": sys.executable}  # that of the tests
    done = subprocess.run(
        ["bash", "run_all.sh"], cwd=checkout, env=environment, capture_output=True, text=True
    )
    print(done.stdout)  # pytest shows it when something below fails
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "report: results/quick/report.html"
    executed = {path.stem.split("-")[0] for path in (results / "notebooks").glob("*.ipynb")}
    assert executed == sources
    report = (results / "report.html").read_text()
    assert "data:image/png;base64" in report and report.index("Findings") < report.index(
        "The paper's exhibits"
    )
    assert "No verdict: no run is on data that compare with the paper's." in unescape(report)
    assert "claims not tested" not in report
    missing = re.search(
        r"<summary>(\d+) of (\d+) exhibits, and why</summary>(.*?)</details>", report, re.DOTALL
    )
    counted = set(EXHIBITS) - ELSEWHERE
    assert missing and (int(missing[1]), int(missing[2])) == (len(NOT_SHOWN), len(counted))
    told = unescape(missing[3])
    for name in NOT_SHOWN:
        assert unescape(to_html(EXHIBITS[name].title)) in told, name
    assert "Not the paper's data." in unescape(report)
    assert "The paper's exhibits" in report and "</td>" in report
    for path in (results / "notebooks").glob("*.ipynb"):
        assert path.with_suffix(".html").exists() and f'href="notebooks/{path.stem}.html"' in report
    assert not list(results.rglob("*.partial*"))
    check = check_report(checkout / "results", results / "figures")
    assert not check.wrong and check.compared > 5000, "each number of the report, once more"
