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
"""The outcomes of claims that the numbers decide."""


def main_exhibits(shown: Sequence[Shown]) -> list[Shown]:
    """Return the main study of each dataset."""
    return [each for each in shown if each.exhibit.name.startswith("main_")]


def compares(shown: Sequence[Shown]) -> bool:
    """Return whether any run is on data that compare with the paper's.

    Where none is, no gate, finding or verdict is shown.
    """
    return any(not stand_in(run) for each in main_exhibits(shown) for run in each.runs)


def banner(shown: Sequence[Shown]) -> str:
    """Return HTML that warns where data stand in for the paper's; empty where none do."""
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
    """Say of each dataset that has runs how far it is the paper's."""
    said: dict[str, list[str]] = {}
    for each in main_exhibits(shown):
        if each.runs:
            told = plain(warning(each.runs)) or "The paper's data."
            said.setdefault(told, []).append(each.dataset)
    if not said:
        return "No main study has run."
    return " ".join(f"{', '.join(names)}: {told}" for told, names in said.items())


def _what_is_decided(judgements: Sequence[Judgement]) -> str:
    """Count the claims that the numbers decide."""
    counts = Counter(str(each.outcome) for each in judgements)
    found = [f"{counts[name]} {name}" for name in SPOKEN if counts[name]]
    if not found:
        return "Nothing: no claim of the paper or of ours has a verdict."
    return f"{', '.join(found)}, of {len(judgements)} claims."


def what_was_run(shown: Sequence[Shown]) -> str:
    """Return HTML of a table of the main studies, a row per dataset: its methods and seeds."""
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
    """Return HTML of the table of E, A and F of each dataset."""
    pieces = []
    for each in main_exhibits(shown):
        for part in each.parts:
            if part.name.endswith("-metrics") and isinstance(part.content, pd.DataFrame):
                pieces.append(f"<p>{to_html(each.heading)}</p>{table_html(part.content)}")
                pieces.append(f"<p><small>{to_html(each.caption(part))}</small></p>")
    return "\n".join(pieces)


def findings(shown: Sequence[Shown]) -> list[str]:
    """Return a sentence per dataset that compares with the paper's: which method errs least.

    It also says whether its lead on the next is more than the spread over networks. Only rows over
    the seeds that the others share take part.
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
            f"{second} has {lead.value()} points {lead.interval} "
            f"({lead.n} networks, 95 %{_networks(labels[best], labels[second])}): {_decided(lead)}."
        )
    return sentences


def _networks(first: pd.DataFrame, second: pd.DataFrame) -> str:
    """Return whether two methods ran on networks of two pre-trainings, as the end of a bracket."""
    if set(first["objective"]) == set(second["objective"]):
        return ""
    return "; on networks of two pre-trainings"


def _decided(lead: Estimate) -> str:
    """Return whether a lead is more than its spread; undecided without an interval."""
    return "decided" if lead.low > 0 else "undecided"


def verdicts_counted(judgements: Sequence[Judgement]) -> str:
    """Return HTML of a table that counts the claims by dataset and verdict."""
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
    """Return a sentence per claim that the numbers decide, in the order of the claims."""
    sure = [each for each in judgements if each.outcome in SPOKEN]
    return [
        f"“{each.claim.sentence}” ({each.claim.section}): **{each.outcome}**, {each.estimate}"
        for each in sure
    ]


def missing(shown: Sequence[Shown]) -> str:
    """Return HTML of the exhibits that are missing, whole or in part.

    One line names those without a run; a table has the others with the reason.
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
