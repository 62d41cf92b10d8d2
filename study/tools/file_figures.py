"""Copy a report's files into `figures/`, a folder per question of RESULTS.md:

    ./run_all.sh python study/tools/file_figures.py results/released/figures --tag long

A report writes all its files into one folder. Their names begin with the dataset and the exhibit,
such as `cifar10-orders-figure.png`. The dataset may have hyphens, such as `npz-pets`. It is read
from the names of the report's pages, such as `npz-pets-tent_row.md`: there the name of an exhibit
has underscores, and no hyphen. FOLDERS says in which folder of `figures/` a file belongs. A tag
tells two pages of one exhibit apart, such as the pages of a long and of a short stream. With the
tag `long`, `cifar10-orders-figure.png` becomes `cifar10_long-orders-figure.png`.

Run study/tools/fill.py afterwards. It writes numbers of the tables in `figures/` into RESULTS.md
and other pages.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cascadetta_lib.files import write_atomically
from study import ROOT

FIGURES = ROOT / "figures"
FOLDERS = {
    "1-whose-numbers": ("released", "orders", "image", "main-image", "standard", "imagenet"),
    "2-tent": ("tent-row",),
    "3-auxiliary-head": (
        *("cascade-parts", "learning-rate", "step-size", "tent-rates"),
        *("uncertainty", "updates", "whose-gain"),
    ),
    "4-statistics": ("source-statistics", "batch-variance"),
    "5-field": ("field", "choice", "comparison"),
    "6-meta-learning": ("meta-learning", "conditions", "theorem", "training-image"),
    "7-severity-batch-stream": (
        *("severity", "batch-size", "gradual", "streams", "recurring", "wild", "alarm", "speed"),
        "rate-selection",
    ),
    "8-text-speech": (
        *("text", "main-text", "online-text", "training-text"),
        *("speech", "main-speech", "online-speech", "training-speech"),
    ),
    "10-verdicts": ("published-transfer", "verdicts"),
}
"""For each folder of `figures/`: what the file names of its exhibits have after the dataset, with
hyphens in place of underscores.
"""
OTHER = "other"
"""The folder of exhibits that FOLDERS does not name, such as one of your own."""


def dataset_of(name: str, names: Iterable[str]) -> str:
    """Return the dataset with which the name of a report's file begins.

    The datasets are known from the names of the report's pages. If the name begins with none of
    these datasets, return what stands before the first hyphen; "" for a name without a hyphen, such
    as `verdicts.csv`.

    names: the names of all files of the report.
    """
    pages = [Path(each).stem for each in names if each.endswith(".md")]
    datasets = {page.rpartition("-")[0] for page in pages}
    known = [dataset for dataset in datasets if dataset and name.startswith(f"{dataset}-")]
    if known:
        return max(known, key=len)
    first, hyphen, _ = name.partition("-")
    return first if hyphen else ""


def folder_of(name: str, dataset: str) -> str:
    """Return the folder of `figures/` in which a file of a report belongs.

    dataset: the dataset in its name; see `dataset_of`.
    """
    exhibit = Path(name).stem.removeprefix(f"{dataset}-").replace("_", "-")
    for folder, beginnings in FOLDERS.items():
        for beginning in beginnings:
            if f"{exhibit}-".startswith(f"{beginning}-"):
                return folder
    return OTHER


def tagged(name: str, tag: str, dataset: str) -> str:
    """Return a file's name with the tag after the dataset. If the dataset is empty, the tag comes
    first.

    dataset: the dataset in its name; see `dataset_of`.
    """
    if not tag:
        return name
    if not dataset:
        return f"{tag}-{name}"
    return f"{dataset}_{tag}{name.removeprefix(dataset)}"


def file_report(report: Path, figures: Path, tag: str = "") -> list[Path]:
    """Copy the files of a report into `figures`, each into its folder, and return their new paths.

    The tag is added to the files' names and to the links between them. An existing file of the same
    name is replaced. Raises ValueError if the report has no page (.md).
    """
    files = sorted(path for path in report.glob("*.*") if not path.name.startswith("."))
    if not any(path.suffix == ".md" for path in files):
        raise ValueError(f"{report}: no page of a report is there")
    names = [path.name for path in files]
    datasets = {name: dataset_of(name, names) for name in names}
    new_names = {name: tagged(name, tag, datasets[name]) for name in names}
    targets = {
        path: figures / folder_of(path.name, datasets[path.name]) / new_names[path.name]
        for path in files
    }
    for path, target in targets.items():
        content = path.read_bytes()
        if path.suffix in (".md", ".tex") and tag:
            text = content.decode()
            for old, new in new_names.items():
                text = text.replace(f"]({old})", f"]({new})")
            content = text.encode()
        _write(target, content)
    return list(targets.values())


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(content))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="File a report's figures in figures/, a folder per question of RESULTS.md."
    )
    parser.add_argument("report", type=Path, help="the folder that the report wrote")
    parser.add_argument("--figures", type=Path, default=FIGURES, help="default: figures/")
    parser.add_argument("--tag", default="", help="keeps two pages of one exhibit apart")
    asked = parser.parse_args(arguments)
    try:
        filed = file_report(asked.report, asked.figures, asked.tag)
    except ValueError as error:
        parser.exit(2, f"file_figures.py: {error}\n")
    print(f"{len(filed)} files in {asked.figures}")


if __name__ == "__main__":
    main()
