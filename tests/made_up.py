"""Made-up runs: every number of theirs is said by the test, their configurations are those that a study has."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from cascadetta_lib.evidence import Evidence
from cascadetta_lib.experiments import EXPERIMENTS, Point, comparison_points
from cascadetta_lib.methods import METHODS
from cascadetta_lib.remedy import choose
from cascadetta_lib.settings import Settings
from cascadetta_lib.study import Run, RunConfig, Study


@dataclass(frozen=True)
class Numbers:
    """What a made-up run shows: of each domain's ten examples, `errors` are wrong in the first of its two batches and
    `later_errors` in the second; accuracies in [0, 1]; entropies in nats."""

    errors: int
    later_errors: int = 0
    accuracy: float = 0.5
    alone: float | None = None
    """Accuracy of a source model adapted to a domain alone."""
    entropies: tuple[float, float] = (1.0, 1.0)
    """Of a, in the first and in the second batch."""
    seconds: float = 1.0


def made_up_run(study: Study, method: str, numbers: Numbers, objective: str | None = None, **provenance: Any) -> Run:
    """A run on the study's stream."""
    config = RunConfig.model_validate(study.run_config(method, objective).model_dump())
    batches, accuracies = [], []
    last = len(config.stream)
    for step, (domain, severity) in enumerate(config.stream):
        base = {"step": step, "domain": domain, "severity": severity}
        for place, errors in enumerate((numbers.errors, numbers.later_errors)):
            entropy = numbers.entropies[place]
            batches.append(
                base
                | {"position": 10 * place, "count": 10, "errors": errors, "entropy_main": 1.0}
                | {"entropy_auxiliary": entropy, "entropy_of_mean_auxiliary": entropy, "agreement": 0.5}
                | {"seconds": numbers.seconds / 2}
            )
        measured = [step + 1, last] if step + 1 < last else [last]
        accuracies += [base | {"after": after, "accuracy": numbers.accuracy} for after in measured]
        if numbers.alone is not None and step > 0 and config.forward_transfer == "paper" and METHODS[method].adapts:
            accuracies.append(base | {"after": -1, "accuracy": numbers.alone})
    described = study.provenance(1.0) | provenance
    return Run(config, pd.DataFrame(batches), pd.DataFrame(accuracies), described)


def made_up_evidence(settings: Settings, runs: Iterable[Run]) -> Evidence:
    """Evidence that holds these runs and no others."""
    evidence = Evidence(settings)
    evidence.__dict__["stored"] = list(runs)
    return evidence


World = Callable[[str, str, dict[str, Any]], Numbers]
"""world(method, objective, changes) → what that point's run shows."""


def image_runs(settings: Settings, world: World, experiments: Iterable[str], seeds: Iterable[int]) -> list[Run]:
    """The main runs and those of the experiments, each point of the world once for each seed."""
    points = [Point(method) for method in settings.image_methods]
    points += [point for name in experiments for point in EXPERIMENTS[name](settings)]
    return runs_of_points(settings, world, points, seeds)


def comparison_runs(settings: Settings, world: World, runs: Iterable[Run], seeds: Iterable[int]) -> list[Run]:
    """The runs of the comparison at the learning rates that `runs` choose."""
    chosen = choose(made_up_evidence(settings, runs), "digits")
    found = [comparison_points(settings, each.contestant, each.rate) for each in chosen]
    points = [point for each in found for several in each.values() for point in several]
    return runs_of_points(settings, world, points, seeds)


def runs_of_points(settings: Settings, world: World, points: Iterable[Point], seeds: Iterable[int]) -> list[Run]:
    """A run of the world for each point and seed, none twice."""
    points, runs, known = list(points), [], set()
    for seed in seeds:
        study = Study(settings.model_copy(update={"seed": seed}))
        for point in points:
            objective = point.objective or METHODS[point.method].objective
            run = made_up_run(
                study.varied(**point.changes),
                point.method,
                world(point.method, objective, dict(point.changes)),
                point.objective,
            )
            if run.config.key not in known:
                known.add(run.config.key)
                runs.append(run)
    return runs
