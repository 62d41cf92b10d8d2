"""Fill the pages whose numbers come from committed tables:

    ./run_all.sh python study/tools/fill.py

A template `docs/templates/NAME.md` names its numbers by table, row and column. With the numbers
filled in, it becomes a whole page (WHOLE), or the part of a page between two marks (PARTS). No
number is typed by hand. Run this again after a template, a table in `figures/` or claims.csv has
changed. file_figures.py copies the tables of a report into `figures/`. pack_runs.py makes the table
`figures/runs/runs.csv` of the runs in results folders. A test checks that the pages fit the tables.
"""

import copy
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2
import pandas as pd

from cascadetta_lib.files import write_atomically
from study import ROOT
from study.exhibits.kit.intervals import mean_with_interval
from study.exhibits.kit.numbers import number, places, round_half_up
from study.exhibits.kit.rendering import markdown

TEMPLATES = ROOT / "docs" / "templates"
FIGURES = ROOT / "figures"
CLAIMS = ROOT / "study" / "exhibits" / "verdicts" / "claims.csv"
WHOLE = {
    "RESULTS.md": "RESULTS.md",
    "further-results.md": "docs/further-results.md",
    "provenance.md": "docs/provenance.md",
    "verdicts.md": "docs/verdicts.md",
}
"""Templates that become a whole page."""
PARTS = {"findings.md": "README.md"}
"""Templates that become the part of a page between `BEGINS` and `ENDS`."""
BEGINS = "<!-- filled by study/tools/fill.py from docs/templates/{} -->\n"
ENDS = "<!-- until here -->\n"
NAMES = {
    "AdaBN, source prior": "AdaBN with a source prior",
    "Cascade": "the cascade",
    "Cascade, θ_m fixed": "the cascade with θ_m fixed",
    "Cascade, a tenth of the rate": "the cascade at a tenth of the rate",
    "Cascade, ten times the rate": "the cascade at ten times the rate",
    "Cascade, no θ_a": "the network trained and adapted without θ_a",
    "Cascade, entropy of θ_m": "the variant without θ_a",
    "Cascade, entropy of θ_m, a tenth of the rate": "the variant without θ_a at a tenth "
    "of the rate",
    "Tent, a tenth of the rate": "Tent at a tenth of the rate",
}
"""What sentences call a row, if they do not use its label."""
WHOLE_UPDATES = 4695
"""The number of updates on the whole stream."""
LEARNING = {
    "tent": "Tent",
    "tent_adam": "Tent (Adam)",
    "cotta": "CoTTA",
    "cascade": "Cascade",
    "cascade_fixed_classifier": "Cascade, θ_m fixed",
    "cascade_same_weights": "Cascade, entropy of θ_m",
}
"""The methods that learn, with their labels, for the table of one order."""
DECIMALS = 1
"""The most decimals of a number, except where a template or a function here asks for more."""
SCOPES = {"orders": "order", "seeds": "network", "test batches": "images"}
"""What sentences call the seeds, orders or test batches that an interval is over."""
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
"""How sentences write a small number."""


