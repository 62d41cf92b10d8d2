"""The ablations (Sec. 6.4, 6.5 and beyond) as data: which runs each asks for, so that a notebook makes them and the
report finds them by the same description.

A point is a method, the pre-training it starts from, and what differs from the profile. All points of one dataset share
the store with the main runs, so what two experiments have in common is computed once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from cascadetta_lib.data.corruptions import HELD_OUT_CORRUPTIONS
from cascadetta_lib.methods import METHODS
from cascadetta_lib.pretrain import OBJECTIVES
from cascadetta_lib.progress import progress
from cascadetta_lib.settings import Settings
from cascadetta_lib.streams import GRADUAL_SEVERITIES, make_stream
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


# ---------------------------------------------------------------- why θ_a collapses, and a remedy (08_collapse)

ONCE = ("stability", "conditions", "candidates", "online_terms", "choice")
"""The experiments that are made at one seed, ONCE_SEED, whatever the profile's: they explain or choose, and what is
chosen holds for every seed."""
ONCE_SEED = 0


def seeds_of(name: str, settings: Settings) -> tuple[int, ...]:
    """The seeds that an experiment is made at."""
    return (ONCE_SEED,) if name in ONCE else settings.seeds


def _on_source(settings: Settings, **changes: Any) -> dict[str, Any]:
    """The four corruptions of held-out source images, which no test image has a part in."""
    return _reduced(settings, **{"stream": HELD_OUT_CORRUPTIONS, "test_size": settings.image_choice_size} | changes)


def _on_trial(settings: Settings, **changes: Any) -> dict[str, Any]:
    """As _on_source, on all held-out images, with a smaller network and a shorter training."""
    trial = {
        name: getattr(settings, f"image_trial_{name}")
        for name in ("depth", "train_size", "epochs", "training_batch_size", "schedule")
    }
    return _on_source(settings, test_size=None, **trial | changes)


@_experiment
def stability(settings: Settings) -> list[Point]:
    """E, A and F over the online learning rate: is a gain the method's, or that of steps that hardly move?"""
    chosen = [m for m in ("adabn", "tent", "cotta", "cascade", "cascade_plus") if m in settings.image_methods]
    return [
        Point(method, _reduced(settings, forward_transfer=settings.image_forward_transfer, online_learning_rate=rate))
        for method in chosen
        for rate in (settings.image_learning_rates if METHODS[method].adapts else [settings.image_online_learning_rate])
    ]


def condition_changes(settings: Settings) -> dict[str, dict[str, Any]]:
    """How the paper's pre-training is varied, one value at a time, by a name for each."""
    of_paper = settings.image_outer_loss == "paper"
    on_all = settings.image_inner_parameters == "all"
    return {
        "as in the profile": {},
        f"outer loss of the {'release' if of_paper else 'paper'}": {"outer_loss": "release" if of_paper else "paper"},
        "λ = 0": {"entropy_weight": 0.0},
        "λ = 1": {"entropy_weight": 1.0},
        "no inner step": {"inner_learning_rate_ratio": 0.0},
        "inner step 10 times as long": {"inner_learning_rate_ratio": 10 * settings.image_inner_learning_rate_ratio},
        f"inner step on {'BN and θ_m' if on_all else 'all of ψ'}": {
            "inner_parameters": "batchnorm_and_classifier" if on_all else "all"
        },
    }


@_experiment
def conditions(settings: Settings) -> list[Point]:
    """When θ_a collapses: the paper's pre-training varied, and once without the outer entropy's gradient on θ_a."""
    points = [Point("cascade", _on_trial(settings, **c), "meta") for c in condition_changes(settings).values()]
    return [*points, Point("cascade", _on_trial(settings), "meta_detached")] if _has_cascade(settings) else []


CANDIDATES = [
    name for name, kind in OBJECTIVES.items() if kind.auxiliary and kind.self_supervised and not kind.parallel
]
"""The pre-trainings that compete for cascade_plus, the paper's own among them."""


