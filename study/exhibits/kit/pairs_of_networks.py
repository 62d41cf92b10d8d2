"""Methods on a plainly trained and on a meta-learned network."""

from study.settings import Settings

NETWORKS = {"erm": "plainly trained", "meta": "meta-learned"}
"""Pre-trainings and what they are called here."""


def networks_of(settings: Settings) -> list[str]:
    """The pre-trainings to compare.

    A file that holds one network gives the same for every one, so it counts once.
    """
    if settings.image.weights.published:
        return ["meta"]
    return [*NETWORKS]
