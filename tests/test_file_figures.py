"""Figures, a folder per question of RESULTS: study/tools/file_figures.py."""

from collections import Counter
from pathlib import Path

import pytest

from study import ROOT
from study.exhibits import EXHIBITS
from study.tools.file_figures import FOLDERS, dataset_of, file_report, folder_of, main


@pytest.fixture
def report(tmp_path: Path) -> Path:
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "cifar10-orders.md").write_text("![figure](cifar10-orders-figure.png)\n")
    (folder / "cifar10-orders-figure.png").write_bytes(b"a picture")
    (folder / "verdicts.csv").write_text("claim,verdict\n")
    return folder


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("cifar10-orders-figure.png", "1-whose-numbers"),
        ("cifar10_sample-learning-rate-32.csv", "3-auxiliary-head"),
        ("cifar10_sample-main_image-numbers.csv", "1-whose-numbers"),
        ("amazon_counts-text-metrics.tex", "8-text-speech"),
        ("cifar10-streams.md", "7-severity-batch-stream"),
        ("verdicts.md", "10-verdicts"),
        ("cifar10-my_exhibit.md", "other"),
    ],
)
def test_the_folder_is_that_of_the_exhibit(name: str, folder: str) -> None:
    assert folder_of(name, dataset_of(name, [name])) == folder


def test_a_page_finds_its_figure_with_a_tag(report: Path, tmp_path: Path) -> None:
    file_report(report, tmp_path / "figures")
    file_report(report, tmp_path / "figures", tag="long")
    there = tmp_path / "figures" / "1-whose-numbers"
    assert (there / "cifar10_long-orders.md").read_text() == (
        "![figure](cifar10_long-orders-figure.png)\n"
    )
    assert (there / "cifar10_long-orders-figure.png").read_bytes() == b"a picture"
    assert (there / "cifar10-orders.md").read_text() == "![figure](cifar10-orders-figure.png)\n"
    assert (tmp_path / "figures" / "10-verdicts" / "long-verdicts.csv").is_file()


def test_a_dataset_may_have_hyphens(tmp_path: Path) -> None:
    """As data of one's own have, such as npz:FOLDER; a folder may be called as an exhibit is."""
    report = tmp_path / "report"
    report.mkdir()
    link = "![figure](npz-my-text-orders-figure.png)\n"
    (report / "npz-my-text-orders.md").write_text(link)
    for name in ("npz-my-text-orders-figure.png", "npz-my-text-orders-numbers.csv"):
        (report / name).write_bytes(b"something")
    (report / "npz-my-main_image.md").write_text("of another dataset\n")
    file_report(report, tmp_path / "figures", tag="long")
    there = tmp_path / "figures" / "1-whose-numbers"
    assert {path.name for path in there.iterdir()} == {
        "npz-my-text_long-orders.md",
        "npz-my-text_long-orders-figure.png",
        "npz-my-text_long-orders-numbers.csv",
        "npz-my_long-main_image.md",
    }
    page = (there / "npz-my-text_long-orders.md").read_text()
    assert page == "![figure](npz-my-text_long-orders-figure.png)\n"


def test_no_exhibit_has_a_hyphen_by_which_its_dataset_would_be_misread() -> None:
    assert [name for name in EXHIBITS if "-" in name] == []


def test_a_folder_without_a_page_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--figures", str(tmp_path / "figures")])
    assert "no page of a report is there" in capsys.readouterr().err


def test_no_two_committed_pages_have_one_name() -> None:
    pages = Counter(path.name for path in (ROOT / "figures").glob("*/*.md"))
    pages.pop("README.md", None)
    assert [name for name, count in pages.items() if count > 1] == []
    folders = {path.parent.name for path in (ROOT / "figures").glob("*/*.md")}
    assert folders <= {*FOLDERS, "runs"}
