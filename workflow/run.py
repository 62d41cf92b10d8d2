"""The study from the command line: everything is checked, then the jobs start. `run_all.sh` calls it."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from workflow.options import BAD_ARGUMENTS, DONE, ROOT, STOPPED, Refusal, parse


def run(options: argparse.Namespace, caller: Path, notebooks_folder: Path) -> None:
    """Check everything, then run it; Refusal says what went wrong."""
    from cascadetta_lib.settings import PARAMETERS, flat
    from workflow import checks, launch
    from workflow.execute import failure_path, partial_path
    from workflow.notebooks import find_notebooks, make_jobs

    notebooks = find_notebooks(notebooks_folder, PARAMETERS)
    chosen = options.only or list(notebooks)
    checks.check_names("--only", chosen, list(notebooks))
    checks.check_names("--force", options.force, [name for name in notebooks if name in chosen])
    settings = checks.load_settings(options, caller)
    os.chdir(ROOT)
    options.jobs = options.jobs or len(launch.gpus()) or min(2, os.cpu_count() or 1)
    jobs = make_jobs(notebooks.values(), flat(settings))
    selected = {name: job for name, job in jobs.items() if job.notebook.name in chosen}
    folder = settings.results_path.resolve() / settings.profile
    outputs = [folder / "notebooks" / f"{name}.ipynb" for name in selected]
    (folder / "notebooks").mkdir(parents=True, exist_ok=True)
    with launch.only_run(folder) as lock:
        command = launch.snakemake_command(options, launch.write_plan(settings, jobs, selected, folder))
        if options.dry_run:
            launch.list_jobs(command, selected)
            return
        checks.check_data(settings, {axis for name in chosen for axis in notebooks[name].axes})
        for output in outputs:  # what failed or killed executions left
            partial_path(output).unlink(missing_ok=True)
            failure_path(output).unlink(missing_ok=True)
        print(f"profile {settings.profile}: {len(selected)} jobs, {options.jobs} at a time", flush=True)
        start = time.time()
        log = None if options.snakemake else folder / "snakemake.log"
        launch.check_outcome(launch.run_snakemake(options, command, log, lock), selected, folder, log, caller)
    if all(path.exists() and path.stat().st_mtime < start for path in outputs):
        print("nothing to do, all of it was done before (--force NAME executes a notebook again)")
    report = folder / "report.html"
    if any(job.notebook.report for job in selected.values()) and report.exists():
        print(f"report: {launch.relative(report, caller)}")
    else:
        print(f"notebooks: {launch.relative(folder / 'notebooks', caller)}")


def main(arguments: Sequence[str], notebooks_folder: Path = ROOT / "notebooks") -> int:
    """Run what the command line says; the exit code."""
    caller = Path.cwd()
    options = parse(arguments)
    try:
        run(options, caller, notebooks_folder)
    except Refusal as refusal:
        print(f"run_all.sh: {refusal}", file=sys.stderr)
        return refusal.code
    except OSError as error:  # the results folder cannot be written to, the disk is full
        print(f"run_all.sh: {error}", file=sys.stderr)
        return BAD_ARGUMENTS
    except KeyboardInterrupt:
        print("run_all.sh: stopped before anything began", file=sys.stderr)
        return STOPPED
    return DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
