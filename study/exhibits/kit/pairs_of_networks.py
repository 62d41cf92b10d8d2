"""Methods on a plainly trained and on a meta-learned network."""

from study.settings import Settings

NETWORKS = {"erm": "plainly trained", "meta": "meta-learned"}
"""Pre-trainings and what they are called here."""


def objectives_compared(settings: Settings) -> list[str]:
    """Return the pre-trainings to compare.

    A published file holds one network, whatever pre-training is asked for, so it is listed once.
    """
    if settings.image.weights.published:
        return ["meta"]
    return [*NETWORKS]