@_experiment
def candidates(settings: Settings) -> list[Point]:
    """Each candidate, not adapted, and adapted by the loss that it was trained with at each learning rate."""
    points = []
    for objective in CANDIDATES if _has_cascade(settings) else []:
        diversity = OBJECTIVES[objective].diversity
        points.append(Point("adabn", _on_trial(settings), objective))
        for rate in settings.image_choice_learning_rates:
            changes = _on_trial(settings, online_learning_rate=rate, online_diversity=diversity)
            points.append(Point("cascade", changes, objective))
    return points


ONLINE_TERMS: dict[str, dict[str, Any]] = {
    "nothing more": {},
    "diversity": {"online_diversity": 1.0},
    "drift bound 0.02": {"drift_bound": 0.02},
    "memory 8": {"statistics_memory": 8},
    "memory 64": {"statistics_memory": 64},
    "diversity, memory 8": {"online_diversity": 1.0, "statistics_memory": 8},
}
"""What is tried at test time beside the paper's loss, for entropy-based methods alike."""
SMALL_BATCH_TERMS: dict[str, dict[str, Any]] = {
    "batch 4": {"batch_size": 4},
    "batch 4, memory 8": {"batch_size": 4, "statistics_memory": 8},
    "batch 4, memory 64": {"batch_size": 4, "statistics_memory": 64},
}
"""What a memory does where a batch alone has poor statistics; tried without any update."""


@_experiment
def online_terms(settings: Settings) -> list[Point]:
    """Tent and the cascade on cascade_plus's network, with each of ONLINE_TERMS at each learning rate, and AdaBN with
    each of SMALL_BATCH_TERMS."""
    tried = [
        (method, terms | {"online_learning_rate": rate})
        for method in ("tent", "cascade")
        for terms in ONLINE_TERMS.values()
        for rate in settings.image_choice_learning_rates
    ]
    first = {"online_learning_rate": settings.image_choice_learning_rates[0]}
    tried += [("adabn", terms | first) for terms in SMALL_BATCH_TERMS.values()]
    objective = METHODS["cascade_plus"].objective
    return [Point(method, _on_trial(settings, **c), objective) for method, c in tried if _has_cascade(settings)]


@dataclass(frozen=True)
class Contestant:
    """A method in the comparison with cascade_plus, on its own network or on another's."""

    label: str
    method: str
    objective: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


NOT_ADAPTED = "AdaBN on Cascade+'s network"
ADAPTED_ON_THE_SAME = ("Cascade+", "Tent on Cascade+'s network", "Tent with its memory and diversity")
"""Labels of contestants that share a network."""


def contestants(settings: Settings) -> list[Contestant]:
    """The profile's methods, and AdaBN and Tent on cascade_plus's network: what is left to θ_a is the difference."""
    own = [Contestant(METHODS[name].label, name) for name in settings.image_methods]
    if "cascade_plus" not in settings.image_methods:
        return own
    plus = METHODS["cascade_plus"]
    with_memory = {"statistics_memory": plus.memory}
    return [
        *own,
        Contestant(NOT_ADAPTED, "adabn", plus.objective),
        Contestant("AdaBN with its memory", "adabn", plus.objective, with_memory),
        Contestant(ADAPTED_ON_THE_SAME[1], "tent", plus.objective),
        Contestant(
            ADAPTED_ON_THE_SAME[2],
            "tent",
            plus.objective,
            with_memory | {"online_diversity": plus.diversity},
        ),
    ]


def choice_points(settings: Settings, one: Contestant) -> list[Point]:
    """A contestant on the source at each learning rate; where nothing adapts there is nothing to choose."""
    rates = settings.image_choice_learning_rates if METHODS[one.method].adapts else ()
    return [
        Point(one.method, _on_source(settings, online_learning_rate=rate, **one.changes), one.objective)
        for rate in rates
    ]


@_experiment
def choice(settings: Settings) -> list[Point]:
    """What chooses every contestant's online learning rate."""
    return [point for one in contestants(settings) for point in choice_points(settings, one)]


