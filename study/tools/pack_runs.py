"""The committed runs: one table, the batches behind it, and the way back into a store.

    ./run_all.sh python -m study.tools.pack_runs pack RESULTS …
    ./run_all.sh python -m study.tools.pack_runs check
    ./run_all.sh python -m study.tools.pack_runs unpack RESULTS

`pack` adds the runs of results folders to the committed ones. `check` compares the table with the
batches. `unpack` puts all committed runs back into a results folder. Exhibits and verdicts can then
be drawn from this folder without making any run again.

`figures/runs/runs.csv` has a row per run, and README.md beside it describes the columns. The
batches are in `*.jsonl.xz` beside it. Each `pack` writes one such file, named by a hash of its
content. Such a file has a line per run, check of Theorem 1, or measurement of batches' variances.
The table is made from these files alone. To merge two branches, keep the files of both and run
`pack` without a folder.

The errors of every batch are kept. Some other columns are reduced:

entropies, agreement: means by domain. For the methods of `--by-batch`, they are kept by batch with
    four digits, because the exhibit of fig:unc draws them by batch.
distances moved: those at the end of each domain. For a run that selects its rate, and for the runs
    at fixed rates beside it in the same results folder, those after each batch are kept too, with
    four digits. The exhibit `rate_selection` finds the selected rate from these.
seconds: means by domain.
"""

import argparse
import hashlib
import json
import lzma
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, cast

import pandas as pd
from pydantic import ValidationError

from cascadetta_lib.data.streams import MIXED
from cascadetta_lib.evaluation.evaluator import ABOUT_PREDICTIONS
from cascadetta_lib.evaluation.metrics import (
    Transfer,
    average_accuracy,
    forward_transfer,
    mean_online_error,
    online_errors,
)
from cascadetta_lib.files import write_atomically
from study import ROOT
from study.exhibits.beyond.rate_selection import SELECTING
from study.exhibits.kit.captions import architecture_of
from study.exhibits.kit.rendering import markdown
from study.exhibits.kit.stored_runs import TRANSFERS
from study.provenance import DISTANCES_BY_BATCH, UNPACKED, Provenance
from study.requests import RunRequest
from study.store import (
    KINDS,
    REQUESTS,
    Damaged,
    Entry,
    Kind,
    Made,
    Run,
    Store,
    Unusable,
    load_run,
    read_entry,
)

FOLDER = ROOT / "figures" / "runs"
TABLE = "runs.csv"
DICTIONARY = "README.md"
BY_BATCH = ("adabn", "cascade")
"""The methods whose entropies fig:unc draws by batch."""
DISTANCES = ("moved_normalization", "moved_others")
DIGITS_BY_BATCH = 4
DIGITS_BY_DOMAIN = 6
PACKED_KINDS = tuple(kind for kind in KINDS if kind != "checkpoints")
"""The kinds of entries that are packed. Networks are not, because they are in weights/."""


BY_BATCH_TOLD = "by batch"
BY_DOMAIN_TOLD = "by domain"


class Packed(NamedTuple):
    """A packed entry of a store.

    key: the name of the entry's folder in the store.
    line: the entry as it is written, in JSON.
    distances_by_batch: whether the line has the distances moved after each batch.
    """

    kind: Kind
    key: str
    line: str
    distances_by_batch: bool = False


# ------------------------------------------------------------------------------ an entry as a line


