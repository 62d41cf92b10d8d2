"""The summary of a report: what was run, the main tables, what was found and what is missing."""

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from study.exhibits.kit.comparability import BANNER, stand_in, warning
from study.exhibits.kit.comparable_runs import comparable
from study.exhibits.kit.intervals import Estimate, paired, per_network
from study.exhibits.kit.numbers import number
from study.exhibits.kit.rendering import banner_html, each_once, plain, table_html, to_html
from study.exhibits.kit.show import without_runs
from study.exhibits.kit.shown import Shown
from study.exhibits.kit.stored_runs import by_label
from study.exhibits.verdicts.verdicts import Judgement

SPOKEN = ("supported", "contradicted", "depends")
"""The outcomes that count as decided."""


def main_exhibits(shown: Sequence[Shown]) -> list[Shown]:
    """Return the exhibits that show a main study, one per dataset."""
    return [each for each in shown if each.exhibit.name.startswith("main_")]


def compares(shown: Sequence[Shown]) -> bool:
    """Return whether any run of a main study is on data that compare with the paper's.

    If not, the report shows no gate, finding or verdict.
    """
    return any(not stand_in(run) for each in main_exhibits(shown) for run in each.runs)


def banner(shown: Sequence[Shown]) -> str:
    """Return HTML that names the datasets that stand in for the paper's; empty if none does."""
    datasets = dict.fromkeys(each.dataset for each in main_exhibits(shown) if each.banner)
    if not datasets:
        return ""
    return banner_html(f"{', '.join(datasets)}: {BANNER}")


def in_short(shown: Sequence[Shown], judgements: Sequence[Judgement], profile: str) -> str:
    """Return Markdown of three lines: what has run, on whose data, and what is decided."""
    asked = [each for each in shown if each.belongs_in_report]
    made = [each for each in asked if each.parts]
    runs = [run for each in main_exhibits(shown) for run in each.runs]
    seeds = each_once(sorted({run.seed for run in runs})) or "none"
    ran = f"Profile `{profile}`: {len(made)} of {len(asked)} exhibits; seeds {seeds}."
    return "\n".join(
        [
            f"* **What ran.** {ran}",
            f"* **Whose data.** {_whose_data(shown)}",
            f"* **What is decided.** {_what_is_decided(judgements)}",
        ]
    )


def _whose_data(shown: Sequence[Shown]) -> str:
    """Say, for each dataset with runs, how its data compare with the paper's."""
    said: dict[str, list[str]] = {}
    for each in main_exhibits(shown):
        if each.runs:
            told = plain(warning(each.runs)) or "The paper's data."
            said.setdefault(told, []).append(each.dataset)
    if not said:
        return "No main study has run."
    return " ".join(f"{', '.join(names)}: {told}" for told, names in said.items())


def _what_is_decided(judgements: Sequence[Judgement]) -> str:
    """Say how many claims have each of the outcomes in SPOKEN."""
    counts = Counter(str(each.outcome) for each in judgements)
    found = [f"{counts[name]} {name}" for name in SPOKEN if counts[name]]
    if not found:
        return "Nothing: no claim of the paper or of ours has a verdict."
    return f"{', '.join(found)}, of {len(judgements)} claims."


def what_was_run(shown: Sequence[Shown]) -> str:
    """Return HTML of a table of the main studies, a row per dataset: how many methods and runs it
    has, at which seeds, and where its data come from.
    """
    rows = {}
    for each in main_exhibits(shown):
        rows[each.dataset] = {
            "modality": each.exhibit.modality,
            "methods": len({run.method for run in each.runs}),
            "runs": len(each.runs),
            "seeds": ", ".join(map(str, sorted({run.seed for run in each.runs}))),
            "data": each.runs[0].provenance.data_source if each.runs else "–",
        }
    return table_html(pd.DataFrame(rows).T.astype(str))


