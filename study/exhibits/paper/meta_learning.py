"""tab:ablation-meta: networks with and without meta-learning, by batch size."""

from study.exhibits.kit.exhibit import exhibit
from study.exhibits.kit.points import TRAININGS, Point, meta_learning_points
from study.exhibits.kit.sweep import Sweep
from study.settings import Settings


def contrasts() -> list[tuple[str, str]]:
    """Return pairs of labels (base, other) to compare. For each method, the base is on the
    meta-learned network, and the other on a network without meta-learning.
    """
    pairs = []
    for method, variants in TRAININGS.items():
        with_meta = Point(method, variant="meta").label
        for variant in variants:
            if variant != "meta":
                pairs.append((with_meta, Point(method, variant=variant).label))
    return pairs


@exhibit
class MetaLearning(Sweep):
    name = "meta_learning"
    place = 70
    label = "tab:ablation-meta"
    title = "With and without meta-learning"
    question = "What does meta-learning add, and how much of it is there before anything adapts?"
    over = "batch_size"
    paper = ("tab:ablation-meta", "row")
    reference = None
    of_several = True
    contrasts = contrasts()

    def points(self, settings: Settings) -> list[Point]:
        return meta_learning_points(settings)