class Table:
    """A committed table of an exhibit, as text, by row and column.

    The methods below take a row by its name: the text in its first column. In a table whose second
    column is the source, the rate or the stream, the name is a pair of the texts in both columns,
    such as ("Tent", "paper") or ("Tent", "0.001").

    name: the path of the CSV file below `folder`, without its suffix.
    """

    def __init__(self, name: str, folder: Path = FIGURES) -> None:
        frame = pd.read_csv(folder / f"{name}.csv", dtype=str, keep_default_na=False)
        levels = 2 if {"source", "rate", "stream"} & set(frame.columns[:2]) else 1
        self.frame = frame.set_index(list(frame.columns[:levels]))

    def text(self, row: str | tuple[str, str], column: str) -> str:
        """Return a cell as it is. Raises KeyError if the table lacks it."""
        return str(self.frame.loc[row, column])

    def value(self, row: str | tuple[str, str], column: str) -> float:
        """Return the number in a cell: the mean of `mean ± deviation`, and NaN for a dash."""
        first = self.text(row, column).split(" ")[0]
        return float(first.replace("−", "-").replace("–", "nan"))

    def at(
        self, row: str | tuple[str, str], column: str, digits: int = 1, sign: bool = False
    ) -> str:
        """Write the number of a cell with this many decimals. sign: write a plus sign, too."""
        return number(self.value(row, column), digits, sign=sign)

    def less(
        self,
        row: str | tuple[str, str],
        other: str | tuple[str, str],
        column: str,
        sign: bool = False,
    ) -> str:
        """Write how much smaller the number of `row` is than that of `other`, with one decimal."""
        return number(self.value(other, column) - self.value(row, column), 1, sign=sign)

    def has(self, row: str | tuple[str, str]) -> bool:
        """Return whether the table has this row."""
        return row in self.frame.index

    def with_paper(self, column: str, other: "Table", theirs: str) -> "Table":
        """Return a copy of this table in which the paper's rows have a column filled from another
        table.

        column: the column to fill.
        other: a table with one row per label.
        theirs: the column of `other` that holds the texts to fill in.
        """
        filled = copy.copy(self)
        filled.frame = self.frame.copy()
        for row in self.frame.index:
            if row[1] == "paper":
                filled.frame.loc[row, column] = other.text(row[0], theirs)
        return filled

    def ours(self) -> list[tuple[str, str]]:
        """Return the rows whose source is `ours`."""
        return [row for row in self.frame.index if row[1] == "ours"]

    def mean(self, row: str | tuple[str, str], columns: Sequence[str]) -> float:
        """Return the mean of the numbers of a row in these columns."""
        return sum(self.value(row, column) for column in columns) / len(columns)

    def widths(self, column: str) -> list[float]:
        """Return the width of each interval in a column. Rows without an interval are left out."""
        found = [re.findall(r"[−\d.]+", cell) for cell in self.frame[column]]
        ends = [[float(end.replace("−", "-")) for end in pair] for pair in found if len(pair) == 2]
        return [high - low for low, high in ends]

    def learning(self) -> list[str]:
        """Return the rows of methods that learn: those with a number in the column `gain`, except
        ERM and AdaBN with a source prior.
        """
        rows = [row for row in self.frame.index if self.text(row, "gain") != "–"]
        return [row for row in rows if row not in ("ERM", "AdaBN, source prior")]

    def cell(self, row: str | tuple[str, str], column: str) -> str:
        """Return a cell with the decimals that `show` gives it."""
        return with_its_decimals(self.text(row, column))

    def numbers(self, column: str, besides: Sequence[str] = ()) -> list[float]:
        """Return the numbers of a column, except those of the rows in `besides`."""
        return [self.value(row, column) for row in self.frame.index if row not in besides]

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.frame)

    def place(self, row: str, column: str) -> str:
        """Return the place of a row in a column, such as `1st` for the smallest number."""
        values = pd.Series({each: self.value(each, column) for each in self.frame.index})
        place = int(values.rank(method="min")[row])
        ending = {1: "st", 2: "nd", 3: "rd"}.get(0 if 10 < place < 20 else place % 10, "th")
        return f"{place}{ending}"

    def show(
        self,
        columns: Mapping[str, str],
        rows: Sequence[str | tuple[str, str]] = (),
        head: str = "",
    ) -> str:
        """Return rows and columns of the table as Markdown.

        columns: the columns, with their new names.
        rows: the rows; all if empty.
        head: the heading of the column of rows.

        If all rows are ours, their source is left out.
        """
        shown = self.frame.loc[list(rows)] if rows else self.frame
        if shown.index.nlevels == 2 and set(shown.index.get_level_values(1)) == {"ours"}:
            shown = shown.droplevel(1)
        shown = shown[list(columns)].map(with_its_decimals).rename(columns=dict(columns))
        if head:
            shown = shown.rename_axis(index=head)
        return markdown(shown)


def with_its_decimals(text: str) -> str:
    """Write a cell with the decimals that its deviation or interval supports, at most DECIMALS."""
    found = re.findall(r"−?\d+\.\d+", text)
    values = [float(each.replace("−", "-")) for each in found]
    half = math.nan
    if re.fullmatch(r"\S+ ± \S+(?: †)?", text) and len(values) == 2:
        half = values[1]
    elif re.fullmatch(r"\[\S+, \S+\]", text) and len(values) == 2:
        half = (values[1] - values[0]) / 2
    digits = places(half, DECIMALS)
    return re.sub(r"−?\d+\.\d+", lambda one: number(float(one[0].replace("−", "-")), digits), text)


