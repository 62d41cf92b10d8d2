"""The runs that an exhibit asks for: the class `Point`, one per run, and lists of points that
several exhibits share.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cascadetta_lib.data.base import Modality
from cascadetta_lib.data.streams import Vocabulary, make_stream
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.augmented_copies import WithCopies
from study.settings import Settings

WITH_AND_WITHOUT_META = {
    "no meta": "multi_task",
    "no meta, light entropy": "multi_task_light_entropy",
    "meta": "meta",
}
PRIORS = (8, 16, 32, 64, 128)
"""The source priors to run: how many images the source's statistics count as."""
MANY_COPIES = ("cotta", "memo")
"""Methods that make many copies of each image, and so take too long on a stream of many rounds."""
TRAININGS = {
    "adabn": WITH_AND_WITHOUT_META,
    "ttt": {"no meta": "ttt", "meta": "meta_ttt"},
    "cascade": WITH_AND_WITHOUT_META,
}
"""For each method, its pre-trainings without and with meta-learning. AdaBN does not learn at test
time, so its error shows the effect of the pre-training alone.
"""


@dataclass(frozen=True)
class Point:
    """A run that an exhibit asks for, at any seed.

    method: the method's name.
    objective: the pre-training that the run starts from; None for the method's own.
    changes: the parameters that differ from the profile's, named as for `Study.varied`.
    variant: what distinguishes the run from the method's other runs in the exhibit, such as
        `batch 4`.
    network: what tables call the network if it is not the method's own, such as `Cascade+'s
        network`.
    called: what tables call the method in place of its label, such as `N = 8`.
    """

    method: str
    objective: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""
    network: str = ""
    called: str = ""

    @property
    def label(self) -> str:
        """What tables and figures call the run, such as `Tent on Cascade+'s network, batch 4`."""
        label = self.called or METHODS[self.method].label
        if self.network:
            label = f"{label} on {self.network}"
        if self.variant:
            label = f"{label}, {self.variant}"
        return label


def points_for(methods: Sequence[str], several: Iterable[Mapping[str, Any]] = ({},)) -> list[Point]:
    """Return a point for each method on its own pre-training, under each of `several` changes."""
    return [Point(name, None, changes) for changes in several for name in methods]


def points_with_transfer(
    settings: Settings, methods: Iterable[str], changes: Mapping[str, Any]
) -> list[Point]:
    """Return a point for each method, with F for some of them.

    F is measured for the methods that the profile lists, if the profile measures F. CoTTA has no F
    on a published network, where its F would cost as much as everything else together.
    """
    image = settings.image
    measured = set(image.methods) if image.online.forward_transfer else set()
    if image.weights.published:
        measured.discard("cotta")
    return [Point(one, None, {**changes, "forward_transfer": one in measured}) for one in methods]


def lacking_stream(points: Iterable[Point], vocabulary: Vocabulary) -> str:
    """Return the first stream in `points` that cannot be made of the domains in `vocabulary`, as
    text; empty if there is none.
    """
    for point in points:
        stream = point.changes.get("stream")
        if stream is None:
            continue
        try:
            make_stream(stream, vocabulary)
        except ValueError:
            return stream if isinstance(stream, str) else ", ".join(stream)
    return ""


def main_points(settings: Settings, modality: Modality) -> list[Point]:
    """Return the points of the main study: every method of the profile on the profile's stream."""
    return points_for(settings.section(modality).methods)


def cheap_first(points: Sequence[Point]) -> list[Point]:
    """Return the points in the order in which to make them. Methods that predict augmented copies
    of each example come last, because a step of CoTTA takes as long as ten steps of the others.
    """

    def has_copies(point: Point) -> bool:
        return issubclass(METHODS[point.method], WithCopies)

    cheap = [point for point in points if not has_copies(point)]
    with_copies = [point for point in points if has_copies(point)]
    return cheap + with_copies


def reduced(settings: Settings, **changes: Any) -> dict[str, Any]:
    """Return the changes that every ablation on images makes, updated by `changes`.

    An ablation has the instantaneous stream, `ablation_test_size` images per domain, and no F,
    unless `changes` says otherwise.
    """
    made = {
        "stream": "instantaneous",
        "test_size": settings.image.exhibits.ablation_test_size,
        "forward_transfer": False,
    }
    return made | changes


