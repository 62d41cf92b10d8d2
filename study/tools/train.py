"""Train the networks of a profile side by side, a process for each: `./run_all.sh python
study/tools/train.py PROFILE --processes 16 --set device=cuda`.

One network leaves most of a GPU idle, so several share it. On CPUs take as many processes as cores;
each has one thread. What is trained already stays, and a training that was stopped goes on.
"""

import argparse
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cascadetta_lib.data.base import DataMissing
from cascadetta_lib.training.objectives import OBJECTIVES
from study.settings import SettingsError, load_profile
from study.study import Study
from study.workflow.configuration import from_folder
from study.yaml12 import parse_yaml


class Job(NamedTuple):
    """One network to train: its objective and its seed."""

    objective: str
    seed: int


def jobs_of(study: Study, objectives: Sequence[str] = ()) -> list[Job]:
    """Return the networks of a study at all its seeds, the meta-learned first: they take longest.

    objectives: those to train; none means all that the profile's methods start from. Raises
    ValueError for another.
    """
    unknown = [name for name in objectives if name not in study.objectives]
    if unknown:
        raise ValueError(
            f"--objectives {unknown[0]}: the profile has {', '.join(study.objectives)}"
        )
    chosen = list(objectives) or study.objectives
    in_order = sorted(chosen, key=lambda name: not OBJECTIVES[name].meta)
    return [Job(objective, seed) for objective in in_order for seed in study.settings.seeds]


def train(profile: str, values: dict[str, Any], job: Job) -> float:
    """Train one network in this process, and return its best held-out accuracy, in percent."""
    study = Study(load_profile(profile, values)).at_seed(job.seed)
    history = study.checkpoint(job.objective).history
    assert history is not None
    return 100 * float(history["held_out_accuracy"].max())


def train_all(profile: str, values: dict[str, Any], jobs: Sequence[Job], processes: int) -> None:
    """Train networks in a pool of processes, and print a line as each is there.

    If one fails, those that have begun end before its error is raised; no other is begun.
    """
    # A forked process cannot use CUDA.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        running = {pool.submit(train, profile, values, job): job for job in jobs}
        try:
            for done in as_completed(running):
                objective, seed = running[done]
                line = f"{objective}, seed {seed}: {done.result():.2f} % of held-out examples right"
                print(line, flush=True)
        except Exception:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Train the networks of a profile side by side, a process for each."
    )
    parser.add_argument("profile", help="its name, or a YAML file")
    parser.add_argument("--objectives", nargs="+", default=[], help="default: all of the profile")
    parser.add_argument("--processes", type=int, default=2, help="at a time (default: 2)")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", dest="changes")
    asked = parser.parse_args(arguments)
    if asked.processes < 1:
        parser.error(f"--processes {asked.processes}: at least 1 is needed")
    try:
        pairs = [pair.partition("=") for pair in asked.changes]
        values = {name: from_folder(name, parse_yaml(text), Path.cwd()) for name, _, text in pairs}
        study = Study(load_profile(asked.profile, values))
        if not study.section.weights.trained_here:
            raise ValueError(
                f"image_weights = {study.section.weights}: nothing is trained; train is needed"
            )
        jobs = jobs_of(study, asked.objectives)
        study.check()
    except (SettingsError, DataMissing, ValueError) as error:
        parser.exit(2, f"train.py: {error}\n")
    print(f"{len(jobs)} networks, {asked.processes} at a time, into {study.store.folder}")
    train_all(asked.profile, values, jobs, asked.processes)


if __name__ == "__main__":
    main()
