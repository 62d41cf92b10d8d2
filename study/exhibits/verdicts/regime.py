"""Whether a verdict on the paper may be given: the study must be in the paper's regime, which
VERDICTS.md states.

The data, the network and the number of updates are taken from the runs behind a number, and the
protocol from the profile. The gate asks whether the networks are about as good as the paper's. It
looks at ERM and AdaBN alone, never at the cascade.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pandas as pd

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.comparability import trained_on_other_data
from study.exhibits.kit.comparable_runs import comparable
from study.exhibits.kit.intervals import paired
from study.exhibits.kit.numbers import number
from study.exhibits.kit.paper_numbers import paper_error
from study.exhibits.kit.points import main_points
from study.exhibits.kit.stored_runs import Runs
from study.exhibits.verdicts.claims import Claim
from study.exhibits.verdicts.evidence import OURS, Tier
from study.store import Run

SHARE = 0.2
"""The smallest share of the paper's examples per domain, and so of the paper's updates, that a run
must have. Some claims need all examples (Claim.whole).
"""
CLEAN_ERROR = 10
AHEAD = 8
"""The gate on CIFAR-10-C. CLEAN_ERROR is the largest error (%) that ERM may have on clean test
images. AHEAD is the smallest lead, in points of E, that AdaBN must have over ERM at severity 5.
"""
NEAR = 4
"""The gate on other data: the largest distance, in points, between our E of ERM or AdaBN and the
paper's (paper_results.csv).
"""
RATE = 0.001
"""The paper's learning rate at test time. The paper states none for text and speech; we use the
rate of images for them.
"""


class Regime(NamedTuple):
    """The paper's regime on one of its datasets.

    examples: the number of examples in the smallest domain.
    network: the allowed values of fields of the network.
    """

    examples: int
    network: dict[str, tuple[Any, ...]]


RESNET26 = {"architecture": ("auto", "resnet26"), "depth": (26,), "width": (16,)}
RESNET34 = {"architecture": ("auto", "resnet34")}
OF_TEXT = {"hidden": ((50, 50), (1024, 512))}
REGIMES = {
    "CIFAR-10-C": Regime(10_000, RESNET26),
    "CIFAR-100-C": Regime(10_000, RESNET26),
    "Tiny-ImageNet-C": Regime(10_000, RESNET34),
    "Amazon Reviews": Regime(3_586, OF_TEXT),
    "Google Commands": Regime(6_835, {}),
}


def hindrance_of_runs(claim: Claim, used: Sequence[Run], tier: Tier = OURS) -> str:
    """Return the first way in which the runs behind a number miss the regime of the claim's
    dataset, as text; empty if there is none.
    """
    name = claim.dataset
    regime = REGIMES[name]
    for run in used:
        provenance = run.provenance
        card = provenance.card
        if not provenance.official_data:
            return f"data: {provenance.data_source}; {provenance.domain_source} instead of {name}"
        if tier == OURS:
            lacks = _hindrance_of_network(run, regime)
            if lacks:
                return lacks
        if trained_on_other_data(run):
            return f"data: networks that are trained on other images ({card['data']})"
        least = int(run.examples_by_domain.min())
        share = 1.0 if claim.whole else SHARE
        if least < share * regime.examples:
            asked = "all" if claim.whole else f"at least {SHARE * regime.examples:,.0f}"
            return (
                f"length: {least:,} examples per domain; {asked} of the paper's "
                f"{regime.examples:,} are needed"
            )
    return ""


def _hindrance_of_network(run: Run, regime: Regime) -> str:
    """Return the first way in which a network of ours differs from the paper's, as text; empty if
    there is none.
    """
    request = run.request.checkpoint
    card = run.provenance.card
    options = card.get("options", request.options)
    if options.get("train_size") is not None or options.get("held_out_fraction", 0) > 0.1:
        return "data: networks that are trained on a part of the source"
    network = request.network.model_dump() if request.network else card.get("network", {})
    for field, allowed in regime.network.items():
        value = network.get(field, "unknown")
        if (tuple(value) if isinstance(value, list) else value) not in allowed:
            return f"network: {field} {value} instead of {' or '.join(map(str, allowed))}"
    return ""


@lru_cache(maxsize=16)
def hindrance_of_study(name: str, runs: Runs, tier: Tier = OURS) -> str:
    """Return the first way in which the profile or its networks miss the paper's regime, as text;
    empty if there is none.

    The profile's severity must be 5 even for a claim on other severities. The exhibit of such a
    claim sets the severities of its runs itself.

    name: the paper's dataset.
    """
    section = runs.study.section
    ours = section.online.model_dump()
    ours |= {"stream": section.stream, "batch_size": runs.study.batch_size}
    paper: dict[str, Any] = {"stream": "instantaneous", "predict": "after"}
    as_the_method = ("online_optimizer", "online_diversity", "statistics_memory", "on_alarm")
    paper |= dict.fromkeys(as_the_method)
    paper |= {"batch_size": runs.dataset_name.entry.batch_size, "online_learning_rate": RATE}
    if runs.modality == "image":
        ours["severity"] = runs.settings.image.severity
        paper["severity"] = 5
    for field, value in paper.items():
        if ours[field] != value:
            return f"protocol: {field} {ours[field]} instead of {value}"
    if tier != OURS:
        return ""  # The authors' network needs no gate: it is the paper's own.
    failed = gate(name, runs).query("not passed")
    return f"gate: {', '.join(failed.index + ' ' + failed['ours'])}" if len(failed) else ""


def gate(name: str, runs: Runs) -> pd.DataFrame:
    """Return the gate of the paper's dataset `name`: the errors of ERM and AdaBN that a verdict
    needs.

    The result has a row per number: the allowed `band`, `ours` as text, whether the number was
    `measured`, and whether it `passed`. Our number is a mean over the seeds that the main table
    compares over. The mean of a method that lacks one of these seeds is over the method's own
    seeds. A difference is over the seeds that both methods have.
    """
    main = comparable(runs.frame(main_points(runs.settings, runs.modality)))
    errors = main.groupby("method")["E"].mean().reindex(["erm", "adabn"])
    lead = paired(main[main["method"] == "adabn"], main[main["method"] == "erm"])
    rows: dict[str, tuple[float, float, float]] = {}
    if name == "CIFAR-10-C":
        erm = main[main["method"] == "erm"]["run"]
        tested = [run.provenance.card.get("clean_test_error") for run in erm]
        clean = pd.Series(tested, dtype=float).mean(skipna=False)
        rows["clean test error of ERM"] = (clean, 0, CLEAN_ERROR)
        rows["E of ERM minus E of AdaBN"] = (lead.mean if lead else math.nan, AHEAD, 100)
    else:
        for method, label in (("erm", "E of ERM"), ("adabn", "E of AdaBN")):
            paper = paper_error(name, METHODS[method].label)
            rows[label] = (errors[method], paper - NEAR, paper + NEAR)
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["value", "low", "high"])
    table["band"] = table["low"].map(_plain) + " to " + table["high"].map(_plain)
    table["ours"] = table["value"].map(
        lambda value: "is missing" if math.isnan(value) else number(value)
    )
    measured = table["value"].notna()
    passed = table["value"].between(table["low"], table["high"])
    return table.assign(measured=measured, passed=passed)[["band", "ours", "measured", "passed"]]


def _plain(value: float) -> str:
    """Write a bound of a band with the two decimals of the paper, or with none if both are zero."""
    return f"{value:.2f}".removesuffix(".00")
