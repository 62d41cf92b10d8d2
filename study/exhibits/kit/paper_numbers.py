"""The paper's published numbers, from `paper_results.csv`, for the runs that compare with them."""

from functools import cache
from pathlib import Path

import pandas as pd

from cascadetta_lib.data import VOCABULARIES
from cascadetta_lib.data.streams import make_stream
from cascadetta_lib.methods import METHODS
from study.exhibits.kit.comparability import beside_the_paper
from study.store import Run

PAPER_RESULTS = Path(__file__).with_name("paper_results.csv")
"""The paper's numbers in long form: table, dataset, setup, severity, batch_size, method, variant,
domain, metric, value.
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


@cache
def paper_results() -> pd.DataFrame:
    """Return all of PAPER_RESULTS, with our names; the column `row` joins method and variant."""
    values = pd.read_csv(PAPER_RESULTS, dtype={"severity": str, "batch_size": str})
    values = values.replace(OUR_NAMES)
    values["row"] = values["method"] + ", " + values["variant"]
    return values


def paper_values(table: str, run: Run, over: str = "") -> pd.DataFrame:
    """Return the numbers of one of the paper's tables, on the dataset that a run compares with.

    They are those at the run's batch size, and those for which the paper states no batch size. With
    `over` "batch_size" they are those at every batch size. Methods, metrics, domains and variants
    have our names. The column `row` joins method and variant. The table is empty if the paper has
    no such numbers, or if they may not stand beside the run's (see
    `comparability.beside_the_paper`).
    """
    values = paper_results()
    if not beside_the_paper(run):
        return values[:0]
    values = values[values["table"] == table]
    values = values[values["dataset"] == run.provenance.compare_with]
    if over == "batch_size":
        return values
    sizes = values["batch_size"]
    of_size = pd.to_numeric(sizes, errors="coerce") == run.request.batch_size
    return values[sizes.isna() | of_size]


def paper_error(dataset: str, method: str) -> float:
    """Return the paper's E (%) of a method on one of its datasets: its main table at severity 5,
    tab:text or tab:speech.
    """
    values = paper_results()
    main = values["table"].isin(["tab:main-result", "tab:text", "tab:speech"])
    asked = (values["dataset"] == dataset) & (values["method"] == method)
    mean = (values["domain"] == "all") & (values["metric"] == "E")
    of_severity = values["severity"].isna() | (values["severity"] == "5")
    of_stream = values["setup"] != "gradual"
    found = values[main & asked & mean & of_severity & of_stream]["value"]
    return float(found.item())


def paper_main(run: Run) -> pd.DataFrame:
    """Return the paper's numbers for a run's stream and batch size: a row per method; columns E, A,
    F and the domains.

    The source is its main table where the severity is 5, tab:add-result below that, tab:text or
    tab:speech. The result is empty for a stream or a batch size that the paper does not have; in
    another order of its domains a stream is still the paper's.
    """
    request = run.request
    modality = run.request.checkpoint.modality
    severity = min(domain.severity for domain in request.stream)
    if severity not in VOCABULARIES[modality].severities:  # a walk
        return pd.DataFrame()
    standard = make_stream("instantaneous", VOCABULARIES[modality], severity)
    if sorted(request.stream) != sorted(standard) or request.order or request.reset_each:
        return pd.DataFrame()
    image_table = "tab:main-result" if severity == 5 else "tab:add-result"
    values = paper_values(image_table if modality == "image" else f"tab:{modality}", run)
    if modality == "image":
        values = values[values["severity"] == str(severity)]
    columns = values["domain"].where(values["domain"] != "all", values["metric"])
    return values.assign(column=columns).pivot(index="method", columns="column", values="value")
