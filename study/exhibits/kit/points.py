"""The runs that several exhibits ask for."""

from collections.abc import Sequence
from typing import Any

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.runs import Point, points_for, points_with_transfer, reduced
from study.settings import Settings

WITHOUT_META = {
    "no meta": "multi_task",
    "no meta, light entropy": "multi_task_light_entropy",
    "meta": "meta",
}
PRIORS = (8, 16, 32, 64, 128)
"""How many examples the source counts against the batch."""
MANY_COPIES = ("cotta", "memo")
"""Methods whose many copies of each image take too long on a stream of many rounds."""
TRAININGS = {
    "adabn": WITHOUT_META,
    "ttt": {"no meta": "ttt", "meta": "meta_ttt"},
    "cascade": WITHOUT_META,
}
"""Per method, its pre-trainings without meta-learning, then with it. AdaBN does not learn at test
time, so its error is that of the network alone.
"""


def adapting(settings: Settings) -> list[str]:
    """Return the profile's methods on images that learn at test time, and AdaBN."""
    return [name for name in settings.image.methods if name == "adabn" or METHODS[name].adapts]


def methods_without(settings: Settings, names: Sequence[str]) -> list[str]:
    """Return the profile's methods on images but these."""
    return [name for name in settings.image.methods if name not in names]


def severity_points(settings: Settings, methods: Sequence[str]) -> list[Point]:
    """Return these methods at every severity."""
    points = []
    for level in range(1, 6):
        points += points_with_transfer(settings, methods, reduced(settings, severity=level))
    return points


def gradual_points(settings: Settings) -> list[Point]:
    """Return the profile's methods on the stream of 135 gradually changing domains."""
    size = settings.image.exhibits.gradual_test_size
    changes = reduced(settings, stream="gradual", test_size=size)
    return points_with_transfer(settings, settings.image.methods, changes)


def of_sizes(settings: Settings, sizes: Sequence[int], **changes: Any) -> list[dict[str, Any]]:
    """Return `reduced` at each batch size, with enough images for one batch of the largest."""
    shared = reduced(settings, **changes)
    if shared["test_size"]:
        shared["test_size"] = max(shared["test_size"], *sizes)
    return [shared | {"batch_size": size} for size in sizes]


def at_rates(settings: Settings, name: str, changes: dict[str, Any]) -> list[Point]:
    """Return a method with these changes at each learning rate of the profile.

    A method that does not learn comes once, at the profile's own rate.
    """
    rates: Sequence[float] = [settings.image.online.online_learning_rate]
    if METHODS[name].adapts:
        rates = settings.image.exhibits.ablation_learning_rates
    return points_for([name], [changes | {"online_learning_rate": rate} for rate in rates])


def long_at_rates(settings: Settings, names: Sequence[str], **changes: Any) -> list[Point]:
    """Return methods along the long stream at each learning rate of the profile, without F.

    changes: what differs besides.
    """
    changes |= {"test_size": settings.image.exhibits.long_test_size, "forward_transfer": False}
    return [point for name in names for point in at_rates(settings, name, changes)]


def long_in_each_order(settings: Settings, names: Sequence[str]) -> list[Point]:
    """Return `long_at_rates` in each order of domains and examples that the profile names."""
    orders = settings.image.exhibits.long_order_seeds
    if orders == (None,):  # in the profile's own order
        return long_at_rates(settings, names)
    return [point for order in orders for point in long_at_rates(settings, names, order_seed=order)]


def meta_learning_points(settings: Settings) -> list[Point]:
    """Return methods on networks with and without meta-learning, at each batch size."""
    return [
        Point(method, objective, changes, variant)
        for method in settings.image.methods
        for variant, objective in TRAININGS.get(method, {}).items()
        for changes in of_sizes(settings, settings.image.exhibits.ablation_batch_sizes)
    ]


def source_prior_points(objective: str, network: str = "") -> list[Point]:
    """Return AdaBN and the source prior at each count of PRIORS, on one network.

    network: what tables call it; empty where there is one alone.
    """
    points = [Point("adabn", objective, {"statistics_memory": None}, network)]
    for count in PRIORS:
        changes = {"statistics_memory": count, "forward_transfer": False}
        label = f"N = {count}"
        points.append(Point("source_prior", objective, changes, network, called=label))
    return points
