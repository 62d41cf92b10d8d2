"""Turn the notebooks into the jobs of a profile, and write the plan for Snakemake.

The names of a notebook's parameters decide its jobs. With `seed` there is a job per seed. With
`image_dataset` or another of DATASET_PARAMETERS there is a job per dataset. With `seeds` the
notebook is a report: it has one job, which comes last and sees all results. So a new notebook needs
only its file in notebooks/.
"""

import dataclasses
import hashlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cascadetta_lib.code import file_hash
from cascadetta_lib.data import DatasetName
from cascadetta_lib.files import write_atomically
from cascadetta_lib.training.objectives import OBJECTIVES
from study import LOADING_MODULES, ROOT, RUN_MODULE, STORE_FORMAT
from study.settings import Settings, flat
from study.weights_name import WeightsName
from study.workflow.arguments import notebooks_in
from study.workflow.notebooks import Notebook, read_notebook
from study.workflow.refusal import FAILED, Refusal
from study.yaml12 import dump_yaml

DATASET_PARAMETERS = ("image_dataset", "text_dataset", "speech_dataset")
AXES = (*DATASET_PARAMETERS, "seed")
PRETRAIN = "01_pretrain"
"""The notebook that trains networks. Its job comes before all other jobs on the same dataset and
seed, except those of ABLATIONS.
"""
ABLATIONS = "05_ablations"
"""The notebook that begins by training networks that only it needs. It does not wait for PRETRAIN,
so that the two train side by side.
"""
CHOICE = "choice"
"""The exhibit that chooses learning rates, at the first seed only."""
IN_KEYS = [f"{name.replace('.', '/')}.py" for name in (RUN_MODULE, *LOADING_MODULES)]
NOTEBOOKS_DEPEND_ON = ("cascadetta_lib", "study/exhibits", "study/notebook.py", *IN_KEYS)
"""The code that makes numbers, and the code that decides what notebooks show of them. If any of it
changes, every notebook runs again.

The rest of `study` makes no number: it starts notebooks, and finds and stores results. If it asks
for other results, these have other keys.
"""


@dataclass(frozen=True)
class Job:
    """One execution of a notebook: on one dataset at one seed, or as a report of all results.

    It runs again if path, sha256, parameters or inputs have changed, and after a job in `after` has
    run again.

    path: of the notebook.
    sha256: a hash of the notebook, of the code of results, and of the store's format.
    exhibits: the exhibits that the notebook declares.
    axes: the dataset and the seed, by parameter; empty for a report.
    parameters: the parameters that the notebook names, and those of its modalities. The notebook
        reads all others from the profile.
    gpu: the number of GPUs that it needs, 0 or 1.
    networks: the identifiers of all networks in the files that the job's weights name, at its
        seeds; empty if the networks are trained here.
    after: the names of the jobs that must end before it begins.
    inputs: the first seed, at which the exhibit CHOICE chooses learning rates, and the identifiers
        of the job's data and networks.
    """

    name: str
    notebook: str
    path: str
    sha256: str
    report: bool
    exhibits: tuple[str, ...]
    axes: Mapping[str, Any]
    parameters: Mapping[str, Any]
    gpu: int
    networks: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    inputs: tuple[Any, ...] = ()

    def comes_before(self, other: "Job", first_seed: int) -> bool:
        """Return whether `other` needs what this job makes."""
        if other.report:
            return not self.report
        if self.notebook == PRETRAIN and other.notebook not in (PRETRAIN, ABLATIONS):
            return self.axes.items() <= other.axes.items()
        if self.notebook == other.notebook and CHOICE in self.exhibits:
            same_dataset = {**self.axes, "seed": None} == {**other.axes, "seed": None}
            return same_dataset and self.axes.get("seed") == first_seed
        return False


def file_of(value: object) -> str:
    """Return the name of an axis's value in file names, such as digits, npz-pets or seed0.

    Settings refuse two folders with the same name, so these names differ.
    """
    return f"seed{value}" if isinstance(value, int) else DatasetName.parse(str(value)).file


def origins(weights: WeightsName, seeds: Iterable[int]) -> list[str]:
    """Return the identifiers of all networks that `weights` has at these seeds; none if they are
    trained here. Reads no data.
    """
    if weights.trained_here:
        return []
    # Imported here, because it takes half a second.
    from study.networks_from_files import network_origin
    from study.published_networks import NetworkError

    identifiers = []
    for objective, seed in itertools.product(OBJECTIVES, seeds):
        with suppress(NetworkError):
            identifiers.append(network_origin(weights, objective, seed))
    return identifiers


def code_of_results(root: Path = ROOT) -> bytes:
    """Return the hashes of all files of NOTEBOOKS_DEPEND_ON. Comments and docstrings are not
    hashed, as in the keys of results.
    """
    files: list[Path] = []
    for name in NOTEBOOKS_DEPEND_ON:
        place = root / name
        paths = [place] if place.is_file() else place.rglob("[!.]*.*")
        files += [path for path in paths if path.suffix != ".pyc"]
    return "\n".join(file_hash(path) for path in sorted(files)).encode()


def make_jobs(folder: Path, values: Mapping[str, Any], root: Path = ROOT) -> dict[str, Job]:
    """Return the jobs of the notebooks in `folder`, by name.

    values: the settings by flat name, in JSON's types.
    """
    unordered: list[Job] = []
    code = code_of_results(root) + bytes([STORE_FORMAT])
    for path in notebooks_in(folder):
        notebook = read_notebook(path, values)
        for axes in _axes_of(notebook, values):
            unordered.append(_make_job(notebook, axes, values, code))
    # Only now, because a job may wait for one whose notebook comes later in the folder.
    jobs: dict[str, Job] = {}
    for job in unordered:
        others = [other for other in unordered if other is not job]
        after = [other.name for other in others if other.comes_before(job, values["seeds"][0])]
        jobs[job.name] = dataclasses.replace(job, after=tuple(after))
    return jobs


