"""The ablations (Sec. 6.4, 6.5 and beyond) as data: which runs each asks for, so that a notebook makes them and the
report finds them by the same description.

A point is a method, the pre-training it starts from, and what differs from the profile. All points of one dataset share
the store with the main runs, so what two experiments have in common is computed once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from cascadetta_lib.methods import METHODS
from cascadetta_lib.progress import progress
from cascadetta_lib.settings import Settings
from cascadetta_lib.streams import make_stream
from cascadetta_lib.study import Run, Study, belongs, vary


@dataclass(frozen=True)
class Point:
    """One run, whatever the seed. changes: values of the profile's `image_…` parameters, without that prefix."""

    method: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    objective: str | None = None
    """None: the method's own pre-training."""


Experiment = Callable[[Settings], list[Point]]
EXPERIMENTS: dict[str, Experiment] = {}


def _experiment(function: Experiment) -> Experiment:
    EXPERIMENTS[function.__name__] = function
    return function


def adapting(settings: Settings) -> list[str]:
    """The profile's methods that update anything."""
    return [name for name in settings.image_methods if METHODS[name].adapts]


def _reduced(settings: Settings, **changes: Any) -> dict[str, Any]:
    """The instantaneous stream with the ablations' number of images, without F, and `changes`."""
    base = {"stream": "instantaneous", "test_size": settings.image_ablation_test_size, "forward_transfer": "none"}
    made = base | {"accuracy_matrix": False} | changes
    if settings.image_last_batch == "dropped" and made["test_size"] is not None:
        made["test_size"] = max(made["test_size"], made.get("batch_size") or settings.image_batch_size or 64)
    return made


def _of_batch_size(settings: Settings, size: int) -> dict[str, Any]:
    """As _reduced at a batch size, with images for one batch of the largest size at least."""
    images = settings.image_ablation_test_size
    whole = None if images is None else max(images, *settings.image_batch_sizes)
    return _reduced(settings, batch_size=size, test_size=whole)


@_experiment
def batch_sizes(settings: Settings) -> list[Point]:
    """tab:insensitive: every adapting method by batch size."""
    return [
        Point(method, _of_batch_size(settings, size))
        for method in adapting(settings)
        for size in settings.image_batch_sizes
    ]


@_experiment
def meta_learning(settings: Settings) -> list[Point]:
    """tab:ablation-meta: TTT and the cascade, pre-trained with and without meta-learning, by batch size."""
    return [
        Point(method, _of_batch_size(settings, size), objective)
        for method, objective in (("ttt", "ttt"), ("ttt", "meta_ttt"), ("cascade", "multi_task"), ("cascade", "meta"))
        for size in settings.image_batch_sizes
        if method in settings.image_methods
    ]


@_experiment
def severities(settings: Settings) -> list[Point]:
    """tab:add-result: every method at every severity, with E, A and F."""
    transfer = settings.image_forward_transfer
    return [
        Point(method, _reduced(settings, severity=severity, forward_transfer=transfer))
        for method in settings.image_methods
        for severity in range(1, 6)
    ]


@_experiment
def cascade_parts(settings: Settings) -> list[Point]:
    """fig:cascade and tab:effect-theta-a: the cascade without θ_a, and with θ_m fixed, at every severity."""
    transfer = settings.image_forward_transfer
    return [
        Point(method, _reduced(settings, severity=severity, forward_transfer=transfer))
        for method in ("cascade", "cascade_no_auxiliary", "cascade_fixed_classifier")
        for severity in range(1, 6)
        if "cascade" in settings.image_methods
    ]


@_experiment
def gradual(settings: Settings) -> list[Point]:
    """tab:gradual-c10: every method through the 135 gradually changing domains."""
    transfer = settings.image_forward_transfer
    size = settings.image_gradual_test_size
    changes = _reduced(settings, stream="gradual", forward_transfer=transfer, test_size=size)
    return [Point(method, changes) for method in settings.image_methods]


@_experiment
def learning_rates(settings: Settings) -> list[Point]:
    """Beyond the paper: every adapting method by online learning rate and batch size."""
    return [
        Point(method, _reduced(settings, batch_size=size, online_learning_rate=rate))
        for method in adapting(settings)
        for size in settings.image_learning_rate_batch_sizes
        for rate in settings.image_learning_rates
    ]


@_experiment
def orders(settings: Settings) -> list[Point]:
    """Beyond the paper: every adapting method on the standard order of the domains and on random ones."""
    names = [domain.name for domain in make_stream("instantaneous", "image", settings.image_severity)]
    generator = torch.Generator().manual_seed(0)  # the same orders for every seed of the study
    drawn = [torch.randperm(len(names), generator=generator).tolist() for _ in range(settings.image_orders)]
    streams: list[Any] = ["instantaneous", *(tuple(names[place] for place in order) for order in drawn)]
    return [Point(method, _reduced(settings, stream=stream)) for method in adapting(settings) for stream in streams]


@_experiment
def predictions(settings: Settings) -> list[Point]:
    """Beyond the paper: every adapting method, predicting after the update and before it."""
    return [Point(m, _reduced(settings, predict=order)) for m in adapting(settings) for order in ("after", "before")]


@_experiment
def forgetting(settings: Settings) -> list[Point]:
    """Beyond the paper: the whole matrix R(T_i | T_1:j) of every adapting method."""
    return [Point(method, _reduced(settings, accuracy_matrix=True)) for method in adapting(settings)]


ELSEWHERE: Mapping[str, Sequence[str]] = {"cifar100": (), "tiny_imagenet": ("cascade_parts",)}
"""The experiments on the datasets that the paper has for its main table alone, or nearly."""


def chosen_experiments(dataset: str) -> list[str]:
    """The experiments that are made on a dataset: all but on CIFAR-100 and Tiny-ImageNet."""
    return list(ELSEWHERE.get(dataset, EXPERIMENTS))


def extra_objectives(settings: Settings, dataset: str) -> list[str]:
    """The pre-trainings that the experiments on a dataset need and the main study does not."""
    points = [point for name in chosen_experiments(dataset) for point in EXPERIMENTS[name](settings)]
    main = {METHODS[name].objective for name in settings.image_methods}
    needed = dict.fromkeys(point.objective or METHODS[point.method].objective for point in points)
    return [objective for objective in needed if objective not in main]


def theorem_objectives(settings: Settings, dataset: str) -> list[str]:
    """The pre-trainings that Theorem 1 is checked on, for a dataset."""
    wanted = "cascade" in settings.image_methods and "meta_learning" in chosen_experiments(dataset)
    return ["meta", "multi_task"] if wanted else []


def make_runs(study: Study, name: str) -> list[Run]:
    """The runs of an experiment on the study's dataset and at its seed; what the store lacks is made now. None where
    the experiment is not made on that dataset."""
    if name not in chosen_experiments(study.dataset_name):
        return []
    points = EXPERIMENTS[name](study.settings)
    return [
        study.varied(**point.changes).run(point.method, point.objective)
        for point in progress(points, f"ablation {name}", len(points))
    ]


def find_runs(store: Sequence[Run], settings: Settings, dataset: str, point: Point) -> list[Run]:
    """Those of the stored runs, of every seed, that are the point's on the dataset under the profile, by seed."""
    varied = vary(settings, "image", {**point.changes, "methods": (point.method,)})
    found = [run for run in store if belongs(run, varied, "image", dataset, point.objective)]
    return sorted(found, key=lambda run: run.seed)
