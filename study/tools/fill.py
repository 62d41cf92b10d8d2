"""Fill the pages whose numbers come from committed tables:

    ./run_all.sh python study/tools/fill.py

A page `docs/templates/NAME.md` becomes NAME.md, or the part of it between two marks, with the
numbers that it names by table, row and column. No number is typed by hand. Run this again after a
table in `figures/` has changed; a test holds the pages to it.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2
import pandas as pd

from cascadetta_lib.data.base import write_atomically
from study.exhibits.kit.numbers import number
from study.exhibits.kit.rendering import markdown

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "docs" / "templates"
FIGURES = ROOT / "figures"
WHOLE = {"RESULTS.md": "RESULTS.md", "provenance.md": "docs/provenance.md"}
"""Templates that become a whole page."""
PARTS = {"findings.md": "README.md"}
"""Templates that become the part of a page between `BEGINS` and `ENDS`."""
BEGINS = "<!-- filled by study/tools/fill.py from docs/templates/{} -->\n"
ENDS = "<!-- until here -->\n"
NAMES = {
    "Cascade": "the cascade",
    "Cascade, same weights without θ_a": "the same weights without θ_a",
}
"""What sentences call a row, where that is not its label."""


class Table:
    """A committed table of an exhibit, as text, by row and column.

    Where a row is ours or the paper's, it is called by both, as ("Tent", "paper").
    """

    def __init__(self, name: str, folder: Path = FIGURES) -> None:
        frame = pd.read_csv(folder / f"{name}.csv", dtype=str, keep_default_na=False)
        levels = 2 if "source" in frame.columns[:2] else 1
        self.frame = frame.set_index(list(frame.columns[:levels]))

    def text(self, row: str | tuple[str, str], column: str) -> str:
        """Return a cell as it is. Raises KeyError for one that the table lacks."""
        return str(self.frame.loc[row, column])

    def value(self, row: str | tuple[str, str], column: str) -> float:
        """Return the number of a cell, or the mean of `mean ± deviation`."""
        first = self.text(row, column).split(" ")[0]
        return float(first.replace("−", "-").replace("–", "nan"))

    def at(self, row: str | tuple[str, str], column: str, digits: int = 1) -> str:
        """Return a number with so many decimals."""
        return number(self.value(row, column), digits)

    def less(
        self,
        row: str | tuple[str, str],
        other: str | tuple[str, str],
        column: str,
        sign: bool = False,
    ) -> str:
        """Return by how much the number of `row` is less than that of `other`."""
        return number(self.value(other, column) - self.value(row, column), 1, sign=sign)

    def has(self, row: str) -> bool:
        """Whether there is such a row."""
        return row in self.frame.index

    def ours(self) -> list[tuple[str, str]]:
        """Return the rows that are not the paper's."""
        return [row for row in self.frame.index if row[1] == "ours"]

    def beside(self, other: "Table") -> list[str]:
        """Return the rows that another table lacks."""
        return [row for row in self.frame.index if row not in other.frame.index]

    def learning(self) -> list[str]:
        """Return the rows that gain or lose on AdaBN by learning: those with a gain, except ERM."""
        rows = [row for row in self.frame.index if self.text(row, "gain") != "–"]
        return [row for row in rows if row not in ("ERM", "AdaBN, source prior")]

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.frame)

    def place(self, row: str, column: str) -> str:
        """Return which place a row has, the least first: `1st`."""
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
        """Return rows (all, if none is named) and columns as Markdown, columns by new names.

        head: what the column of rows is called. Where all rows are ours, their source is left out.
        """
        shown = self.frame.loc[list(rows)] if rows else self.frame
        if shown.index.nlevels == 2 and set(shown.index.get_level_values(1)) == {"ours"}:
            shown = shown.droplevel(1)
        shown = shown[list(columns)].map(tenths).rename(columns=dict(columns))
        if head:
            shown = shown.rename_axis(index=head)
        return markdown(shown)


def tenths(text: str) -> str:
    """A text with every decimal number in it to one decimal."""
    return re.sub(r"−?\d+\.\d+", lambda found: number(float(found[0].replace("−", "-")), 1), text)


def sentence(text: str) -> str:
    """A text that begins with a capital letter."""
    return text[0].upper() + text[1:]


class Differences(Table):
    """A committed table of differences of E, whose rows are called `FIRST − SECOND`.

    over: what sentences have an interval over, such as `seeds`, `orders` or `test batches`. Where
    there is none over the first, they have one over the next.
    """

    def __init__(
        self, name: str, over: Sequence[str] = ("test batches",), folder: Path = FIGURES
    ) -> None:
        super().__init__(name, folder)
        self.columns = [f"95 %, over {each}" for each in over]

    def lead(self, first: str, second: str) -> tuple[float, float, float]:
        """By how many points the first errs less than the second, and the interval's ends.

        The ends are NaN where there is no interval. Raises KeyError for a pair that the table
        lacks.
        """
        sign = -1.0
        row = f"{first} − {second}"
        if row not in self.frame.index:
            sign = 1.0
            row = f"{second} − {first}"
        mean = sign * self.value(row, "difference of E (points)")
        for column in self.columns:
            ends = re.findall(r"[−\d.]+", self.text(row, column))
            if len(ends) == 2:
                low, high = sorted(sign * float(end.replace("−", "-")) for end in ends)
                return mean, low, high
        return mean, math.nan, math.nan

    def points(self, first: str, second: str) -> str:
        """Return by how many points the first errs less, with the interval, for a cell."""
        mean, low, high = self.lead(first, second)
        text = number(mean, 1, sign=True)
        if math.isnan(low):
            return text
        return f"{text} ({number(low, 1, sign=True)} to {number(high, 1, sign=True)})"

    def compare(self, first: str, second: str) -> str:
        """Say who errs less, and by how much; undecided where 0 is inside the interval."""
        mean, low, high = self.lead(first, second)
        one = NAMES.get(first, first)
        other = NAMES.get(second, second)
        word = "less" if mean > 0 else "more"
        points = f"{number(abs(mean), 1)} points {word} than {other}"
        if math.isnan(low):
            return f"{one} errs {points} (no interval)"
        if low <= 0 <= high:
            ends = f"{number(low, 1, sign=True)} to {number(high, 1, sign=True)}"
            lead = number(mean, 1, sign=True)
            return f"between {one} and {other} it is undecided: {lead} points ({ends})"
        least, most = sorted((abs(low), abs(high)))
        return f"{one} errs {points} ({number(least, 1)} to {number(most, 1)})"


def there(name: str) -> bool:
    """Whether a table is committed."""
    return (FIGURES / f"{name}.csv").is_file()


def revisions() -> str:
    """A Markdown table of every exhibit in `figures/`: its page, runs, and code revisions."""
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

    Raises KeyError or ValueError for a number that no committed table has.
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
        "there": there,
        "number": number,
        "revisions": revisions,
    }
    environment.filters["sentence"] = sentence
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
