"""The independent check agrees with a report, and finds a changed digit and a changed count."""

import re
import shutil
import zlib
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pandas as pd
import pytest
from independent_check import check_report, main
from made_up_runs import Numbers, content, keep, made_up_runs, on_cifar10, points_of, stored

from study.exhibits import EXHIBITS
from study.exhibits.kit.points import main_points
from study.exhibits.kit.show import save_all
from study.exhibits.kit.stored_runs import Runs
from study.settings import Settings
from study.store import Run, Store
from study.tools.pack_runs import FOLDER, unpack

FIGURES = Path(__file__).resolve().parents[1] / "figures"
EXHIBITS_SHOWN = ("main_image", "batch_size", "meta_learning")
NUMBERS_COMPARED = 900
"""At least so many are in the report of the made-up runs."""
KEPT = "cifar10-"
"""How files of numbers begin whose runs are committed: those on the official images."""


def settings_in(folder: Path) -> Settings:
    sizes = (128, 64, 32, 16)
    return on_cifar10(folder, image_ablation_batch_sizes=sizes, seeds=(0, 1, 2))


def drawn(run: Run) -> Run:
    """A made-up run with errors and accuracies drawn for it."""
    generator = np.random.default_rng(zlib.crc32(run.request.key().encode()))
    errors = generator.integers(0, 9, len(run.batches))
    noise = generator.integers(-40, 41, len(run.accuracies)) / 100
    accuracies = run.accuracies.assign(accuracy=run.accuracies["accuracy"] + noise)
    return replace(run, batches=run.batches.assign(errors=errors), accuracies=accuracies)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store of made-up runs at three seeds, CoTTA's at two, and the report of it."""
    folder = tmp_path_factory.mktemp("report")
    results = folder / "results"
    figures = folder / "figures"
    settings = settings_in(results)
    store = Store(results)
    numbers = Numbers((2,) * 12)
    points = points_of(settings, EXHIBITS_SHOWN)
    for run in made_up_runs(settings, lambda *asked: numbers, points, (0, 1, 2)):
        if run.method != "cotta" or run.seed < 2:
            keep(store, drawn(run))
    runs = Runs.of_settings(settings)
    save_all([EXHIBITS[name].show(runs) for name in EXHIBITS_SHOWN], figures, verdicts=False)
    return results, figures


