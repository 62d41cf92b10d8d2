"""The command line of the study: checks everything, then hands the jobs to Snakemake. `run_all.sh` calls it."""

import argparse
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for the imports inside functions; torch must not be loaded to print the help

if TYPE_CHECKING:
    from cascadetta_lib.settings import Settings
    from workflow.notebooks import Job, Notebook

DONE, FAILED, BAD_ARGUMENTS, DATA_MISSING, NOTEBOOK_FAILED, STOPPED = 0, 1, 2, 3, 4, 130

EPILOG = """\
What stands after -- goes to Snakemake, for a cluster say, and Snakemake then speaks for itself:
  ./run_all.sh --profile paper -- --executor slurm --jobs 20

./run_all.sh test makes the tests' environment and runs all tests; options go to pytest:
  ./run_all.sh test -k workflow

Exit codes: 0 done; 2 bad arguments or configuration; 3 data missing; 4 a notebook failed; 130 stopped.

What is finished is kept: the same command goes on after Ctrl-C, a kill or a failure.
results/PROFILE holds report.html and the executed notebooks; results/checkpoints and results/runs what they stored.
"""


class Refusal(Exception):
    """The run cannot start or did not end well: what to say and the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Parser(argparse.ArgumentParser):
    """An argument parser that names the nearest option for a wrong one."""

    def parse_all(self, arguments: Sequence[str]) -> argparse.Namespace:
        options, unknown = self.parse_known_args(arguments)
        if unknown:
            from cascadetta_lib.registry import nearest

            known = [name for name in self._option_string_actions if name.startswith("--")]
            self.error(f"{unknown[0]} is no argument; {nearest(unknown[0], known)}")
        return options


def make_parser() -> Parser:
    """All options, each with an example."""
    parser = Parser(
        prog="./run_all.sh",
        usage="%(prog)s [OPTIONS] [-- SNAKEMAKE OPTIONS]\n       %(prog)s test [PYTEST OPTIONS]",
        description="Make the environment once, execute the notebooks with a profile, write the report.",
        epilog=EPILOG,
        formatter_class=argparse.RawTextHelpFormatter,
        allow_abbrev=False,
    )

    def add(name: str, about: str, example: str, **rest: Any) -> None:
        parser.add_argument(name, help=f"{about}\n  {example}", **rest)

    many = {"nargs": "+", "action": "extend"}
    add("--profile", "quick (the default), laptop, paper, or a YAML file", "--profile mine.yaml", default="quick")
    add("--only", "only these notebooks", "--only 01_pretrain 02_adapt_image", metavar="NAME", **many)
    add("--seeds", "these seeds instead of the profile's, a job each", "--seeds 0,1,2", type=_seeds, metavar="LIST")
    add(
        "--set",
        "values instead of the profile's, in YAML; what they change is run again",
        "--set image_epochs=2 'image_methods=[erm, cascade]'",
        type=_pair,
        metavar="NAME=VALUE",
        default=[],
        **many,
    )
    add("--jobs", "N notebooks at a time (one a GPU; without one, two)", "--jobs 4", type=_count, metavar="N")
    add("--dry-run", "list the jobs and start none", "--profile paper --dry-run", action="store_true")
    add(
        "--force",
        "execute these and what follows from them again (stored results are still used)",
        "--force 02_adapt_image",
        metavar="NAME",
        default=[],
        **many,
    )
    return parser


def _seeds(text: str) -> list[int]:
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of different whole numbers from 0 on, such as 0,1,2")
    return seeds


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, such as image_epochs=2")
    return name, value


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options; what stands after `--` is `snakemake`."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = make_parser()
    options = parser.parse_all(arguments[:cut])
    options.snakemake = list(arguments[cut + 1 :])
    return options


def _from_folder(name: str, value: Any, folder: Path) -> Any:
    """`value` with the relative paths in it (npz:FOLDER, and names ending in _folder) taken from `folder`."""
    if isinstance(value, list):
        return [_from_folder(name, item, folder) for item in value]
    if isinstance(value, str) and name.endswith("_dataset") and ":" in value:
        kind, _, path = value.partition(":")
        return f"{kind}:{folder / Path(path).expanduser()}" if path else value
    if isinstance(value, str) and name.endswith("_folder"):
        return str(folder / Path(value).expanduser())
    return value


def overrides(options: argparse.Namespace, caller: Path) -> dict[str, str]:
    """What --set and --seeds say, as YAML text by name; relative paths are relative to the caller's folder."""
    import yaml

    texts = dict(options.set)
    for name, text in texts.items():
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            continue  # load_profile tells
        if (resolved := _from_folder(name, value, caller)) != value:
            texts[name] = json.dumps(resolved)
    if options.seeds:
        texts["seeds"] = json.dumps(options.seeds)
    return texts


