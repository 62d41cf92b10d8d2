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
TRAININGS = {
    "adabn": WITHOUT_META,
    "ttt": {"no meta": "ttt", "meta": "meta_ttt"},
    "cascade": WITHOUT_META,
}
"""By method, pre-trainings without meta-learning, then with it. AdaBN does not learn at test time,
so it shows the network alone.
"""


def adapting(settings: Settings) -> list[str]:
    """The profile's methods on images that learn at test time, and AdaBN beside them."""
    return [name for name in settings.image.methods if name == "adabn" or METHODS[name].adapts]


def severity_points(settings: Settings, methods: Sequence[str]) -> list[Point]:
    """These methods at every severity."""
    points = []
    for level in range(1, 6):
        points += points_with_transfer(settings, methods, reduced(settings, severity=level))
    return points


def gradual_points(settings: Settings) -> list[Point]:
    """The profile's methods on the stream of 135 gradually changing domains."""
    changes = reduced(settings, stream="gradual", test_size=settings.image.gradual_test_size)
    return points_with_transfer(settings, settings.image.methods, changes)


def of_sizes(settings: Settings, sizes: Sequence[int], **changes: Any) -> list[dict[str, Any]]:
    """`reduced` at each batch size, with images for at least one batch of the largest."""
    made = reduced(settings, **changes)
    if made["test_size"]:
        made["test_size"] = max(made["test_size"], *sizes)
    return [made | {"batch_size": size} for size in sizes]


def at_rates(settings: Settings, name: str, changes: dict[str, Any]) -> list[Point]:
    """A method with these changes at each learning rate of the profile, or at its own where it does
    not learn.
    """
    rates: Sequence[float] = [settings.image.online_learning_rate]
    if METHODS[name].adapts:
        rates = settings.image.ablation_learning_rates
    return points_for([name], [changes | {"online_learning_rate": rate} for rate in rates])


def meta_learning_points(settings: Settings) -> list[Point]:
    """Methods on networks that were and were not meta-learned, at each batch size."""
    return [
        Point(method, objective, changes, variant)
        for method in settings.image.methods
        for variant, objective in TRAININGS.get(method, {}).items()
        for changes in of_sizes(settings, settings.image.ablation_batch_sizes)
    ]