def test_it_agrees_with_a_report(
    report: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    results, figures = report
    assert main([str(results), str(figures)]) == 0
    told = capsys.readouterr().out
    found = re.fullmatch(r"(\d+) numbers compared, 0 disagree; 0 are of a kind .*\n", told)
    assert found and int(found[1]) >= NUMBERS_COMPARED
    page = (figures / "cifar10-main_image.md").read_text()
    assert "†" in page and "**" in page and " ± " in page, "each kind of mark is in the report"
    assert re.search(r"\| \[[−\d., ]+\] \| \[[−\d., ]+\] \|", page), "and both intervals"


def change(path: Path, pattern: str, digit: bool = True) -> None:
    """Change the last digit of the first match's group, or take the bold from it."""
    text = path.read_text()
    found = re.search(pattern, text)
    assert found, pattern
    start, end = found.span(1)
    changed = f"{found[1][:-1]}{(int(found[1][-1]) + 5) % 10}" if digit else found[1].strip("*")
    path.write_text(text[:start] + changed + text[end:])


def test_changed_cells_are_found(report: tuple[Path, Path], tmp_path: Path) -> None:
    """A mean, a standard deviation, the limits of both intervals, a cell of a CSV, and bold."""
    results, figures = report
    copy = tmp_path / "figures"
    shutil.copytree(figures, copy)
    page = copy / "cifar10-main_image.md"
    change(page, r"\| Tent \| ours \| (\d+\.\d+)")
    change(page, r"\| AdaBN \| ours \| \d+\.\d+ ± (\d+\.\d+)")
    change(page, r"\| ERM − Cascade \| [^|]+ \| \[[−\d.]+, ([−\d.]+)\]")
    change(page, r"\| Tent − Cascade \| [^|]+ \| [^|]+ \| \[−?(\d+)\.")
    change(page, r"\| \w+ \| ours \|[^\n]* (\*\*\d+\.\d\*\*)", digit=False)
    change(copy / "cifar10-image-domains.csv", r"\nTent,ours,\d+\.(\d)")
    change(copy / "cifar10-batch_size.md", r"\| AdaBN \| ours \| (\d+\.\d+)")
    wrong = "\n".join(check_report(results, copy).wrong)
    for place in (
        "cifar10-main_image.md, table 1, Tent, E: ",
        "cifar10-main_image.md, table 1, AdaBN, E, ±: ",
        "ERM − Cascade, over seeds: ",
        "Tent − Cascade, over batches: ",
        "bold: shown 'False', worked out 'True'",
        "cifar10-image-domains.csv: ",
        "cifar10-batch_size.md, table 1, AdaBN, ",
    ):
        assert place in wrong, place


def test_a_changed_number_and_a_changed_count_are_found(
    report: tuple[Path, Path], tmp_path: Path
) -> None:
    results, figures = report
    shutil.copytree(figures, tmp_path / "figures")
    shutil.copytree(results, tmp_path / "results")
    numbers = "cifar10-main_image-numbers.csv"
    change(tmp_path / "figures" / numbers, r"\nAdaBN,[^\n]*?,(\d+\.\d{5}),")
    table = pd.read_csv(figures / numbers)
    tent = table[(table["label"] == "Tent") & (table["seed"] == 1)].iloc[0]
    for path in (tmp_path / "results" / "runs").glob("*/batches.csv"):
        batches = pd.read_csv(path)
        if is_e(batches, tent["E"]):
            batches.loc[3, "errors"] += 1
            batches.to_csv(path, index=False)
    wrong = check_report(tmp_path / "results", tmp_path / "figures", tables=False).wrong
    assert f"{numbers}, AdaBN, seed 0: E of no stored run" in wrong
    assert f"{numbers}, Tent, seed 1: E of no stored run" in wrong


def is_e(batches: pd.DataFrame, value: float) -> bool:
    """Whether a run's E is that; all its batches have the same count."""
    return abs(100 * batches["errors"].sum() / batches["count"].sum() - value) < 1e-4


def test_equal_numbers_are_both_bold_whatever_their_last_bits(tmp_path: Path) -> None:
    """0.8 − 0.7 and 0.7 − 0.6 differ in the last bit; one F of the two was in bold before."""
    settings = settings_in(tmp_path)
    of_methods = {
        "tent": Numbers(accuracy=0.8, alone=0.7),
        "cascade": Numbers(accuracy=0.7, alone=0.6),
    }
    points = [point for point in main_points(settings, "image") if point.method in of_methods]
    runs = made_up_runs(settings, lambda method, *asked: of_methods[method], points, (0,))
    shown = EXHIBITS["main_image"].show(stored(settings, runs))
    table = content(shown, "image-domains").xs("ours", level="source")
    assert table["F"].to_dict() == {"Tent": "**10.0**", "Cascade": "**10.0**"}


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committed runs, in a store."""
    results = tmp_path_factory.mktemp("committed")
    if not FOLDER.exists():
        pytest.skip("no run is committed")
    unpack(results)
    return results


@pytest.mark.parametrize(
    "folder", sorted({path.parent.name for path in FIGURES.glob(f"*/{KEPT}*-numbers.csv")})
)
def test_the_committed_numbers_are_those_of_the_committed_runs(
    committed: Path, folder: str
) -> None:
    check = check_report(committed, FIGURES / folder, tables=False)
    assert not [line for line in check.wrong if line.startswith(KEPT)]
    assert check.compared
