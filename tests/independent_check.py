"""A second, independent check of the numbers of a report, from the raw records of the store.

    python tests/independent_check.py RESULTS_FOLDER FIGURES_FOLDER

It shares no code with the study: it reads the files of the store and of the report, works out E, A,
F by its three definitions, their means, standard deviations and intervals, the differences of
methods and which cell is in bold, and compares each with what the report says. It prints how many
numbers it compared, how many it cannot work out, and each disagreement. The exit code is 1 where
there is one, or where nothing was compared.
"""

import html
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

METRICS = {
    "E": "E",
    "A": "A",
    "F": "F (Eq. 2)",
    "F_final": "F (final)",
    "F_unadapted": "F (unadapted)",
}
"""The columns of a file of numbers, and the heads of the same in tables."""
PAPER_SIZES = (128, 64, 32, 16)
DRAWS = 20_000
WIDTHS_APART = 0.08
"""Two bootstraps with their own random draws differ; their limits by less than this share of the
interval's width.
"""
SMALL = 1e-9


@dataclass
class Record:
    """A stored run. batches: errors and counts by (step, position); values: E, A and F."""

    request: dict[str, Any]
    network: str
    fingerprint: str
    batches: pd.DataFrame
    values: dict[str, float]

    @property
    def about(self) -> tuple[str, str, int]:
        """The method, the pre-training and the seed."""
        checkpoint = self.request["checkpoint"]
        return self.request["method"], checkpoint["objective"], checkpoint["seed"]

    @property
    def setting(self) -> str:
        """What the runs of one table mostly share."""
        names = ("stream", "batch_size", "test_size", "order", "order_seed", "predict")
        shared = [self.request.get(name) for name in names]
        return json.dumps([*shared, self.request["checkpoint"]["weights"], self.fingerprint])

    def by_domain(self) -> dict[str, float]:
        """The error in percent by the name of the domain, the mean over its severities."""
        errors: dict[str, list[float]] = {}
        for (_, domain, _), rows in self.batches.groupby(["step", "domain", "severity"]):
            errors.setdefault(domain, []).append(100 * rows["errors"].sum() / rows["count"].sum())
        return {domain: sum(each) / len(each) for domain, each in errors.items()}


@dataclass
class Check:
    """What was compared. unknown: numbers that this check cannot work out."""

    compared: int = 0
    unknown: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, other: "Check") -> None:
        """Count what another check found."""
        self.compared += other.compared
        self.unknown += other.unknown
        self.wrong += other.wrong

    def text(self, place: str, shown: str, expected: str) -> None:
        """Compare words, or a whole cell."""
        self.compared += 1
        if shown != expected:
            self.wrong.append(f"{place}: shown {shown!r}, worked out {expected!r}")

    def number(self, place: str, shown: str, expected: float, digits: int) -> None:
        """Compare a number that is shown with so many digits after the point."""
        self.compared += 1
        if math.isnan(expected):
            good = shown == "–"
        else:
            text = shown.replace("−", "-")
            decimals = rf"\.\d{{{digits}}}" if digits else ""
            good = re.fullmatch(rf"[-+]?\d+{decimals}", text) is not None
            # A tie may be rounded either way: the order of a sum changes its last bit.
            good = good and abs(float(text) - expected) <= 0.5 * 10**-digits + SMALL
        if not good:
            self.wrong.append(f"{place}: shown {shown!r}, worked out {expected:.6f}")


def decimals_for(half: float, most: int = 2) -> int:
    """How many decimals are shown of a number that is uncertain by `half`: so many that it has one
    digit, and two where it is 1.0 to 3.5 of its leading digit's unit. One where it is not known."""
    if math.isnan(half):
        return 1
    if half == 0:
        return most
    digits = 0
    while digits < most and half * 10**digits < 3.55:
        digits += 1
    return digits


def decimals_in(text: str) -> int:
    """How many decimals the first number of a text has."""
    found = re.search(r"\d+(?:\.(\d+))?", text)
    return len(found[1] or "") if found else 0


