"""The table in CONTRIBUTING.md of how many attacks are tried, from the tables of the tests."""

import re
from pathlib import Path

import pytest
from test_bad_inputs import BAD_INPUTS
from test_contract import TRUNKS
from test_keys import ATTACKS, CELLS, IMPORTS, SETTINGS
from test_notebooks import INJECTED, READ_OTHERWISE

from cascadetta_lib.methods import METHODS

PAGE = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"
COUNTS = {
    "bad inputs": len(BAD_INPUTS),
    "changes of data, networks and code": len(ATTACKS) + len(CELLS) + len(IMPORTS),
    "changes of settings": len(SETTINGS),
    "kinds of network": len(TRUNKS),
    "texts and names of papermill": len(READ_OTHERWISE) + len(INJECTED),
}


@pytest.mark.parametrize("kind", COUNTS)
def test_the_table_of_attacks_is_that_of_the_tests(kind: str) -> None:
    [count] = re.findall(rf"^\| {kind}[^|]* \| (\d+) \|", PAGE.read_text(), flags=re.MULTILINE)
    assert int(count) == COUNTS[kind]


def test_the_total_is_the_sum() -> None:
    text = PAGE.read_text()
    [methods] = re.findall(r"each on (\d+) methods", text)
    [total] = re.findall(r"^\| all \| (\d+) \|", text, flags=re.MULTILINE)
    assert int(methods) == len(list(METHODS))
    assert int(total) == sum(COUNTS.values()) > 300