def main_tables(shown: Sequence[Shown]) -> str:
    """Return HTML of the tables of E, A and F, one per dataset."""
    pieces = []
    for each in main_exhibits(shown):
        for part in each.parts:
            if part.name.endswith("-metrics") and isinstance(part.content, pd.DataFrame):
                pieces.append(f"<p>{to_html(each.heading)}</p>{table_html(part.content)}")
                pieces.append(f"<p><small>{to_html(each.caption(part))}</small></p>")
    return "\n".join(pieces)


def findings(shown: Sequence[Shown]) -> list[str]:
    """Return a sentence per dataset that compares with the paper's: which method has the lowest E.

    The sentence also gives the lead over the method with the second-lowest E, and a 95 % interval
    of this lead, taken over networks. It says `decided` if the whole interval is above 0. A method
    that `comparable` sets apart takes no part: it lacks a seed that most methods have, or has a run
    of an earlier code although others have runs of today's.
    """
    sentences = []
    for each in main_exhibits(shown):
        if each.numbers is None or each.banner:
            continue
        compared = comparable(each.numbers)
        labels = by_label(compared[~compared["apart"]])
        errors = {label: float(per_network(rows, "E").mean()) for label, rows in labels.items()}
        if len(errors) < 2:
            continue
        best, second = sorted(errors, key=errors.__getitem__)[:2]
        lead = paired(labels[best], labels[second])
        if lead is None:
            continue
        sentences.append(
            f"{each.dataset}: **{best}** has the lowest E, {number(errors[best], 1)} %. "
            f"The next, {second}, differs from it by {lead.value()} points ({_scope(lead)}"
            f"{_networks(labels[best], labels[second])}): {_decided(lead)}."
        )
    return sentences


def _scope(lead: Estimate) -> str:
    """Say what the interval of a lead is, and over how many networks."""
    if lead.n == 1:
        return "one network, so no interval"
    return f"95 % over {lead.n} networks: {lead.interval}"


def _networks(first: pd.DataFrame, second: pd.DataFrame) -> str:
    """Say, at the end of a bracket, that two methods ran on networks of different pre-trainings;
    empty if they did not.
    """
    if set(first["objective"]) == set(second["objective"]):
        return ""
    return "; on networks of two pre-trainings"


def _decided(lead: Estimate) -> str:
    """Return `decided` if the whole interval of a lead is above 0. Otherwise, or without an
    interval, return `undecided`.
    """
    return "decided" if lead.low > 0 else "undecided"


def verdicts_counted(judgements: Sequence[Judgement]) -> str:
    """Return HTML of a table that counts the claims by dataset and verdict, or of a sentence if
    there is no verdict.
    """
    if not judgements:
        return "<p>No verdict: no run is on data that compare with the paper's.</p>"
    counts = pd.crosstab(
        pd.Series([each.claim.dataset for each in judgements], name="claims on"),
        pd.Series([each.outcome for each in judgements], name="verdict"),
        margins=True,
        margins_name="all",
    )
    return table_html(counts.rename_axis(None, axis=1).astype(str))


def decided(judgements: Sequence[Judgement]) -> list[str]:
    """Return a sentence on each decided claim, in the order of the claims."""
    sure = [each for each in judgements if each.outcome in SPOKEN]
    return [
        f"“{each.claim.sentence}” ({each.claim.section}): **{each.outcome}**, {each.estimate}"
        for each in sure
    ]


def missing(shown: Sequence[Shown]) -> str:
    """Return HTML that lists the exhibits that lack runs or have nothing to show.

    One line names the exhibits without any run. A table gives the reason for each of the others.
    """
    asked = [each for each in shown if each.belongs_in_report]
    lacking = {}
    for each in asked:
        if each.runs and (each.missing or not each.parts):
            lacking[each.heading] = " ".join(each.missing or each.lines)
    count = len(lacking) + sum(not each.runs and not each.parts for each in asked)
    pieces = [f"<summary>{count} of {len(asked)} exhibits, and why</summary>"]
    none = without_runs(asked)
    if none:
        pieces.append(f"<p>{to_html(none)}</p>")
    if lacking:
        pieces.append(table_html(pd.Series(lacking, name="why", dtype=str).to_frame()))
    return f"<details>{''.join(pieces)}</details>"