# ---------------------------------------------------------------- the store


def read_records(results: Path) -> list[Record]:
    """Every finished run of a store."""
    found = []
    for folder in sorted((results / "runs").iterdir()):
        if "." not in folder.name and (folder / "entry.json").is_file():
            found.append(read_record(folder))
    return found


def read_record(folder: Path) -> Record:
    """A run from its three files."""
    described = json.loads((folder / "entry.json").read_text(encoding="utf-8"))
    batches = pd.read_csv(folder / "batches.csv")
    accuracies = pd.read_csv(folder / "accuracies.csv")
    request = described["request"]
    checkpoint = request["checkpoint"]
    provenance = described["provenance"]
    network = provenance.get("network") or {}
    name = network.get("sha256") or checkpoint["weights"]
    if checkpoint["weights"] == "train":
        name = f"seed {checkpoint['seed']}"
    values = {"E": online_error(batches), **of_accuracies(accuracies)}
    return Record(request, name, provenance["fingerprint"], batches, values)


def online_error(batches: pd.DataFrame) -> float:
    """E in percent: of each domain the errors per example, and the mean of these."""
    wrong: dict[tuple[Any, ...], int] = {}
    seen: dict[tuple[Any, ...], int] = {}
    columns = ("step", "domain", "severity", "errors", "count")
    for *domain, errors, count in batches[list(columns)].itertuples(index=False):
        key = tuple(domain)
        wrong[key] = wrong.get(key, 0) + errors
        seen[key] = seen.get(key, 0) + count
    return 100 * math.fsum(wrong[key] / seen[key] for key in wrong) / len(wrong)


def of_accuracies(table: pd.DataFrame) -> dict[str, float]:
    """A in percent and F in points, by Eq. 2, of the final model, and over the unadapted one."""
    after: dict[tuple[int, int], float] = {}
    alone: dict[int, float] = {}
    source: dict[int, float] = {}
    rows = table[["step", "kind", "after", "accuracy"]].itertuples(index=False)
    for step, kind, number_of_domains, accuracy in rows:
        if kind == "stream":
            after[step, number_of_domains] = accuracy
        elif kind == "alone":
            alone[step] = accuracy
        else:
            source[step] = accuracy
    last = max(count for _, count in after)
    final = {step: accuracy for (step, count), accuracy in after.items() if count == last}
    later = sorted(step for step in alone if step > 0)
    of_source = sorted(step for step in source if step > 0)
    return {
        "A": mean([100 * accuracy for accuracy in final.values()]),
        "F": mean([100 * (after[step, step + 1] - alone[step]) for step in later]),
        "F_final": mean([100 * (final[step] - alone[step]) for step in later]),
        "F_unadapted": mean([100 * (final[step] - source[step]) for step in of_source]),
    }


def mean(values: Sequence[float]) -> float:
    """The mean; NaN of nothing."""
    return math.fsum(values) / len(values) if values else math.nan


# ---------------------------------------------------------------- which run a row of numbers is of


def fits(record: Record, row: dict[str, str]) -> bool:
    """Whether a record can be the run of a row, by what was asked for."""
    if record.about != (row["method"], row["objective"], int(row["seed"])):
        return False
    request = record.request
    for name in ("batch_size", "test_size", "online_learning_rate"):
        if row.get(name) and float(row[name]) != request.get(name):
            return False
    severities = [severity for _, severity in request["stream"]]
    if row.get("severity") and float(row["severity"]) != min(severities):
        return False
    stream = row.get("stream")
    if stream in ("mixed", "correlated"):
        return request.get("order") == stream
    if stream in ("instantaneous", "gradual"):
        gradual = len(severities) > len({name for name, _ in request["stream"]})
        return not request.get("order") and gradual == (stream == "gradual")
    return True


