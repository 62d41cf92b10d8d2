"""The paper's published numbers beside which ours are shown."""

from pathlib import Path

import pandas as pd

from cascadetta_lib.data import VOCABULARIES
from cascadetta_lib.methods import METHODS
from cascadetta_lib.store import Run
from cascadetta_lib.streams import make_stream

PAPER_RESULTS = Path(__file__).with_name("paper_results.csv")
"""In long form: table, dataset, setup, severity, batch_size, method, variant, domain, metric, value."""
OUR_NAMES = {
    "method": {"Ours": METHODS["cascade"].label},
    "metric": {"online_error": "E", "average_accuracy": "A", "forward_transfer": "F"},
    "domain": {"dvds": "dvd"},
    "variant": {"with theta_a": METHODS["cascade"].label, "without theta_a": METHODS["cascade_no_auxiliary"].label},
}


def paper_values(table: str, run: Run) -> pd.DataFrame:
    """The numbers of one of the paper's tables on the dataset that a run's data stands for; methods, metrics, domains
    and variants by our names; row, method and variant together. Empty where the paper has none."""
    values = pd.read_csv(PAPER_RESULTS, dtype={"severity": str, "batch_size": str}).replace(OUR_NAMES)
    values["row"] = values["method"] + ", " + values["variant"]
    return values[(values["table"] == table) & (values["dataset"] == run.provenance["compare_with"])]


def paper_main(run: Run) -> pd.DataFrame:
    """The paper's row of E, A, F and errors by domain for a run's stream and batch size: a table method × column.

    Its main table where the severity is 5, tab:add-result below that, tab:text and tab:speech; empty for a stream or
    a batch size that the paper does not have.
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
    sizes = values["batch_size"]
    values = values[sizes.isna() | (pd.to_numeric(sizes, errors="coerce") == request.batch_size)]
    columns = values["domain"].where(values["domain"] != "all", values["metric"])
    return values.assign(column=columns).pivot(index="method", columns="column", values="value")
