"""Compute how likely each verdict is, by the number of networks or orders.

`./run_all.sh python study/tools/power.py` writes docs/power-of-claims.md from the committed tables
of `figures/`.

For each claim, values are drawn from a normal distribution. It has the spread and the correlation
of the claim's parts over the stored networks or orders. Each draw is judged by the code of the
rules itself (study.exhibits.verdicts.weighing.weigh).
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import jinja2
import numpy as np
import pandas as pd

from cascadetta_lib.files import write_text_atomically
from study import ROOT
from study.exhibits.kit.rendering import markdown
from study.exhibits.verdicts.claims import CLAIMS, Claim, Reading
from study.exhibits.verdicts.weighing import weigh

PAGE = ROOT / "docs" / "power-of-claims.md"
TEMPLATE = Path(__file__).with_name("power_page.jinja")
TRIALS = 200
DRAWS = 500


@dataclass(frozen=True)
class Source:
    """The runs from which the spread of some claims is known.

    title: the heading of their table.
    numbers: a committed table of runs, below `figures/`.
    claims: the identifiers of the claims.
    replicates: the column that numbers the replicates of a claim, which are networks or orders.
    counts: the numbers of replicates for which to compute how likely each verdict is (`shares`).
        For the last number, this is also computed for true values that lie exactly at the bound.
    """

    title: str
    numbers: str
    claims: tuple[str, ...]
    replicates: str
    counts: tuple[int, int, int]


SOURCES = (
    Source(
        "Text: over networks",
        "8-text-speech/amazon_counts-main_text-numbers.csv",
        ("text-error", "text-accuracy", "text-transfer"),
        "seed",
        (3, 8, 20),
    ),
    Source(
        "The authors' network: over orders of images and domains",
        "1-whose-numbers/cifar10-orders-numbers.csv",
        ("c10-error", "c10-accuracy"),
        "order_seed",
        (3, 5, 10),
    ),
)


def parts_of(reading: Reading, numbers: pd.DataFrame, replicates: str) -> pd.DataFrame:
    """Return the parts of a reading, a row per replicate and a column per part.

    If the reading has rivals, a part is the lead over a rival, in the metric's unit. Rivals that
    have not run are left out. Without rivals, a part is the value of a label. Replicates that lack
    a part are left out.

    numbers: the runs of an exhibit. Only those without a variant count.
    """
    at_own_rate = numbers[numbers["variant"].isna()]
    values = at_own_rate.pivot(index=replicates, columns="label", values=reading.value)
    parts: dict[str, pd.Series] = {}
    for label in reading.labels:
        if not reading.rivals:
            parts[label] = values[label]
        for rival in reading.rivals:
            if rival in values:
                lead = values[label] - values[rival]
                parts[rival] = -lead if reading.value == "E" else lead
    return pd.DataFrame(parts).dropna()


def shares(
    reading: Reading, parts: pd.DataFrame, margin: float, replicates: int
) -> tuple[float, float]:
    """Return two shares of TRIALS draws: those in which a true reading is supported, and those in
    which a false one is contradicted.

    In the true reading every part is on the right side of the bound by `margin`. In the false one
    the first part is on the wrong side by as much, and all others are right.

    parts: the parts whose spread and correlation the draws have.
    replicates: the number of networks or orders in each draw.
    """
    generator = np.random.default_rng(0)
    sign = 1 if reading.side == ">" else -1
    spread = np.atleast_2d(np.cov(parts.to_numpy(), rowvar=False))
    right = np.full(parts.shape[1], reading.bound + sign * margin)
    wrong = right.copy()
    wrong[0] = reading.bound - sign * margin
    found = []
    for means, outcome in ((right, "supported"), (wrong, "contradicted")):
        drawn = generator.multivariate_normal(means, spread, (TRIALS, replicates), method="eigh")
        hits = 0
        for values in drawn:
            judged = weigh(pd.DataFrame(values), reading.side, reading.bound, draws=DRAWS)
            hits += judged.outcome == outcome
        found.append(hits / TRIALS)
    return found[0], found[1]


def row_of(claim: Claim, numbers: pd.DataFrame, source: Source) -> dict[str, str]:
    """Return the row of a claim in the table, by its first reading."""
    reading = claim.readings[0]
    parts = parts_of(reading, numbers, source.replicates)
    sign = 1 if reading.side == ">" else -1
    margin = sign * (float(claim.paper.replace("−", "-")) - reading.bound)
    if margin <= 0:
        margin = 1.0
    against = f", against {', '.join(parts.columns)}" if reading.rivals else ""
    row = {
        "claim": f"{claim.sentence}{against}",
        "replicates": str(len(parts)),
        "spread (sd)": f"{parts.std().min():.2f} to {parts.std().max():.2f}",
        "margin": f"{margin:.2f}",
    }
    for count in source.counts:
        right, wrong = shares(reading, parts, margin, count)
        row[f"n = {count}"] = f"{100 * right:.0f} / {100 * wrong:.0f}"
    most = source.counts[-1]
    right, wrong = shares(reading, parts, 0.0, most)
    row[f"at the bound, n = {most}"] = f"{100 * right:.1f} / {100 * wrong:.1f}"
    return row


def table_of(source: Source, figures: Path) -> str:
    """Return a Markdown table of the powers of a source's claims.

    Raises FileNotFoundError if the source's table of runs is not there.
    """
    by_name = {claim.identifier: claim for claim in CLAIMS}
    numbers = pd.read_csv(figures / source.numbers)
    rows = [row_of(by_name[name], numbers, source) for name in source.claims]
    return markdown(pd.DataFrame(rows).set_index("claim"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description="How likely a verdict is: write the page.")
    parser.add_argument("--figures", type=Path, default=ROOT / "figures")
    parser.add_argument("--page", type=Path, default=PAGE)
    asked = parser.parse_args(arguments)
    try:
        tables = [(source, table_of(source, asked.figures)) for source in SOURCES]
    except FileNotFoundError as error:
        parser.exit(2, f"power.py: {error.filename} is not there: it is a table of figures/\n")
    template = jinja2.Template(
        TEMPLATE.read_text(encoding="utf-8"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    write_text_atomically(asked.page, template.render(tables=tables, trials=TRIALS))


if __name__ == "__main__":
    main()