def comparison_points(settings: Settings, one: Contestant, rate: float) -> dict[str, list[Point]]:
    """A contestant on the test domains at the rate that was chosen for it, by what is compared.

    main: E, A and F. For cascade_plus also its batch sizes; `gradual`, and `alone`: the last three corruptions of the
    gradual stream, each met by a fresh source model.
    """
    transfer, size = settings.image_forward_transfer, settings.image_comparison_test_size

    def point(**changes: Any) -> Point:
        base = _reduced(settings, test_size=size, online_learning_rate=rate)
        return Point(one.method, base | dict(one.changes) | changes, one.objective)

    found = {"main": [point(forward_transfer=transfer)]}
    if one.method == "cascade_plus":
        gradual_size = settings.image_gradual_test_size
        names = [domain.name for domain in make_stream("instantaneous", "image")][-3:]
        streams = [tuple(f"{name}:{severity}" for severity in GRADUAL_SEVERITIES) for name in names]
        found |= {f"batch {size}": [point(batch_size=size)] for size in COMPARED_BATCH_SIZES}
        found["gradual"] = [point(stream="gradual", test_size=gradual_size)]
        found["alone"] = [point(stream=stream, test_size=gradual_size) for stream in streams]
    return found


COMPARED_BATCH_SIZES = (128, 16, 4)


def _has_cascade(settings: Settings) -> bool:
    return "cascade" in settings.image_methods


ELSEWHERE: Mapping[str, Sequence[str]] = {"cifar100": (), "tiny_imagenet": ("cascade_parts",)}
"""The experiments on the datasets that the paper has for its main table alone, or nearly."""


def chosen_experiments(dataset: str) -> list[str]:
    """The experiments that are made on a dataset: all but on CIFAR-100 and Tiny-ImageNet."""
    return list(ELSEWHERE.get(dataset, EXPERIMENTS))


def extra_objectives(settings: Settings, dataset: str) -> list[str]:
    """The pre-trainings that the experiments on a dataset need and the main study does not."""
    names = [name for name in chosen_experiments(dataset) if name not in ONCE]  # 08_collapse trains its own
    points = [point for name in names for point in EXPERIMENTS[name](settings)]
    main = {METHODS[name].objective for name in settings.image_methods}
    needed = dict.fromkeys(point.objective or METHODS[point.method].objective for point in points)
    return [objective for objective in needed if objective not in main]


def theorem_objectives(settings: Settings, dataset: str) -> list[str]:
    """The pre-trainings that Theorem 1 is checked on, for a dataset."""
    wanted = "cascade" in settings.image_methods and "meta_learning" in chosen_experiments(dataset)
    return ["meta", "multi_task"] if wanted else []


def make_runs(study: Study, name: str) -> list[Run]:
    """The runs of an experiment on the study's dataset and at its seed; what the store lacks is made now. None where
    the experiment is not made on that dataset, or cannot be (see can_choose)."""
    if name not in chosen_experiments(study.dataset_name):
        return []
    points = EXPERIMENTS[name](study.settings)
    if any(point.changes["stream"] == HELD_OUT_CORRUPTIONS for point in points) and not can_choose(study):
        return []
    return make_points(study.at_seed(ONCE_SEED) if name in ONCE else study, points, name)


def can_choose(study: Study) -> bool:
    """Whether the four corruptions that choose exist for the study's images: they are defined at 32×32 alone."""
    return tuple(study.dataset.held_out.x.shape[-2:]) == (32, 32)


def make_points(study: Study, points: Sequence[Point], name: str) -> list[Run]:
    """The run of each point at the study's seed; `name` is what the progress bar says."""
    return [
        study.varied(**point.changes).run(point.method, point.objective)
        for point in progress(points, f"ablation {name}", len(points))
    ]


def find_runs(store: Sequence[Run], settings: Settings, dataset: str, point: Point) -> list[Run]:
    """Those of the stored runs, of every seed, that are the point's on the dataset under the profile, by seed."""
    varied = vary(settings, "image", {**point.changes, "methods": (point.method,)})
    found = [run for run in store if belongs(run, varied, "image", dataset, point.objective)]
    return sorted(found, key=lambda run: run.seed)