def load_settings(options: argparse.Namespace, caller: Path) -> "Settings":
    """The profile with the command line's values; Refusal if anything in it cannot be used."""
    from cascadetta_lib.settings import SettingsError, load_profile

    try:
        settings = load_profile(options.profile, overrides(options, caller))
    except SettingsError as error:
        raise Refusal(str(error), BAD_ARGUMENTS) from None
    if Path(settings.profile).name != settings.profile or settings.profile in ("", ".", ".."):
        raise Refusal(f"profile = {settings.profile!r}: it names a folder in results, without slashes", BAD_ARGUMENTS)
    return settings


def load_notebooks(folder: Path) -> "dict[str, Notebook]":
    """All notebooks, their parameters checked."""
    from cascadetta_lib.settings import Settings
    from workflow.notebooks import NotebookError, find_notebooks

    try:
        return find_notebooks(folder, Settings.model_fields)
    except NotebookError as error:
        raise Refusal(str(error), BAD_ARGUMENTS) from None


def check_names(option: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Refusal for the first of `names` that is none of `known`."""
    from cascadetta_lib.registry import nearest

    for name in names:
        if name not in known:
            raise Refusal(f"{option} {name}: no such notebook; {nearest(name, known)}", BAD_ARGUMENTS)


def check_data(settings: "Settings", notebooks: "Sequence[Notebook]") -> None:
    """Load every dataset that `notebooks` work on once, so that nothing starts without its data, device or domains."""
    from cascadetta_lib.data.base import DataMissing
    from cascadetta_lib.study import Study, choose_device

    for axis in ("image_dataset", "text_dataset", "speech_dataset"):
        if not any(axis in notebook.axes for notebook in notebooks):
            continue
        modality: Any = axis.partition("_")[0]
        for name in settings.datasets(modality):
            try:
                choose_device(settings.device)
                study = Study(settings.model_copy(update={axis: name, "device": "cpu"}), modality)
                print(f"data: {study.dataset.source}, {len(study.stream)} domains", flush=True)
                study.check_batches()
            except DataMissing as error:
                raise Refusal(f"data missing for {axis} = {name}: {error}", DATA_MISSING) from None
            except ValueError as error:
                raise Refusal(f"{axis} = {name}: {error}", BAD_ARGUMENTS) from None


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
            message = f"another run ({own.read()}) is at work in {folder}; wait for it or end it"
            raise Refusal(message, BAD_ARGUMENTS)
        own.truncate(0)
        own.write(f"process {os.getpid()} on {socket.gethostname()}")
        own.flush()
        end = time.monotonic() + 30
        while not _lock(shared):
            if time.monotonic() > end:
                raise Refusal(f"a Snakemake of a killed run is still at work in {folder}; end it", BAD_ARGUMENTS)
            time.sleep(0.5)
        yield shared


def write_plan(jobs: "Mapping[str, Job]", selected: "Mapping[str, Job]", folder: Path) -> Path:
    """What the Snakefile reads: `selected`, after those of all `jobs` that are selected too or done already."""
    from workflow.notebooks import REPORT

    done = {name for name in jobs if (folder / "notebooks" / f"{name}.ipynb").exists()}
    plan = {
        name: {
            "notebook": job.notebook.name,
            "path": str(job.notebook.path),
            "parameters": job.parameters,
            "after": [other for other in job.after if other in selected or other in done],
        }
        for name, job in selected.items()
    }
    path = folder / "plan.json"
    path.write_text(json.dumps({"jobs": plan, "report": REPORT}, indent=1), encoding="utf-8")
    return path


def snakemake_command(options: argparse.Namespace, plan: Path) -> list[str]:
    """The command that runs `plan`. Its lock is not used: ours does not outlive a kill."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "workflow" / "Snakefile")]
    command += ["--directory", str(plan.parent), "--configfile", str(plan), "--cores", str(options.jobs)]
    command += ["--nolock", "--rerun-incomplete", "--rerun-triggers", "mtime", "params"]
    if options.force:
        command += ["--forcerun", *(f"notebook_{name}" for name in options.force)]
    return command + options.snakemake


def default_jobs() -> int:
    """A job for each GPU; without one, two where there are two cores, of which small batches would leave one idle."""
    import torch

    return torch.cuda.device_count() or min(2, os.cpu_count() or 1)


def job_environment(jobs: int) -> dict[str, str]:
    """The environment of the jobs: who started them, and their share of the cores and GPUs."""
    import torch

    environment = os.environ | {"CASCADETTA_RUNNER": "1"}
    # glibc gives large blocks back to the system at once and has new ones cleared: a meta step of the text network,
    # whose first layer fills 20 MB a copy, takes 1.4 times as long without these two. Elsewhere they mean nothing.
    environment.setdefault("MALLOC_MMAP_THRESHOLD_", str(2**30))
    environment.setdefault("MALLOC_TRIM_THRESHOLD_", str(2**32))
    if jobs > 1:
        environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // jobs)))
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
        if "," in gpus:
            environment |= {"CASCADETTA_GPUS": gpus, "CASCADETTA_JOBS": str(jobs)}
    return environment


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


def run_snakemake(command: list[str], environment: Mapping[str, str], log: Path | None, lock: TextIO) -> int:
    """Snakemake's exit code. Its chatter goes to `log`; the jobs' own lines of progress are on the standard output."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
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
            stop(process)
            raise Refusal("stopped; the same command goes on from here", STOPPED) from None


def relative(path: Path, caller: Path) -> str:
    """`path` as the caller would write it."""
    return str(path.relative_to(caller)) if path.is_relative_to(caller) else str(path)


def describe_failures(jobs: "Mapping[str, Job]", folder: Path, caller: Path) -> list[str]:
    """For each notebook that failed: its name, the cell, the error's last lines, where it can be read."""
    from workflow.execute import failure_path

    texts = []
    for name in jobs:
        path = failure_path(folder / "notebooks" / f"{name}.ipynb")
        if path.exists():
            told = json.loads(path.read_text(encoding="utf-8"))
            notebook, partial = (relative(Path(told[key]), caller) for key in ("notebook", "partial"))
            lines = [f"{name} failed", f"  notebook: {notebook}", f"  cell: {told['cell']}", "  error:"]
            lines += [f"    {line}" for line in told["error"]]
            texts.append("\n".join([*lines, f"  as far as it came: {partial}"]))
    return texts


def check_outcome(code: int, jobs: "Mapping[str, Job]", folder: Path, log: Path | None, caller: Path) -> None:
    """Refusal if Snakemake ended with anything but 0."""
    if code == 0:
        return
    logs = sorted((folder / ".snakemake" / "log").glob("*"), key=lambda path: path.stat().st_mtime)
    where = f"Snakemake's log: {relative(log or (logs[-1] if logs else folder), caller)}"
    if failures := describe_failures(jobs, folder, caller):
        raise Refusal("\n".join([*failures, where]), NOTEBOOK_FAILED)
    tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:] if log else []
    raise Refusal("\n".join([f"Snakemake failed ({code})", *tail, where]), BAD_ARGUMENTS if code == 2 else FAILED)


