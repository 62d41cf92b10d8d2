"""Run the study: check everything, let Snakemake run the jobs, and leave nothing half done."""

import argparse
import fcntl
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, get_args

import torch

from cascadetta_lib.data.base import DataMissing, Modality
from cascadetta_lib.files import full_disk_message, is_disk_full, write_text_atomically
from study import ROOT
from study.provenance import choose_device
from study.settings import Settings, flat, read_profile
from study.workflow.arguments import check_notebooks
from study.workflow.execute import FAILURE, PARTIAL
from study.workflow.jobs import Job, make_jobs, outdated_reports, unfinished, write_plan
from study.workflow.refusal import (
    BAD_ARGUMENTS,
    DATA_MISSING,
    FAILED,
    NOTEBOOK_FAILED,
    Refusal,
)

OF_THIS_MACHINE = ("CASCADETTA_", "CUDA_VISIBLE_DEVICES", "OMP_", "MKL_")
"""Environment variables that a cluster's jobs must not inherit."""
PATIENCE = 20
"""The seconds that the processes of a killed run may take to end."""
WATCHED = Path(__file__).with_name("watched.py")
"""The script that runs a module and ends it when this process ends."""


OWNER = "profile-file.txt"
"""The file in a profile's results that names the profile's file."""


def claim(folder: Path, file: Path) -> None:
    """Note in a results folder which profile's file the results belong to.

    Raises Refusal if they belong to another file with the same profile name, because the run would
    replace them.

    folder: the results of a profile.
    file: the profile's file, as an absolute path.
    """
    # Relative, so that a copy of the repository with its results still names its own file.
    name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
    note = folder / OWNER
    owner = name
    if note.exists():
        owner = Path(note.read_text(encoding="utf-8"))
    if owner != name and (ROOT / owner).exists():
        raise Refusal(
            f"{folder} holds the results of {owner}, and {name} would replace them: give one of "
            "the two another name (the file's, and profile: in it), or add --set profile=NAME"
        )
    write_text_atomically(note, str(name))


def check_datasets(settings: Settings, axes: Collection[str]) -> dict[str, str]:
    """Load each dataset and check it before any job starts. Return an identifier of each dataset's
    content, by the dataset's name in file names.

    Raises Refusal if data, networks or domains are missing or do not fit.

    axes: the parameters in which the jobs differ. Only datasets among them are loaded.
    """
    from study.study import Study  # here, because a dry run reads no data and need not wait for it

    found = {}
    for modality in get_args(Modality):
        if f"{modality}_dataset" not in axes:
            continue
        for name in settings.datasets(modality):
            one = settings.vary(modality, {"dataset": str(name)})
            try:
                study = Study(one.model_copy(update={"device": "cpu"}), modality)
                print(f"data: {study.dataset.source}; {study.dataset.domain_source}", flush=True)
                for seed in settings.seeds:
                    study.at_seed(seed).check()
                found[name.file] = f"{study.dataset.fingerprint} {study.dataset.domain_source}"
            except DataMissing as error:
                raise Refusal(
                    f"data missing for {modality}_dataset = {name}: {error}", DATA_MISSING
                ) from None
            except ValueError as error:
                raise Refusal(f"{modality}_dataset = {name}: {error}") from None
    return found


def lock(folder: Path, patience: int = PATIENCE) -> TextIO:
    """Lock a results folder, and return the lock file. The lock lasts until this process and
    Snakemake have closed the file.

    Raises Refusal if another run holds the lock, or if the folder's disk has no locks.

    patience: the seconds to wait for another run to end.
    """
    file = (folder / ".lock").open("a+")
    for _ in range(patience):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            time.sleep(1)
            continue
        except OSError as error:
            raise Refusal(
                f"{folder} cannot be locked ({error.strerror}); set results_folder to another disk"
            ) from None
        file.truncate(0)
        print(os.getpid(), file=file, flush=True)
        return file
    file.seek(0)
    raise Refusal(
        f"another run (process {file.read().strip()}, or its Snakemake) is at work in {folder}; "
        "end it first"
    )


