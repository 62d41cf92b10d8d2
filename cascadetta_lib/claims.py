"""The paper's claims as data, beside what we ask of our own remedy, and a verdict on each.

A claim is a sentence of the paper with a statistic, one number a seed, and the side of a bound on which it must lie. It
**holds** where the mean over three seeds or more lies there (of some claims: the whole of the interval, or some of it),
and **does not hold** where it does not; where the 95 % interval contains the bound, the verdict says so. It is **not
tested** with fewer seeds, without runs, under another protocol than the paper's, and on data that stands in for the
real one or in the profile `quick`, whatever that shows.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from cascadetta_lib import report
from cascadetta_lib.collapse_exhibits import late_errors
from cascadetta_lib.data import is_real
from cascadetta_lib.data.base import Modality
from cascadetta_lib.evaluate import average_accuracy, forward_transfer, mean_online_error, online_errors
from cascadetta_lib.evidence import Estimate, Evidence, Found, over_seeds_estimate
from cascadetta_lib.exhibit import exhibit_anchor, save_table
from cascadetta_lib.exhibits import (
    PAPER_BATCH_SIZES,
    seconds_per_domain,
    severity_entropies,
    within_domains,
)
from cascadetta_lib.methods import METHODS
from cascadetta_lib.remedy import compared
from cascadetta_lib.report import kept_epoch
from cascadetta_lib.settings import Settings
from cascadetta_lib.study import Run, Trained, dataset_name

LEAST_SEEDS = 3
OTHERS: Mapping[Modality, tuple[str, ...]] = {
    "image": ("erm", "adabn", "ttt", "tent", "cotta"),
    "text": ("erm", "adabn", "tent"),
    "speech": ("erm", "adabn", "tent"),
}
"""What the paper compares the cascade with."""
Verdict = Literal["holds", "does not hold", "not tested"]
SeedValues = Mapping[int, float]
"""A number for each seed."""


class NotTestedError(Exception):
    """There is no number; the message says what is missing."""


class View:
    """The evidence on one dataset, as runs to compute with. Raises NotTestedError where there are none."""

    def __init__(self, evidence: Evidence, modality: Modality, dataset: str) -> None:
        self.evidence, self.modality, self.dataset = evidence, modality, dataset

    def main(self, method: str) -> list[Run]:
        """The main runs of a method."""
        runs = [run for run in self.evidence.main(self.modality, self.dataset) if run.config.method == method]
        return _some(runs, f"{method} on the main stream")

    def point(self, experiment: str, method: str, objective: str | None = None, **changes: Any) -> list[Run]:
        """The runs of one point of an experiment."""
        found = [each for each in self.evidence.experiment(experiment, self.dataset) if _is(each, method, changes)]
        runs = [r for each in found for r in each.runs if objective in (None, r.config.checkpoint.objective)]
        return _some(runs, " ".join([method, *(f"{name} {value}" for name, value in changes.items()), experiment]))

    def compared(self, method: str, what: str = "main") -> list[Run]:
        """The runs of a method, on its own network, in the comparison at chosen learning rates."""
        found = self.comparison.get((METHODS[method].label, what), [])
        return _some([run for each in found for run in each.runs], f"{method} in the comparison, {what}")

    @cached_property
    def comparison(self) -> dict[tuple[str, str], list[Found]]:
        """What is stored of the comparison."""
        return compared(self.evidence, self.dataset)

    def trained(self, objective: str) -> list[Trained]:
        """The pre-trainings of the cascade for an objective."""
        return self.evidence.trained(self.point("meta_learning", "cascade", objective))

    def others(self, value: Callable[[list[Run]], SeedValues]) -> list[SeedValues]:
        """The value of each method that the paper compares with, on the main stream."""
        return [value(self.main(method)) for method in OTHERS[self.modality]]

    @property
    def compare_with(self) -> str | None:
        """The dataset of the paper's tables that this one stands for, None without any run."""
        runs = self.evidence.main(self.modality, self.dataset)
        experiments = ("batch_sizes",) if self.modality == "image" else ()
        runs = runs or [run for e in experiments for f in self.evidence.experiment(e, self.dataset) for run in f.runs]
        return runs[0].provenance["compare_with"] if runs else None


def _some(runs: list[Run], what: str) -> list[Run]:
    if not runs:
        raise NotTestedError(f"no run of {what}")
    return runs


