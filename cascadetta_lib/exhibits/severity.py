"""tab:add-result, fig:cascade, tab:effect-theta-a: E by severity, of every method and of the cascade's parts."""

from collections.abc import Iterable

from cascadetta_lib.exhibits.base import Part, exhibit
from cascadetta_lib.exhibits.main_tables import domains_table
from cascadetta_lib.exhibits.runs import Point, Runs, points_for, reduced
from cascadetta_lib.exhibits.tables import Sweep
from cascadetta_lib.methods import METHODS
from cascadetta_lib.settings import Settings

VARIANTS = ("cascade_no_auxiliary", "cascade_same_weights", "cascade_fixed_classifier")
"""Pre-trained and adapted without θ_a; θ_a left out at test time alone; θ_m fixed."""


def severity_points(settings: Settings, methods: Iterable[str]) -> list[Point]:
    """These methods at every severity, with F where the profile measures it."""
    image, methods = settings.image, list(methods)
    every = [reduced(settings, severity=s, forward_transfer=image.forward_transfer) for s in range(1, 6)]
    return [point for changes in every for point in points_for(methods, changes)]


@exhibit
class Severity(Sweep):
    name, place, label, title = "severity", 90, "tab:add-result", "Every severity"
    question = "Does the ranking hold where the corruptions are weaker?"
    over, paper = "severity", ("tab:add-result", "method")

    def points(self, settings: Settings) -> list[Point]:
        return severity_points(settings, settings.image.methods)

    def parts(self, runs: Runs) -> list[Part | str]:
        """Also the layout of the main table for each severity that the paper has beside it."""
        frame = runs.frame(self.points(runs.settings))
        weaker = frame[frame["severity"] < 5].groupby("severity")
        return super().parts(runs) + [
            Part(f"severity-{level}", domains_table(rows), list(rows["run"]), f"Severity {level}. Bold: the best.")
            for level, rows in weaker
        ]


@exhibit
class CascadeParts(Sweep):
    name, place, label, title = "cascade_parts", 60, "fig:cascade, tab:effect-theta-a", "What θ_a and θ_m do"
    question = "What is lost without θ_a, and what with θ_m fixed?"
    elsewhere = ("tiny_imagenet",)
    over, paper, reference = "severity", ("tab:effect-theta-a", "variant"), METHODS["cascade"].label
    contrasts = [(METHODS["cascade"].label, METHODS[name].label) for name in VARIANTS]
    note = "E (%). The paper has numbers of this on Tiny-ImageNet-C alone."

    def points(self, settings: Settings) -> list[Point]:
        return severity_points(settings, ("cascade", *VARIANTS)) if "cascade" in settings.image.methods else []
