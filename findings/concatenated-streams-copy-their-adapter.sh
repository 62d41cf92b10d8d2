#!/usr/bin/env bash
# datasets 5.2.0: concatenate_datasets and interleave_datasets of streams that one object maps, as in
# domain.map(adapter.step, batched=True), run the object early and then put copies in its place.
# Expected: an IterableDataset's map is lazy, and one adapter goes through the domains in their order:
# of three domains of four batches the first prediction is made after 0 earlier batches, the last after 11.
# Seen: 1. to learn the columns, both take the first batch of every domain through the adapter before
# anything is read: it has adapted to the last domain before the first prediction. 2. Then each stream
# holds a deep copy of the adapter as it is at that time: in each domain anew the predictions are made
# after 3, 4, 5 and 6 batches, and the adapter that one holds never moves again. A lambda around
# adapter.step is copied as a function is, so one adapter goes through all: 3, 4 … 14.
# map(..., features=...) avoids the first; mapping the concatenated stream avoids both.
# Limits: tried for batched maps. Where the field meets it: continual adaptation becomes one adapter per
# domain, and it depends on how the function is written.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# a virtual environment: dill, with which datasets names its tables, fails on packages in --target
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet datasets==5.2.0 dill==0.4.1 pyarrow==26.0.1 \
  pandas==3.1.1 numpy==2.4.6
HF_HOME=$folder/home "$folder/venv/bin/python" - <<'CODE'
import datasets
from datasets import Features, Value, concatenate_datasets, interleave_datasets

assert datasets.__version__ == "5.2.0"


class Adapter:
    batches = 0

    def step(self, batch):
        earlier = self.batches
        self.batches += 1
        return {"earlier": [earlier] * len(batch["x"])}


def domains():
    return [
        datasets.Dataset.from_dict({"x": [float(level)] * 40}).to_iterable_dataset()
        for level in (1, 10, 100)
    ]


def run(name, make):
    adapter = Adapter()
    stream = make(adapter)
    before = adapter.batches
    earlier = [row["earlier"] for row in stream][::10]
    print(f"{name}\n  calls before reading {before}, at the end {adapter.batches}; before each batch {earlier}")
    return before, adapter.batches, earlier


SIZE = {"batched": True, "batch_size": 10}
SCHEMA = Features({"x": Value("float64"), "earlier": Value("int64")})
by_method = run(
    "concatenate domains mapped by adapter.step",
    lambda a: concatenate_datasets([d.map(a.step, **SIZE) for d in domains()]),
)
by_lambda = run(
    "concatenate domains mapped by a lambda around it",
    lambda a: concatenate_datasets([d.map(lambda batch: a.step(batch), **SIZE) for d in domains()]),
)
with_features = run(
    "concatenate domains mapped by adapter.step, with features",
    lambda a: concatenate_datasets([d.map(a.step, features=SCHEMA, **SIZE) for d in domains()]),
)
mixed = run(
    "interleave domains mapped by adapter.step",
    lambda a: interleave_datasets([d.map(a.step, **SIZE) for d in domains()]),
)
after = run(
    "concatenate domains, then map by adapter.step",
    lambda a: concatenate_datasets(domains()).map(a.step, **SIZE),
)
assert by_method == (3, 3, [3, 4, 5, 6] * 3)
assert by_lambda == (3, 15, list(range(3, 15)))
assert with_features == (0, 0, [0, 1, 2, 3] * 3)
assert mixed == (3, 3, [3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6])
assert after == (0, 12, list(range(12)))
CODE
