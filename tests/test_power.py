"""How likely a verdict is: study/tools/power.py."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from study.exhibits.verdicts.claims import CLAIMS
from study.tools.power import SOURCES, main, parts_of, shares

LOWEST_ERROR = next(claim for claim in CLAIMS if claim.identifier == "text-error").readings[0]


def numbers_of(leads: dict[str, list[float]]) -> pd.DataFrame:
    """Numbers of runs by method: E of the cascade is 20 at each seed, that of others more."""
    rows = [
        {"label": label, "variant": np.nan, "seed": seed, "E": 20 + lead}
        for label, values in leads.items()
        for seed, lead in enumerate(values)
    ]
    return pd.DataFrame(rows)


def test_the_parts_are_the_leads_on_the_rivals_that_have_run() -> None:
    numbers = numbers_of({"Cascade": [0, 0], "ERM": [1, 2], "Tent": [3, -1]})
    slower = numbers.assign(variant="a tenth of the rate", E=99.0)
    parts = parts_of(LOWEST_ERROR, pd.concat([numbers, slower]), "seed")
    assert parts.to_dict("list") == {"ERM": [1, 2], "Tent": [3, -1]}


def test_a_large_lead_is_supported_and_a_large_lag_contradicted() -> None:
    leads = {"ERM": [5.0, 5.1, 4.9], "AdaBN": [4.0, 4.2, 4.1]}
    numbers = numbers_of({"Cascade": [0, 0, 0]} | leads)
    parts = parts_of(LOWEST_ERROR, numbers, "seed")
    assert shares(LOWEST_ERROR, parts, 5.0, 8) == (1.0, 1.0)
    right, wrong = shares(LOWEST_ERROR, parts, 0.0, 8)
    assert right < 0.05
    assert wrong < 0.1


def test_its_claims_are_known() -> None:
    claims = {claim.identifier for claim in CLAIMS}
    for source in SOURCES:
        assert set(source.claims) <= claims


def test_a_missing_table_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--figures", str(tmp_path), "--page", str(tmp_path / "page.md")])
    assert stopped.value.code == 2
    assert SOURCES[0].numbers in capsys.readouterr().err
    assert not (tmp_path / "page.md").exists()
