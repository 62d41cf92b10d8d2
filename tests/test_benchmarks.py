"""The benchmarks run, at their smallest size, and print what they promise."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cascadetta_lib.methods import METHODS

ROOT = Path(__file__).resolve().parents[1]


def printed(script: str, *arguments: str) -> str:
    """Run a benchmark; return what it printed."""
    done = subprocess.run(
        [sys.executable, f"benchmarks/{script}", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_builds_are_timed_in_turn() -> None:
    """Here a build is timed beside itself."""
    lines = printed("speed.py", "--smallest", "--only", "training", "--before", str(ROOT))
    steps = r"^(exact meta-gradient, (release|paper)'s|epoch of (erm|meta)): \d\S* s, \d\S* of \d"
    assert len(re.findall(steps, lines, flags=re.MULTILINE)) == 4, lines


def test_the_profile_has_shares_of_the_whole() -> None:
    lines = printed("training_profile.py", "--smallest")
    shares = [float(share) for share in re.findall(r"([\d.]+) %", lines)]
    assert sum(shares) == pytest.approx(400, abs=2), "two objectives, by stage and by operation"
    assert lines.count("convolutions") == lines.count("loss and gradients") == 2


def test_what_a_card_is_worth_is_a_row_per_method(tmp_path: Path) -> None:
    printed("card.py", "--smallest", "--output", str(tmp_path / "card.md"))
    table = (tmp_path / "card.md").read_text(encoding="utf-8")
    for name in METHODS:
        assert f"\n| {METHODS[name].label} | " in table
