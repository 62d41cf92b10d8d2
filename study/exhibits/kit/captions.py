"""Sentences on the runs behind an exhibit: their seeds and networks, and what made the runs."""

from collections import defaultdict
from collections.abc import Sequence

import pandas as pd

from cascadetta_lib.data import DATASETS, VOCABULARIES
from study.exhibits.kit.comparability import warning
from study.exhibits.kit.rendering import each_once, from_to
from study.exhibits.kit.stored_runs import weights_of
from study.requests import RunRequest
from study.store import Run


def count_of_seeds(runs: Sequence[Run]) -> str:
    """Write how many seeds and networks are behind each row of a table.

    The usual form is `n = 3 seeds`. If rows differ, it is `n = 1–3 seeds`. If several seeds ran on
    the same weights, it is `n = 1 network, at 3 seeds`. If the runs are in several orders of the
    stream, the number of orders is added: `n = 3 seeds, 10 orders`.

    runs: the runs of the whole table, at least one.
    """
    seeds_by_row: dict[tuple[RunRequest, str], set[int]] = defaultdict(set)
    networks_by_row: dict[tuple[RunRequest, str], set[str]] = defaultdict(set)
    # The runs of a row have one pre-training. They differ only in the seed, the network, and what
    # is measured besides E and A.
    shared = {"checkpoint": runs[0].request.checkpoint}
    for run in runs:
        request = run.request.fullest.model_copy(update=shared)
        row = (request, run.request.checkpoint.objective)
        seeds_by_row[row].add(run.seed)
        networks_by_row[row].add(weights_of(run))
    seeds = from_to(len(each) for each in seeds_by_row.values())
    networks = from_to(len(each) for each in networks_by_row.values())
    at_seeds = f"{seeds} seed{'' if seeds == '1' else 's'}"
    orders = {run.request.order_seed for run in runs}
    if len(orders) > 1:
        at_seeds += f", {len(orders)} orders"
    if all(len(networks_by_row[row]) == len(each) for row, each in seeds_by_row.items()):
        return f"n = {at_seeds}"
    return f"n = {networks} network{'' if networks == '1' else 's'}, at {at_seeds}"


def order_of(request: RunRequest) -> str:
    """Return what captions call the order of the examples.

    It is the request's `order`, such as `mixed`. Without an `order` it is `seed 3's` if the order
    seed is 3, and `stored` if there is no order seed.
    """
    if request.order is None and request.order_seed is not None:
        return f"seed {request.order_seed}'s"
    return request.order or "stored"


def architecture_of(run: Run) -> str:
    """Return the architecture of the network that a run started from; empty if unknown."""
    card = run.provenance.card
    asked = run.request.checkpoint.network
    fields = asked.model_dump() if asked else card.get("network", "")
    if isinstance(fields, dict):
        fields = ", ".join(f"{name} {value}" for name, value in fields.items())
    return str(fields).replace("_", " ")


def what_made(runs: Sequence[Run]) -> str:
    """Return a paragraph on what made these runs, and on whether their data are the paper's.

    Data with the same fingerprint are named once.
    """
    told = pd.DataFrame([run.provenance for run in runs]).map(str)
    told["data_source"] = told.groupby("fingerprint")["data_source"].transform("first")
    made = told.agg(each_once)
    stream = _stream_of(runs, made["unit"])
    seeds = each_once(sorted({run.seed for run in runs}))
    torch = each_once(run.provenance.packages["torch"] for run in runs)
    sentences = [
        f"Data: {made['data_source']}; {made['domain_source']}; {stream}.",
        f"Profile {made['profile']}, seeds {seeds}; networks: {_networks_of(runs)}; "
        f"{_protocol_of(runs)}.",
        f"Device: {made['device']}; torch {torch}; code {made['code_revision']}.",
        warning(runs),
    ]
    return " ".join(filter(None, sentences))


def _stream_of(runs: Sequence[Run], unit: str) -> str:
    """Say how many examples a domain has, at which severity, and in which batches and order."""
    requests = [run.request for run in runs]
    sizes = each_once(from_to(run.examples_by_domain) for run in runs)
    examples = f"{sizes} {unit} a domain"
    if requests[0].checkpoint.modality == "image":
        corruptions = {*VOCABULARIES["image"].standard, *VOCABULARIES["image"].others}
        domains = {
            domain for run in runs if not has_own_domains(run) for domain in run.request.stream
        }
        # Walks have no severity.
        severities = {severity for name, severity in domains if name in corruptions}
        if severities:
            examples += f" of severity {from_to(severities)}"
    batch = each_once(request.batch_size for request in requests)
    order = each_once(order_of(request) for request in requests)
    clauses = [examples, f"batch {batch}", f"{order} order"]
    if any(one.checkpoint.options.get("input_scaling") == "unit" for one in requests):
        clauses.append("inputs x/255")
    return ", ".join(clauses)


def has_own_domains(run: Run) -> bool:
    """Return whether the domains of a run are the user's own. These have no severity, even if they
    have the name of a corruption.
    """
    entry = DATASETS[run.request.checkpoint.dataset_kind]
    return entry.vocabulary is not None and run.provenance.origin == "other"


def _networks_of(runs: Sequence[Run]) -> str:
    """Say where the networks come from, with their architectures if these are known."""
    networks = each_once(run.request.checkpoint.weights for run in runs)
    architectures = each_once(filter(None, map(architecture_of, runs)))
    return f"{networks} ({architectures})" if architectures else networks


OF_EVERY_METHOD = {
    "on_alarm": "at an alarm",
    "online_diversity": "diversity",
    "statistics_memory": "memory of statistics",
}
"""What a caption calls options that a profile can set for all methods."""


def _protocol_of(runs: Sequence[Run]) -> str:
    """Say whether the runs predict before or after the update, and at which learning rate. Name the
    optimiser if one was set for all methods.
    """
    requests = [run.request for run in runs]
    predict = each_once(request.predict for request in requests)
    rate = each_once(request.online_learning_rate for request in requests)
    protocol = f"prediction {predict} the update at the rate {rate}"
    optimizers = {request.online_optimizer for request in requests}
    if len(optimizers) == 1 and None not in optimizers:
        protocol += f", {optimizers.pop()} in every method"
    for field, words in OF_EVERY_METHOD.items():
        values = {getattr(request, field) for request in requests} - {None}
        if values:
            protocol += f", {words} {each_once(sorted(values))}"
    return protocol
