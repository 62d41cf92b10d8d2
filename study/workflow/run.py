"""A run of the study: all is checked, then Snakemake runs the jobs, and the end leaves nothing half
done.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TextIO, get_args

import torch
import yaml

from cascadetta_lib.data.base import DataMissing, Modality, write_atomically
from cascadetta_lib.registry import nearest
from cascadetta_lib.training.objectives import Training
from study.provenance import choose_device
from study.sections import NETWORKS
from study.settings import Settings, SettingsError, flat, load_profile, parse_yaml
from study.study import Study
from study.workflow.command import (
    BAD_ARGUMENTS,
    DATA_MISSING,
    FAILED,
    NOTEBOOK_FAILED,
    ROOT,
    Refusal,
    from_folder,
)
from study.workflow.estimate import estimate
from study.workflow.execute import FAILURE, PARTIAL
from study.workflow.notebooks import make_jobs, outdated_reports, slug

PLACES = ("seeds", "device", "data_folder", "results_folder", "figures_folder", "figures_notebooks")
"""What gives a job's results no other place: they are the same numbers, or more of them. Another
first seed does.
"""
TRAINED = {"trial_epochs", "trial_train_size"}.union(
    Training.model_fields, *(kind.model_fields for kind in NETWORKS.values())
)
"""Parameters, without the modality, that say something of networks that are trained here alone."""
OF_THIS_MACHINE = ("CASCADETTA_", "CUDA_VISIBLE_DEVICES", "OMP_", "MKL_")
"""Names of environment variables that a cluster's jobs do not inherit."""
PATIENCE = 20
"""Seconds in which what a killed run leaves behind sees that it was, and ends."""


def load_settings(options: argparse.Namespace, caller: Path) -> Settings:
    """The profile with the command line's values. What these change is run under a label of its
    own, so that no result of the profile itself is replaced. Refusal if anything cannot be used."""
    changes: dict[str, Any] = {}
    for pair in ([f"seeds=[{options.seeds}]"] if options.seeds is not None else []) + options.set:
        name, equals, text = pair.partition("=")
        try:
            if not equals:
                raise ValueError("allowed is NAME=VALUE, such as image_epochs=2")
            if name == "seed" or name in changes:
                raise ValueError(
                    "it is given twice"
                    if name in changes
                    else "each job has its own seed; use --seeds"
                )
            changes[name] = from_folder(name, parse_yaml(text), caller)
        except (ValueError, RuntimeError) as error:
            raise Refusal(f"--set {pair[:200]}: {error}") from None
    try:
        settings, plain = load_profile(options.profile, changes), load_profile(options.profile)
        own, first = (
            flat(plain),
            {"seeds": settings.seeds[:1]} if settings.seeds[:1] != plain.seeds[:1] else {},
        )
        changed = {
            name: new
            for name, new in flat(settings).items()
            if new != own[name] and name not in PLACES
        }
        if changed := changed | first:
            digest = hashlib.sha256(json.dumps(changed).encode()).hexdigest()[:6]
            own = {"figures_folder": "", "profile": f"{settings.profile}-{digest}"}
            settings = load_profile(options.profile, own | changes)
    except SettingsError as error:
        raise Refusal(str(error)) from None
    for name in changed:
        modality, _, field = name.partition("_")
        if field in TRAINED and (weights := flat(settings)[f"{modality}_weights"]) != "train":
            does = (
                f"no network is trained where {modality}_weights = {weights}, so it would "
                "change nothing"
            )
            raise Refusal(f"--set {name}={changed[name]}: {does}")
    return settings


def check_data(settings: Settings, axes: set[str]) -> dict[str, str]:
    """Load every dataset of `axes` once, so that nothing starts without its data, networks or
    domains. What stands for the content of each, by its slug."""
    found = {}
    for modality in get_args(Modality):
        for name in settings.datasets(modality) if f"{modality}_dataset" in axes else ():
            try:
                study = Study(
                    settings.vary(modality, {"dataset": name}).model_copy(update={"device": "cpu"}),
                    modality,
                )
                print(f"data: {study.dataset.source}; {study.dataset.domain_source}", flush=True)
                for seed in settings.seeds:
                    study.at_seed(seed).check()
                found[slug(name)] = f"{study.dataset.fingerprint} {study.dataset.domain_source}"
            except DataMissing as error:
                raise Refusal(
                    f"data missing for {modality}_dataset = {name}: {error}", DATA_MISSING
                ) from None
            except ValueError as error:
                raise Refusal(f"{modality}_dataset = {name}: {error}") from None
    return found


