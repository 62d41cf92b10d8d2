"""fig:cascade, tab:effect-theta-a: the cascade without one of its parts, by severity."""

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.exhibit import exhibit
from study.exhibits.kit.points import Point, severity_points
from study.exhibits.kit.sweep import Sweep
from study.settings import Settings

CASCADE = METHODS["cascade"].label
TRAINED_WITHOUT = "cascade_no_auxiliary"
"""The method that is pre-trained and adapted without θ_a."""
AT_TEST_TIME = ("cascade_same_weights", "cascade_fixed_classifier")
"""Variants on the cascade's own network: without θ_a at test time, and with θ_m fixed."""


@exhibit
class CascadeParts(Sweep):
    name = "cascade_parts"
    place = 60
    label = "fig:cascade, tab:effect-theta-a"
    title = "What θ_a and θ_m do"
    question = "What is lost without θ_a, and what with θ_m fixed?"
    elsewhere = ("tiny_imagenet",)
    over = "severity"
    paper = ("tab:effect-theta-a", "variant")
    reference = CASCADE
    of_several = True
    by_severity = True
    contrasts = [(CASCADE, METHODS[name].label) for name in (TRAINED_WITHOUT, *AT_TEST_TIME)]
    note = "E (%). The paper has numbers of this on Tiny-ImageNet-C alone."

    def points(self, settings: Settings) -> list[Point]:
        """Return points by severity; none if the profile lacks the cascade. For a published network
        the method trained without θ_a is left out, because no such network was published.
        """
        if "cascade" not in settings.image.methods:
            return []
        if settings.image.weights.published:
            return severity_points(settings, ("cascade", *AT_TEST_TIME))
        return severity_points(settings, ("cascade", TRAINED_WITHOUT, *AT_TEST_TIME))