def clear_leftovers(jobs: "Mapping[str, Job]", folder: Path) -> None:
    """Remove what failed or killed executions of these jobs left."""
    from workflow.execute import failure_path, partial_path

    for name in jobs:
        output = folder / "notebooks" / f"{name}.ipynb"
        partial_path(output).unlink(missing_ok=True)
        failure_path(output).unlink(missing_ok=True)


def list_jobs(command: list[str], jobs: "Mapping[str, Job]", folder: Path) -> None:
    """Print each job and whether it would run, as Snakemake sees it."""
    listed = subprocess.run([*command, "--dry-run", "--quiet", "rules", "--summary"], capture_output=True, text=True)
    if listed.returncode:
        raise Refusal(f"Snakemake failed\n{listed.stderr}", FAILED)
    plans = {row[0]: row[-1] for line in listed.stdout.splitlines() if len(row := line.split("\t")) > 1}
    for name in jobs:
        done = plans.get(f"notebooks/{name}.ipynb") == "no update"
        print(f"{'done ' if done else 'to do'}  {name}")


def run(options: argparse.Namespace, caller: Path, notebooks_folder: Path) -> None:
    """Check everything, then run it; Refusal says what went wrong."""
    from workflow.notebooks import REPORT, make_jobs

    notebooks = load_notebooks(notebooks_folder)
    chosen = options.only or list(notebooks)
    check_names("--only", chosen, list(notebooks))
    check_names("--force", options.force, [name for name in notebooks if name in chosen])
    settings = load_settings(options, caller)
    os.chdir(ROOT)
    options.jobs = options.jobs or default_jobs()
    jobs = make_jobs(notebooks.values(), settings.model_dump(mode="json"))
    selected = {name: job for name, job in jobs.items() if job.notebook.name in chosen}
    folder = settings.results_path.resolve() / settings.profile
    (folder / "notebooks").mkdir(parents=True, exist_ok=True)
    with only_run(folder) as lock:
        command = snakemake_command(options, write_plan(jobs, selected, folder))
        if options.dry_run:
            list_jobs(command, selected, folder)
            return
        check_data(settings, [notebook for name, notebook in notebooks.items() if name in chosen])
        clear_leftovers(selected, folder)
        print(f"profile {settings.profile}: {len(selected)} jobs, {options.jobs} at a time", flush=True)
        start = time.time()
        log = None if options.snakemake else folder / "snakemake.log"
        code = run_snakemake(command, job_environment(options.jobs), log, lock)
        check_outcome(code, selected, folder, log, caller)
    outputs = [folder / "notebooks" / f"{name}.ipynb" for name in selected]
    if all(path.exists() and path.stat().st_mtime < start for path in outputs):
        print("nothing to do, all of it was done before (--force NAME executes a notebook again)")
    report = folder / "report.html"
    if any(name.endswith(REPORT) for name in selected) and report.exists():
        print(f"report: {relative(report, caller)}")
    else:
        print(f"notebooks: {relative(folder / 'notebooks', caller)}")


def main(arguments: Sequence[str], notebooks_folder: Path = ROOT / "notebooks") -> int:
    """Run what the command line says; the exit code."""
    caller = Path.cwd()
    options = parse(arguments)
    try:
        run(options, caller, notebooks_folder)
    except Refusal as refusal:
        print(f"run_all.sh: {refusal}", file=sys.stderr)
        return refusal.code
    except KeyboardInterrupt:
        print("run_all.sh: stopped before anything began", file=sys.stderr)
        return STOPPED
    return DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