def word(value: int | str) -> str:
    """Write a whole number up to ten as a word, and a larger one in digits."""
    return WORDS[int(value)] if int(value) < len(WORDS) else str(value)


def sentence(text: str) -> str:
    """Return a text with a capital as its first letter."""
    return text[0].upper() + text[1:]


def _counted(count: int | str, name: str) -> str:
    """Write a number of things in words, such as `one order` or `two orders`."""
    return f"{word(count)} {name}" if int(count) == 1 else f"{word(count)} {name}s"


def _decimals(low: float, high: float) -> int:
    """Return the number of decimals for the ends of an interval.

    It is the number that `places` returns, or one more if an end that is not 0 would be rounded to
    0. One more decimal usually shows on which side of 0 the end lies.
    """
    digits = places((high - low) / 2, DECIMALS)
    hidden = any(end and round_half_up(end, digits) == 0 for end in (low, high))
    return digits + 1 if hidden else digits


def _by_how_much(mean: float, low: float, high: float) -> str:
    """Say a difference of E in words, `0.5 points higher` or `2.4 points lower`."""
    direction = "higher" if mean > 0 else "lower"
    return f"{number(abs(mean), _decimals(low, high))} points {direction}"


def _ends(mean: float, low: float, high: float) -> str:
    """Write the ends of the interval of a difference, without signs, as `0.3 to 0.7`. If the
    interval includes 0, each end has its direction: `0.2 lower to 0.8 higher; undecided`. The end
    that is opposite to the mean comes first.
    """
    digits = _decimals(low, high)
    if low > 0:
        return f"{number(low, digits)} to {number(high, digits)}"
    if high < 0:
        return f"{number(-high, digits)} to {number(-low, digits)}"
    ends = [f"{number(-low, digits)} lower", f"{number(high, digits)} higher"]
    if mean < 0:
        ends.reverse()
    return f"{' to '.join(ends)}; undecided"


class Differences(Table):
    """A committed table of differences of E, whose rows are called `FIRST − SECOND`.

    over: the kinds of interval to use, such as `seeds`, `orders` or `test batches`. Sentences give
        the first of these that a row has.
    """

    def __init__(
        self, name: str, over: Sequence[str] = ("test batches",), folder: Path = FIGURES
    ) -> None:
        super().__init__(name, folder)
        self.over = over

    def lead(self, first: str, second: str) -> tuple[float, float, float]:
        """Return by how many points the first method errs less than the second, and the ends of the
        interval.

        The ends are NaN if there is no interval. Raises KeyError if the table lacks the pair.
        """
        row, sign = self._row(first, second)
        mean = sign * self.value(row, "difference of E (points)")
        over = self._over(row)
        if over is None:
            return mean, math.nan, math.nan
        ends = re.findall(r"[−\d.]+", self.text(row, f"95 %, over {over}"))
        low, high = sorted(sign * float(end.replace("−", "-")) for end in ends)
        return mean, low, high

    def _row(self, first: str, second: str) -> tuple[str, float]:
        """Return the row of a pair, and the sign by which its number becomes the lead of the first
        method.
        """
        row = f"{first} − {second}"
        if row in self.frame.index:
            return row, -1.0
        return f"{second} − {first}", 1.0

    def _over(self, row: str) -> str | None:
        """Return what the interval of a row is over; None if it has none."""
        for each in self.over:
            if "," in self.text(row, f"95 %, over {each}"):
                return each
        return None

    def scope(self, first: str, second: str) -> str:
        """Say what the interval of a pair is over, such as `five orders`, `images` or `images, in
        one order`.
        """
        row, _ = self._row(first, second)
        over = self._over(row)
        if over is None:
            return "no interval"
        name = SCOPES[over]
        count = self.text(row, "n")
        if over != "test batches":
            return _counted(count, name)
        if "orders" in self.over:
            name += f", in {_counted(count, 'order')}"
        return name

    def points(self, first: str, second: str) -> str:
        """Write by how many points the first method errs less than the second, with the interval,
        for a cell of a table.
        """
        mean, low, high = self.lead(first, second)
        digits = _decimals(low, high)
        text = number(mean, digits, sign=True)
        if math.isnan(low):
            return text
        return f"{text} ({number(low, digits, sign=True)} to {number(high, digits, sign=True)})"

    def ahead(self, first: str, second: str) -> bool:
        """Return whether the first method errs less than the second and the interval excludes 0."""
        return self.lead(first, second)[1] > 0

    def compare(self, first: str, second: str, called: str = "", than: str = "") -> str:
        """Say whether the first method's error is higher or lower than the second's, by how much
        and with what interval. The interval says `undecided` if it includes 0.

        called, than: what the sentence calls the first and the second method, such as `it`. If
            empty, the sentence has the method's name in NAMES, or the label if NAMES has none.
        """
        mean, low, high = self.lead(first, second)
        one = called or NAMES.get(first, first)
        other = than or NAMES.get(second, second)
        if math.isnan(low):
            return f"{one} has an error {_by_how_much(-mean, low, high)} than {other} (no interval)"
        return (
            f"{one} has an error {_by_how_much(-mean, -high, -low)} than {other} "
            f"(95 % interval over {self.scope(first, second)}: {_ends(-mean, -high, -low)})"
        )


