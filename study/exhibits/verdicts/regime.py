"""Whether a verdict on the paper may be given: the study must be in the paper's regime, which
VERDICTS.md states.

The runs behind a number tell data, network and updates; the profile tells the protocol. The gate
asks whether the networks are about as good as the paper's, by ERM and AdaBN alone, never by the
cascade.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pandas as pd

from cascadetta_lib.methods import METHODS
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
"""The smallest share of the paper's examples per domain, and so of its updates, that a run must
have. Claims about drift, small batches or long streams need all of them (Claim.whole).
"""
CLEAN_ERROR = 10
AHEAD = 8
"""The gate on CIFAR-10-C: the most that ERM may err on clean test images (%), and by how many
points at least AdaBN errs less than ERM at severity 5."""
NEAR = 4
"""The gate on other data: by how many points the E of ERM and of AdaBN may differ from the paper's
(paper_results.csv)."""
RATE = 0.001
"""The paper's learning rate at test time. The paper states none for text and speech; they have the
rate of images.
"""


class Regime(NamedTuple):
    """The paper's regime on one of its datasets.

    It consists of how many examples the smallest domain has, and of the values that fields of the
    network may have.
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
    """Return what the runs behind a number lack of the regime of the claim's dataset, as text;
    empty if they lack nothing.
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
        if "data_fingerprint" in card and card["data_fingerprint"] != provenance.fingerprint:
            return f"data: networks that are trained on other images ({card['data']})"
        least = int(run.examples_by_domain.min())
        share = 1.0 if claim.whole else SHARE
        if least < share * regime.examples:
            asked = "all" if claim.whole else f"{SHARE:g}"
            return f"length: {least:,} examples a domain, not {asked} of {regime.examples:,}"
    return ""


def _hindrance_of_network(run: Run, regime: Regime) -> str:
    """Return how a network of ours differs from the paper's, as text; empty if it does not."""
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
    """Return what the profile or its networks lack of the paper's regime, as text; empty if they
    lack nothing.

    name: the paper's dataset.
    """
    section = runs.study.section
    ours = section.online.model_dump()
    ours |= {"stream": section.stream, "batch_size": runs.study.batch_size}
    paper: dict[str, Any] = {"stream": "instantaneous", "predict": "after"}
    paper |= dict.fromkeys(("online_optimizer", "online_diversity", "statistics_memory"))
    paper |= {"batch_size": runs.dataset_name.entry.batch_size, "online_learning_rate": RATE}
    if runs.modality == "image":
        ours["severity"] = runs.settings.image.severity
        paper["severity"] = 5
    for field, value in paper.items():
        if ours[field] != value:
            return f"protocol: {field} {ours[field]} instead of {value}"
    if tier != OURS:
        return ""  # The authors' network is the paper's, whatever it errs on.
    failed = gate(name, runs).query("not passed")
    return f"gate: {', '.join(failed.index + ' ' + failed['ours'])}" if len(failed) else ""


def gate(name: str, runs: Runs) -> pd.DataFrame:
    """Return the gate of the paper's dataset `name`: the errors that ERM and AdaBN must have before
    a verdict.

    It has a row per number: the allowed `band`, `ours` as text, whether it was `measured`, and
    whether it has `passed`. Our number is the mean over the seeds that the main table compares
    over. If a method lacks one of these seeds, it is the mean over the method's own seeds, and a
    difference is over those that both have.
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
        rows["E of ERM less that of AdaBN"] = (lead.mean if lead else math.nan, AHEAD, 100)
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
    """Return a bound of a band with the two decimals of the paper's numbers, or none."""
    return f"{value:.2f}".removesuffix(".00")