def _is(found: Found, method: str, changes: Mapping[str, Any]) -> bool:
    return found.point.method == method and all(found.point.changes.get(name) == changes[name] for name in changes)


# ---------------------------------------------------------------- numbers of runs, one a seed


def error(runs: Iterable[Run]) -> SeedValues:
    """E in percent."""
    return {run.seed: 100 * mean_online_error(run.batches) for run in runs}


def accuracy(runs: Iterable[Run]) -> SeedValues:
    """A in percent."""
    return {run.seed: 100 * average_accuracy(run.accuracies) for run in runs}


def transfer(runs: Iterable[Run]) -> SeedValues:
    """F in points."""
    values = {run.seed: forward_transfer(run.accuracies, run.config.forward_transfer) for run in runs}
    found = {seed: 100 * value for seed, value in values.items() if value is not None}
    if not found:
        raise NotTestedError("F was not measured")
    return found


def seconds(runs: Iterable[Run]) -> SeedValues:
    """Seconds to adapt to one domain."""
    return {run.seed: seconds_per_domain([run]) for run in runs}


def combine(function: Callable[..., float], *parts: SeedValues) -> SeedValues:
    """`function` of the parts' numbers, at every seed that all of them have."""
    seeds = set.intersection(*(set(part) for part in parts))
    if not seeds:
        raise NotTestedError("the compared runs have no seed in common")
    return {seed: float(function(*(part[seed] for part in parts))) for seed in sorted(seeds)}


def least(*parts: SeedValues) -> SeedValues:
    """The smallest of the parts."""
    return combine(lambda *values: min(values), *parts)


def most(*parts: SeedValues) -> SeedValues:
    """The largest of the parts."""
    return combine(lambda *values: max(values), *parts)


def less(one: SeedValues, other: SeedValues) -> SeedValues:
    """one − other."""
    return combine(lambda a, b: a - b, one, other)


# ---------------------------------------------------------------- statistics


def error_margin(view: View) -> SeedValues:
    """By how much the cascade's E is below the best of the others'."""
    return less(least(*view.others(error)), error(view.main("cascade")))


def accuracy_margin(view: View) -> SeedValues:
    """By how much the cascade's A is above the best of the others'."""
    return less(accuracy(view.main("cascade")), most(*view.others(accuracy)))


def worst_domain_margin(*but: str) -> Callable[[View], SeedValues]:
    """As error_margin, in the domain where it is smallest, of all domains but these."""

    def by_domain(view: View, method: str) -> dict[int, pd.Series]:
        errors = {run.seed: 100 * online_errors(run.batches) for run in view.main(method)}
        return {seed: values.drop(list(but), level="domain") for seed, values in errors.items()}

    def statistic(view: View) -> SeedValues:
        others, own = [by_domain(view, method) for method in OTHERS[view.modality]], by_domain(view, "cascade")
        best = {s: pd.concat([o[s] for o in others], axis=1).min(axis=1) for s in set(own).intersection(*others)}
        return combine(lambda value: value, {seed: (best[seed] - own[seed]).min() for seed in best})

    return statistic


def batch_errors(view: View, method: str) -> list[SeedValues]:
    """E of a method at each of the paper's batch sizes."""
    return [error(view.point("batch_sizes", method, batch_size=size)) for size in PAPER_BATCH_SIZES]


def batch_deviation(method: str) -> Callable[[View], SeedValues]:
    """The standard deviation of a method's E over the paper's batch sizes."""
    return lambda view: combine(lambda *values: pd.Series(values).std(), *batch_errors(view, method))


def small_batch_margin(view: View) -> SeedValues:
    """By how much the cascade's E is below the better of Tent's and CoTTA's at batch size 16."""
    small = [error(view.point("batch_sizes", method, batch_size=16)) for method in ("tent", "cotta", "cascade")]
    return less(least(*small[:2]), small[2])


def small_batch_loss(method: str) -> Callable[[View], SeedValues]:
    """What a method loses from batch size 128 to 16."""

    def statistic(view: View) -> SeedValues:
        large, *_, small = batch_errors(view, method)
        return less(small, large)

    return statistic


def meta_gain_everywhere(view: View) -> SeedValues:
    """meta_gain of TTT at the one of the paper's batch sizes where it is smallest."""
    return least(*(meta_gain("ttt", "ttt", "meta_ttt", size)(view) for size in PAPER_BATCH_SIZES))


