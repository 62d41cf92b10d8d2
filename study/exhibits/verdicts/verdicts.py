"""A verdict on each claim: supported, contradicted, undecided, or not tested and why. VERDICTS.md
states the rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, get_args

import numpy as np
import pandas as pd
from scipy import stats

from cascadetta_lib.data import entry
from cascadetta_lib.data.base import Modality
from study.exhibits.kit.exhibit import EXHIBITS, file_name
from study.exhibits.kit.intervals import CONFIDENCE, Estimate, over_seeds
from study.exhibits.kit.networks import not_held_out
from study.exhibits.kit.rendering import each_once, markdown
from study.exhibits.kit.runs import PUBLISHED, Runs
from study.exhibits.verdicts.claims import CLAIMS, Claim
from study.exhibits.verdicts.evidence import Evidence, NotTestedError, measure
from study.exhibits.verdicts.regime import (
    RATE,
    REGIMES,
    gate,
    hindrance_of_runs,
    hindrance_of_study,
)
from study.settings import Settings

LEAST_SEEDS = 3
Outcome = Literal["supported", "contradicted", "undecided", "not tested"]


@dataclass(frozen=True)
class Judgement:
    """What became of a claim on one dataset (None: no dataset of the profile stands for the
    claim's), and why.

    part: of `count` parts the one that decides, and `estimate` its mean and 95 % interval over
    seeds, not corrected. p_value: of the claim, its parts counted, as if it were the only one of
    its family. networks: where those behind it come from, such as `shipped`, and the fewest test
    examples of a domain.
    """

    claim: Claim
    dataset: str | None
    outcome: Outcome = "not tested"
    reason: str = ""
    part: str = ""
    count: int = 1
    estimate: Estimate | None = None
    p_value: float = 1.0
    networks: str = ""


def weigh(claim: Claim, dataset: str, evidence: Evidence) -> Judgement:
    """Which way a statistic speaks, `supported` or `contradicted`, and how surely, as if the claim
    were alone.

    All parts must meet the bound, or any one miss it, with Bonferroni's correction; one whose
    interval over the test batches contains the bound does neither. A claim of one part has a
    p-value of 5 % where its 95 % interval over seeds ends at the bound.
    """
    # Rounded, so that a difference of two alike is 0: their sums may differ in the last bit.
    margins = ((evidence.parts - claim.bound) * (1 if claim.side == ">" else -1)).round(9)
    meets, misses, reason = margins.apply(_above_zero), (-margins).apply(_above_zero), ""
    if claim.then == "one refutes":
        meets[:], misses[:] = 1.0, float(margins.gt(0).all(axis=None))
        reason = "no network misses the bound, which cannot prove that none does"
        evidence = replace(
            evidence, parts=evidence.parts.loc[[margins.min(axis=1).idxmin()]]
        )  # the one is shown
    unsure = [
        part for part, seen in evidence.batches.items() if seen.low <= claim.bound <= seen.high
    ]
    meets[unsure] = misses[unsure] = 1.0
    all_meet, any_misses = meets.max(), min(1.0, len(misses) * misses.min())
    outcome: Outcome = "supported" if all_meet <= any_misses else "contradicted"
    order = pd.DataFrame(
        {"p": -meets if outcome == "supported" else misses, "margin": margins.mean()}
    )
    deciding, p_value = (
        order.sort_values(["p", "margin"]).index[0],
        min(1.0, 2 * min(all_meet, any_misses)),
    )
    reason = (
        "the interval over the test batches contains the bound" if deciding in unsure else reason
    )
    networks = each_once(run.request.checkpoint.weights.partition(":")[0] for run in evidence.used)
    sizes = [int(run.batches.groupby("step")["count"].sum().min()) for run in evidence.used]
    networks += f"; {min(sizes):,} a domain" if sizes else ""
    estimate = over_seeds(evidence.parts[deciding])
    return Judgement(
        claim, dataset, outcome, reason, str(deciding), len(misses), estimate, p_value, networks
    )


def _above_zero(margins: pd.Series) -> float:
    """The one-sided p-value of Student's test that the mean is above 0; 1 from one seed."""
    if len(margins) < 2 or margins.std() < 1e-8:
        return 0.0 if len(margins) > 1 and margins.mean() > 0 else 1.0
    return float(stats.ttest_1samp(margins, 0, alternative="greater").pvalue)


def holm(p_values: Sequence[float], size: int) -> list[float]:
    """Holm's adjustment in a family of `size` tests, whose others have a p-value of 1; compare each
    with the level.
    """
    ordered = pd.Series(p_values, dtype=float).sort_values()
    return list((ordered * (size - np.arange(len(ordered)))).cummax().clip(upper=1).sort_index())


def decide(tested: Sequence[Judgement], size: int) -> list[Judgement]:
    """Those claims of a family of `size` that can be tested, after Holm's correction. The others
    count in it too, so that no verdict changes because another claim got its runs."""
    decided, level = [], 1 - CONFIDENCE
    for each, adjusted in zip(tested, holm([each.p_value for each in tested], size), strict=True):
        parts = f"for its {each.count} parts" if each.count > 1 else "alone"
        corrected = f"p = {each.p_value:.2g} {parts}, {adjusted:.2g} among its family"
        # Where the interval that is shown excludes the bound, the correction is why nothing is
        # decided.
        seen = (
            each.estimate is not None
            and not each.estimate.low <= each.claim.bound <= each.estimate.high
        )
        undecided = replace(
            each, outcome="undecided", reason=each.reason or (corrected if seen else "")
        )
        decided.append(replace(each, reason="") if adjusted <= level else undecided)
    return decided


def judge(claims: Sequence[Claim], runs: Runs) -> list[Judgement]:
    """The claims of one family on one dataset: those that cannot be tested, and why, then the
    others.
    """
    not_tested, tested = [], []
    for claim in claims:
        try:
            evidence = measure(claim, runs)
        except NotTestedError as missing:
            not_tested.append(Judgement(claim, runs.dataset_name, reason=f"missing: {missing}"))
            continue
        weighed = weigh(claim, runs.dataset_name, evidence)
        if hindrance := _hindrance(claim, runs, evidence):
            not_tested.append(replace(weighed, outcome="not tested", reason=hindrance))
        else:
            tested.append(weighed)
    return not_tested + decide(tested, len(claims))


def _hindrance(claim: Claim, runs: Runs, evidence: Evidence) -> str:
    """What forbids a verdict whatever the number is; for claims of the paper's also that it is
    another regime.
    """
    if len(evidence.parts) < LEAST_SEEDS and claim.then != "one refutes":
        return f"{len(evidence.parts)} of {LEAST_SEEDS} seeds"
    if any(run.request.checkpoint.weights.startswith(PUBLISHED) for run in evidence.used):
        return "one network, whatever the seed"
    if not entry(runs.dataset_name).real:
        return "regime: data: a stand-in, which tests the machinery alone"
    if claim.exhibit in ("comparison", "field"):
        if len(runs.settings.image.choice_learning_rates) < 2:
            return "a single learning rate, which leaves nothing to choose"
        if doubt := next(filter(None, map(not_held_out, evidence.used)), ""):
            return doubt
    if claim.section == "ours":
        rate = (
            runs.study.section.online_learning_rate
        )  # On images each method has the rate chosen for it.
        return (
            ""
            if rate == RATE or runs.modality == "image"
            else f"online_learning_rate {rate} instead of {RATE}"
        )
    lacks = hindrance_of_runs(claim.dataset, evidence.used) or hindrance_of_study(
        claim.dataset, runs
    )
    return f"regime: {lacks}" if lacks else ""


def standing_for(settings: Settings) -> list[tuple[str, Runs]]:
    """The profile's datasets that have runs, each after the dataset of the paper that it stands
    for.
    """
    every = [
        Runs(settings, modality, name)
        for modality in get_args(Modality)
        for name in settings.datasets(modality)
    ]
    return [(str(runs.stored[0].provenance.compare_with), runs) for runs in every if runs.stored]


def judge_all(settings: Settings) -> list[Judgement]:
    """Every claim, on each dataset of the profile that stands for the claim's."""
    every, found = standing_for(settings), list[Judgement]()
    for (_, dataset, _), group in groupby(
        CLAIMS, key=lambda claim: (claim.section, claim.dataset, claim.exhibit)
    ):
        family, on = list(group), [runs for name, runs in every if name == dataset]
        found += [judgement for runs in on for judgement in judge(family, runs)]
        if not on:
            found += [
                Judgement(claim, None, reason=f"missing: a run on {dataset}") for claim in family
            ]
    return found


def gates(settings: Settings) -> pd.DataFrame:
    """The gate (regime.gate) of every dataset that stands for one of the paper's: a row a number,
    as text.
    """
    every = [
        (runs.dataset_name, gate(name, runs))
        for name, runs in standing_for(settings)
        if name in REGIMES
    ]
    tables = [table.assign(on=file_name(name)).rename_axis("gate") for name, table in every]
    found = pd.concat(tables) if tables else pd.DataFrame(columns=["ours", "passed"])
    passed = found["passed"].map({True: "yes", False: "**no**"})
    return found.assign(passed=passed.where(found["ours"] != "is missing", "not measured"))


def verdict_table(judgements: Sequence[Judgement]) -> pd.DataFrame:
    """A row a judgement, as text."""
    rows = [
        {
            "claim": each.claim.identifier,
            "sentence": f"{each.claim.sentence} ({each.claim.section})",
            "paper": each.claim.paper,
            "supported if": each.claim.condition,
            "ours": f"{each.estimate}; {each.part}" if each.estimate else "–",
            "on": file_name(each.dataset) if each.dataset else f"({each.claim.dataset})",
            "networks": each.networks or "–",
            "verdict": f"**{each.outcome}**" + (f" ({each.reason})" if each.reason else ""),
            "exhibit": EXHIBITS[each.claim.exhibit].label,
        }
        for each in judgements
    ]
    return pd.DataFrame(rows).set_index("claim")


def save(judgements: Sequence[Judgement], settings: Settings) -> None:
    """Write the verdicts as Markdown and CSV into the profile's folder of figures, the gate beside
    them.
    """
    table, counts = (
        verdict_table(judgements),
        pd.Series([each.outcome for each in judgements]).value_counts(),
    )
    counted = ", ".join(f"{n} {name}" for name, n in counts.items())
    text = (
        f"{markdown(table)}\n\nProfile {settings.profile}: {counted}. VERDICTS.md states "
        "the rules.\n\n"
    )
    text += (
        f"What must hold before a verdict on the paper is spoken:\n\n{markdown(gates(settings))}\n"
    )
    folder = settings.figures_path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "verdicts.md").write_text(text, encoding="utf-8")
    table.to_csv(folder / "verdicts.csv")