def precision(rows: list[dict[str, str]]) -> float:
    """By how much a number of a file may differ from the one worked out: the file has seven
    digits, or four after the point, as those of earlier versions."""
    decimals = [len(row[name].partition(".")[2]) for row in rows for name in METRICS]
    return 1e-6 if max(decimals) > 4 else 0.51e-4


def differing(record: Record, row: dict[str, str], apart: float) -> list[str]:
    """The metrics in which a row differs from a record by more than `apart`, a share above 1."""
    found = []
    for name in METRICS:
        value = record.values[name]
        if row[name] == "" or math.isnan(value):
            same = row[name] == "" and math.isnan(value)
        else:
            same = abs(float(row[name]) - value) <= apart * max(1, abs(value))
        if not same:
            found.append(name)
    return found


def runs_of_rows(
    rows: list[dict[str, str]], records: list[Record], place: str, check: Check
) -> list[Record | None]:
    """The record behind each row of a file of numbers; what no record agrees with is wrong."""
    agreeing = []
    apart = precision(rows)
    for row in rows:
        asked = [record for record in records if fits(record, row)]
        differences = sorted((differing(record, row, apart) for record in asked), key=len)
        named = f"{place}, {row['label']}, seed {row['seed']}"
        check.compared += len(METRICS)
        if not asked:
            check.wrong.append(f"{named}: no such run is stored")
        elif differences[0]:
            names = ", ".join(differences[0])
            check.wrong.append(f"{named}: {names} of no stored run")
        agreeing.append([record for record in asked if not differing(record, row, apart)])
    # Where several runs have the same numbers, the one of the setting that most rows fit.
    times: dict[str, int] = {}
    for each in agreeing:
        for setting in {record.setting for record in each}:
            times[setting] = times.get(setting, 0) + 1
    return [
        max(each, key=lambda record: times[record.setting]) if each else None for each in agreeing
    ]


# ---------------------------------------------------------------- tables


@dataclass
class Table:
    """A table of text. place: where it is, for messages."""

    place: str
    heads: list[str]
    rows: list[list[str]]

    def cells(self, source: str = "ours") -> Iterator[tuple[str, str, str]]:
        """Row, column and text of each cell that is a number, of ours or of the paper's."""
        first = 2 if "source" in self.heads else 1
        for row in self.rows:
            if first == 1 or row[1] == source:
                for head, text in zip(self.heads[first:], row[first:], strict=True):
                    yield row[0], head, text


