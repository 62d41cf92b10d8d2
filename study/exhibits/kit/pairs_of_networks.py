"""Names of two networks that exhibits compare: one trained plainly, and one by meta-learning."""

from study.settings import Settings

NETWORKS = {"erm": "plainly trained", "meta": "meta-learned"}
"""The two pre-trainings, and what tables call their networks."""


def objectives_compared(settings: Settings) -> list[str]:
    """Return the pre-trainings to compare.

    A published file holds one network for all pre-trainings, so only `meta` is returned for it.
    """
    if settings.image.weights.published:
        return ["meta"]
    return [*NETWORKS]
