"""File packed runs of a results folder in the store, from which the report draws them again:

    ./run_all.sh python study/tools/unpack.py npz:FOLDER RUNS.tar.xz
    ./run_all.sh --profile study --only 10_report --set image_dataset=npz:FOLDER profile=study

An archive of another store format is refused, such as those in `figures/` today, which are of
revision 6abf18a: a checkout of that revision files them.

The key of a run names the folder of its data, by a hash of the path. Runs on such a folder are
filed as runs on FOLDER, and their provenance says where they were made. FOLDER need not be there;
if it is, it must hold the same data.
"""

import argparse
import lzma
import shutil
import sys
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cascadetta_lib.data.base import DataMissing
from study.requests import CheckpointRequest
from study.settings import SettingsError, load_profile
from study.store import Damaged, Entry, Made, read_entry
from study.study import Study
from study.workflow.configuration import from_folder


def unpack(archive: Path, study: Study) -> int:
    """File every run of an archive as one of the study's dataset; returns how many there are.
    Raises Damaged for an archive, or a file in it, that is not as it was written, and ValueError
    for runs on other data."""
    with tempfile.TemporaryDirectory() as place:
        try:
            with tarfile.open(archive, "r:xz") as packed:
                packed.extractall(place, filter="data")
        except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
            raise Damaged(f"it is no whole .tar.xz file ({error})") from error
        entries = [read_entry(folder) for folder in sorted(Path(place).glob("*/*"))]
        for entry in entries:
            file(entry, study)
    return len(entries)


def file(entry: Entry, study: Study) -> None:
    """File an entry of another store in that of the study. What is there already stays."""
    request = entry.request
    provenance = entry.provenance
    name = study.dataset_name
    checkpoint = request if isinstance(request, CheckpointRequest) else request.checkpoint  # type: ignore[attr-defined]
    other_folder = name.folder is not None and checkpoint.dataset != name.key
    if other_folder and checkpoint.dataset_kind == name.kind:
        if Path(name.folder or "").expanduser().exists():
            if study.dataset.fingerprint != provenance.fingerprint:
                raise ValueError(
                    f"{name} holds other data than {checkpoint.dataset}, of which there are runs"
                )
        provenance = replace(
            provenance, filed=f"made on the same data in another folder, {checkpoint.dataset}"
        )
        moved = checkpoint.model_copy(update={"dataset": name.key})
        request = (
            moved if checkpoint is request else request.model_copy(update={"checkpoint": moved})
        )

    def make(folder: Path) -> Made:
        for table in entry.folder.glob("*.csv"):
            shutil.copy(table, folder)
        return Made(provenance, entry.found)

    study.store.make_once(entry.folder.parent.name, request, entry.content, make)  # type: ignore[arg-type]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="File the raw runs behind committed figures in the store."
    )
    parser.add_argument(
        "dataset",
        help="KIND:FOLDER, the data as this machine has them, or any name where it has none",
    )
    parser.add_argument("archives", nargs="+", type=Path, help="figures/NAME/*runs.tar.xz")
    parser.add_argument(
        "--results", help="the folder of the store (default: results, beside this folder)"
    )
    asked = parser.parse_args()
    where = ""
    try:
        values = {"image_dataset": asked.dataset} | (
            {"results_folder": asked.results} if asked.results else {}
        )
        # As in run_all.sh --set, what is relative lies in the caller's folder.
        study = Study(
            load_profile(
                "study", {name: from_folder(name, values[name], Path.cwd()) for name in values}
            )
        )
        for archive in asked.archives:
            where = f"{archive}: "
            print(f"{where}{unpack(archive, study)} entries")
    except (SettingsError, DataMissing, ValueError, Damaged, OSError) as error:
        parser.exit(2, f"unpack.py: {where}{error}\n")