def lock(folder: Path) -> TextIO:
    """Be the only run in a results folder while this process, or the Snakemake that it started,
    holds the result.
    """
    file = (folder / ".lock").open("a+")
    for _ in range(PATIENCE):
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
    command: list[str], log: Path | None, variables: dict[str, str], held: TextIO
) -> int:
    """Snakemake's exit code. Its chatter goes to `log`; the jobs' own lines of progress are on the
    standard output.
    """
    hang_up = (
        {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN else set()
    )  # nohup ignores it
    stops = {signal.SIGINT, signal.SIGTERM} | hang_up
    for number in stops:
        signal.signal(number, signal.default_int_handler)
    with open(log or os.devnull, "wb") as chatter:
        process = subprocess.Popen(
            command,
            env=variables,
            stdin=subprocess.PIPE,  # its end tells the jobs that this process is gone
            stderr=chatter if log else None,
            # Ctrl-C comes here alone, and one place decides how all of it ends
            start_new_session=True,
            pass_fds=[held.fileno()],
        )
        try:
            return process.wait()
        except KeyboardInterrupt:
            for number in stops:
                signal.signal(number, signal.SIG_IGN)  # it is being stopped already
            process.stdin.close()  # type: ignore[union-attr]
            process.send_signal(signal.SIGINT)
            process.wait()
            raise


def check_outcome(code: int, outputs: list[Path], log: Path | None) -> None:
    """Refusal if Snakemake ended with anything but 0: each notebook that failed, its cell, the
    error's last lines.
    """
    folder = outputs[0].parents[2]
    if code and shutil.disk_usage(folder).free < 2**20:
        raise Refusal(
            f"the disk that holds {folder} is full; with space, the same command goes on from here",
            FAILED,
        )
    told = [
        path.read_text(encoding="utf-8")
        for output in outputs
        if (path := output.with_suffix(FAILURE)).exists()
    ]
    tail = (
        log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
        if log and not told
        else []
    )
    lines = [*told, *tail, f"Snakemake's log: {log or folder / '.snakemake' / 'log'}"]
    if code:
        raise Refusal(
            "\n".join(lines), NOTEBOOK_FAILED if told else BAD_ARGUMENTS if code == 2 else FAILED
        )


def unfinished(command: list[str], jobs: list[str]) -> list[str]:
    """Those of the jobs that would run, as Snakemake sees it."""
    listed = subprocess.run([*command, "--dry-run", "--summary"], capture_output=True, text=True)
    if listed.returncode:
        raise Refusal(f"Snakemake failed\n{listed.stderr}{listed.stdout}", FAILED)
    done = [
        line.partition("\t")[0]
        for line in listed.stdout.splitlines()
        if line.endswith("\tno update")
    ]
    return [name for name in jobs if f"notebooks/{name}.ipynb" not in done]


def write_plan(
    settings: Settings, jobs: dict[str, Any], folder: Path, data: dict[str, str]
) -> list[str]:
    """Write the profile as it was resolved, which the notebooks name, and the jobs, which the
    Snakefile reads; the command that runs them. A job is done again if what stands for its dataset
    in `data` has changed, or the seed at which the exhibits choose. Snakemake's own lock is not
    used: ours does not outlive a kill."""
    profile, plan = folder / "profile.yaml", folder / "plan.json"
    if plan.exists():  # a dry run reads no data, and a run of a few notebooks only theirs
        data = json.loads(plan.read_text(encoding="utf-8")).get("data", {}) | data
    profile.write_text(
        yaml.safe_dump(flat(settings), sort_keys=False, allow_unicode=True), encoding="utf-8"
    )
    for job in jobs.values():
        job["parameters"]["profile"] = str(profile)
        names = map(slug, job["axes"].values())
        job["stands_on"] = [
            settings.seeds[0],
            *(data[name] for name in names if name in data),
            *job["networks"],
        ]
        there = (folder / "notebooks" / f"{name}.ipynb" for name in job["after"])
        job["after"] = [path.stem for path in there if path.stem in jobs or path.exists()]
    text = json.dumps({"jobs": jobs, "data": data}, indent=1)
    write_atomically(plan, lambda file: file.write(text.encode()))
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--snakefile",
        str(ROOT / "study" / "workflow" / "Snakefile"),
        "--nolock",
    ]
    command += ["--directory", str(folder), "--configfile", str(plan)]
    return [*command, "--rerun-incomplete", "--rerun-triggers", "mtime", "params"]


