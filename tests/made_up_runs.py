"""Made-up runs. The test chooses their numbers. Their requests are those that a study makes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cascadetta_lib.data.base import Modality
from cascadetta_lib.methods import METHODS
from cascadetta_lib.training.objectives import OBJECTIVES
from study.exhibits.kit.exhibit import EXHIBITS
from study.exhibits.kit.points import Point
from study.exhibits.kit.shown import Shown
from study.exhibits.kit.stored_runs import Runs
from study.provenance import NetworkOrigin, Provenance, code_revision
from study.requests import code_of_run
from study.settings import Settings, load_profile
from study.store import Made, Run, Store
from study.study import Study


@dataclass(frozen=True)
class Numbers:
    """The numbers of a made-up run.

    errors: how many examples of each batch are predicted wrongly: a number per batch, the same in
        every domain, or a row per domain.
    accuracy: the accuracy on each domain after the stream's domains, in [0, 1].
    alone: the accuracy of a source model that was adapted to a domain alone, in [0, 1]. None: not
        measured.
    entropies: the entropy of a in each batch of a domain, in nats.
    seconds: the time per domain.
    count: the number of examples per batch.
    work: the work of a step, in forward passes.
    moved: the distances moved by the scales and shifts, and by all other parameters.
    levels: the level of the alarm in each domain.
    agreements: the share of examples on which the source agrees, in each domain.

    If there are fewer entropies than batches in a domain, or fewer levels or agreements than
    domains, they are repeated from the first one on.
    """

    errors: Sequence[int] | np.ndarray = (2, 0)
    accuracy: float = 0.5
    alone: float | None = 0.5
    entropies: Sequence[float] = (1.0, 1.0)
    seconds: float = 1.0
    count: int = 10
    work: float = 3.0
    moved: tuple[float, float] = (3.0, 4.0)
    levels: Sequence[float] = (1.0,)
    agreements: Sequence[float] = (1.0,)


def made_up_run(
    study: Study, method: str, numbers: Numbers, objective: str | None = None, **provenance: Any
) -> Run:
    """A run of a method on the study's stream."""
    request = study.request(method, objective)
    errors = np.broadcast_to(numbers.errors, (len(request.stream), np.shape(numbers.errors)[-1]))
    has_a = OBJECTIVES[request.checkpoint.objective].auxiliary
    domains, size = errors.shape
    steps = np.repeat(np.arange(domains), size)
    places = np.tile(np.arange(size), domains)
    entropies: float | np.ndarray = np.nan
    if has_a:
        entropies = np.take(numbers.entropies, places, mode="wrap")
    batches = pd.DataFrame(
        {
            "step": steps,
            "domain": [request.stream[step].name for step in steps],
            "severity": [request.stream[step].severity for step in steps],
            "position": numbers.count * places,
            "count": numbers.count,
            "errors": errors.ravel(),
            "entropy_main": 1.0,
            "classes_predicted": 5,
            "alarm_level": np.take(numbers.levels, steps, mode="wrap"),
            "moved_normalization": numbers.moved[0],
            "moved_others": numbers.moved[1],
            "entropy_auxiliary": entropies,
            "entropy_of_mean_auxiliary": entropies,
            "agreement": 0.5 if has_a else np.nan,
            "seconds": numbers.seconds / size,
        }
    )
    if request.source_agreement:
        batches["source_agreement"] = np.take(numbers.agreements, steps, mode="wrap")
    rows: list[dict[str, Any]] = []
    for step, domain in enumerate(request.stream):
        named = {"step": step, "domain": domain.name, "severity": domain.severity}
        last = len(request.stream)
        rows += [
            named | {"kind": "stream", "after": j, "accuracy": numbers.accuracy}
            for j in sorted({step + 1, last})
        ]
        if (
            request.forward_transfer
            and step
            and METHODS[method].adapts
            and numbers.alone is not None
        ):
            rows.append(named | {"kind": "source", "after": 0, "accuracy": numbers.alone - 0.1})
            rows.append(named | {"kind": "alone", "after": 0, "accuracy": numbers.alone})
    made: dict[str, Any] = {
        "profile": study.settings.profile,
        "data_source": "made up by a test",
        "fingerprint": "0123456789abcdef",
        "domain_source": "made up by a test",
        "official_data": False,
        "origin": "photographs",
        "compare_with": {
            "image": "CIFAR-10-C",
            "text": "Amazon Reviews",
            "speech": "Google Commands",
        }[study.modality],
        "class_names": tuple("abcdefghij"),
        "unit": "images",
        "code_revision": code_revision(),
        "device": "a CPU",
        "threads": 1,
        "python": "3",
        "packages": {"torch": "2"},
        "seconds": 1.0,
        "cost": {"work": numbers.work, "memory": 0.5},
        "finished": "2026-01-01T00:00:00+00:00",
        "network": NetworkOrigin("trained here", code_revision=code_revision()),
    }
    made |= provenance
    if isinstance(made["network"], dict):
        facts: dict[str, Any] = {"origin": "made up by a test"} | made["network"]
        made["network"] = NetworkOrigin(**facts)
    return Run(request, batches, pd.DataFrame(rows), Provenance(**made))


World = Callable[[str, str, dict[str, Any], int], Numbers]
"""world(method, objective, changes, seed) → what that point's run shows."""


def on_cifar10(folder: Path, **changes: Any) -> Settings:
    """Settings of `quick` for runs in `folder` that are made up as if on CIFAR-10."""
    own: dict[str, Any] = {
        "results_folder": str(folder),
        "image_dataset": "cifar10",
        "image_methods": ("erm", "adabn", "tent", "cotta", "cascade"),
        "image_batch_size": 32,
    }
    return quick(**(own | changes))


def points_of(settings: Settings, names: Iterable[str]) -> list[Point]:
    """What these exhibits ask for."""
    return [point for name in names for point in EXHIBITS[name].points(settings)]


def made_up_runs(
    settings: Settings,
    world: World,
    points: Iterable[Point],
    seeds: Iterable[int],
    modality: Modality = "image",
) -> list[Run]:
    """A run of the world for each point and seed, none twice."""
    study = Study(settings, modality)
    runs = {}
    for point in points:
        varied = study.varied(**point.changes)
        for seed in seeds:
            at_seed = varied.at_seed(seed)
            request = at_seed.request(point.method, point.objective)
            if request not in runs:
                numbers = world(
                    point.method, request.checkpoint.objective, dict(point.changes), seed
                )
                runs[request] = made_up_run(at_seed, point.method, numbers, point.objective)
    return list(runs.values())


def keep(store: Store, run: Run) -> None:
    """Write a run to a store, as one of today's code."""
    code = code_of_run(run.request)

    def make(folder: Path) -> Made:
        run.batches.to_csv(folder / "batches.csv", index=False)
        run.accuracies.to_csv(folder / "accuracies.csv", index=False)
        return Made(replace(run.provenance, code=code))

    made_by = run.provenance
    store.make_once("runs", run.request, (made_by.fingerprint, made_by.domain_source, code), make)


def stored(settings: Settings, runs: Iterable[Run], modality: Modality = "image") -> Runs:
    """What exhibits read, where the store holds these runs and no others."""
    return Runs.of(Study.without_device(settings, modality), runs)


def quick(**changes: Any) -> Settings:
    """The profile `quick` with changes by flat names."""
    return load_profile("quick", changes)


def content(shown: Shown, name: str) -> Any:
    """The figure or the table of that name in an exhibit."""
    (found,) = [part.content for part in shown.parts if part.name == name]
    return found