def most_transfer(*methods: str) -> Callable[[View], SeedValues]:
    """The largest F of some methods on the main stream."""
    return lambda view: most(*(transfer(view.main(method)) for method in methods))


def cotta_transfer_at_severities(view: View) -> SeedValues:
    """CoTTA's largest F at the severities 1 to 4."""
    return most(*(transfer(view.point("severities", "cotta", severity=severity)) for severity in range(1, 5)))


def meta_gain(method: str, plain: str, meta: str, batch_size: int) -> Callable[[View], SeedValues]:
    """By how much meta-learning lowers a method's E."""

    def statistic(view: View) -> SeedValues:
        return less(
            error(view.point("meta_learning", method, plain, batch_size=batch_size)),
            error(view.point("meta_learning", method, meta, batch_size=batch_size)),
        )

    return statistic


def severity_errors(view: View, method: str, experiment: str) -> list[SeedValues]:
    """E of a method at the severities 1 to 5."""
    return [error(view.point(experiment, method, severity=severity)) for severity in range(1, 6)]


def parts_margin(other: str, function: Callable[..., SeedValues]) -> Callable[[View], SeedValues]:
    """By how much the cascade's E is below a variant's, over the severities."""

    def statistic(view: View) -> SeedValues:
        both = (severity_errors(view, name, "cascade_parts") for name in (other, "cascade"))
        return function(*(less(variant, own) for variant, own in zip(*both, strict=True)))

    return statistic


def lower_severities_margin(view: View) -> SeedValues:
    """As error_margin, at the one of the severities 1 to 4 where it is smallest."""
    margins = []
    for severity in range(1, 5):
        each = {m: error(view.point("severities", m, severity=severity)) for m in (*OTHERS["image"], "cascade")}
        own = each.pop("cascade")
        margins.append(less(least(*each.values()), own))
    return least(*margins)


def lower_severities_accuracy(view: View) -> SeedValues:
    """As accuracy_margin, at the one of the severities 1 to 4 where it is smallest."""
    margins = []
    for severity in range(1, 5):
        each = {m: accuracy(view.point("severities", m, severity=severity)) for m in (*OTHERS["image"], "cascade")}
        own = each.pop("cascade")
        margins.append(less(own, most(*each.values())))
    return least(*margins)


def gradual(method: str, value: Callable[[list[Run]], SeedValues]) -> Callable[[View], SeedValues]:
    """A method's value on the gradually changing stream."""
    return lambda view: value(view.point("gradual", method))


def gradual_margin(view: View) -> SeedValues:
    """By how much the cascade's E is below the best of TTT's, Tent's and CoTTA's on the gradual stream."""
    others = [gradual(method, error)(view) for method in ("ttt", "tent", "cotta")]
    return less(least(*others), gradual("cascade", error)(view))


def fall_within_domains(column: str) -> Callable[[View], SeedValues]:
    """By how much a column falls from the first samples of a domain to its last for the cascade, beyond what it falls
    on the same images for AdaBN, which adapts nothing."""

    def fall(run: Run) -> float:
        table = within_domains(run)[column]
        if len(table) < 2:
            raise NotTestedError("a domain is one batch")
        return float(table.iloc[0] - table.iloc[-1])

    def statistic(view: View) -> SeedValues:
        own, still = ({run.seed: fall(run) for run in view.main(method)} for method in ("cascade", "adabn"))
        return less(own, still)

    return statistic


def rise_with_severity(column: str) -> Callable[[View], SeedValues]:
    """The smallest step of a column from one severity to the next, for the cascade."""

    def statistic(view: View) -> SeedValues:
        points = [each for each in view.evidence.experiment("severities", view.dataset) if _is(each, "cascade", {})]
        seeds = sorted({run.seed for each in points for run in each.runs})
        tables = {seed: severity_entropies(points, seed) for seed in seeds}
        whole = {seed: table[column] for seed, table in tables.items() if len(table) == 5}
        if not whole:
            raise NotTestedError("no seed with the cascade at every severity")
        return {seed: float(values.diff().min()) for seed, values in whole.items()}

    return statistic