def with_alarm(settings: Settings, stream: str, **changes: Any) -> dict[str, Any]:
    """Return the changes of a run on a stream on which the exhibit `alarm` judges its two signals.
    Every run records the level of the alarm; with `source_agreement` it records the other signal,
    too. Other exhibits on the stream use the same changes, so that they share the runs.
    """
    return reduced(settings, stream=stream, source_agreement=True, **changes)


def adapting(settings: Settings) -> list[str]:
    """Return those of the profile's methods on images that learn at test time, and AdaBN if the
    profile has it.
    """
    return [name for name in settings.image.methods if name == "adabn" or METHODS[name].adapts]


def methods_without(settings: Settings, names: Sequence[str]) -> list[str]:
    """Return the profile's methods on images, except these."""
    return [name for name in settings.image.methods if name not in names]


def severity_points(settings: Settings, methods: Sequence[str]) -> list[Point]:
    """Return points of these methods at every severity; none if the dataset's domains have no
    severities.
    """
    if len(settings.datasets("image")[0].vocabulary.severities) == 1:
        return []
    points = []
    for level in range(1, 6):
        points += points_with_transfer(settings, methods, reduced(settings, severity=level))
    return points


def gradual_points(settings: Settings) -> list[Point]:
    """Return points of the profile's methods on the stream of 135 gradually changing domains."""
    size = settings.image.exhibits.gradual_test_size
    changes = reduced(settings, stream="gradual", test_size=size)
    return points_with_transfer(settings, settings.image.methods, changes)


def of_sizes(settings: Settings, sizes: Sequence[int], **changes: Any) -> list[dict[str, Any]]:
    """Return `reduced` at each batch size, with enough images for one batch of the largest size."""
    shared = reduced(settings, **changes)
    if shared["test_size"]:
        shared["test_size"] = max(shared["test_size"], *sizes)
    return [shared | {"batch_size": size} for size in sizes]


def at_rates(settings: Settings, name: str, changes: dict[str, Any]) -> list[Point]:
    """Return points of a method with these changes, one per learning rate of the profile.

    A method that does not learn has one point, at the profile's own rate.
    """
    rates: Sequence[float] = [settings.image.online.online_learning_rate]
    if METHODS[name].adapts:
        rates = settings.image.exhibits.ablation_learning_rates
    return points_for([name], [changes | {"online_learning_rate": rate} for rate in rates])


def long_at_rates(settings: Settings, names: Sequence[str], **changes: Any) -> list[Point]:
    """Return points of methods on the long stream, one per learning rate of the profile, without F.

    changes: further parameters that differ from the profile's.
    """
    changes |= {"test_size": settings.image.exhibits.long_test_size, "forward_transfer": False}
    return [point for name in names for point in at_rates(settings, name, changes)]


def long_in_each_order(settings: Settings, names: Sequence[str]) -> list[Point]:
    """Return the points of `long_at_rates`, in each order of domains and examples that the profile
    names.
    """
    orders = settings.image.exhibits.long_order_seeds
    if orders == (None,):  # in the profile's own order
        return long_at_rates(settings, names)
    return [point for order in orders for point in long_at_rates(settings, names, order_seed=order)]


def meta_learning_points(settings: Settings) -> list[Point]:
    """Return points of the profile's methods that TRAININGS names, on networks with and without
    meta-learning, at each batch size.
    """
    return [
        Point(method, objective, changes, variant)
        for method in settings.image.methods
        for variant, objective in TRAININGS.get(method, {}).items()
        for changes in of_sizes(settings, settings.image.exhibits.ablation_batch_sizes)
    ]


def source_prior_points(objective: str, network: str = "") -> list[Point]:
    """Return points of AdaBN, and of the source prior at each of PRIORS, on one network.

    network: what tables call the network; empty if there is only one. It becomes the `variant` of
        the points, so a label is `AdaBN, NETWORK`.
    """
    points = [Point("adabn", objective, {"statistics_memory": None}, network)]
    for count in PRIORS:
        changes = {"statistics_memory": count, "forward_transfer": False}
        label = f"N = {count}"
        points.append(Point("source_prior", objective, changes, network, called=label))
    return points
