"""The jobs of a profile, handed to Snakemake: one run a results folder, and an end that leaves nothing half done."""

import argparse
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TextIO

import torch
import yaml

from cascadetta_lib.settings import Settings, flat
from workflow.execute import failure_path
from workflow.notebooks import Job
from workflow.options import BAD_ARGUMENTS, FAILED, NOTEBOOK_FAILED, ROOT, STOPPED, Refusal


def _lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def only_run(folder: Path) -> Iterator[TextIO]:
    """Be the only run in a results folder; yields the lock that Snakemake holds on to as well.

    The locks end with the processes that hold them, however those end. What a killed run leaves behind is Snakemake,
    for some seconds, until it sees that its jobs are gone.
    """
    with (folder / ".lock").open("a+") as own, (folder / ".snakemake.lock").open("a") as shared:
        own.seek(0)
        if not _lock(own):
            raise Refusal(f"another run ({own.read()}) is at work in {folder}; wait for it or end it")
        own.truncate(0)
        own.write(f"process {os.getpid()} on {socket.gethostname()}")
        own.flush()
        end = time.monotonic() + 30
        while not _lock(shared):
            if time.monotonic() > end:
                raise Refusal(f"a Snakemake of a killed run is still at work in {folder}; end it")
            time.sleep(0.5)
        yield shared


def write_plan(settings: Settings, jobs: Mapping[str, Job], selected: Mapping[str, Job], folder: Path) -> Path:
    """The profile as it was resolved, which the notebooks name, and what the Snakefile reads: `selected`, after those
    of all `jobs` that are selected too or done already."""

    profile = folder / "profile.yaml"
    profile.write_text(yaml.safe_dump(flat(settings), sort_keys=False, allow_unicode=True), encoding="utf-8")
    source = folder / ".notebooks"  # braces in a path would be Snakemake's wildcards, so it sees none but ours
    source.unlink(missing_ok=True)
    source.symlink_to(next(iter(jobs.values())).notebook.path.parent)
    done = {name for name in jobs if (folder / "notebooks" / f"{name}.ipynb").exists()}
    plan = {
        name: {
            "notebook": job.notebook.name,
            "path": f"{source.name}/{job.notebook.path.name}",
            "report": job.notebook.report,
            "parameters": job.parameters | {"profile": str(profile)},
            "after": [other for other in job.after if other in selected or other in done],
        }
        for name, job in selected.items()
    }
    path = folder / "plan.json"
    path.write_text(json.dumps({"jobs": plan}, indent=1), encoding="utf-8")
    return path


def snakemake_command(options: argparse.Namespace, plan: Path) -> list[str]:
    """The command that runs `plan`. Snakemake's lock is not used: ours does not outlive a kill."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "workflow" / "Snakefile")]
    command += ["--directory", str(plan.parent), "--configfile", str(plan), "--cores", str(options.jobs)]
    command += ["--nolock", "--rerun-incomplete", "--rerun-triggers", "mtime", "params"]
    if options.force:
        command += ["--forcerun", *(f"notebook_{name}" for name in options.force)]
    return command + options.snakemake


def gpus() -> list[str]:
    """The GPUs that this process may use, by the names that CUDA_VISIBLE_DEVICES gives them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return named if named[0] else [str(number) for number in range(torch.cuda.device_count())]


def run_snakemake(options: argparse.Namespace, command: list[str], log: Path | None, lock: TextIO) -> int:
    """Snakemake's exit code. Its chatter goes to `log`; the jobs' own lines of progress are on the standard output."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    environment = os.environ | {"CASCADETTA_RUNNER": "1"}
    if options.jobs > 1 and len(gpus()) > 1:
        environment |= {"CASCADETTA_GPUS": ",".join(gpus()), "CASCADETTA_JOBS": str(options.jobs)}
    with open(log or os.devnull, "wb") as chatter:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,  # its end tells the jobs that this process is gone
            stderr=chatter if log else None,
            start_new_session=True,  # Ctrl-C comes here alone, and one place decides how all of it ends
            pass_fds=[lock.fileno()],
        )
        try:
            return process.wait()
        except KeyboardInterrupt:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)  # it is being stopped already
            stop(process)
            raise Refusal("stopped; the same command goes on from here", STOPPED) from None


def stop(process: subprocess.Popen[bytes]) -> None:
    """End Snakemake and its jobs, who remove what is unfinished."""
    for number, seconds in ((signal.SIGTERM, 20), (signal.SIGKILL, 5)):
        try:
            os.killpg(process.pid, number)
            process.wait(seconds)
            return
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            return


def relative(path: Path, caller: Path) -> str:
    """`path` as the caller would write it."""
    return str(path.relative_to(caller)) if path.is_relative_to(caller) else str(path)


def check_outcome(code: int, jobs: Mapping[str, Job], folder: Path, log: Path | None, caller: Path) -> None:
    """Refusal if Snakemake ended with anything but 0: each notebook that failed, its cell, the error's last lines."""
    if code == 0:
        return
    if shutil.disk_usage(folder).free < 2**20:
        raise Refusal(f"the disk that holds {folder} is full; with space, the same command goes on from here", FAILED)
    texts = []
    for path in (failure_path(folder / "notebooks" / f"{name}.ipynb") for name in jobs):
        if path.exists() and path.stat().st_size:
            told = json.loads(path.read_text(encoding="utf-8"))
            notebook, partial = (relative(Path(told[key]), caller) for key in ("notebook", "partial"))
            lines = [f"{path.name.partition('.')[0]} failed", f"  notebook: {notebook}", f"  cell: {told['cell']}"]
            lines += ["  error:", *(f"    {line}" for line in told["error"]), f"  as far as it came: {partial}"]
            texts.append("\n".join(lines))
    logs = sorted((folder / ".snakemake" / "log").glob("*"), key=lambda path: path.stat().st_mtime)
    where = f"Snakemake's log: {relative(log or (logs[-1] if logs else folder), caller)}"
    if texts:
        raise Refusal("\n".join([*texts, where]), NOTEBOOK_FAILED)
    tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:] if log else []
    raise Refusal("\n".join([f"Snakemake failed ({code})", *tail, where]), BAD_ARGUMENTS if code == 2 else FAILED)


def list_jobs(command: list[str], jobs: Mapping[str, Job]) -> None:
    """Print each job and whether it would run, as Snakemake sees it."""
    listed = subprocess.run([*command, "--dry-run", "--quiet", "rules", "--summary"], capture_output=True, text=True)
    if listed.returncode:
        raise Refusal(f"Snakemake failed\n{listed.stderr}{listed.stdout}", FAILED)
    plans = {row[0]: row[-1] for line in listed.stdout.splitlines() if len(row := line.split("\t")) > 1}
    for name in jobs:
        done = plans.get(f"notebooks/{name}.ipynb") == "no update"
        print(f"{'done ' if done else 'to do'}  {name}")
