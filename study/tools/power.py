"""How likely a verdict is, by the number of seeds.

`./run_all.sh python study/tools/power.py` writes docs/power-of-claims.md.

For claims of each kind, values per seed are drawn from a normal distribution with the spread and
correlation of the parts over the stored seeds, and judged by the rules themselves
(study.exhibits.verdicts.weighing.weigh).
"""

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import pandas as pd

from cascadetta_lib.data.base import write_text_atomically
from study.exhibits.kit.rendering import markdown
from study.exhibits.verdicts.claims import CLAIMS, Claim, Reading
from study.exhibits.verdicts.weighing import weigh

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "power-of-claims.md"
SEEDS = (3, 5, 8)
TRIALS = 200
DRAWS = 500
KINDS = {
    "c10-error": "E, lead over five rivals",
    "c10-accuracy": "A, lead over five rivals",
    "c10-transfer": "F of one method",
    "c10-best-transfer": "F, lead over three rivals",
    "gradual-error": "E of the gradual stream, three rivals",
    "gradual-accuracy": "A of the gradual stream, three rivals",
    "batch-cascade": "standard deviation over batch sizes",
    "batch-cotta": "growth between two batch sizes",
    "batch-16": "E at batch size 16, two rivals",
    "meta-cascade": "E, one rival",
}
"""A claim of each kind that the stored numbers have the spread of."""


def parts_of(reading: Reading, numbers: pd.DataFrame) -> pd.DataFrame:
    """The parts of a reading from an exhibit's numbers: a row per seed, a column per part."""
    parts: dict[str, pd.Series] = {}
    for setting in reading.settings:
        rows = numbers
        for column, value in setting.items():
            rows = rows[rows[column] == value]
        if "severity" in rows and "severity" not in setting:
            rows = rows[rows["severity"].isna()]
        values = rows.drop_duplicates(["label", "seed"]).pivot(
            index="seed", columns="label", values=reading.value
        )
        for label in reading.labels:
            if not reading.rivals:
                parts[f"{label} {setting}"] = values[label]
            for rival in reading.rivals:
                lead = values[label] - values[rival]
                parts[f"{rival} {setting}"] = -lead if reading.value == "E" else lead
    table = pd.DataFrame(parts).dropna()
    if reading.then == "growth":
        return table.diff(axis=1).iloc[:, 1:]
    if reading.then == "deviation":
        return table.std(axis=1).to_frame("deviation")
    return table


def shares(reading: Reading, parts: pd.DataFrame, margin: float, seeds: int) -> tuple[float, float]:
    """How often the reading holds where the margin of every part is `margin`, and how often it is
    refuted where that of the first part is as much on the wrong side.
    """
    generator = np.random.default_rng(0)
    sign = 1 if reading.side == ">" else -1
    spread = np.atleast_2d(np.cov(parts.to_numpy(), rowvar=False))
    right = np.full(parts.shape[1], reading.bound + sign * margin)
    wrong = right.copy()
    wrong[0] = reading.bound - sign * margin
    found = []
    for means, outcome in ((right, "supported"), (wrong, "contradicted")):
        drawn = generator.multivariate_normal(means, spread, (TRIALS, seeds), method="eigh")
        hits = 0
        for values in drawn:
            judged = weigh(pd.DataFrame(values), reading.side, reading.bound, draws=DRAWS)
            hits += judged.outcome == outcome
        found.append(hits / TRIALS)
    return found[0], found[1]


def row_of(claim: Claim, folder: Path, data: str) -> dict[str, str]:
    """The powers of a claim by its first reading."""
    reading = claim.readings[0]
    numbers = pd.read_csv(folder / f"{data}-{claim.exhibit}-numbers.csv")
    parts = parts_of(reading, numbers)
    paper = float(claim.paper.replace("−", "-"))
    sign = 1 if reading.side == ">" else -1
    margin = sign * (paper - reading.bound)
    row = {
        "claim": claim.identifier,
        "kind": KINDS[claim.identifier],
        "parts": str(parts.shape[1]),
        "spread (sd)": f"{parts.std().min():.2f} to {parts.std().max():.2f}",
    }
    if margin <= 0:
        margin = 1.0
    row["margin"] = f"{margin:.2f}"
    for seeds in SEEDS:
        right, wrong = shares(reading, parts, margin, seeds)
        row[f"n = {seeds}"] = f"{100 * right:.0f} / {100 * wrong:.0f}"
    right, wrong = shares(reading, parts, 0.0, SEEDS[-1])
    row["at the bound, n = 8"] = f"{100 * right:.1f} / {100 * wrong:.1f}"
    return row


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "figures" / "study")
    parser.add_argument("--data", default="cifar10", help="how its files begin")
    asked = parser.parse_args()
    by_name = {claim.identifier: claim for claim in CLAIMS}
    rows = []
    for name in KINDS:
        rows.append(row_of(by_name[name], asked.folder, asked.data))
        print(rows[-1], file=sys.stderr, flush=True)
    table = pd.DataFrame(rows).set_index("claim")
    text = TEXT.format(
        table=markdown(table),
        trials=TRIALS,
        data=asked.data,
        folder=Path(os.path.relpath(asked.folder, ROOT)).as_posix(),
    )
    write_text_atomically(PAGE, text)


TEXT = """# How likely a verdict is

By the rules of [VERDICTS.md](../VERDICTS.md), for a claim of each kind and for 3, 5 and 8 seeds.
Written by `study/tools/power.py`.

Each cell has two numbers in percent. The first is how often the claim is *supported* if it is
true by the margin of that row, for every part. The second is how often it is *contradicted* if
one part is as far on the wrong side and the others are right. The margin is the paper's own value
less the bound; where the paper has no number, or one that
misses the bound, it is 1 point. The last column has the same where every part lies exactly at its
bound: there each number is a rate of false verdicts. By the rules the first should not exceed
2.5 where there is one part, and is far less where several parts must all hold; the second should
be near 2.5.

{table}

*How it is made.* Values per seed are drawn {trials} times from a normal distribution with the
spread and correlation of the parts over the stored seeds (files `{data}-*` in `{folder}`), and
each draw is judged by the first reading of the claim. The number of draws makes each percentage
uncertain by up to 3.5 points (one standard error). *What it does not know:* a spread that was
estimated from three seeds is itself uncertain by a factor of two or so, and on the full stream
methods that drift spread more.
"""


if __name__ == "__main__":
    main()