class OneOrder:
    """E and A of the authors' network on the whole stream in one order, by method and rate.

    They come from the committed runs. All methods see the same batches, because all runs have the
    same order. If a method has several runs at a rate, the latest counts.

    order: the order seed.
    table: the table of committed runs.
    """

    def __init__(self, order: int = 0, table: Path = FIGURES / "runs" / "runs.csv") -> None:
        runs = pd.read_csv(table, low_memory=False)
        runs = runs[(runs["dataset"] == "cifar10") & (runs["batches"] == WHOLE_UPDATES)]
        runs = runs[runs["weights"].str.startswith("release:") & (runs["predict"] == "after")]
        plain = ["order", "on_alarm", "optimizer", "diversity", "memory"]
        runs = runs[runs[plain].isna().all(axis=1) & runs["reset_each"].eq(False)]
        here = runs[runs["order_seed"] == order].sort_values("finished")
        self.latest = here.drop_duplicates(["method", "rate"], keep="last")
        self.runs = self.latest.set_index(["method", "rate"]).to_dict("index")

    def has(self, method: str, rate: float) -> bool:
        """Return whether the method has run at this rate."""
        return (method, rate) in self.runs

    def at(self, method: str, rate: float, column: str = "E") -> str:
        """Write a number of a run with one decimal; a dash if there is no run at this rate."""
        if not self.has(method, rate):
            return number(math.nan)
        return number(self.value(method, rate, column), DECIMALS)

    def value(self, method: str, rate: float, column: str = "E") -> float:
        """Return a number of a run. Raises KeyError if the method has not run at this rate."""
        return float(self.runs[method, rate][column])

    def span(self, method: str) -> str:
        """Write the smallest and the largest E of a method over the rates at which it has run, such
        as `23.3 and 24.2`.
        """
        errors = self.latest.loc[self.latest["method"] == method, "E"]
        return f"{number(errors.min(), DECIMALS)} and {number(errors.max(), DECIMALS)}"

    def rows(self, rates: Sequence[float] = (0.0001, 0.001, 0.01)) -> str:
        """Return Markdown rows of the methods that learn and have run. A cell has `E / A` at a
        rate.
        """
        lines = []
        for method, label in LEARNING.items():
            if any(self.has(method, rate) for rate in rates):
                cells = [
                    f"{self.at(method, rate)} / {self.at(method, rate, 'A')}"
                    if self.has(method, rate)
                    else "–"
                    for rate in rates
                ]
                lines.append(f"| {label} | {' | '.join(cells)} |")
        return "\n".join(lines)


