"""Train a profile's networks for images side by side, each in a process of its own:

    ./run_all.sh python study/tools/train.py PROFILE --processes 16 --set device=cuda

One network leaves most of a GPU idle, so several share it. On CPUs, use as many processes as cores;
each has one thread. A network that is trained already is not trained again, and a training that was
stopped goes on.
"""

import argparse
import multiprocessing
import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cascadetta_lib.data.base import DataMissing
from cascadetta_lib.training.objectives import OBJECTIVES
from study.settings import SettingsError, load_profile
from study.study import Study
from study.workflow.arguments import check_pairs
from study.workflow.configuration import values_of_pairs
from study.workflow.refusal import STOPPED, Refusal


class Job(NamedTuple):
    """One network to train: its pre-training (`objective`, such as `meta`) and its seed."""

    objective: str
    seed: int


def jobs_of(study: Study, objectives: Sequence[str] = ()) -> list[Job]:
    """Return the networks of a study at all its seeds. Those that are meta-learned come first,
    because they take longest.

    objectives: the names of the pre-trainings to run; empty for all of the study.

    Raises ValueError for a pre-training that the study lacks.
    """
    unknown = [name for name in objectives if name not in study.objectives]
    if unknown:
        raise ValueError(
            f"--objectives {unknown[0]}: the profile has {', '.join(study.objectives)}"
        )
    chosen = list(dict.fromkeys(objectives)) or study.objectives
    in_order = sorted(chosen, key=lambda name: not OBJECTIVES[name].meta)
    return [Job(objective, seed) for objective in in_order for seed in study.settings.seeds]


def train(profile: str, values: dict[str, Any], job: Job) -> float:
    """Train one network in this process, and return its best held-out accuracy, in percent."""
    study = Study(load_profile(profile, values, "--set")).at_seed(job.seed)
    history = study.checkpoint(job.objective).history
    assert history is not None
    return 100 * float(history["held_out_accuracy"].max())


def end_with_starter() -> None:
    """End this process at once when the process that started it ends, for whatever reason.

    Otherwise a process of a pool would train its network to the end, although nobody waits for it,
    and block the next start. What it has trained so far is stored, as after any kill.
    """
    starter = multiprocessing.parent_process()
    assert starter is not None, "only a process that another one started can call this"

    def watch() -> None:
        starter.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def train_all(profile: str, values: dict[str, Any], jobs: Sequence[Job], processes: int) -> None:
    """Train networks in a pool of processes, and print a line when one is trained.

    If one training fails, no other begins, and its error is raised when the running ones have
    ended. If this process is interrupted or killed, all trainings end at once.
    """
    # A forked process cannot use CUDA.
    context = multiprocessing.get_context("spawn")
    left = list(jobs)
    running: dict[Future[float], Job] = {}
    with ProcessPoolExecutor(processes, mp_context=context, initializer=end_with_starter) as pool:
        try:
            while left or running:
                # Submit only what can run: the pool begins all that it has, even after an error.
                while left and len(running) < processes:
                    job = left.pop(0)
                    running[pool.submit(train, profile, values, job)] = job
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    objective, seed = running.pop(done)
                    found = f"{done.result():.2f} % of held-out examples right"
                    print(f"{objective}, seed {seed}: {found}", flush=True)
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Train the networks of a profile for images side by side, a process for each."
    )
    parser.add_argument("profile", help="its name, or a YAML file")
    several: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
    parser.add_argument("--objectives", help="default: all of the profile", **several)
    parser.add_argument("--processes", type=int, default=2, help="at a time (default: 2)")
    parser.add_argument("--set", metavar="NAME=VALUE", dest="changes", **several)
    asked = parser.parse_args(arguments)
    if asked.processes < 1:
        parser.error(f"--processes {asked.processes}: at least 1 is needed")
    try:
        check_pairs(asked.changes)
        values = values_of_pairs(asked.changes, Path.cwd())
        if "seed" in values:
            raise ValueError(f"--set seed={values['seed']}: each network has its own; set seeds")
        study = Study(load_profile(asked.profile, values, "--set"))
        if not study.section.weights.trained_here:
            raise ValueError(
                f"image_weights = {study.section.weights}: no network is trained here; set "
                "image_weights=train"
            )
        jobs = jobs_of(study, asked.objectives)
        study.check()
    except (Refusal, SettingsError, DataMissing, ValueError) as error:
        parser.exit(2, f"train.py: {error}\n")
    print(f"{len(jobs)} networks, {asked.processes} at a time, into {study.store.folder}")
    try:
        train_all(asked.profile, values, jobs, asked.processes)
    except KeyboardInterrupt:
        parser.exit(STOPPED, "train.py: stopped; the same command goes on from here\n")
    except (DataMissing, ValueError, OSError) as error:  # such as one that diverges, or a full disk
        parser.exit(1, f"train.py: {error}\n")
    except (BrokenProcessPool, torch.OutOfMemoryError) as error:
        parser.exit(
            1,
            "train.py: a training was killed, or its device has too little memory; use fewer "
            f"--processes; the same command goes on from here ({error})\n",
        )


if __name__ == "__main__":
    main()