def cosine_gain(view: View) -> SeedValues:
    """Cosine of ∇CE and ∇ENT on ψ in the kept epoch: that of meta-learning less that of multi-task learning."""
    both = (
        {each.config.seed: float(kept_epoch(each.history)["gradient_cosine"]) for each in view.trained(objective)}
        for objective in ("meta", "multi_task")
    )
    return less(*both)


def checked(value: Callable[[Mapping[str, float]], float]) -> Callable[[View], SeedValues]:
    """A value of what theorem.check_theorem found of the meta-trained network."""

    def statistic(view: View) -> SeedValues:
        checks = {each.config.seed: view.evidence.store.theorem(each.config) for each in view.trained("meta")}
        found = {seed: value(check) for seed, check in checks.items() if check is not None}
        if not found:
            raise NotTestedError("the decomposition was not checked")
        return found

    return statistic


RIVALS = ("tent", "cotta", "ttt")
"""What cascade_plus is to be better than, each at the learning rate chosen for it on the source."""


def plus_error_margin(view: View) -> SeedValues:
    """By how much cascade_plus's E is below that of each seed's best rival."""
    return less(least(*(error(view.compared(m)) for m in RIVALS)), error(view.compared("cascade_plus")))


def plus_accuracy_margin(view: View) -> SeedValues:
    """By how much cascade_plus's A is above that of each seed's best rival."""
    return less(accuracy(view.compared("cascade_plus")), most(*(accuracy(view.compared(m)) for m in RIVALS)))


def plus_batch_loss(view: View) -> SeedValues:
    """What cascade_plus loses from batch size 128 to 16."""
    return less(*(error(view.compared("cascade_plus", f"batch {size}")) for size in (16, 128)))


def plus_small_batch_margin(view: View) -> SeedValues:
    """By how much cascade_plus's E at batch size 4 is below ERM's."""
    return less(error(view.compared("erm")), error(view.compared("cascade_plus", "batch 4")))


def plus_drift(view: View) -> SeedValues:
    """E over the last 27 gradual domains, less that over the same where each corruption is met by a fresh model."""
    late, alone = late_errors(view.comparison, METHODS["cascade_plus"].label)
    if not late or not alone:
        raise NotTestedError("no run of cascade_plus on the gradual stream of the comparison")
    return less(late, alone)


def plus_agreement(view: View) -> SeedValues:
    """Agreement (%) of a and z on clean held-out examples, in the epoch kept of cascade_plus's pre-training."""
    trained = view.evidence.trained(view.compared("cascade_plus"))
    return {each.config.seed: 100 * float(kept_epoch(each.history)["agreement"]) for each in trained}


def plus_baseline_margin(view: View) -> SeedValues:
    """By how much cascade_plus's E on the main stream is below that of each seed's best other method."""
    others = [error(view.main(method)) for method in (*OTHERS[view.modality], "cotta")]
    return less(least(*others), error(view.main("cascade_plus")))


# ---------------------------------------------------------------- the claims