def run_snakemake(
    command: list[str], log: Path | None, variables: Mapping[str, str], held: TextIO
) -> int:
    """Run Snakemake and return its exit code.

    Snakemake's own lines go to `log`, or to the standard error if `log` is None. The jobs' lines of
    progress go to the standard output.

    variables: the environment of Snakemake.
    held: the lock of the results, which Snakemake inherits.
    """
    stops = {signal.SIGINT, signal.SIGTERM}
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # under nohup it stays ignored
        stops.add(signal.SIGHUP)
    for number in stops:
        signal.signal(number, signal.default_int_handler)
    with open(log or os.devnull, "wb") as chatter:
        process = subprocess.Popen(
            command,
            env=variables,
            stdin=subprocess.PIPE,  # its end tells Snakemake and its jobs that this process is gone
            stderr=chatter if log else None,
            # Only this process receives Ctrl-C; it stops Snakemake.
            start_new_session=True,
            pass_fds=[held.fileno()],
        )
        try:
            return process.wait()
        except KeyboardInterrupt:
            for number in stops:
                signal.signal(number, signal.SIG_IGN)  # Snakemake is being stopped already
            # This stops Snakemake: at the end of its input, watched.py interrupts it.
            process.stdin.close()  # type: ignore[union-attr]
            process.wait()
            raise


def check_outcome(code: int, folder: Path, outputs: list[Path], log: Path | None) -> None:
    """Raise Refusal unless Snakemake's exit code is 0.

    The message names each notebook that failed, its cell, and the last lines of its error.

    folder: the results of the profile. outputs: the executed notebooks. log: where Snakemake's
    lines went; None for its own log in `folder`.
    """
    if not code:
        return
    if is_disk_full(folder):
        raise Refusal(full_disk_message(folder), FAILED)
    told = []
    for output in outputs:
        failure = output.with_suffix(FAILURE)
        if failure.exists():
            told.append(failure.read_text(encoding="utf-8"))
    tail = []
    if log and not told:
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
    message = "\n".join([*told, *tail, f"Snakemake's log: {log or folder / '.snakemake' / 'log'}"])
    if told:
        raise Refusal(message, NOTEBOOK_FAILED)
    raise Refusal(message, BAD_ARGUMENTS if code == 2 else FAILED)


@dataclass(frozen=True)
class Place:
    """The place where jobs run: Snakemake's options, environment variables, and its name."""

    options: tuple[str, ...]
    variables: Mapping[str, str]
    said: str


def place(options: argparse.Namespace, settings: Settings, caller: Path) -> Place:
    """Return the place where the jobs run. Raises Refusal if this machine lacks the device, or if
    the cluster has no folder.
    """
    if options.cluster:
        return _cluster(options, settings, caller)
    try:
        device = choose_device(settings.device)
    except ValueError as error:
        raise Refusal(
            f"{error}; --set device=auto takes what there is, --cluster runs the jobs elsewhere"
        ) from None
    gpus = []
    if device != "cpu":
        all_of_them = ",".join(map(str, range(torch.cuda.device_count())))
        gpus = (os.environ.get("CUDA_VISIBLE_DEVICES") or all_of_them).split(",")
    count = options.jobs or len(gpus) or min(2, os.cpu_count() or 1)
    names = itertools.islice(itertools.cycle(gpus), count)  # a GPU per slot
    variables = os.environ | {
        "CASCADETTA_RUNNER": "1",
        "CASCADETTA_GPUS": ",".join(names),
    }
    return Place(("--cores", str(count)), variables, f"{count} at a time")


def _cluster(options: argparse.Namespace, settings: Settings, caller: Path) -> Place:
    """Return the cluster as a place. Its jobs do not inherit this machine's settings of threads and
    GPUs.
    """
    for folder in (ROOT / "profiles" / options.cluster, caller / options.cluster):
        if folder.is_dir():
            break
    else:
        raise Refusal(
            f"--cluster {options.cluster}: allowed is slurm, or a folder with Snakemake's "
            "config.yaml"
        )
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(OF_THIS_MACHINE)
    }
    jobs = ("--jobs", str(options.jobs)) if options.jobs else ()
    said = f"by {folder}"
    if settings.device == "auto":
        said += ", on CPUs (to ask for a GPU per job, set device=cuda)"
    return Place(("--workflow-profile", str(folder), *jobs), variables, said)


