"""A verdict on each claim: supported, contradicted, depends (on the reading), undecided, or not
tested. Each comes with the reason. VERDICTS.md states the rules.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import pandas as pd

from cascadetta_lib.data import DatasetName
from cascadetta_lib.data.base import Modality
from cascadetta_lib.files import write_text_atomically
from study.exhibits.kit.exhibit import EXHIBITS
from study.exhibits.kit.intervals import Estimate
from study.exhibits.kit.numbers import Rounded, in_full
from study.exhibits.kit.origin_of_network import doubt_about_held_out
from study.exhibits.kit.rendering import each_once, markdown
from study.exhibits.kit.stored_runs import Runs
from study.exhibits.verdicts.claims import CLAIMS, EXACT, Claim, Reading
from study.exhibits.verdicts.evidence import (
    AUTHORS,
    OURS,
    Evidence,
    NotTestedError,
    Tier,
    measure,
    tier_of,
)
from study.exhibits.verdicts.regime import (
    RATE,
    REGIMES,
    gate,
    hindrance_of_runs,
    hindrance_of_study,
)
from study.exhibits.verdicts.weighing import weigh
from study.settings import Settings

LEAST_SEEDS = 3
LEAST_ORDERS = 5
Outcome = Literal["supported", "contradicted", "depends", "undecided", "not tested"]


@dataclass(frozen=True)
class Finding:
    """The outcome of one reading.

    part: the part of the statistic that decides, or that stands most in the way of support.
    estimate: the mean of this part, and its 95 % interval.
    reason: why nothing is decided, or what limits the decision.
    """

    reading: Reading
    outcome: Outcome
    reason: str = ""
    part: str = ""
    estimate: Estimate | None = None

    def __str__(self) -> str:
        return self.written.text

    @property
    def written(self) -> Rounded:
        """The number with the reading's name; a dash if there is no number."""
        name = f"{self.reading.name}: " if self.reading.name else ""
        if self.estimate is None:
            return Rounded(f"{name}–", f"{name}–")
        number = self.estimate.written
        return Rounded(f"{name}{number}; {self.part}", f"{name}{number.full}; {self.part}")


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim on one dataset, and the reason.

    dataset: None if no dataset of the profile compares with the dataset of the claim.
    networks: the kinds of weights behind the verdict, such as `shipped`, and the number of test
        examples in the smallest domain.
    """

    claim: Claim
    dataset: DatasetName | None
    tier: Tier | None = None
    outcome: Outcome = "not tested"
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    networks: str = ""

    @property
    def estimate(self) -> Rounded:
        """The numbers of all readings, as text."""
        measured = [each.written for each in self.findings if each.estimate]
        shown = "; ".join(each.text for each in measured) or "–"
        return Rounded(shown, "; ".join(each.full for each in measured) or "–")


def judge_reading(reading: Reading, runs: Runs, evidence: Evidence, hindrance: str) -> Finding:
    """Return the outcome of a reading from its measured statistic.

    hindrance: what forbids a verdict, as text. If it is not empty, the outcome is `not tested`.
    """
    on_authors = tier_of(runs) == AUTHORS
    over = "orders" if on_authors else "seeds"
    if reading.then in EXACT:
        found = _exact(reading, evidence.parts, over)
    else:
        weighed = weigh(evidence.parts, reading.side, reading.bound, over, evidence.images)
        found = Finding(reading, weighed.outcome, weighed.reason, weighed.part, weighed.estimate)
    if hindrance:
        return Finding(reading, "not tested", hindrance, found.part, found.estimate)
    if evidence.left_out:
        told = f"without {', '.join(evidence.left_out)}, whose network was not released"
        reason = f"{found.reason}; {told}" if found.reason else told
        return Finding(reading, found.outcome, reason, found.part, found.estimate)
    return found


def _exact(reading: Reading, parts: pd.DataFrame, over: str) -> Finding:
    """Judge a reading without an interval.

    With `ratio` the reading is supported if every value meets the bound, and else contradicted.
    With `one refutes` a single value that misses the bound refutes the reading. If none misses it,
    the outcome is `undecided`, because nothing is proved.
    """
    values = parts.iloc[:, 0].dropna()
    sign = 1 if reading.side == ">" else -1
    margins = sign * (values - reading.bound)
    value = float(values.to_numpy()[margins.to_numpy().argmin()])
    estimate = Estimate(value, float("nan"), float("nan"), len(values), over)
    part = str(parts.columns[0])
    if reading.then == "ratio":
        outcome: Outcome = "supported" if margins.min() > 0 else "contradicted"
        return Finding(reading, outcome, "counted, so without an interval", part, estimate)
    if margins.min() < 0:
        reason = "one network refutes it; the network furthest beyond the bound is shown"
        return Finding(reading, "contradicted", reason, part, estimate)
    reason = "no measured network misses the bound; this does not prove that none would"
    return Finding(reading, "undecided", reason, part, estimate)


def outcome_of(findings: Sequence[Finding]) -> tuple[Outcome, str]:
    """Return the verdict on a claim, and its reason, from the findings on all of the claim's
    readings.
    """
    outcomes = [each.outcome for each in findings]
    several = len(findings) > 1
    if "supported" in outcomes and "contradicted" in outcomes:
        told = [f"{each.reading.name}: {each.outcome}" for each in findings]
        return "depends", "; ".join(told)
    if "not tested" in outcomes:
        first = findings[outcomes.index("not tested")]
        return "not tested", _named(first, several)
    for same in ("supported", "contradicted"):
        if set(outcomes) == {same}:
            return same, findings[0].reason
    if not several:
        return "undecided", findings[0].reason
    return "undecided", "; ".join(f"{each.reading.name}: {each.outcome}" for each in findings)


def _named(finding: Finding, several: bool) -> str:
    """Return the reason of a finding. If the claim has several readings, the name of the reading
    comes first.
    """
    if several and finding.reading.name:
        return f"{finding.reading.name}: {finding.reason}"
    return finding.reason


def hindrance_of(claim: Claim, reading: Reading, runs: Runs, evidence: Evidence) -> str:
    """Return why a claim gets no verdict, whatever the number is, as text; empty if it may get one.

    A claim needs enough orders or seeds, real data that are not the user's own, and on networks of
    ours a network of its own for each seed. Today's code must have made all runs behind it, or none
    of them. A claim of ours is judged on networks of ours only. A claim at chosen rates needs
    several rates to choose from, on images from which the network has not learned. A claim of the
    paper also needs the paper's regime.
    """
    states_of_code = {runs.is_current(run) for run in evidence.used}
    if len(states_of_code) > 1:
        return "some of the runs were made by an earlier code than the others"
    fewest = int(evidence.parts.count().min())
    if tier_of(runs) == AUTHORS:
        if claim.section == "ours":
            return "our own claims are judged on our own networks, not on the authors'"
        if fewest < LEAST_ORDERS and reading.then not in EXACT:
            return f"{fewest} of {LEAST_ORDERS} orders"
    elif fewest < LEAST_SEEDS and reading.then not in EXACT:
        return f"{fewest} of {LEAST_SEEDS} seeds"
    if tier_of(runs) == OURS and reading.then not in EXACT:
        asked = [run.request.checkpoint for run in evidence.used]
        for objective in {each.objective for each in asked}:
            of_objective = [each for each in asked if each.objective == objective]
            networks = {
                (each.weights, each.seed if each.weights == "train" else None)
                for each in of_objective
            }
            if len(networks) < len({each.seed for each in of_objective}):
                return "several seeds have one network"
    dataset = runs.dataset_name
    if dataset.entry.own:
        return f"regime: data: {dataset.title} instead of {claim.dataset}"
    if not dataset.entry.real:
        return "regime: data: a stand-in, which tests the machinery alone"
    if claim.exhibit in ("comparison", "field"):
        if not runs.settings.image.exhibits.chooses_rates:
            return "a single learning rate, which leaves nothing to choose"
        for run in evidence.used:
            if doubt := doubt_about_held_out(run):
                return doubt
    if claim.section == "ours":
        # On images each method has the rate that was chosen for it.
        rate = runs.study.section.online.online_learning_rate
        if rate == RATE or runs.modality == "image":
            return ""
        return f"online_learning_rate {rate} instead of {RATE}"
    lacks = hindrance_of_runs(claim, evidence.used, tier_of(runs))
    lacks = lacks or hindrance_of_study(claim.dataset, runs, tier_of(runs))
    return f"regime: {lacks}" if lacks else ""


def judge(
    claim: Claim,
    runs: Runs,
    hindrance: Callable[[Claim, Reading, Runs, Evidence], str] = hindrance_of,
) -> Judgement:
    """Return the verdict on a claim from the runs of one dataset.

    hindrance: a function that returns what forbids a verdict, as text; empty if nothing does.
    """
    findings: list[Finding] = []
    weights: list[str] = []
    sizes: list[int] = []
    for reading in claim.readings:
        try:
            evidence = measure(reading, runs)
        except NotTestedError as missing:
            findings.append(Finding(reading, "not tested", f"missing: {missing}"))
            continue
        forbids = hindrance(claim, reading, runs, evidence)
        findings.append(judge_reading(reading, runs, evidence, forbids))
        for run in evidence.used:
            weights.append(run.request.checkpoint.weights_kind)
            sizes.append(int(run.examples_by_domain.min()))
    outcome, reason = outcome_of(findings)
    networks = f"{each_once(weights)}; {min(sizes):,} a domain" if sizes else ""
    dataset = runs.dataset_name
    return Judgement(claim, dataset, tier_of(runs), outcome, reason, tuple(findings), networks)


def standing_for(settings: Settings) -> list[tuple[str, Runs]]:
    """Return a pair for each dataset of the profile that has runs: the name of the paper's dataset
    that it compares with, and the runs.
    """
    found = []
    for modality in get_args(Modality):
        for name in settings.datasets(modality):
            runs = Runs.of_settings(settings, modality, name)
            if runs.stored:
                found.append((str(runs.stored[0].provenance.compare_with), runs))
    return found


def judge_all(settings: Settings) -> list[Judgement]:
    """Judge every claim on each dataset of the profile that compares with the dataset of the claim.
    Without such a dataset the claim is not tested.
    """
    every = standing_for(settings)
    found: list[Judgement] = []
    for claim in CLAIMS:
        on = [runs for name, runs in every if name == claim.dataset]
        found += [judge(claim, runs) for runs in on]
        if not on:
            found.append(Judgement(claim, None, reason=f"missing: a run on {claim.dataset}"))
    return found


def gates(settings: Settings) -> pd.DataFrame:
    """Return the gates (regime.gate) of all datasets that compare with one of the paper's: a table
    of text, with a row per number.
    """
    every = [
        (runs.dataset_name, gate(name, runs))
        for name, runs in standing_for(settings)
        if name in REGIMES
    ]
    tables = [table.assign(on=name.title).rename_axis("gate") for name, table in every]
    found = pd.concat(tables) if tables else pd.DataFrame(columns=["measured", "passed"])
    passed = found["passed"].map({True: "yes", False: "**no**"})
    passed = passed.where(found["measured"].astype(bool), "not measured")
    return found.drop(columns="measured").assign(passed=passed)


def verdict_table(judgements: Sequence[Judgement]) -> pd.DataFrame:
    """Return the judgements as a table of text, a row per judgement."""
    rows = []
    for each in judgements:
        dataset = each.dataset.title if each.dataset else f"({each.claim.dataset})"
        rows.append(
            {
                "claim": each.claim.identifier,
                "sentence": f"{each.claim.sentence} ({each.claim.section})",
                "paper": each.claim.paper,
                "supported if": each.claim.condition,
                "ours": each.estimate,
                "on": dataset,
                "tier": each.tier or "–",
                "networks": each.networks or "–",
                "verdict": f"**{each.outcome}**" + (f" ({each.reason})" if each.reason else ""),
                "exhibit": EXHIBITS[each.claim.exhibit].label,
            }
        )
    return pd.DataFrame(rows).set_index("claim")


def save(judgements: Sequence[Judgement], settings: Settings) -> None:
    """Write the verdicts as Markdown and CSV into the profile's folder of figures. The Markdown
    also has the gates.
    """
    table = verdict_table(judgements)
    counts = pd.Series([each.outcome for each in judgements]).value_counts()
    counted = ", ".join(f"{n} {name}" for name, n in counts.items())
    text = (
        f"{markdown(table)}\n\nProfile {settings.profile}: {counted}. VERDICTS.md states "
        "the rules.\n\n"
    )
    text += (
        f"What must hold before a verdict on the paper is spoken:\n\n{markdown(gates(settings))}\n"
    )
    write_text_atomically(settings.figures_path / "verdicts.md", text)
    write_text_atomically(settings.figures_path / "verdicts.csv", table.map(in_full).to_csv())