def place(
    options: argparse.Namespace, settings: Settings, caller: Path
) -> tuple[list[str], dict[str, str], str]:
    """Where the jobs run: options of Snakemake, environment variables, and how to say it. Refusal
    if that lacks the device. A cluster's jobs are told nothing of the threads and GPUs of the
    machine that submits them."""
    if options.cluster:
        folder = next(
            filter(Path.is_dir, (ROOT / "profiles" / options.cluster, caller / options.cluster)),
            None,
        )
        if not folder:
            raise Refusal(
                f"--cluster {options.cluster}: allowed is slurm, or a folder with Snakemake's "
                "config.yaml"
            )
        variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(OF_THIS_MACHINE)
        }
        jobs = ["--jobs", str(options.jobs)] if options.jobs else []
        return ["--workflow-profile", str(folder), *jobs], variables, f"by {folder}"
    try:
        device = choose_device(settings.device)
    except ValueError as error:
        raise Refusal(
            f"{error}; --set device=auto takes what there is, --cluster runs the jobs elsewhere"
        ) from None
    named = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(
        map(str, range(torch.cuda.device_count()))
    )
    gpus = [] if device == "cpu" else named.split(",")
    count = options.jobs or len(gpus) or min(2, os.cpu_count() or 1)
    variables = os.environ | {
        "CASCADETTA_RUNNER": "1",
        "CASCADETTA_GPUS": ",".join((gpus * count)[:count]),
    }
    return ["--cores", str(count)], variables, f"{count} at a time"


def run(options: argparse.Namespace, folder_of_notebooks: Path) -> None:
    """Check everything, then run it; Refusal says what went wrong."""
    caller = Path.cwd()
    settings = load_settings(options, caller)
    jobs = make_jobs(folder_of_notebooks, flat(settings))
    notebooks = {job["notebook"] for job in jobs.values()}
    chosen = set(options.only) or notebooks
    asked = {"--only": (options.only, notebooks), "--force": (options.force, chosen)}
    for option, (names, known) in (
        asked | {"figures_notebooks:": (settings.figures_notebooks, notebooks)}
    ).items():
        for name in names:
            if name not in known:
                raise Refusal(f"{option} {name}: no such notebook; {nearest(name, known)}")
    jobs = {name: job for name, job in jobs.items() if job["notebook"] in chosen}
    os.chdir(ROOT)
    folder = settings.results_path.resolve() / settings.profile
    outputs = [folder / "notebooks" / f"{name}.ipynb" for name in jobs]
    outputs[0].parent.mkdir(parents=True, exist_ok=True)
    held = lock(folder)
    late = outdated_reports(jobs, folder, settings.results_path / "runs")
    forced = [
        f"notebooks/{name}.ipynb"
        for name in jobs
        if jobs[name]["notebook"] in options.force or name in late
    ]
    again = ["--forcerun", *forced] if forced else []
    if options.dry_run:
        left = unfinished([*write_plan(settings, jobs, folder, {}), *again], list(jobs))
        print(*(f"{'to do' if name in left else 'done '}  {name}" for name in jobs), sep="\n")
        print("", *(estimate(jobs, left, settings) if left else ()), sep="\n", flush=True)
        place(options, settings, caller)
        return
    where, variables, said = place(options, settings, caller)
    data = check_data(settings, {axis for job in jobs.values() for axis in job["axes"]})
    command = [*write_plan(settings, jobs, folder, data), *again]
    for output in outputs:  # what failed or killed executions left
        output.with_suffix(PARTIAL).unlink(missing_ok=True)
        output.with_suffix(FAILURE).unlink(missing_ok=True)
    print(f"profile {settings.profile}: {len(jobs)} jobs, {said}", flush=True)
    start, log = time.time(), None if options.snakemake else folder / "snakemake.log"
    check_outcome(
        run_snakemake([*command, *where, *options.snakemake], log, variables, held), outputs, log
    )
    made = [path for path in outputs if path.exists() and path.stat().st_mtime >= start]
    if options.snakemake and not made:  # it was asked for something else, such as -- --dry-run
        return
    for name in settings.figures_notebooks:
        from study.workflow.pages import write_markdown  # its import takes a second

        if there := [
            path for path in outputs if jobs[path.stem]["notebook"] == name and path.exists()
        ]:
            last = max(there, key=lambda path: path.stat().st_mtime)  # it saw the runs of all seeds
            write_markdown(last, settings.figures_path / f"{name}.md")
    if not made:
        print("nothing to do, all of it was done before (--force NAME executes a notebook again)")
    shown = folder / ("report.html" if any(job["report"] for job in jobs.values()) else "notebooks")
    print(f"{shown.stem}: {shown.relative_to(caller) if shown.is_relative_to(caller) else shown}")