class Verdicts(Table):
    """A committed table of verdicts, a row per claim.

    gate: the rows of the page's gate whose condition was missed.
    """

    def __init__(self, name: str, folder: Path = FIGURES) -> None:
        super().__init__(name, folder)
        page = (folder / f"{name}.md").read_text(encoding="utf-8")
        rows = [line.strip("| ").split(" | ") for line in page.splitlines()]
        self.gate = [row for row in rows if len(row) == 5 and row[3].strip("*") == "no"]

    def say(self) -> str:
        """Say how many claims have each verdict. If no claim could be tested, say so, and name the
        conditions of the gate that were missed.
        """
        found = self.frame["verdict"].str.extract(r"\*\*(.+?)\*\*", expand=False)
        counts = found.value_counts()
        if set(counts.index) == {"not tested"}:
            missed = [
                f"{what} is {ours} %, and the rules allow {band} %"
                for what, band, ours, *_ in self.gate
            ]
            reason = f": {'; '.join(missed)}" if missed else ""
            return f"none of the {word(len(found))} claims could be tested{reason}"
        said: list[str] = []
        for verdict, count in counts.items():
            claims = "" if said else f" claim{'' if count == 1 else 's'}"
            said.append(f"{word(count)}{claims} {'is' if count == 1 else 'are'} *{verdict}*")
        return " and ".join(said)


def claims(section: str) -> str:
    """Return a Markdown table of claims from claims.csv, each with its committed verdicts.

    A claim has a verdict for each kind of networks that it was judged on. Claims that have been
    judged come first. The others have the verdict `not judged`.

    section: `ours` for our own claims, `paper` for all others.
    """
    verdicts: dict[str, list[str]] = {}
    for name, kind in JUDGED_ON.items():
        committed = pd.read_csv(FIGURES / f"{name}.csv", dtype=str)
        for row in committed.to_dict("records"):
            verdicts.setdefault(row["claim"], []).append(
                f"{without_reason(row['verdict'])} ({kind})"
            )
    table = pd.read_csv(CLAIMS, dtype=str, keep_default_na=False).drop_duplicates("identifier")
    ours = table["section"] == "ours"
    table = table[ours if section == "ours" else ~ours]
    open_ones = ~table["identifier"].isin(list(verdicts))
    table = table.loc[open_ones.sort_values(kind="stable").index]
    lines = ["| where | on | exhibit | claim | verdict |", "| --- | --- | --- | --- | --- |"]
    for row in table.to_dict("records"):
        verdict = ", ".join(verdicts.get(row["identifier"], ["not judged"]))
        exhibit = row["exhibit"].replace("_", " ")
        cells = [row["section"], row["dataset"], exhibit, row["sentence"], verdict]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


JUDGED_ON = {
    "10-verdicts/wide-verdicts": "layers 1024-512",
    "10-verdicts/verdicts": "layers 50-50",
}
"""The committed tables of verdicts, with the networks that each is on."""


def without_reason(verdict: str) -> str:
    """Return a committed verdict without its reason, which the page says once."""
    return verdict.split(" (")[0]


def losses(
    name: str, first: str, second: str, column: str = "E", rate: float | None = None
) -> list[float]:
    """Return by how many points the network of `first` is worse than the network of `second`, at
    each seed that both have.

    Raises KeyError for a label that the table lacks, and ValueError if the two share no seed.

    name: a table of runs, `*-numbers`.
    first, second: labels.
    column: E or A.
    rate: the learning rate of `first`; None: the rate of the main study. `second` always has the
        rate of the main study.
    """
    runs = pd.read_csv(FIGURES / f"{name}.csv")
    if "stream" in runs:
        # Runs on the source domain name it in `stream`. Runs on the profile's stream have none.
        runs = runs[runs["stream"].isna()]
    rates = runs["online_learning_rate"] if "online_learning_rate" in runs else math.nan
    optimizers = runs["online_optimizer"] if "online_optimizer" in runs else math.nan
    runs = runs.assign(rate=rates, optimizer=optimizers)
    of_main = runs[runs["rate"].isna() & runs["optimizer"].isna()]
    of_first = of_main
    if rate is not None:
        of_first = runs[(runs["rate"] == rate) & runs["optimizer"].isna()]
    values = of_first[of_first["label"] == first].set_index("seed")[column]
    others = of_main[of_main["label"] == second].set_index("seed")[column]
    lost = (values - others).dropna()
    if lost.empty:
        raise ValueError(f"{name}: {first} and {second} share no seed")
    return [float(each) for each in (lost if column == "E" else -lost)]