def tables_of(path: Path) -> list[Table]:
    """The tables of a Markdown file, bold as in the file."""
    found = []
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        lines = block.strip().splitlines()
        if len(lines) > 2 and lines[1].startswith("| ---"):
            heads, _, *rows = [
                [unescape(cell) for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines
            ]
            found.append(Table(f"{path.name}, table {len(found) + 1}", heads, rows))
    return found


def unescape(cell: str) -> str:
    """A cell of Markdown as text."""
    return html.unescape(cell.strip().replace(r"\|", "|").replace(r"]\(", "]("))


@dataclass
class Row:
    """A row of a file of numbers with the run behind it."""

    row: dict[str, str]
    record: Record

    def __getitem__(self, name: str) -> str:
        return self.row.get(name, "")


def shared_rows(rows: Sequence[Row], keys: Sequence[str]) -> tuple[dict[Any, list[Row]], set[Any]]:
    """The rows of each cell that a table compares, and the cells that are apart (†).

    A seed is shared if more than half of the cells have it. A cell with all shared seeds keeps
    these alone; any other is apart, with its own. So is one of an earlier code beside today's.
    """
    cells: dict[Any, list[Row]] = {}
    for row in rows:
        cells.setdefault(tuple(row[key] for key in keys), []).append(row)
    seeds = {key: {row["seed"] for row in each} for key, each in cells.items()}
    every = set().union(*seeds.values())
    shared = {seed for seed in every if 2 * sum(seed in of for of in seeds.values()) > len(seeds)}
    apart = {key for key, of in seeds.items() if not shared or not shared <= of}
    old = {key for key, each in cells.items() if any(row["current"] == "False" for row in each)}
    if any(row["current"] == "True" for row in rows):
        apart |= old
    kept = {
        key: each if key in apart else [row for row in each if row["seed"] in shared]
        for key, each in cells.items()
    }
    return kept, apart


def of_networks(rows: Sequence[Row], metric: str) -> list[float]:
    """One value per network: the mean over the seeds at which it ran."""
    values: dict[str, list[float]] = {}
    for row in rows:
        value = row.record.values[metric]
        if not math.isnan(value):
            values.setdefault(row.record.network, []).append(value)
    return [mean(each) for each in values.values()]


def check_cell(
    check: Check,
    place: str,
    shown: str,
    rows: Sequence[Row],
    metric: str,
    apart: bool,
    interval: bool = False,
) -> None:
    """A cell `mean ± standard deviation †`. interval: the decimals follow that of the row instead,
    which has random draws of its own."""
    values = of_networks(rows, metric)
    lacking = any(math.isnan(row.record.values[metric]) for row in rows)
    marked = shown.endswith(" †")
    check.text(f"{place}, †", str(marked), str(bool(values) and (apart or lacking)))
    middle, _, deviation = shown.removesuffix(" †").partition(" ± ")
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    digits = decimals_in(middle) if interval else decimals_for(spread)
    check.number(place, middle, mean(values), digits)
    if len(values) > 1:
        check.number(f"{place}, ±", deviation, spread, digits)
    elif deviation:
        check.text(f"{place}, ±", deviation, "")


def networks(rows: Sequence[Row]) -> int:
    """How many networks are behind these rows."""
    return len({row.record.network for row in rows})


def check_metrics(table: Table, rows: Sequence[Row]) -> Check:
    """A table of E, A and F, a row per method."""
    check = Check()
    cells, apart = shared_rows(rows, ["label"])
    names = {head: name for name, head in METRICS.items()}
    for label, head, shown in table.cells():
        key = (label,)
        place = f"{table.place}, {label}, {head}"
        if key not in cells or head not in (*names, "n"):
            check.unknown += 1
        elif head == "n":
            check.text(place, shown, str(networks(cells[key])))
        else:
            interval = any(name.startswith("95 %") for name in table.heads)
            check_cell(check, place, shown, cells[key], names[head], key in apart, interval)
    return check


def check_domains(table: Table, rows: Sequence[Row]) -> Check:
    """A table of domains, then E, A, F and n; the best of each column in bold."""
    check = Check()
    cells, apart = shared_rows(rows, ["label"])
    of_domains = table.heads[2 : table.heads.index("E")]
    values: dict[tuple[str, str], float] = {}
    for (label,), each in cells.items():
        by_network: dict[str, list[dict[str, float]]] = {}
        for row in each:
            by_network.setdefault(row.record.network, []).append(row.record.by_domain())
        names = list(each[0].record.by_domain())
        for head, name in zip(of_domains, names, strict=False):
            means = [mean([one[name] for one in runs]) for runs in by_network.values()]
            values[label, head] = mean(means)
        for head in ("E", "A", "F"):
            lacking = any(math.isnan(row.record.values[head]) for row in each)
            values[label, head] = math.nan if lacking else mean(of_networks(each, head))
    for label, head, shown in table.cells():
        place = f"{table.place}, {label}, {head}"
        key = (label,)
        if head == "n" and key in cells:
            check.text(place, shown, str(networks(cells[key])))
        elif (label, head) not in values:
            check.unknown += 1
        else:
            value = values[label, head]
            rivals = [
                other
                for (name, column), other in values.items()
                if column == head and (name,) not in apart and not math.isnan(other)
            ]
            best = False
            if rivals and key not in apart:
                bound = max(rivals) if head in ("A", "F") else min(rivals)
                best = abs(value - bound) < SMALL
            check.text(f"{place}, bold", str(shown.startswith("**")), str(best))
            text = shown.strip("*")
            check.text(f"{place}, †", str(text.endswith("†")), str(key in apart and value == value))
            spread = of_networks(cells[key], "E")
            digits = decimals_for(float(np.std(spread, ddof=1)), 1) if len(spread) > 1 else 1
            check.number(place, text.removesuffix(" †"), value, digits)
    check_bold_of_paper(table, check)
    return check


def check_bold_of_paper(table: Table, check: Check) -> None:
    """Of the paper's rows, that what is in bold is the best that is shown. The paper's best may be
    a method that the table does not have."""
    columns: dict[str, list[tuple[float, bool]]] = {}
    for _, head, shown in table.cells("paper"):
        text = shown.strip("*").replace("−", "-")
        if head != "n" and text != "–":
            columns.setdefault(head, []).append((float(text), shown.startswith("**")))
    for head, each in columns.items():
        best = max(each)[0] if head in ("A", "F") else min(each)[0]
        bold = {value for value, is_bold in each if is_bold}
        check.text(f"{table.place}, paper, {head}, bold", str(bold or {best}), str({best}))


def same_value(text: str, head: str) -> bool:
    """Whether a value of a file of numbers is that of a column's head: 0.0010 is 0.001."""
    try:
        return float(text) == float(head)
    except ValueError:
        return text == head


def check_sweep(table: Table, rows: Sequence[Row], over: str, metric: str) -> Check:
    """A table of one metric, a column per value of a setting."""
    check = Check()
    cells, apart = shared_rows([row for row in rows if row[over]], ["label", over])
    for label, head, shown in table.cells():
        place = f"{table.place}, {label}, {head}"
        found = [key for key in cells if key[0] == label and same_value(key[1], head)]
        if found:
            check_cell(check, place, shown, cells[found[0]], metric, found[0] in apart)
        elif head == "n" and any(key[0] == label for key in cells):
            counts = {networks(each) for key, each in cells.items() if key[0] == label}
            expected = "–".join(str(one) for one in sorted({min(counts), max(counts)}))
            check.text(place, shown, expected)
        elif head in ("mean", "std") and over == "batch_size":
            check.number(place, shown, over_sizes(rows, label, head, metric), 1)
        else:
            check.unknown += 1
    return check


def over_sizes(rows: Sequence[Row], label: str, head: str, metric: str) -> float:
    """Mean or standard deviation over the paper's batch sizes, of the seeds that have all of them.

    The seeds are those that all labels with such a seed share.
    """
    complete: dict[str, dict[str, list[float]]] = {}
    for name in {row["label"] for row in rows}:
        of_seeds: dict[str, dict[float, float]] = {}
        for row in rows:
            if row["label"] == name and row["batch_size"]:
                size = float(row["batch_size"])
                of_seeds.setdefault(row["seed"], {})[size] = row.record.values[metric]
        for seed, values in of_seeds.items():
            if all(size in values for size in PAPER_SIZES):
                complete.setdefault(name, {})[seed] = [values[size] for size in PAPER_SIZES]
    if label not in complete:
        return math.nan
    shared = set.intersection(*(set(seeds) for seeds in complete.values()))
    lists = [complete[label][seed] for seed in sorted(shared)]
    if not lists:
        return math.nan
    means = [mean(each) for each in zip(*lists, strict=True)]
    return mean(means) if head == "mean" else float(np.std(means, ddof=1))


def check_differences(table: Table, rows: Sequence[Row]) -> Check:
    """A table of differences of E, with intervals over seeds and over the test batches."""
    check = Check()
    labels = {row["label"] for row in rows}
    for name, difference, over_seeds, over_batches, n, *told in table.rows:
        place = f"{table.place}, {name}"
        pair = parts_of(name, labels, rows)
        if pair is None:
            check.unknown += 4
            continue
        first, second = pair
        both = sorted(first.keys() & second.keys())
        pairs: dict[tuple[str, str], list[float]] = {}
        for seed in both:
            key = (first[seed].network, second[seed].network)
            less = second[seed].values["E"] - first[seed].values["E"]
            pairs.setdefault(key, []).append(less)
        values = [mean(each) for each in pairs.values()]
        interval = over_seeds if len(values) > 1 else over_batches
        digits = decimals_in(interval) if interval.startswith("[") else 1
        check.number(place, difference, mean(values), digits)
        check.text(f"{place}, n", n, str(len(values)))
        if len(values) < 2 or max(values) - min(values) < 1e-8:
            none = "no spread known" if len(values) > 1 else "–"
            check.text(f"{place}, over seeds", over_seeds, none)
            decides = None
        else:
            error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
            half = stats.t.isf(0.025, len(values) - 1) * error
            limits = (mean(values) - half, mean(values) + half)
            digits = str(decimals_for(half))
            check.text(f"{place}, decimals", str(decimals_in(over_seeds)), digits)
            check_interval(check, f"{place}, over seeds", over_seeds, limits, 0)
            decides = limits
        drawn = block_bootstrap([(first[seed], second[seed]) for seed in both])
        if len(values) == 1:
            decides = drawn
        if drawn is None:
            check.text(f"{place}, over batches", over_batches, "–")
        else:
            apart = WIDTHS_APART * (drawn[1] - drawn[0])
            check_interval(check, f"{place}, over batches", over_batches, drawn, apart)
        for errs in told:  # Tables of earlier versions do not say it.
            check.text(f"{place}, the first method errs", errs, who_errs(decides))
    return check


def who_errs(limits: tuple[float, float] | None) -> str:
    """What an interval of a difference says; undecided where 0 is inside."""
    if limits is None:
        return "–"
    if limits[0] <= 0 <= limits[1]:
        return "undecided"
    return "less" if limits[1] < 0 else "more"


def check_interval(
    check: Check, place: str, shown: str, limits: tuple[float, float], apart: float
) -> None:
    """An interval `[low, high]`, whose limits may lie so far apart from ours."""
    texts = re.fullmatch(r"\[([−\d.]+), ([−\d.]+)\]", shown)
    if texts is None:
        check.text(place, shown, "[{:.2f}, {:.2f}]".format(*limits))
        return
    for text, limit in zip(texts.groups(), limits, strict=True):
        check.compared += 1
        rounding = 0.5 * 10 ** -decimals_in(text)
        if abs(float(text.replace("−", "-")) - limit) > apart + rounding + SMALL:
            check.wrong.append(f"{place}: shown {shown}, worked out {limit:.4f}")


def parts_of(
    name: str, labels: set[str], rows: Sequence[Row]
) -> tuple[dict[str, Record], dict[str, Record]] | None:
    """The runs by seed of `second − first` or of `second − first, batch size 4`; None if the name
    is none of these."""
    for second in labels:
        for first in labels:
            if not name.startswith(f"{second} − {first}"):
                continue
            rest = name.removeprefix(f"{second} − {first}")
            chosen = list(rows)
            at = re.fullmatch(r", ([a-z ]+) ([\d.e-]+)", rest)
            if at:
                column = at[1].replace(" ", "_")
                chosen = [row for row in rows if same_value(row[column], at[2])]
            elif rest:
                continue
            both = []
            for label in (first, second):
                of_label = [row for row in chosen if row["label"] == label]
                by_seed = {row["seed"]: row.record for row in of_label}
                if not by_seed or len(by_seed) < len(of_label):
                    return None
                both.append(by_seed)
            return both[0], both[1]
    return None


def block_bootstrap(pairs: Sequence[tuple[Record, Record]]) -> tuple[float, float] | None:
    """The limits of a paired block bootstrap over batches; None where there is none.

    The blocks have the cube root of the number of batches; all domains of images and of speech draw
    the same ones, since they hold the same examples in one order.
    """
    if not pairs:
        return None
    more: dict[Any, float] = {}
    counts: dict[Any, float] = {}
    request = pairs[0][0].request
    sample = request["checkpoint"]["dataset"].startswith("cifar10_sample")
    if request.get("order") or (sample and request.get("order_seed") is not None):
        return None
    for first, second in pairs:
        theirs = {}
        for batch in second.batches.itertuples():
            theirs[batch.step, batch.position] = (batch.count, batch.errors)
        for step, position, count, errors in first.batches[
            ["step", "position", "count", "errors"]
        ].itertuples(index=False):
            other = theirs.get((step, position))
            if other is None or other[0] != count:
                continue
            key = (step, position % 992 if sample else position)
            more[key] = more.get(key, 0) + other[1] - errors
            counts[key] = counts.get(key, 0) + count
    steps = sorted({step for step, _ in more})
    keys = {step: sorted(key for key in more if key[0] == step) for step in steps}
    if not steps or min(map(len, keys.values())) < 10:
        return None
    generator = np.random.default_rng(20260101)
    of_text = request["checkpoint"]["modality"] == "text"
    total = np.zeros(DRAWS)
    drawn = np.empty((0, 0), dtype=int)
    for step in steps:
        number = len(keys[step])
        if of_text or drawn.shape[1] != number:
            length = max(1, round(number ** (1 / 3)))
            starts = generator.integers(number, size=(DRAWS, -(-number // length)))
            blocks = [(starts + offset) % number for offset in range(length)]
            drawn = np.stack(blocks, axis=2).reshape(DRAWS, -1)[:, :number]
        gained = np.array([more[key] for key in keys[step]])[drawn].sum(axis=1)
        total += gained / np.array([counts[key] for key in keys[step]])[drawn].sum(axis=1)
    low, high = np.quantile(100 * total / len(steps), [0.025, 0.975])
    return float(low), float(high)


# ---------------------------------------------------------------- a report


def check_table(table: Table, rows: Sequence[Row]) -> Check:
    """A table against the rows of its exhibit, or against those of one setting, such as one stream:
    that which agrees best. A table of another kind is unknown."""
    subsets = [rows]
    for name in rows[0].row:
        values = {row[name] for row in rows}
        if 1 < len(values) < len(rows) and name not in ("label", "method", "seed", *METRICS):
            subsets += [[row for row in rows if row[name] == value] for value in sorted(values)]
    checks = []
    for subset in subsets:
        if table.heads[0] == "difference":
            checks.append(check_differences(table, subset))
        elif not alone(subset) and not sweeps(table, subset):
            continue
        elif set(METRICS.values()) <= set(table.heads):
            checks.append(check_metrics(table, subset))
        elif {"source", "E", "A", "F", "n"} <= set(table.heads):
            checks.append(check_domains(table, subset))
        else:
            for over in sweeps(table, subset):
                checks += [check_sweep(table, subset, over, metric) for metric in METRICS]
    known = [check for check in checks if check.compared]
    if not known:
        return Check(unknown=sum(1 for _ in table.cells()))
    return min(known, key=lambda check: (check.unknown + len(check.wrong), len(check.wrong)))


def alone(rows: Sequence[Row]) -> bool:
    """Whether each label has one run at most at each seed."""
    return len({(row["label"], row["seed"]) for row in rows}) == len(rows)


def sweeps(table: Table, rows: Sequence[Row]) -> list[str]:
    """The settings whose values are heads of a table."""
    if table.heads[0] != "method" or "n" not in table.heads:
        return []
    found = []
    for name in rows[0].row:
        values = {row[name] for row in rows if row[name]}
        of_cells = {(row["label"], row["seed"], row[name]) for row in rows if row[name]}
        single = len(of_cells) == sum(bool(row[name]) for row in rows)
        if name not in ("label", "method", "seed", *METRICS) and values and single:
            heads = [head for head in table.heads if any(same_value(one, head) for one in values)]
            if len(heads) == len(values):
                found.append(name)
    return found


def rounds_to(full: str, shown: str) -> bool:
    """Whether a cell has the words of another and its numbers, rounded to as many decimals."""
    of_number = r"[−+]?\d+(?:\.\d+)?"
    numbers = [re.findall(of_number, text) for text in (full, shown)]
    words = [re.sub(of_number, "", text) for text in (full, shown)]
    if words[0] != words[1] or len(numbers[0]) != len(numbers[1]):
        return False
    for one, other in zip(*numbers, strict=True):
        apart = abs(float(one.replace("−", "-")) - float(other.replace("−", "-")))
        if apart > 0.5 * 10 ** -decimals_in(other) + SMALL:
            return False
    return True


def check_csv(path: Path, tables: Sequence[Table], check: Check) -> None:
    """A table's CSV against the Markdown of the report, which has the same cells, rounded."""
    lines = pd.read_csv(path, dtype=str, keep_default_na=False, header=None).to_numpy().tolist()
    heads, *rows = [[" ".join(str(cell).split()) for cell in line] for line in lines]
    differences = []
    for table in tables:
        if table.heads[1:] == heads[1:] and len(table.rows) == len(rows):
            shown = [re.sub(r"\*\*(.+?)\*\*", r"\1", cell) for row in table.rows for cell in row]
            cells = [cell for row in rows for cell in row]
            pairs = list(zip(cells, shown, strict=True))
            differences.append([pair for pair in pairs if not rounds_to(*pair)])
    if not differences:
        check.wrong.append(f"{path.name}: no Markdown has this table")
        return
    check.compared += sum(len(row) for row in rows)
    for mine, other in min(differences, key=len):
        check.wrong.append(f"{path.name}: {mine!r}, and {other!r} in the Markdown")


def check_report(results: Path, figures: Path, tables: bool = True) -> Check:
    """Every number of a report that can be worked out from the store; without `tables`, those of
    the files of numbers alone."""
    check = Check()
    records = read_records(results)
    of_folder = {}
    if tables:
        of_folder = {path: tables_of(path) for path in sorted(figures.glob("*.md"))}
    for path in sorted(figures.glob("*-numbers.csv")):
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        if not {"label", "seed", *METRICS} <= set(table.columns):
            continue
        numbers = [{str(name): str(text) for name, text in row.items()} for row in rows_of(table)]
        dataset = path.name.removesuffix("-numbers.csv")
        of_dataset = [record for record in records if is_of(record, dataset)]
        found = runs_of_rows(numbers, of_dataset, path.name, check)
        rows = [
            Row(row, record)
            for row, record in zip(numbers, found, strict=True)
            if record is not None
        ]
        markdown = path.with_name(f"{dataset}.md")
        for one in of_folder.get(markdown, []) if len(rows) == len(numbers) else []:
            check.add(check_table(one, rows))
    of_report = [table for each in of_folder.values() for table in each]
    for path in sorted(figures.glob("*.csv")) if tables else []:
        if not path.name.endswith("-numbers.csv") and path.name != "verdicts.csv":
            check_csv(path, of_report, check)
    return check


def rows_of(table: pd.DataFrame) -> list[dict[Any, Any]]:
    """The rows of a table as dictionaries."""
    return table.to_dict("records")


def is_of(record: Record, stem: str) -> bool:
    """Whether a record is on the dataset by which a file of the report is named."""
    kind, _, rest = record.request["checkpoint"]["dataset"].partition(":")
    name = kind
    if kind == "npz":  # npz:NAME-HASH
        name = f"npz-{re.sub('-[0-9a-f]{6}$', '', rest)}"
    return stem.startswith(re.sub(r"\W+", "-", name).strip("-") + "-")


def main(arguments: Sequence[str]) -> int:
    """Check a report; print what was found."""
    if len(arguments) != 2:
        print(__doc__)
        return 2
    check = check_report(Path(arguments[0]), Path(arguments[1]))
    for line in check.wrong:
        print(line)
    told = f"{check.compared} numbers compared, {len(check.wrong)} disagree"
    print(f"{told}; {check.unknown} are of a kind that this check does not know.")
    return 1 if check.wrong or not check.compared else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
