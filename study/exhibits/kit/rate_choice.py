"""The online learning rate of each method, chosen on the source and kept in the results folder.

The exhibit `choice` makes the runs at the profile's first seed, on four corruptions of held-out
source images. It keeps the rates that these runs choose. Exhibits that need a rate ask for it by
`chosen_rate`, which reads no run.
"""

import hashlib
import json
from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from cascadetta_lib.data.corruptions import HELD_OUT_CORRUPTIONS
from cascadetta_lib.files import write_text_atomically
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.cascade_plus import CascadePlus
from study.exhibits.kit.exhibit import Exhibit
from study.exhibits.kit.origin_of_network import doubt_about_held_out
from study.exhibits.kit.points import Point, main_points, reduced
from study.exhibits.kit.shown import Shown
from study.exhibits.kit.stored_runs import Runs, by_label
from study.published_networks import NetworkError
from study.requests import code_of_run
from study.settings import Settings
from study.store import Run
from study.study import Study

ON_SOURCE = "E on four corruptions of held-out source images (%)"
CONTROL = "both_cross_entropy"
"""The pre-training of the control, a network to compare Cascade+'s with. It learns from the same
images, but without θ_a, by the cross-entropy of z alone.
"""
ALIKE = ("adabn", "tent", "tent_adam")
"""Methods that also run on Cascade+'s network and on the control's."""
RUN_CHOICE = "run the exhibit `choice`"
PLUS = METHODS["cascade_plus"].label
PLUS_NETWORK = f"{PLUS}'s network"
CONTROL_NETWORK = "the control"


def on_source(settings: Settings, **changes: Any) -> dict[str, Any]:
    """Return the changes of a run on the four corruptions of held-out source images.

    changes: further changes of the run.
    """
    size = settings.image.exhibits.choice_size
    return reduced(settings, stream=HELD_OUT_CORRUPTIONS, test_size=size, **changes)


def contestants(settings: Settings) -> list[Point]:
    """Return the points whose rates are chosen: each of the profile's methods on its own network.

    If Cascade+ is among the methods, those of ALIKE also have points on Cascade+'s network and on
    the control's. There they have Cascade+'s memory of statistics and its diversity.
    """
    points = main_points(settings, "image")
    if "cascade_plus" not in settings.image.methods:
        return points
    plus = CascadePlus
    changes = {"statistics_memory": plus.memory, "online_diversity": plus.diversity}
    for network, objective in ((PLUS_NETWORK, plus.objective), (CONTROL_NETWORK, CONTROL)):
        points += [Point(name, objective, changes, network=network) for name in ALIKE]
    return points


def candidates(settings: Settings, contestant: Point) -> list[Point]:
    """Return points of a contestant on the source, one per learning rate; an empty list if the
    contestant does not adapt.
    """
    if not METHODS[contestant.method].adapts:
        return []
    points = []
    for rate in settings.image.exhibits.choice_learning_rates:
        changes = on_source(settings, online_learning_rate=rate) | dict(contestant.changes)
        points.append(replace(contestant, changes=changes))
    return points


def frame_on_source(runs: Runs) -> pd.DataFrame:
    """Return the runs of every contestant on the source at the first seed, as a table of
    `Runs.frame`.
    """
    settings = runs.settings
    points = [
        point for contestant in contestants(settings) for point in candidates(settings, contestant)
    ]
    return runs.frame(points, settings.seeds[:1])


def errors_on_source(runs: Runs) -> pd.DataFrame:
    """Return E (%) on the source at the first seed: a row per contestant, a column per learning
    rate.

    A contestant that lacks a run is left out, because the missing run could change its choice.
    """
    settings = runs.settings
    frame = frame_on_source(runs)
    if frame.empty:
        return pd.DataFrame()
    table = frame.pivot_table(index="label", columns="online_learning_rate", values="E", sort=False)
    table = table.reindex(columns=sorted(settings.image.exhibits.choice_learning_rates)).dropna()
    # Equal errors may differ in the last bit. Rounding makes them equal, so that `keep_choice`
    # chooses the smallest of their rates.
    return table.round(6)