def packed(
    entry: Entry, by_batch: Sequence[str] = BY_BATCH, distances_by_batch: bool = False
) -> Packed:
    """Pack an entry of a store.

    by_batch: the methods whose entropies stay by batch.
    distances_by_batch: whether distances moved stay by batch.
    """
    kind = cast(Kind, entry.folder.parent.name)
    record: dict[str, Any] = {
        "kind": kind,
        "key": entry.folder.name,
        "request": entry.request.model_dump(mode="json"),
        "content": entry.content,
        "provenance": entry.provenance.to_json(),
        "found": entry.values,
    }
    if isinstance(entry.request, RunRequest):
        detailed = entry.request.method in by_batch
        run = load_run(entry)
        record["entropies"] = BY_BATCH_TOLD if detailed else BY_DOMAIN_TOLD
        record["distances"] = BY_BATCH_TOLD if distances_by_batch else BY_DOMAIN_TOLD
        record["batches"] = columns_of(compact(run.batches, detailed, distances_by_batch))
        record["accuracies"] = columns_of(run.accuracies)
    line = json.dumps(record, ensure_ascii=False)
    return Packed(kind, entry.folder.name, line, distances_by_batch)


def compact(batches: pd.DataFrame, by_batch: bool, distances_by_batch: bool) -> pd.DataFrame:
    """Return a run's batches with no more detail than exhibits read. Errors stay as they are.

    by_batch: whether entropies stay by batch; otherwise they become means by domain.
    distances_by_batch: whether distances moved stay by batch; otherwise they become those at the
        end of each domain.
    """
    kept = batches.copy()
    steps = batches["step"]
    ends_a_domain = ~steps.duplicated(keep="last")
    for name in DISTANCES:
        kept[name] = batches.groupby(steps)[name].transform("last")
        if distances_by_batch:
            rounded = [_to_digits(value, DIGITS_BY_BATCH) for value in batches[name]]
            kept[name] = kept[name].where(ends_a_domain, rounded)
    kept["seconds"] = batches.groupby(steps)["seconds"].transform("mean")
    counts = batches["count"]
    for name in ABOUT_PREDICTIONS:
        digits = DIGITS_BY_BATCH
        if not by_batch:
            digits = DIGITS_BY_DOMAIN
            sums = (batches[name] * counts).groupby(steps).transform("sum", min_count=1)
            kept[name] = sums / counts.groupby(steps).transform("sum")
        kept[name] = [_to_digits(value, digits) for value in kept[name]]
    return kept


