"""Beyond the paper: which way of minimising entropy comes nearest to the paper's row of Tent."""

from dataclasses import replace

import numpy as np
import pandas as pd

from cascadetta_lib.methods import METHODS
from study.exhibits.kit.comparable_runs import by_order, comparable, count
from study.exhibits.kit.exhibit import Exhibit, exhibit
from study.exhibits.kit.numbers import number
from study.exhibits.kit.paper_numbers import paper_main
from study.exhibits.kit.points import Point, long_in_each_order
from study.exhibits.kit.shown import Part
from study.exhibits.kit.stored_runs import Runs, weights_of
from study.exhibits.kit.tables import by_domain
from study.settings import Settings

ADABN = "adabn"
CANDIDATES = ("tent", "tent_adam", "cascade_same_weights", "cascade_no_auxiliary")
"""Methods that minimise the entropy of z. The first two update the scales and shifts, with SGD and
with Adam. The other two update θ_m as well.
"""
OVER = "online_learning_rate"
AS_THEY_ARE = "(1) our row, against the paper's Tent"
LESS_PAPERS = "(2) our row − our AdaBN, against the paper's Tent − the paper's AdaBN"
LESS_AUTHORS = "(3) our row − our AdaBN, against the paper's Tent − AdaBN on the authors' network"


@exhibit
class TentRow(Exhibit):
    """Measure how far each candidate is from the paper's row of Tent.

    The distance is measured in three ways. The first compares the rows as they are. The other two
    subtract AdaBN from each row. They differ in the AdaBN that is subtracted from the paper's row.
    No run reproduces the paper's AdaBN row, so this choice decides which candidate fits.
    """

    name = "tent_row"
    place = 146
    label = "beyond: the row of Tent"
    title = "What the paper's row of Tent is like"
    question = "Which way of minimising entropy gives the paper's row of Tent?"

    def points(self, settings: Settings) -> list[Point]:
        """Return points along the long stream of each candidate that the profile has, and of AdaBN
        on each candidate's network. If the profile has the cascade, the variant without θ_a is
        added.
        """
        methods = [name for name in settings.image.methods if name in CANDIDATES]
        if "cascade" in settings.image.methods and "cascade_same_weights" not in methods:
            methods.append("cascade_same_weights")
        adabn = long_in_each_order(settings, [ADABN])
        points = [*adabn, *long_in_each_order(settings, methods)]
        for name in methods:
            objective = METHODS[name].objective
            if objective != METHODS[ADABN].objective:
                network = f"the network of {METHODS[name].label}"
                points += [replace(one, objective=objective, network=network) for one in adabn]
        return points

    def parts(self, frame: pd.DataFrame, runs: Runs) -> list[Part | str]:
        frame = by_order(frame)
        run = frame["run"].iloc[0]
        paper = paper_main(run)
        own = frame[frame["method"] == ADABN]
        if "Tent" not in paper.index or own.empty:
            return ["No row of Tent in the paper compares with these runs, or AdaBN has no run."]
        authors = pd.DataFrame()
        if not run.request.checkpoint.published:
            authors = authors_adabn(own, runs)
        moving = comparable(frame[frame["method"] != ADABN], ("label", OVER))
        if moving.empty:
            return ["No method that minimises entropy has runs."]
        rows = []
        for (label, rate), each in moving.groupby(["label", OVER], sort=False):
            row = {"method": label, "rate": f"{rate:g}"}
            row |= distances(each, own, paper, authors)
            rows.append(row | {"n": str(count(each))})
        table = pd.DataFrame(rows).set_index(["method", "rate"])
        note = (
            "Distance in points from the paper's row of Tent, averaged over domains, then over "
            "seeds or orders. Three ways: (1) both rows as they are; (2) each row minus a row of "
            "AdaBN: ours minus our AdaBN on the same network, the paper's minus the paper's AdaBN; "
            "(3) ours as in (2), the paper's minus AdaBN on the authors' network. Bold: the "
            "smallest distance of each way. The paper does not state Tent's optimiser."
        )
        return [Part("tent-row", _nearest_in_bold(table), note)]


def authors_adabn(own: pd.DataFrame, runs: Runs) -> pd.DataFrame:
    """Return the stored runs of AdaBN on the authors' network, on the domains of `own` in any
    order.

    The columns are run, seed (a running number) and network.

    own: AdaBN's runs on our network, at least one.
    """
    asked = own["run"].iloc[0].request
    compared = ("method", "batch_size", "test_size", "order", "statistics_memory", "predict")
    found = [
        run
        for run in runs.of_one_state
        if run.request.checkpoint.weights_kind == "release"
        and sorted(run.request.stream) == sorted(asked.stream)
        and all(getattr(run.request, name) == getattr(asked, name) for name in compared)
    ]
    networks = [weights_of(run) for run in found]
    return pd.DataFrame({"run": found, "seed": range(len(found)), "network": networks})


def distances(
    rows: pd.DataFrame, own: pd.DataFrame, paper: pd.DataFrame, authors: pd.DataFrame
) -> dict[str, float]:
    """Return the distances of a candidate from the paper's row of Tent, in points: AS_THEY_ARE,
    LESS_PAPERS and LESS_AUTHORS.

    Each is the mean over domains, then over seeds or orders. It is NaN if the AdaBN to subtract is
    missing.

    rows: runs of one candidate.
    own: AdaBN's runs at any seed, on any network. Those on the candidate's network count.
    paper: the paper's rows.
    authors: AdaBN's runs on the authors' network.
    """
    found: dict[str, list[float]] = {AS_THEY_ARE: [], LESS_PAPERS: [], LESS_AUTHORS: []}
    for seed, each in rows.groupby("seed", sort=False):
        errors = by_domain(each)
        domains = errors.index
        published = paper.reindex(columns=domains)
        tent = published.reindex(["Tent"]).iloc[0]
        found[AS_THEY_ARE].append(_apart(errors, tent))
        same_network = own["objective"] == each["objective"].iloc[0]
        base = own[same_network & (own["seed"] == seed)]
        if base.empty:
            continue
        gained = errors - by_domain(base)
        theirs = tent - published.reindex([METHODS[ADABN].label]).iloc[0]
        found[LESS_PAPERS].append(_apart(gained, theirs))
        if len(authors):
            theirs = tent - by_domain(authors).reindex(domains)
            found[LESS_AUTHORS].append(_apart(gained, theirs))
    return {name: float(np.mean(each)) if each else np.nan for name, each in found.items()}


def _apart(first: pd.Series, second: pd.Series) -> float:
    """Return the mean absolute difference of two rows with the same domains."""
    return float(np.mean(np.abs(first.to_numpy(float) - second.to_numpy(float))))


def _nearest_in_bold(table: pd.DataFrame) -> pd.DataFrame:
    """Write distances as text, with the smallest distance of each way in bold."""
    shown = table.copy()
    for name in (AS_THEY_ARE, LESS_PAPERS, LESS_AUTHORS):
        least = table[name].min()
        shown[name] = [
            f"**{number(value, 1)}**" if value == least else number(value, 1)
            for value in table[name]
        ]
    return shown