Side = Literal["above", "below", "at least", "at most"]
SIDES: dict[Side, tuple[str, Callable[[float, float], bool]]] = {
    "above": (">", operator.gt),
    "below": ("<", operator.lt),
    "at least": ("≥", operator.ge),
    "at most": ("≤", operator.le),
}


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that numbers can speak for or against.

    dataset: as the paper's tables name it. exhibit: the label of the one to look at. paper: the paper's own value of
    the statistic. The claim is that the statistic lies on that `side` of the bound; by: that its `mean` does, that
    the `whole` of its interval over seeds does, or `some` of it.
    """

    identifier: str
    sentence: str
    section: str
    modality: Modality
    dataset: str
    exhibit: str
    paper: str
    statistic: Callable[[View], SeedValues]
    side: Side = "above"
    bound: float = 0.0
    by: Literal["mean", "whole", "some"] = "mean"

    @property
    def condition(self) -> str:
        """The bound in words."""
        interval = {"mean": "", "whole": ", the whole interval", "some": ", or the interval reaches there"}[self.by]
        return f"{SIDES[self.side][0]} {self.bound:g}{interval}"


C10, C100, TINY = "CIFAR-10-C", "CIFAR-100-C", "Tiny-ImageNet-C"
TEXT, SPEECH = "Amazon Reviews", "Google Commands"


def _image(
    identifier: str,
    sentence: str,
    section: str,
    exhibit: str,
    paper: str,
    statistic: Callable[[View], SeedValues],
    side: Side = "above",
    bound: float = 0.0,
    *,
    dataset: str = C10,
    by: Literal["mean", "whole", "some"] = "mean",
) -> Claim:
    return Claim(identifier, sentence, section, "image", dataset, exhibit, paper, statistic, side, bound, by)


MAIN, GRADUAL, SIZES, META = "tab:main-result", "tab:gradual-c10", "tab:insensitive", "tab:ablation-meta"
PARTS, UNC, LEVELS, SPEED, THEOREM = (
    "fig:cascade, tab:effect-theta-a",
    "fig:unc",
    "tab:add-result",
    "tab:speed",
    "Theorem 1",
)
COMPARISON, OURS = "beyond: comparison", "ours"
WITHOUT, FIXED = "cascade_no_auxiliary", "cascade_fixed_classifier"

CLAIMS: list[Claim] = [
    _image("c10-error", "lowest online error on CIFAR-10-C (margin to the next)", "6.1", MAIN, "3.52", error_margin),
    _image("c10-error-value", "E of 22.99 % on CIFAR-10-C", "6.1", MAIN, "22.99",
           lambda view: error(view.main("cascade")), "below", 23.5),
    _image("c10-accuracy", "highest average accuracy on CIFAR-10-C", "6.1", MAIN, "8.19", accuracy_margin),
    _image("c10-accuracy-value", "A of 77.36 % on CIFAR-10-C", "6.1", MAIN, "77.36",
           lambda view: accuracy(view.main("cascade")), "above", 77.0),
    _image("c10-transfer", "positive forward transfer on CIFAR-10-C", "6.1", MAIN, "0.58",
           lambda view: transfer(view.main("cascade"))),
    _image("c10-others-transfer", "the other methods' forward transfer is negative on CIFAR-10-C (the largest of them)",
           "6.1", MAIN, "−4.42",
           most_transfer("ttt", "tent", "cotta"), "below"),
    _image("c100-error", "lowest online error on CIFAR-100-C", "6.1", MAIN, "2.09", error_margin, dataset=C100),
    _image("c100-accuracy", "highest average accuracy on CIFAR-100-C", "6.1", MAIN, "6.39", accuracy_margin,
           dataset=C100),
    _image("c100-transfer", "positive forward transfer on CIFAR-100-C", "6.1", MAIN, "0.19",
           lambda view: transfer(view.main("cascade")), dataset=C100),
    _image("c100-cotta", "CoTTA has a positive forward transfer on CIFAR-100-C", "6.1", MAIN, "1.52",
           most_transfer("cotta"), dataset=C100),
    _image("c100-others-transfer", "TTT's and Tent's forward transfer is negative on CIFAR-100-C (the larger)", "6.1",
           MAIN, "−2.30", most_transfer("ttt", "tent"), "below", dataset=C100),
    _image("tiny-cotta", "CoTTA has a positive forward transfer on Tiny-ImageNet-C", "6.1", MAIN, "1.29",
           most_transfer("cotta"), dataset=TINY),
    _image("tiny-others-transfer", "TTT's and Tent's forward transfer is negative on Tiny-ImageNet-C (the larger)",
           "6.1", MAIN, "−11.16", most_transfer("ttt", "tent"), "below", dataset=TINY),
    _image("tiny-error", "lowest online error on Tiny-ImageNet-C", "6.1", MAIN, "9.62", error_margin, dataset=TINY),
    _image("tiny-accuracy", "highest average accuracy on Tiny-ImageNet-C", "6.1", MAIN, "2.79", accuracy_margin,
           dataset=TINY),
    _image("tiny-transfer", "large negative forward transfer on Tiny-ImageNet-C", "6.1", MAIN, "−12.27",
           lambda view: transfer(view.main("cascade")), "below", -5.0, dataset=TINY),
    _image("gradual-error", "lowest online error over 135 gradual domains", "6.1", GRADUAL, "10.88", gradual_margin),
    _image("gradual-accuracy", "A of 81.19 % after 135 gradual domains", "6.1", GRADUAL, "81.19",
           gradual("cascade", accuracy), "above", 80.0),
    _image("gradual-transfer", "minimal forward transfer loss over 135 gradual domains", "6.1", GRADUAL, "−2.4",
           gradual("cascade", transfer), "above", -3.0),
    _image("gradual-tent", "Tent deviates from the true prediction over 135 gradual domains (its A)", "6.1", GRADUAL,
           "11.39", gradual("tent", accuracy), "below", 30.0),
    _image("gradual-cotta", "CoTTA deviates from the true prediction over 135 gradual domains (its A)", "6.1", GRADUAL,
           "26.93", gradual("cotta", accuracy), "below", 30.0),
    Claim("text-error", "lowest online error on Amazon Reviews", "6.2", "text", TEXT, "tab:text", "0.38", error_margin),
    Claim("text-accuracy", "highest average accuracy on Amazon Reviews", "6.2", "text", TEXT, "tab:text", "0.84",
          accuracy_margin),
    Claim("text-transfer", "positive forward transfer on Amazon Reviews", "6.2", "text", TEXT, "tab:text", "4.82",
          lambda view: transfer(view.main("cascade"))),
    Claim("text-domains", "outperforms others across all test domains (least margin; the paper's own table says no)",
          "6.2", "text", TEXT, "tab:text", "−0.95", worst_domain_margin()),
    Claim("speech-error", "lowest online error on Google Commands", "6.3", "speech", SPEECH, "tab:speech", "1.36",
          error_margin),
    Claim("speech-accuracy", "highest average accuracy on Google Commands", "6.3", "speech", SPEECH, "tab:speech",
          "2.41", accuracy_margin),
    Claim("speech-transfer", "better forward transfer than Tent on Google Commands", "6.3", "speech", SPEECH,
          "tab:speech", "17.11", lambda view: less(transfer(view.main("cascade")), transfer(view.main("tent")))),
    Claim("speech-domains", "lowest error on all target domains but stretch (least margin)", "6.3", "speech", SPEECH,
          "tab:speech", "0.70", worst_domain_margin("stretch")),
    _image("batch-cascade", "insensitive to the batch size: standard deviation of E over 128 to 16", "6.4", SIZES,
           "1.1 (0.9 in the text)", batch_deviation("cascade"), "below", 1.5),
    _image("batch-ttt", "TTT is insensitive to the batch size", "6.4", SIZES, "0.7", batch_deviation("ttt"), "below",
           1.5),
    _image("batch-cotta", "CoTTA's error rises when the batch shrinks from 128 to 16", "6.4", SIZES, "11.83",
           small_batch_loss("cotta"), "above", 5.0),
    _image("batch-tent", "Tent's error rises when the batch shrinks from 128 to 16", "6.4", SIZES, "27.75",
           small_batch_loss("tent"), "above", 5.0),
    _image("batch-16", "outperforms Tent and CoTTA by at least 9 % at batch size 16", "6.4", SIZES, "8.95",
           small_batch_margin, "above", 8.9),
    _image("meta-cascade", "without meta-learning the cascade fails at batch size 16 (by how much)", "6.4", META,
           "51.25", meta_gain("cascade", "multi_task", "meta", 16), "above", 10.0),
    _image("meta-ttt", "meta-learning improves TTT at batch size 128", "6.4", META, "4.11",
           meta_gain("ttt", "ttt", "meta_ttt", 128)),
    _image("meta-ttt-sizes", "meta-learning improves TTT across batch sizes (least gain; the paper's table: not at 16)",
           "6.4", META, "−1.05", meta_gain_everywhere),
    _image("theta-a", "θ_a improves E at all severities on CIFAR-10-C (least gain)", "6.4", PARTS, "a figure",
           parts_margin(WITHOUT, least)),
    _image("theta-a-tiny", "θ_a improves E at all severities on Tiny-ImageNet-C (least gain)", "6.4", PARTS, "1.87",
           parts_margin(WITHOUT, least), dataset=TINY),
    _image("theta-m", "updating θ_m is better than fixing it, at all severities (least gain)", "6.4", PARTS, "a figure",
           parts_margin(FIXED, least)),
    _image("entropy-samples", "entropy of a falls with the samples adapted on (nats)", "6.5", UNC, "a figure",
           fall_within_domains("entropy_auxiliary")),
    _image("error-samples", "error falls with the samples adapted on", "6.5", UNC, "a figure",
           fall_within_domains("error")),
    _image("entropy-severity", "entropy of a rises with severity (least step, nats)", "6.5", UNC, "a figure",
           rise_with_severity("entropy_auxiliary")),
    _image("error-severity", "error rises with severity (least step)", "6.5", UNC, "a figure",
           rise_with_severity("error")),
    _image("levels-error", "lowest online error at the severities 1 to 4 (least margin)", "app.", LEVELS, "0.40",
           lower_severities_margin),
    _image("levels-accuracy", "highest average accuracy at the severities 1 to 4 (the paper's table says no, at 2)",
           "app.", LEVELS, "−0.34", lower_severities_accuracy),
    _image("levels-cotta", "CoTTA has a substantial loss of F at the severities 1 to 4 (its largest)", "app.", LEVELS,
           "−7.72", cotta_transfer_at_severities, "at most", -5.0),
    _image("speed", "adapts at least 3 times as fast as CoTTA", "app.", SPEED, "3.4",
           lambda view: combine(lambda a, b: a / b, seconds(view.main("cotta")), seconds(view.main("cascade"))),
           "at least", 3.0),
    _image("speed-order", "adapts an order of magnitude faster than CoTTA (the paper's own table says 3.4)", "app.",
           SPEED, "3.4",
           lambda view: combine(lambda a, b: a / b, seconds(view.main("cotta")), seconds(view.main("cascade"))),
           "at least", 10.0),
    _image("theorem-alignment", "meta-learning aligns ∇CE and ∇ENT: cosine, less that of multi-task learning", "5",
           THEOREM, "–", cosine_gain),
    _image("theorem-form", "the meta-gradient decomposes as printed, with β and the Hessian at ψ′ (error, in multiples"
           " of that without any Hessian)", "5", THEOREM, "–",
           checked(lambda check: check["error_as_printed"] / check["error_first_order"]), "below", 0.1),
    _image("theorem-convex", "the Hessian of the self-supervised loss is positive semi-definite (least curvature)",
           "5", THEOREM, "–", checked(lambda check: check["smallest_curvature"]), "at least", 0.0),
    _image("plus-error", "Cascade+ errs at least 1 point less than the best of Tent, CoTTA and TTT, each at the rate"
           " chosen for it", OURS, COMPARISON, "–", plus_error_margin, "at least", 1.0),
    _image("plus-error-sure", "Cascade+ errs less than the best of these, and not by chance", OURS, COMPARISON, "–",
           plus_error_margin, by="whole"),
    _image("plus-accuracy", "Cascade+ has at least the A of the best of these (margin)", OURS, COMPARISON, "–",
           plus_accuracy_margin, "at least"),
    _image("plus-transfer", "Cascade+ has no negative F", OURS, COMPARISON, "–",
           lambda view: transfer(view.compared("cascade_plus")), "at least"),
    _image("plus-batch-16", "Cascade+ loses 2 points at most from batch size 128 to 16", OURS, COMPARISON, "–",
           plus_batch_loss, "at most", 2.0),
    _image("plus-batch-4", "Cascade+ at batch size 4 errs less than ERM (margin)", OURS, COMPARISON, "–",
           plus_small_batch_margin),
    _image("plus-drift", "Cascade+ errs no more at the end of 135 gradual domains than on the same from the source",
           OURS, COMPARISON, "–", plus_drift, "at most"),
    _image("plus-agreement", "θ_a of Cascade+ does not collapse: it agrees with z on 80 % of held-out images", OURS,
           COMPARISON, "–", plus_agreement, "above", 80.0),
    Claim("plus-text", "Cascade+ errs no more than the best baseline on Amazon Reviews (margin)", OURS, "text", TEXT,
          "tab:text", "–", plus_baseline_margin, "at least", by="some"),
    Claim("plus-speech", "Cascade+ errs no more than the best baseline on Google Commands (margin)", OURS, "speech",
          SPEECH, "tab:speech", "–", plus_baseline_margin, "at least", by="some"),
]  # fmt: skip
"""In the order of the paper's experiments; the theorem comes last, and then what we ask of Cascade+."""