def _to_digits(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def _beside_a_selection(runs: Iterable[RunRequest]) -> set[RunRequest]:
    """Return the requests for methods that select their rate, and the requests at fixed rates
    beside them. A request is beside a selection if `_at_any_rate` returns the same for both.
    """
    of_stream = {request: _at_any_rate(request) for request in runs}
    selections = {same for request, same in of_stream.items() if request.method in SELECTING}
    return {request for request, same in of_stream.items() if same in selections}


def _at_any_rate(request: RunRequest) -> RunRequest:
    """Return a request with the rate 0 and all measurements besides E and A. A method that selects
    its rate is replaced by the method whose copies it carries.
    """
    method = SELECTING.get(request.method, request.method)
    return request.fullest.model_copy(update={"method": method, "online_learning_rate": 0.0})


def columns_of(table: pd.DataFrame) -> dict[str, Any]:
    """Return the columns of a table as lists by name, with None for NaN.

    A column with long stretches of one value becomes {"stretches": [[value, length], …]} instead.
    """
    columns: dict[str, Any] = {}
    for name in table:
        values = [None if value != value else value for value in table[name].tolist()]
        stretches = [[value, len(list(same))] for value, same in groupby(values)]
        shorter = 2 * len(stretches) < len(values)
        columns[str(name)] = {"stretches": stretches} if shorter else values
    return columns


def table_of(columns: dict[str, Any]) -> pd.DataFrame:
    """Return the table that `columns_of` wrote."""
    table = {}
    for name, values in columns.items():
        if isinstance(values, dict):
            values = [value for value, times in values["stretches"] for _ in range(times)]
        table[name] = pd.Series(values).infer_objects()
    return pd.DataFrame(table)


def run_of(record: dict[str, Any]) -> Run:
    """Return the run of a packed line. Raises Damaged if the line is of another version.

    record: the line, read as JSON.
    """
    try:
        request = RunRequest.model_validate(record["request"])
        made_by = Provenance.from_json(record["provenance"])
    except (ValidationError, ValueError) as error:
        raise Damaged(f"run {record['key']} is of another version ({error})") from None
    batches = table_of(record["batches"])
    return Run(request, batches, table_of(record["accuracies"]), made_by)


# ------------------------------------------------------------------------------- the table of runs


def _severities(run: Run) -> str:
    return " ".join(sorted({str(domain.severity) for domain in run.request.stream}))


def _percent(value: float | None) -> float:
    return math.nan if value is None else round(100 * value, 4)


def _transfer(run: Run, definition: Transfer) -> float:
    return _percent(forward_transfer(run.accuracies, definition))


def _mean(run: Run, name: str) -> float:
    """Return the mean of a column over the examples of the stream."""
    weighted = run.batches[name].astype(float) * run.batches["count"]
    return float(f"{weighted.sum(min_count=1) / run.batches['count'].sum():.6g}")


def _last(run: Run, name: str) -> float:
    return float(f"{float(run.batches[name].iloc[-1]):.6g}")


def _batches(run: Run) -> int:
    """Count the batches of the stream. On a mixed stream, a batch has a row per domain in it."""
    if run.request.order in MIXED:
        return run.batches["position"].nunique()
    return len(run.batches)


def _weights(run: Run) -> str:
    network = run.provenance.network
    return ((network and network.sha256) or "")[:16]


COLUMNS: dict[str, tuple[str, Callable[[Run], Any]]] = {
    "modality": ("image, text or speech", lambda run: run.request.checkpoint.modality),
    "dataset": (
        "name of the dataset in the store, such as cifar10",
        lambda run: run.request.checkpoint.dataset,
    ),
    "data": ("where the data come from, in words", lambda run: run.provenance.data_source),
    "domains": (
        "where the shifted data come from: the generator and the textures of frost, or an archive",
        lambda run: run.provenance.domain_source,
    ),
    "fingerprint": (
        "hash of all training and test examples",
        lambda run: run.provenance.fingerprint,
    ),
    "method": ("method at test time", lambda run: run.request.method),
    "objective": ("pre-training of the network", lambda run: run.request.checkpoint.objective),
    "weights": (
        "where the network comes from, with the beginning of a hash",
        lambda run: run.request.checkpoint.weights,
    ),
    "weights_sha256": ("beginning of the SHA-256 of the network's weights", _weights),
    "network": ("architecture of the network", architecture_of),
    "seed": (
        "seed of the pre-training, and of the method's random draws",
        lambda run: run.request.checkpoint.seed,
    ),
    "order_seed": (
        "seed that draws the order of domains and examples; empty: as stored",
        lambda run: run.request.order_seed,
    ),
    "stream": (
        "domains in the order of the stream; a domain that comes at several severities in turn is "
        "named once",
        lambda run: " ".join(name for name, _ in groupby(one.name for one in run.request.stream)),
    ),
    "severities": ("severities of the corruptions", _severities),
    "order": (
        "order of the examples, such as mixed or correlated; empty: domain after domain",
        lambda run: run.request.order,
    ),
    "reset_each": (
        "whether the method begins each domain from the source",
        lambda run: run.request.reset_each,
    ),
    "on_alarm": (
        "what is done if the alarm for collapse rings: reset or stop; empty: nothing",
        lambda run: run.request.on_alarm,
    ),
    "delta": ("δ of a correlated stream", lambda run: run.request.dirichlet_delta),
    "examples": (
        "number of examples in the stream",
        lambda run: int(run.batches["count"].sum()),
    ),
    "batches": (
        "number of batches in the stream; a method that learns from every batch makes as many "
        "updates",
        _batches,
    ),
    "batch_size": (
        "examples per batch; the last batch of a domain may be smaller",
        lambda run: run.request.batch_size,
    ),
    "rate": (
        "learning rate at test time, which a method that does not learn ignores",
        lambda run: run.request.online_learning_rate,
    ),
    "optimizer": (
        "optimiser at test time; empty: the method's own",
        lambda run: run.request.online_optimizer,
    ),
    "predict": (
        "whether the recorded prediction comes after or before the update",
        lambda run: run.request.predict,
    ),
    "diversity": (
        "weight of the entropy of the mean prediction; empty: the method's own",
        lambda run: run.request.online_diversity,
    ),
    "memory": (
        "how many earlier examples BatchNorm remembers; for a source prior, how many examples the "
        "source's statistics count as; empty: the method's own",
        lambda run: run.request.statistics_memory,
    ),
    "E": (
        "online error in percent: the mean over domains",
        lambda run: _percent(mean_online_error(run.batches)),
    ),
    "A": (
        "average accuracy of the final model in percent (Eq. 1)",
        lambda run: _percent(average_accuracy(run.accuracies)),
    ),
    **{
        name: (
            f"forward transfer in points by the definition `{definition}` of `metrics.py`; empty "
            "where it was not measured",
            partial(_transfer, definition=definition),
        )
        for name, definition in TRANSFERS.items()
    },
    **{
        name: (f"mean over the stream of the {words}", partial(_mean, name=name))
        for name, words in {
            "entropy_main": "entropy of z in nats",
            "entropy_auxiliary": "entropy of a in nats; empty without θ_a",
            "agreement": "share of examples on which z and a predict the same class; empty without "
            "θ_a",
        }.items()
    },
    "moved_normalization": (
        "distance of BatchNorm's scales and shifts from the source at the end of the stream",
        lambda run: _last(run, "moved_normalization"),
    ),
    "moved_others": (
        "distance of all other adapted parameters from the source at the end of the stream",
        lambda run: _last(run, "moved_others"),
    ),
    "profile": ("profile that asked for the run", lambda run: run.provenance.profile),
    "code": ("hash of the code that made the run", lambda run: run.provenance.code),
    "revision": (
        "commit of the code that made the run",
        lambda run: run.provenance.code_revision,
    ),
    "device": ("device that the run was made on", lambda run: run.provenance.device),
    "threads": ("number of threads on the CPU", lambda run: run.provenance.threads),
    "torch": ("version of PyTorch", lambda run: run.provenance.packages.get("torch")),
    "seconds": ("seconds that the run took", lambda run: run.provenance.seconds),
    "finished": ("when the run was finished", lambda run: run.provenance.finished),
}
"""For each column of the table: what it holds, and how it is computed from a run."""
BY_DOMAIN = "E_"
"""The prefix of the columns with the error of each domain."""
ORDERED_BY = ["modality", "dataset", "weights", "stream", "method", "rate", "order_seed", "key"]


def row_of(one: Packed) -> dict[str, Any]:
    """Return the row of a packed run."""
    record = json.loads(one.line)
    run = run_of(record)
    row: dict[str, Any] = {"key": one.key}
    row |= {name: value(run) for name, (_, value) in COLUMNS.items()}
    by_domain = online_errors(run.batches).groupby("domain").mean()
    row |= {f"{BY_DOMAIN}{name}": round(100 * error, 4) for name, error in by_domain.items()}
    row["entropies"] = record["entropies"]
    row["sha256"] = hashlib.sha256(one.line.encode()).hexdigest()[:16]
    return row


def table_of_runs(entries: Iterable[Packed]) -> pd.DataFrame:
    """Return the table of the runs among these entries. The order of its rows does not depend on
    the order of the entries.
    """
    rows = [row_of(one) for one in entries if one.kind == "runs"]
    table = pd.DataFrame(rows)
    by_domain = sorted(str(name) for name in table if str(name).startswith(BY_DOMAIN))
    names = ["key", *COLUMNS, *by_domain, "entropies", "sha256"]
    if table.empty:
        return pd.DataFrame(columns=names)
    return table[names].sort_values(ORDERED_BY, na_position="first", ignore_index=True)


def dictionary() -> str:
    """Return the descriptions of the table's columns as Markdown."""
    described = {"key": "key of the run in a store"}
    described |= {name: about for name, (about, _) in COLUMNS.items()}
    described |= {
        f"{BY_DOMAIN}DOMAIN": "online error on this domain in percent, mean over its places in "
        "the stream; empty if the stream does not have the domain",
        "entropies": "`by batch`: each batch has its own entropies and agreement; `by domain`: all "
        "batches of a domain have the means over the domain",
        "sha256": "beginning of the SHA-256 of the run's line in a `*.jsonl.xz` file",
    }
    table = pd.Series(described, name="what it holds").rename_axis("column").to_frame()
    return (
        "# The runs\n\n"
        f"`{TABLE}` has a row per run behind the figures. `study/tools/pack_runs.py` writes it. "
        "The first lines of `pack_runs.py` say what the other files here are, and how to put the "
        "runs back into a results folder.\n\n"
        f"{markdown(table)}\n"
    )


# ---------------------------------------------------------------------------------- files and back


def read_packed(folder: Path = FOLDER) -> dict[str, Packed]:
    """Return the packed entries of a folder by key.

    If two packed entries have the same key, the one with distances by batch counts. Raises Damaged
    if a file cannot be read, or is not the one that was written.
    """
    found: dict[str, Packed] = {}
    for path in sorted(folder.glob("*.jsonl.xz")):
        try:
            text = lzma.decompress(path.read_bytes()).decode()
        except (lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
            raise Damaged(f"{path} is no whole .xz file ({error})") from None
        if path.name != file_name(text):
            raise Damaged(f"{path} is not the file that was written: {file_name(text)}")
        for line in text.splitlines():
            record = json.loads(line)
            by_batch = record.get("distances") == BY_BATCH_TOLD
            one = Packed(record["kind"], record["key"], line, by_batch)
            if one.key not in found or by_batch:
                found[one.key] = one
    return found


def file_name(text: str) -> str:
    """Return the name of the file that has this text: the beginning of its hash."""
    return f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.jsonl.xz"


def read_results(results: Path, by_batch: Sequence[str] = BY_BATCH) -> dict[str, Packed]:
    """Pack every entry of a results folder, and return the packed entries by key. Networks and
    unfinished entries are left out.

    Raises Damaged if an entry is not as it was written, or is of another version.
    """
    entries: list[Entry] = []
    for kind in PACKED_KINDS:
        for path in sorted((results / kind).glob("*/")):
            if "." in path.name:  # unfinished, or set aside
                continue
            try:
                entries.append(read_entry(path))
            except Unusable as error:
                raise Damaged(f"{path}: {error}") from None
    runs = [entry.request for entry in entries if isinstance(entry.request, RunRequest)]
    beside = _beside_a_selection(runs)
    found = {}
    for entry in entries:
        whole = entry.provenance.distances_by_batch and entry.request in beside
        found[entry.folder.name] = packed(entry, by_batch, whole)
    return found


def pack(
    results: Sequence[Path], folder: Path = FOLDER, by_batch: Sequence[str] = BY_BATCH
) -> tuple[int, int]:
    """Add the entries of results folders to the packed ones, and write the table anew.

    Return how many entries were added, and how many are packed now. A packed entry stays. If it
    lacks distances by batch and a results folder has them, the entry is packed again with them.

    Raises ValueError if a result differs from the packed one, and Damaged if an entry or a packed
    file cannot be used. Nothing is written then.
    """
    there = read_packed(folder)
    new: dict[str, Packed] = {}
    for one in results:
        for key, entry in read_results(one, by_batch).items():
            known = there.get(key) or new.get(key)
            if known is not None:
                check_same(known, entry, one)
            if known is None or (entry.distances_by_batch and not known.distances_by_batch):
                new[key] = entry
    together = there | new
    # Made before anything is written, because it fails if a packed entry is of another version.
    table = table_of_runs(together.values()).to_csv(index=False)
    folder.mkdir(parents=True, exist_ok=True)
    if new:
        text = "\n".join(new[key].line for key in sorted(new)) + "\n"
        content = lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
        write_atomically(folder / file_name(text), lambda file: file.write(content))
    write_atomically(folder / TABLE, lambda file: file.write(table.encode()))
    write_atomically(folder / DICTIONARY, lambda file: file.write(dictionary().encode()))
    return len(new), len(together)


def check_same(known: Packed, other: Packed, place: Path) -> None:
    """Raise ValueError if two entries have the same request, data and code, but other results.

    place: the results folder of `other`, for the message.
    """
    records = [json.loads(one.line) for one in (known, other)]
    outcomes = []
    for record in records:
        errors = record.get("batches", {}).get("errors")
        outcomes.append((errors, record.get("accuracies"), record["found"]))
    if outcomes[0] == outcomes[1]:
        return
    method = records[0]["request"].get("method", known.kind)
    devices = [record["provenance"]["device"] for record in records]
    raise ValueError(
        f"{place}: {method} ({known.key}) differs from the packed result of the same request, data "
        f"and code (made on {devices[1]}; packed: {devices[0]}): pack it into a folder of its own "
        "(--folder)"
    )


def check(folder: Path = FOLDER) -> int:
    """Return how many entries are packed.

    Raises Damaged if the table or README.md differs from what the batches give.
    """
    entries = read_packed(folder)
    written = {
        TABLE: table_of_runs(entries.values()).to_csv(index=False),
        DICTIONARY: dictionary(),
    }
    for name, text in written.items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            raise Damaged(f"{path} is not what the batches give: run `pack` without a folder")
    return len(entries)


def unpack(results: Path, folder: Path = FOLDER) -> int:
    """Put all packed entries back into a results folder, and return how many there are.

    Entries that the folder has already stay. Raises Damaged if the table does not fit the batches.
    """
    check(folder)
    entries = read_packed(folder)
    store = Store(results)
    for one in entries.values():
        record = json.loads(one.line)
        request = REQUESTS[one.kind].model_validate(record["request"])

        def make(place: Path, record: dict[str, Any] = record) -> Made:
            for name in ("batches", "accuracies"):
                if name in record:
                    table_of(record[name]).to_csv(place / f"{name}.csv", index=False)
            told = UNPACKED
            if record.get("entropies") == BY_DOMAIN_TOLD:
                told += "; entropies are means by domain"
            if record.get("distances") == BY_BATCH_TOLD:
                told += f"; {DISTANCES_BY_BATCH}"
            made_by = replace(Provenance.from_json(record["provenance"]), filed=told)
            return Made(made_by, record["found"])

        store.make_once(one.kind, request, tuple(record["content"]), make)
    return len(entries)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one of the three commands. If it fails, print a message and exit with 2."""
    parser = argparse.ArgumentParser(
        prog="pack_runs", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("command", choices=("pack", "check", "unpack"))
    parser.add_argument("results", nargs="*", type=Path, help="results folders")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the packed runs")
    parser.add_argument(
        "--by-batch",
        nargs="*",
        action="extend",
        help=f"methods whose entropies stay by batch (default: {' '.join(BY_BATCH)})",
    )
    asked = parser.parse_args(arguments)
    by_batch = BY_BATCH if asked.by_batch is None else asked.by_batch
    try:
        if asked.command == "pack":
            for results in asked.results:
                if not results.is_dir():
                    raise ValueError(f"{results} is no folder")
            added, count = pack(asked.results, asked.folder, by_batch)
            print(f"{added} entries added, {count} in {asked.folder}")
        elif asked.command == "check":
            print(f"{check(asked.folder)} entries, as they were written")
        else:
            if len(asked.results) != 1:
                raise ValueError("unpack needs one results folder")
            count = unpack(asked.results[0], asked.folder)
            print(f"{count} entries in {asked.results[0]}")
    except (Unusable, ValueError, OSError) as error:
        parser.exit(2, f"pack_runs: {error}\n")


if __name__ == "__main__":
    main()