def run(options: argparse.Namespace, settings: Settings, folder_of_notebooks: Path) -> None:
    """Check everything, run the jobs, and write the pages. Raises Refusal if any of it fails."""
    caller = Path.cwd()
    file = Path(read_profile(options.profile)[1]).resolve()
    jobs = make_jobs(folder_of_notebooks, flat(settings))
    names = {job.notebook for job in jobs.values()}
    check_notebooks("figures_notebooks:", settings.figures_notebooks, names)
    if options.only:
        jobs = {name: job for name, job in jobs.items() if job.notebook in options.only}
    os.chdir(ROOT)
    folder = settings.results_path.resolve() / settings.profile
    outputs = [folder / "notebooks" / f"{name}.ipynb" for name in jobs]
    outputs[0].parent.mkdir(parents=True, exist_ok=True)
    held = lock(folder)
    claim(folder, file)
    where = place(options, settings, caller)
    again = _again(options, jobs, folder, settings.results_path / "runs")
    if options.dry_run:
        left = unfinished([*write_plan(settings, jobs, folder, {}), *again], jobs, folder)
        for name in jobs:
            print("to do " if name in left else "done  ", name)
        print(f"\n{stored(settings.results_path)}", flush=True)
        return
    data = check_datasets(settings, {axis for job in jobs.values() for axis in job.axes})
    arguments = [*write_plan(settings, jobs, folder, data), *again]
    command = [sys.executable, "-P", str(WATCHED), "snakemake", *arguments]
    for output in outputs:  # remove what failed or killed executions left
        output.with_suffix(PARTIAL).unlink(missing_ok=True)
        output.with_suffix(FAILURE).unlink(missing_ok=True)
    print(f"profile {settings.profile}: {len(jobs)} jobs, {where.said}", flush=True)
    start = time.time()
    log = None if options.snakemake else folder / "snakemake.log"
    command += [*where.options, *options.snakemake]
    code = run_snakemake(command, log, where.variables, held)
    check_outcome(code, folder, outputs, log)
    made = [path for path in outputs if path.exists() and path.stat().st_mtime >= start]
    if options.snakemake and not made:  # Snakemake did something else, such as -- --dry-run
        return
    _save_pages(settings, jobs, outputs)
    if not made:
        print("nothing to do: all notebooks are up to date (--force NAME runs one again)")
    has_report = any(job.report for job in jobs.values())
    shown = folder / ("report.html" if has_report else "notebooks")
    print(f"{shown.stem}: {shown.relative_to(caller) if shown.is_relative_to(caller) else shown}")


def _again(
    options: argparse.Namespace, jobs: Mapping[str, Job], folder: Path, runs: Path
) -> list[str]:
    """Return Snakemake's options for the jobs to run again."""
    late = outdated_reports(jobs, folder, runs)
    forced = [
        f"notebooks/{name}.ipynb"
        for name, job in jobs.items()
        if job.notebook in options.force or name in late
    ]
    return ["--forcerun", *forced] if forced else []


def stored(results: Path) -> str:
    """Return a text that says how many networks and runs, of any profile, a results folder holds.

    A job loads the stored results that it needs.
    """
    counts = [len(list((results / kind).glob("*/entry.json"))) for kind in ("checkpoints", "runs")]
    return f"stored in {results}: {counts[0]} networks, {counts[1]} runs"


def _save_pages(settings: Settings, jobs: Mapping[str, Job], outputs: list[Path]) -> None:
    """Write the pages for GitHub that the profile asks for."""
    if not settings.figures_notebooks:
        return
    from study.workflow.pages import write_markdown  # here, because its import takes a second

    for name in settings.figures_notebooks:
        there = [path for path in outputs if jobs[path.stem].notebook == name and path.exists()]
        if there:
            last = max(there, key=lambda path: path.stat().st_mtime)  # it saw the runs of all seeds
            write_markdown(last, settings.figures_path / f"{name}.md")