# ---------------------------------------------------------------- verdicts


@dataclass(frozen=True)
class Judgement:
    """What became of a claim on one dataset (None: no dataset of the profile stands for the claim's)."""

    claim: Claim
    dataset: str | None
    estimate: Estimate | None
    verdict: Verdict
    reason: str


def other_protocol(settings: Settings, modality: Modality) -> str:
    """In which point the profile's main runs are not the paper's, or nothing."""
    paper: dict[str, object] = {
        "stream": "instantaneous",
        "predict": "after",
        "last_batch": "kept",
        "forward_transfer": "paper",
    }
    paper |= {"online_learning_rate": report.PAPER_LEARNING_RATE}
    paper |= {"severity": 5} if modality == "image" else {}
    for name, value in paper.items():
        if (ours := getattr(settings, f"{modality}_{name}")) != value:
            return f"{modality}_{name} is {ours}, in the paper {value}"
    return ""


def judge(claim: Claim, estimate: Estimate, *, hindrance: str = "") -> tuple[Verdict, str]:
    """The verdict on a claim from the estimate of its statistic, and why it is none or weak. hindrance: what forbids a
    verdict, whatever the estimate."""
    if hindrance:
        return "not tested", hindrance
    if estimate.n < LEAST_SEEDS:
        side = "meets" if _meets(claim, estimate.mean) else "misses"
        return "not tested", f"{estimate.n} of {LEAST_SEEDS} seeds; what is there {side} the bound"
    ends = _meets(claim, estimate.low), _meets(claim, estimate.high)
    decided = ends[0] == ends[1]
    met = {"mean": _meets(claim, estimate.mean), "whole": all(ends), "some": any(ends)}[claim.by]
    verdict: Verdict = "holds" if met else "does not hold"
    return verdict, "" if decided else "the interval contains the bound"


