"""Tables that several exhibits share: ours beside the paper's published numbers, and differences of
methods.
"""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from cascadetta_lib.data import VOCABULARIES
from cascadetta_lib.data.cifar10_sample import OFFICIAL
from cascadetta_lib.data.streams import make_stream
from cascadetta_lib.evaluation.metrics import online_errors
from cascadetta_lib.methods import METHODS
from study.exhibits.kit.exhibit import Part
from study.exhibits.kit.runs import METRICS, PUBLISHED, bootstrap, by_label, paired
from study.exhibits.kit.style import SHORT, number, spread
from study.store import Run

PAPER_RESULTS = Path(__file__).with_name("paper_results.csv")
"""In long form: table, dataset, setup, severity, batch_size, method, variant, domain, metric,
value.
"""
OUR_NAMES = {
    "method": {"Ours": METHODS["cascade"].label},
    "metric": {"online_error": "E", "average_accuracy": "A", "forward_transfer": "F"},
    "domain": {"dvds": "dvd"},
    "variant": {
        "with theta_a": METHODS["cascade"].label,
        "without theta_a": METHODS["cascade_no_auxiliary"].label,
    },
}
F_NAMES = {"F": "F (Eq. 2)", "F_final": "F (final)", "F_unadapted": "F (unadapted)"}
DEFINED = (
    "F of Eq. 2; of the final model, R(T_t|T_1:N) − R(T_t|T_t); and of the final model "
    "less the unadapted one."
)


def paper_values(table: str, run: Run, over: str = "") -> pd.DataFrame:
    """The numbers of one of the paper's tables on the dataset that a run's data stands for, at the
    run's batch size (at any where `over` is batch_size); methods, metrics, domains and variants by
    our names; row, method and variant together. Empty where the paper has none, and for a network
    that others trained on originals where the run was on other images, such as JPEG copies, which
    are harder for it."""
    asked, dataset = run.request.checkpoint, run.provenance["compare_with"]
    others = (
        asked.dataset.startswith(("npz", "cifar10_sample"))
        and run.provenance["fingerprint"] != OFFICIAL
    )
    dataset = "" if others and asked.weights.startswith(PUBLISHED) else dataset
    values = pd.read_csv(PAPER_RESULTS, dtype={"severity": str, "batch_size": str}).replace(
        OUR_NAMES
    )
    values["row"] = values["method"] + ", " + values["variant"]
    values = values[(values["table"] == table) & (values["dataset"] == dataset)]
    sizes = values["batch_size"]
    of_size = sizes.isna() | (pd.to_numeric(sizes, errors="coerce") == run.request.batch_size)
    return values[of_size | (over == "batch_size")]


def paper_main(run: Run) -> pd.DataFrame:
    """The paper's row of E, A, F and errors by domain for a run's stream and batch size: a table
    method × column.

    Its main table where the severity is 5, tab:add-result below that, tab:text and tab:speech;
    empty for a stream or a batch size that the paper does not have.
    """
    request, modality = run.request, run.request.checkpoint.modality
    severity = min(domain.severity for domain in request.stream)
    standard = make_stream("instantaneous", VOCABULARIES[modality], severity)
    if list(request.stream) != standard or request.order:
        return pd.DataFrame()
    image_table = "tab:main-result" if severity == 5 else "tab:add-result"
    values = paper_values(image_table if modality == "image" else f"tab:{modality}", run)
    if modality == "image":
        values = values[values["severity"] == str(severity)]
    columns = values["domain"].where(values["domain"] != "all", values["metric"])
    return values.assign(column=columns).pivot(index="method", columns="column", values="value")


def metrics_by_label(frame: pd.DataFrame) -> pd.DataFrame:
    """E, A and F by all its definitions, mean ± standard deviation over seeds, and n; a row a
    label.
    """
    groups = frame.groupby("label", sort=False)
    table, found, seeds = (
        groups[list(METRICS)].agg(spread),
        groups[list(METRICS)].count(),
        groups["seed"].nunique(),
    )
    some = found.gt(0) & found.lt(seeds, axis=0)
    return table.where(~some, table + " (" + found.astype(str) + " of them)").assign(
        n=seeds.astype(str)
    )


def metrics_table(frame: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """E, A and F by all its definitions, mean ± standard deviation over seeds, over the paper's
    where it has them.
    """
    return beside_paper(metrics_by_label(frame), paper).rename(columns=F_NAMES)


def domains_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The paper's layout: methods × domains, then E, A, F and n. Means over all seeds, else a dash;
    the best of each column in bold, ours and the paper's each among themselves."""
    metrics = frame.groupby("label", sort=False)[["E", "A", "F"]].mean(skipna=False)
    ours = pd.DataFrame({label: by_domain(each) for label, each in by_label(frame).items()}).T.join(
        metrics
    )
    seeds = frame.groupby("label")["seed"].nunique().astype(str)
    paper = paper_main(frame["run"].iloc[0])
    return beside_paper(
        ours.apply(_best_in_bold).assign(n=seeds), paper.apply(_best_in_bold)
    ).rename(columns=SHORT)


def by_domain(frame: pd.DataFrame) -> pd.Series:
    """Online error (%) by the name of the domain, the mean over the runs of `frame`."""
    errors = [
        100 * online_errors(run.batches).groupby("domain", sort=False).mean()
        for run in frame["run"]
    ]
    return pd.concat(errors, axis=1).mean(axis=1)


def _best_in_bold(column: pd.Series) -> pd.Series:
    """Numbers as text with one decimal; the most of A and F, the least of all else in bold."""
    best = column.max() if column.name in ("A", "F") else column.min()
    return column.map(
        lambda value: f"**{number(value, 1)}**" if value == best else number(value, 1)
    )


def beside_paper(ours: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Rows of ours over the paper's of the same name, as text; `source` is a second index, columns
    are ours.
    """
    theirs = paper.map(lambda value: value if isinstance(value, str) else number(value)).rename(
        columns=str
    )
    theirs = theirs.reindex(index=ours.index.intersection(paper.index), columns=ours.columns)
    table = (
        pd.concat({"ours": ours, "paper": theirs}, names=["source", "method"])
        .swaplevel()
        .fillna("–")
    )
    return table.loc[ours.index]


def differences(
    name: str, pairs: Mapping[str, tuple[pd.DataFrame, pd.DataFrame]]
) -> list[Part | str]:
    """Of each pair (first, second), E of the second less E of the first, with an interval over
    seeds and one over the test batches; no part where no pair has a seed in common."""
    rows = {}
    for label, (first, second) in pairs.items():
        found, batches = paired(first, second), bootstrap(first, second)
        if found is not None and batches is not None:
            rows[label] = {
                "difference of E (points)": number(found.mean, sign=True),
                "95 %, over seeds": found.interval,
                "95 %, over test batches": batches.interval,
                "n": str(found.n),
            }
    note = (
        "On the same seeds and batches. Over seeds: Student; over test batches: block "
        "bootstrap, given the networks."
    )
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("difference")
    return [Part(name, table, note)] if rows else []


def method_differences(
    name: str, frame: pd.DataFrame, reference: str = METHODS["cascade"].label
) -> list[Part | str]:
    """Every method's E less that of `reference`."""
    parts = by_label(frame)
    rivals = {
        label: rows for label, rows in parts.items() if label != reference and reference in parts
    }
    return differences(
        name, {f"{label} − {reference}": (parts[reference], rows) for label, rows in rivals.items()}
    )