def keep_choice(runs: Runs) -> None:
    """Choose a rate for each contestant with all of its runs stored. Keep it for `chosen_rate`."""
    errors = errors_on_source(runs)
    made_by = by_label(frame_on_source(runs))
    for contestant in contestants(runs.settings):
        label = contestant.label
        path = _place(runs.study, contestant)
        if path is None or label not in errors.index:
            continue
        rates = [float(rate) for rate in errors.columns]
        of_rates = dict(zip(rates, map(float, errors.loc[label]), strict=True))
        provenance = made_by[label]["run"].iloc[0].provenance
        chosen = {
            "label": label,
            "code": provenance.code,
            "fingerprint": provenance.fingerprint,
            "rate": min(rates, key=of_rates.__getitem__),
            "errors": {f"{rate:g}": error for rate, error in of_rates.items()},
        }
        text = json.dumps(chosen, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
        write_text_atomically(path, text)


def chosen_rate(study: Study, contestant: Point) -> float | None:
    """Return the learning rate that was chosen for a contestant; None if none is chosen yet.

    A contestant that does not adapt has the profile's rate. If the profile names a single rate to
    choose from, every other contestant has that rate, so networks without source images can be
    measured.
    """
    image = study.settings.image
    if not METHODS[contestant.method].adapts:
        return image.online.online_learning_rate
    if not image.exhibits.chooses_rates:
        return image.exhibits.choice_learning_rates[0]
    path = _place(study, contestant)
    if path is None or not path.is_file():
        return None
    return float(_kept(path)["rate"])


def _kept(path: Path) -> dict[str, Any]:
    """Read a kept choice. Raises ValueError if its file is damaged."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        float(kept["rate"])
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"{path} is damaged: remove it, then {RUN_CHOICE}") from None
    return kept


def _place(study: Study, contestant: Point) -> Path | None:
    """Return the file of a contestant's choice. Its name is a hash of the requests of the
    contestant's runs.

    The result is None if the contestant does not adapt, or if its network is missing.
    """
    keys = []
    at_first = study.at_seed(study.settings.seeds[0])
    for point in candidates(study.settings, contestant):
        try:
            request = at_first.varied(**point.changes).request(point.method, point.objective)
        except NetworkError:
            return None
        keys.append(request.key())
    if not keys:
        return None
    digest = hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:16]
    return study.store.folder / f"choice-{digest}.json"


def rates_table(frame: pd.DataFrame) -> pd.Series:
    """Return the learning rate by label, as text; a dash if the method does not adapt."""
    first = frame.groupby("label").first()
    adapts = pd.Series([METHODS[name].adapts for name in first["method"]], first.index)
    return first["online_learning_rate"].map("{:g}".format).where(adapts, "–")


class OnSource(Exhibit):
    """Base class of exhibits that choose rates on the source, or that use rates chosen there.

    The source means here four corruptions of held-out source images. These exist only for images of
    32×32 pixels. The exhibits compare the profile's own networks. `show` warns if a network may
    have learned from the held-out images.

    on_source: whether the exhibit itself runs on the four corruptions.
    """

    of_several = True
    on_source: ClassVar[bool] = False

    def not_made(self, settings: Settings) -> str:
        name = settings.datasets("image")[0]
        chooses = self.on_source or settings.image.exhibits.chooses_rates
        if chooses and not set(HELD_OUT_CORRUPTIONS) <= set(name.vocabulary.others):
            return (
                f"Not made: rates are chosen on corruptions of source images, and {name.title} has "
                "only its own domains."
            )
        return super().not_made(settings)

    def make(self, study: Study) -> list[Run]:
        if self.not_made(study.settings):
            return []
        held_out = study.dataset.held_out
        chooses = self.on_source or study.settings.image.exhibits.chooses_rates
        if chooses and tuple(held_out.x.shape[-2:]) != (32, 32):
            print(
                f"{self.name} is not made: rates are chosen on corruptions of source images, which "
                "exist only for images of 32×32 pixels."
            )
            return []
        if self.on_source and not len(held_out.y):
            print(f"{self.name} is not made: it needs held-out source images.")
            return []
        return super().make(study)

    def show(self, runs: Runs) -> Shown:
        shown = super().show(runs)
        if not runs.settings.image.exhibits.chooses_rates:
            return shown
        doubts = dict.fromkeys(filter(None, map(doubt_about_held_out, shown.runs)))
        lines = [f"**No clean choice:** {doubt}." for doubt in doubts]
        return replace(shown, content=[*shown.content, *lines])


class AtChosenRates(OnSource):
    """Base class of exhibits that run each contestant at the rate that `choice` chose for it.

    `show` names the contestants that have no rate yet, and those whose rate was chosen by an
    earlier state of the code or of the data.
    """

    @abstractmethod
    def contestants(self, settings: Settings) -> list[Point]:
        """Return a point per contestant, without its learning rate."""

    def show(self, runs: Runs) -> Shown:
        shown = super().show(runs)
        settings = runs.settings
        if not settings.image.exhibits.chooses_rates or self.not_made(settings):
            return shown
        fingerprints = {run.provenance.fingerprint for run in shown.runs}
        at_first = runs.study.at_seed(settings.seeds[0])  # where `choice` chose the rates
        waiting = []
        outdated = []
        for contestant in self.contestants(settings):
            path = _place(runs.study, contestant)
            if path is None:
                continue
            if not path.is_file():
                waiting.append(contestant.label)
                continue
            request = at_first.request(contestant.method, contestant.objective)
            code = code_of_run(request)
            if _is_outdated(path, code, fingerprints):
                outdated.append(contestant.label)
        content = list(shown.content)
        if waiting:
            if not self.points(settings):
                # Without a rate no run is asked for. The line below says so.
                content = []
            content.append(f"No rate is chosen yet for {', '.join(waiting)}: {RUN_CHOICE}.")
        if outdated:
            content.append(
                "**Some rates were chosen by an earlier state of the code or on other data:** the "
                f"rates of {', '.join(outdated)}; {RUN_CHOICE} to choose them again."
            )
        return replace(shown, content=content)


def _is_outdated(path: Path, code: str, fingerprints: set[str]) -> bool:
    """Return whether a kept choice was made by other code than `code`, or on data whose fingerprint
    is not among `fingerprints`.

    A code or a fingerprint that the file of the choice lacks is not compared.
    """
    kept = _kept(path)
    other_code = kept.get("code") not in (None, "", code)
    other_data = bool(fingerprints) and kept.get("fingerprint") not in (None, *fingerprints)
    return other_code or other_data
