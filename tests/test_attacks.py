"""The table in CONTRIBUTING.md of how many attacks are tried, from the tables of the tests."""

import re
from pathlib import Path

import pytest
from test_bad_inputs import BAD_INPUTS
from test_environment import MIXED_UP
from test_fetch import LINKS, OTHER_CONTENTS
from test_identity import CLAIMS
from test_keys import ATTACKS, CELLS, IMPORTS, SETTINGS, STUDY_CODE
from test_methods_on_networks import TRUNKS
from test_notebooks import INJECTED, READ_OTHERWISE
from test_relations import RELATIONS
from test_runs import UNLIKE
from test_speech import SILENCE_OR_NOISE

PAGE = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"
TABLES: dict[str, list[str]] = {
    "kinds of network": list(TRUNKS),
    "changes of data, networks and code": [*ATTACKS, *CELLS, *IMPORTS, *STUDY_CODE],
    "changes of settings": list(SETTINGS),
    "unlike runs": list(UNLIKE),
    "data that claim to be others": list(CLAIMS),
    "bad inputs": [bad.what for bad in BAD_INPUTS],
    "recordings": list(SILENCE_OR_NOISE),
    "names given to papermill": [*INJECTED, *(" ".join(given) for given, _ in READ_OTHERWISE)],
    "two clones": list(MIXED_UP),
    "relations": list(RELATIONS),
    "archives": [*LINKS, *(f"{name}, {by}" for name in OTHER_CONTENTS for by in ("md5", "sha256"))],
}
SLIPPED: dict[str, list[str]] = {
    "kinds of network": [
        "activation in BatchNorm",
        "dropout in BatchNorm",
        "BatchNorm by hand",
        "one BatchNorm at two places",
        "no shift",
        "DataParallel around all",
        "extra state",
        "under no_grad",
        "1 × 1 pixels",
        "−∞",
        "SyncBatchNorm",
        "TorchScript",
        "computed again in the backward pass",
        "computed again by a reentrant checkpoint",
        "scales by a parametrisation",
        "weight_norm that cannot be copied",
    ],
    "changes of data, networks and code": [
        "a list of the network",
        "an array of the network",
        "a dtype of the network",
        "a hook of the network",
        "a hook of a part of the network",
        "a backward hook of the network",
        "a backward hook before a part of the network",
        "a list of the cell",
        "a dictionary of the cell",
        "a set of the cell",
        "a tensor of the cell",
        "an option of a module of torch",
        "weights of a module of torch",
        "an object of the cell",
        "an argument that is fixed",
        "what a function encloses",
        "a function that keeps its results",
        "the middle of a long array as a default",
        "the object of a bound method",
        "a dtype of the cell",
        "an array of objects",
        "a pattern",
        "a property that keeps its value",
        "a dispatched method",
        "a dispatched method for a type",
        "an argument of a partial method",
        "an object with slots",
        "a dataclass with slots",
        "a base class",
        "the metaclass",
        "how an object is made",
        "what deletes a property",
        "a list of a module of torch",
        "the code of a module of torch",
        "a star of an argument",
        "the order of a set in a function",
        "a docstring",
        "a docstring that goes",
        *IMPORTS,
        *(name for name, (*_, another) in STUDY_CODE.items() if another),
    ],
    "bad inputs": [
        "seeds=[010] by --set",
        "image_severity=1:30 by --set",
        f"image_training_epochs=1{'0' * 30} by --set",
        "image_online_learning_rate=1e308 by --set",
        "image_batch_size=100000000000000 by --set",
        f"image_statistics_memory=1{'0' * 30} by --set",
        "a class that is held out to the last example",
        "npz: train.npz: found no level above 1",
        "npz: test.npz: found no level above 0",
        "a card with clean_error = -5",
        "a network's file: held_out_accuracy has values outside 0…1",
        "a network's file: holds variances below 0 in",
        "a network's file: is no table of epochs: it has no rows",
        "a release that is empty",
        "a notebook with sevrity",
        "a notebook with batch",
        "a notebook with _seed",
    ],
    "recordings": list(SILENCE_OR_NOISE),
    "names given to papermill": [
        "lr = 0.1",
        "_seed = 3",
        "image = {'depth': 2}",
        "-y seed: 010",
        "-f list.yaml",
        "-f deep.yaml",
        "-f nowhere.yaml",
    ],
}
"""Rows of which it is on record that they were not held before a mend."""


def row(kind: str) -> list[int]:
    """The numbers in a row of the table."""
    [cells] = re.findall(rf"^\| {kind}[^|]* \|((?: \d+ \|)+)", PAGE.read_text(), flags=re.MULTILINE)
    return [int(cell) for cell in cells.split("|")[:-1]]


@pytest.mark.parametrize("kind", TABLES)
def test_the_table_of_attacks_is_that_of_the_tests(kind: str) -> None:
    tried = TABLES[kind]
    slipped = SLIPPED.get(kind, [])
    assert [name for name in slipped if name not in tried] == []
    assert row(kind) == [len(tried), len(tried), len(slipped)]


def test_the_total_is_the_sum() -> None:
    rows = [row(kind) for kind in TABLES]
    assert row("all") == [sum(column) for column in zip(*rows, strict=True)]
    assert row("all")[0] > 300