def over_networks(
    name: str, first: str, second: str, rate: float | None = None, called: str = ""
) -> str:
    """Say how much higher or lower the error of `first` is than the error of `second`, with the
    interval over networks. A single network has no interval, and neither have equal differences.

    name, first, second, rate: see `losses`.
    called: what the sentence calls the first method, such as `it`. If empty, it is the label.
    """
    lost = losses(name, first, second, rate=rate)
    found = mean_with_interval(lost)
    interval = (found.mean, found.low, found.high)
    told = f"{called or first} has an error {_by_how_much(*interval)} than {second}"
    if math.isnan(found.low):
        return f"{told} (no interval)"
    return f"{told} (95 % interval over {_counted(len(lost), 'network')}: {_ends(*interval)})"


def span(name: str, row: str, column: str, times: float = 1, digits: int = DECIMALS) -> str:
    """Write the smallest and the largest value of a column, such as `10.4 to 10.7`, over all rows
    whose first column is `row`.

    times: the factor by which values are multiplied.
    digits: the number of decimals.
    """
    table = pd.read_csv(FIGURES / f"{name}.csv", dtype=str)
    values = times * table.loc[table.iloc[:, 0] == row, column].astype(float)
    ends = [number(value, digits) for value in (values.min(), values.max())]
    return " to ".join(dict.fromkeys(ends))


def revisions() -> str:
    """Return a Markdown table of the exhibits in `figures/`: the page, the number of runs, the
    seeds, and the revisions of the code.
    """
    rows = {}
    for path in sorted(FIGURES.rglob("*-numbers.csv")):
        page = path.with_name(path.name.replace("-numbers.csv", ".md"))
        if not page.is_file() or page.name.startswith("npz-"):  # JPEG copies, on no filled page.
            continue
        numbers = pd.read_csv(path, dtype=str)
        code = "–"  # The oldest tables do not say.
        if "code_revision" in numbers:
            code = ", ".join(sorted(numbers["code_revision"].unique()))
        link = f"[{page.parent.name}/{page.stem}](../{page.relative_to(ROOT).as_posix()})"
        seeds = sorted(numbers["seed"].unique(), key=int)
        rows[link] = {
            "runs": str(len(numbers)),
            "seeds": ", ".join(seeds),
            "code": code,
        }
    lines = ["| exhibit | runs | seeds | revision of the code |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {link} | {row['runs']} | {row['seeds']} | {row['code']} |" for link, row in rows.items()
    ]
    return "\n".join(lines)


def pages() -> dict[Path, str]:
    """Return the text of every filled page by its path.

    Raises FileNotFoundError for a table that is not committed, and KeyError or ValueError for a
    number that a table lacks.
    """
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(
        loader=loader,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "table": Table,
        "differences": Differences,
        "span": span,
        "verdicts": Verdicts,
        "claims": claims,
        "losses": losses,
        "over_networks": over_networks,
        "one_order": OneOrder,
        "number": number,
        "revisions": revisions,
    }
    environment.filters["sentence"] = sentence
    environment.filters["word"] = word
    environment.filters["decimals"] = with_its_decimals
    filled = {}
    for name, target in WHOLE.items():
        filled[ROOT / target] = environment.get_template(name).render()
    for name, target in PARTS.items():
        page = (ROOT / target).read_text(encoding="utf-8")
        begins = BEGINS.format(name)
        before, mark, rest = page.partition(begins)
        _, end, after = rest.partition(ENDS)
        if not mark or not end:
            raise ValueError(f"{target} lacks the marks {begins.strip()} and {ENDS.strip()}")
        text = environment.get_template(name).render()
        filled[ROOT / target] = f"{before}{mark}{text}{end}{after}"
    return filled


def write(path: Path, text: str) -> None:
    """Write a page, whole or not at all."""
    write_atomically(path, lambda file: file.write(text.encode()))


def main() -> None:
    """Write every filled page that has changed, and say which."""
    for path, text in pages().items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write(path, text)
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