def _meets(claim: Claim, value: float) -> bool:
    # Rounded, so that a difference of two alike is 0: their sums may differ in the last bit.
    return bool(SIDES[claim.side][1](round(value, 9), claim.bound))


def judge_on(claim: Claim, evidence: Evidence, dataset: str) -> Judgement:
    """The claim on one dataset of the profile."""
    name = dataset_name(dataset)
    try:
        values = claim.statistic(View(evidence, claim.modality, dataset))
    except NotTestedError as missing:
        return Judgement(claim, name, None, "not tested", str(missing))
    estimate = over_seeds_estimate(list(values.values()))
    made_up = not is_real(dataset) or evidence.settings.profile == "quick"
    hindrance = "machinery only" if made_up else other_protocol(evidence.settings, claim.modality)
    return Judgement(claim, name, estimate, *judge(claim, estimate, hindrance=hindrance))


def all_judgements(evidence: Evidence) -> list[Judgement]:
    """Every claim, on each dataset of the profile that stands for the claim's."""
    stands_for = {
        (modality, dataset): View(evidence, modality, dataset).compare_with
        for modality in OTHERS
        for dataset in evidence.settings.datasets(modality)
    }
    found = []
    for claim in CLAIMS:
        datasets = [
            d for (modality, d), name in stands_for.items() if (modality, name) == (claim.modality, claim.dataset)
        ]
        found += [judge_on(claim, evidence, dataset) for dataset in datasets]
        if not datasets:
            reason = f"no run on {claim.dataset} or what stands for it"
            found.append(Judgement(claim, None, None, "not tested", reason))
    return found


