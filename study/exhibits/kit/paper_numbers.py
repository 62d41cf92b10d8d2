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
    """Return all of PAPER_RESULTS, under our names. The column `row` joins method and variant."""
    values = pd.read_csv(PAPER_RESULTS, dtype={"severity": str, "batch_size": str})
    values = values.replace(OUR_NAMES)
    values["row"] = values["method"] + ", " + values["variant"]
    return values


def paper_values(table: str, run: Run, over: str = "") -> pd.DataFrame:
    """Return the numbers of one of the paper's tables, on the dataset that a run compares with.

    The numbers are those at the run's batch size, and those without a batch size. If `over` is
    "batch_size", they are those at every batch size. Methods, metrics, domains and variants have
    our names. The column `row` joins method and variant. The result is empty if the paper has no
    such numbers, or if they may not stand beside the run's (see `comparability.beside_the_paper`).

    table: the paper's label of the table, such as "tab:text".
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
    """Return the paper's E (%) of a method on one of its datasets.

    The number is from the paper's main table at severity 5, tab:text or tab:speech. Raises
    ValueError if there is not exactly one such number.

    dataset: the paper's name, such as "CIFAR-10-C". method: the label that we give the method.
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

    Images at severity 5 have the numbers of tab:main-result, and at lower severities those of
    tab:add-result. Text and speech have those of tab:text and tab:speech. The result is empty if
    the paper does not have the stream or the batch size. The order of the domains does not matter.
    """
    request = run.request
    modality = run.request.checkpoint.modality
    severity = min(domain.severity for domain in request.stream)
    # On a walk, `severity` is a place from 1 to 20. If the walk has few steps, all of its places
    # are above 5, and the paper has no such severity.
    if severity not in VOCABULARIES[modality].severities:
        return pd.DataFrame()
    standard = make_stream("instantaneous", VOCABULARIES[modality], severity)
    if sorted(request.stream) != sorted(standard) or request.order:
        return pd.DataFrame()
    if request.reset_each or request.on_alarm:
        return pd.DataFrame()
    image_table = "tab:main-result" if severity == 5 else "tab:add-result"
    values = paper_values(image_table if modality == "image" else f"tab:{modality}", run)
    if modality == "image":
        values = values[values["severity"] == str(severity)]
    columns = values["domain"].where(values["domain"] != "all", values["metric"])
    return values.assign(column=columns).pivot(index="method", columns="column", values="value")