def _axes_of(notebook: Notebook, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the dataset and the seed of each job of a notebook, by parameter. A report has one job,
    without them.
    """
    several: dict[str, Any] = {}
    if "seeds" not in notebook.parameters:
        for axis in AXES:
            if axis in notebook.parameters:
                several[axis] = values["seeds" if axis == "seed" else axis]
    lists = [value if isinstance(value, list) else [value] for value in several.values()]
    for point in itertools.product(*lists):
        yield dict(zip(several, point, strict=True))


def _make_job(
    notebook: Notebook, axes: dict[str, Any], values: Mapping[str, Any], code: bytes
) -> Job:
    """Return the job of a notebook on a dataset at a seed; `after` is filled in later."""
    names = notebook.parameters
    modalities = tuple(f"{name.partition('_')[0]}_" for name in names if name in DATASET_PARAMETERS)
    given = {
        name: value
        for name, value in values.items()
        if name in names or name.startswith(modalities)
    }
    seeds = [axes["seed"]] if "seed" in axes else values["seeds"]
    weights = [
        WeightsName.parse(value) for name, value in given.items() if name.endswith("_weights")
    ]
    report = "seeds" in names
    return Job(
        name="-".join([notebook.name, *map(file_of, axes.values())]),
        notebook=notebook.name,
        path=str(notebook.path),
        sha256=hashlib.sha256(notebook.path.read_bytes() + code).hexdigest(),
        report=report,
        exhibits=notebook.exhibits,
        axes=axes,
        parameters=given | axes,
        gpu=int(values["device"] == "cuda" and not report),
        networks=tuple(origin for name in weights for origin in origins(name, seeds)),
    )


def outdated_reports(jobs: Mapping[str, Job], folder: Path, runs: Path) -> set[str]:
    """Return the names of the reports that may lack a run, because they are older than the store's
    folder of runs.
    """
    latest = runs.stat().st_mtime if runs.exists() else 0.0
    outdated = set()
    for name, job in jobs.items():
        output = folder / "notebooks" / f"{name}.ipynb"
        if job.report and output.exists() and output.stat().st_mtime < latest:
            outdated.add(name)
    return outdated


def write_plan(
    settings: Settings, jobs: Mapping[str, Job], folder: Path, data: Mapping[str, str]
) -> list[str]:
    """Write the plan, and return the arguments of the Snakemake that runs it.

    profile.yaml holds the resolved profile, which the notebooks read. plan.json holds the jobs,
    which the Snakefile reads. Snakemake's own lock would survive a kill, so it is not used; run.py
    has a lock instead.

    folder: the results of the profile.
    data: an identifier of each dataset's content, by the dataset's name in file names. If it has
        changed, the jobs on the dataset run again.

    Raises ValueError if an earlier plan.json is damaged.
    """
    profile = folder / "profile.yaml"
    plan = folder / "plan.json"
    known = dict(data)
    # A dry run reads no data, and a run of a few notebooks reads only theirs. The identifiers of
    # all other data stay.
    if plan.exists():
        try:
            known = json.loads(plan.read_text(encoding="utf-8")).get("data", {}) | known
        except (ValueError, TypeError, AttributeError):
            raise ValueError(f"{plan} is damaged: remove it and run again") from None
    text = dump_yaml(flat(settings))
    write_atomically(profile, lambda file: file.write(text.encode()))
    planned = {}
    for job in jobs.values():
        there = [
            name
            for name in job.after
            if name in jobs or (folder / "notebooks" / f"{name}.ipynb").exists()
        ]
        contents = [known[name] for name in map(file_of, job.axes.values()) if name in known]
        planned[job.name] = dataclasses.replace(
            job,
            parameters={**job.parameters, "profile": str(profile)},
            inputs=(settings.seeds[0], *contents, *job.networks),
            after=tuple(there),
        )
    content = {
        "jobs": {name: dataclasses.asdict(job) for name, job in planned.items()},
        "data": known,
    }
    write_atomically(plan, lambda file: file.write(json.dumps(content, indent=1).encode()))
    snakefile = ROOT / "study" / "workflow" / "Snakefile"
    return [
        *("--snakefile", str(snakefile), "--nolock"),
        *("--directory", str(folder), "--configfile", str(plan)),
        *("--rerun-incomplete", "--rerun-triggers", "mtime", "params"),
    ]


def unfinished(arguments: list[str], jobs: Iterable[str], folder: Path) -> list[str]:
    """Return the names of the jobs that would run, according to Snakemake. `--dry-run` lists them
    as to do.

    If no executed notebook is there, all jobs would run. Then Snakemake is not called, because it
    takes a second. Raises Refusal if Snakemake fails.

    arguments: Snakemake's arguments.
    folder: the results of the profile.
    """
    names = list(jobs)
    if not any((folder / "notebooks" / f"{name}.ipynb").exists() for name in names):
        return names
    command = [sys.executable, "-m", "snakemake", *arguments, "--dry-run", "--summary"]
    listed = subprocess.run(command, capture_output=True, text=True)
    if listed.returncode:
        raise Refusal(f"Snakemake failed\n{listed.stderr}{listed.stdout}", FAILED)
    done = [
        line.partition("\t")[0]
        for line in listed.stdout.splitlines()
        if line.endswith("\tno update")
    ]
    return [name for name in names if f"notebooks/{name}.ipynb" not in done]