def verdict_table(judgements: Iterable[Judgement], *, links: bool = False) -> pd.DataFrame:
    """A row a judgement, as text; with `links` the exhibit is a link, in HTML, to its heading on the page."""
    rows = []
    for each in judgements:
        claim, exhibit = each.claim, each.claim.exhibit
        if links and each.dataset is not None:
            exhibit = f'<a href="#{exhibit_anchor(exhibit, each.dataset)}">{exhibit}</a>'
        rows.append(
            {
                "claim": claim.identifier,
                "sentence": f"{claim.sentence} ({'ours' if claim.section == OURS else f'Sec. {claim.section}'})",
                "paper": claim.paper,
                "holds if": claim.condition,
                "ours": "–" if each.estimate is None else str(each.estimate),
                "on": each.dataset or "–",
                "verdict": f"**{each.verdict}**" + (f" ({each.reason})" if each.reason else ""),
                "exhibit": exhibit,
            }
        )
    return pd.DataFrame(rows).set_index("claim")


def save(judgements: Iterable[Judgement], profile: str, folder: Path) -> list[Path]:
    """Write the verdicts as Markdown, LaTeX and CSV."""
    about = f"Profile {profile}. Each number comes from the runs of the exhibit in its row, which says what made them."
    return save_table(verdict_table(judgements), "verdicts", about, folder)
