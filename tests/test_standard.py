"""The profile `standard`, and our numbers beside the published ones, from made-up runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_up_runs import Numbers, made_up_run, stored
from test_published import made_up_state, write

from study.exhibits import EXHIBITS, Shown
from study.exhibits.beyond.standard import BENCHMARK, NETWORK
from study.exhibits.kit.points import main_points
from study.provenance import NetworkOrigin
from study.settings import Settings, load_profile
from study.study import Study

THEIRS = pd.read_csv(BENCHMARK, index_col="method")
METHODS = ["erm", "adabn", "tent", "cotta", "cascade_same_weights"]
OFFICIAL = {
    "official_data": True,
    "network": NetworkOrigin("robustbench:1", card={"network": NETWORK}),
}


def standard(folder: Path, **changes: Any) -> Settings:
    weights = f"robustbench:{write(folder / 'Standard.pt', made_up_state())}"
    return load_profile("standard", {"image_weights": weights, "image_methods": METHODS} | changes)


def show(settings: Settings, errors: dict[str, np.ndarray], **provenance: Any) -> Shown:
    """The exhibit, where each method errs on so many per mille of a domain, and otherwise on
    100."""
    study = Study(settings)
    runs = [
        made_up_run(
            study,
            point.method,
            Numbers(errors.get(point.method, (100,)), count=1000),
            **OFFICIAL | provenance,
        )
        for point in main_points(settings, "image")
    ]
    return EXHIBITS["standard"].show(stored(settings, runs))


def test_the_protocol_is_the_fields() -> None:
    image = load_profile("standard").image
    online = image.online
    assert (image.batch_size, online.predict, online.online_optimizer) == (200, "before", "adam")
    assert (image.severity, image.stream) == (5, "instantaneous")
    assert online.online_learning_rate == 0.001
    data = image.data
    assert (data.input_scaling, data.test_size, str(image.dataset)) == ("unit", None, "cifar10")


def test_the_published_rows_have_the_published_mean() -> None:
    whole = THEIRS.dropna()
    assert set(whole.index) == {"erm", "adabn", "cotta", "rotta", "roid"}
    # Both are rounded to 0.1, and means of five seeds were rounded after they were taken.
    assert ((whole.drop(columns="E").mean(axis=1) - whole["E"]).abs() < 0.06).all()


def test_ours_stand_beside_the_published_numbers_and_are_judged(tmp_path: Path) -> None:
    domains = 10 * THEIRS.drop(columns="E").T
    errors = {"erm": domains["erm"], "adabn": domains["adabn"] + 2, "cotta": domains["cotta"] + 2}
    rows = {name: values.to_numpy()[:, None].round().astype(int) for name, values in errors.items()}
    shown = show(standard(tmp_path), rows | {"tent": np.array([[206]])})
    (part,) = shown.parts
    table = part.content
    assert isinstance(table, pd.DataFrame)
    assert table.columns[[0, 14, 15]].tolist() == ["gauss", "jpeg", "E"]
    cells = table.loc[:, ["fog", "E", "E within tolerance"]]
    # The mean of the fifteen published errors is 43.513, 20.447 and 16.447, and the published E
    # 43.5, 20.4 and 16.5.
    assert cells.loc[("ERM", "ours")].tolist() == ["26.00", "43.51", "–"]
    assert cells.loc[("ERM", "deviation")].tolist() == ["0.00", "+0.01", "yes (±0.1)"]
    assert cells.loc[("AdaBN", "published")].tolist() == ["15.3", "20.4", "–"]
    assert cells.loc[("AdaBN", "deviation")].tolist() == ["+0.20", "+0.25", "**no** (±0.1)"]
    assert cells.loc[("CoTTA", "deviation")].tolist() == ["+0.20", "+0.15", "yes (±0.5)"]
    assert cells.loc[("Tent", "deviation")].tolist() == ["–", "+0.60", "**no** (±0.5)"]
    assert (
        "prediction before the update at the rate 0.001, adam in every method." in shown.provenance
    )
    assert len(table) == 12 and "The tolerance is ours" in part.note, (
        "the cascade has no published row"
    )


SMALLER = NetworkOrigin("robustbench:2", card={"network": NETWORK | {"depth": 16}})


@pytest.mark.parametrize(
    ("changes", "provenance", "words"),
    [
        ({}, {"network": SMALLER}, "the network is not RobustBench's WideResNet-28-10."),
        (
            {},
            {"network": NetworkOrigin("trained here")},
            "the network is not RobustBench's WideResNet-28-10.",
        ),
        ({}, {"official_data": False}, "the images are not all those of the CIFAR-10-C archive."),
        ({"image_predict": "after"}, {}, "the protocol is not that of the profile standard."),
        ({"image_severity": 4}, {}, "the protocol is not that of the profile standard."),
        ({"image_stream": "mixed"}, {}, "the protocol is not that of the profile standard."),
        (
            {"image_batch_size": 64},
            {"network": SMALLER},
            "WideResNet-28-10 and the protocol is not",
        ),
    ],
)
def test_what_does_not_compare_is_said_in_one_sentence(
    tmp_path: Path, changes: dict[str, Any], provenance: dict[str, Any], words: str
) -> None:
    shown = show(standard(tmp_path, **changes), {}, **provenance)
    (line,) = shown.lines
    assert (
        words in line
        and line.startswith("Nothing is set beside published numbers, because")
        and not shown.parts
    )


def test_without_a_published_method_there_is_no_table(tmp_path: Path) -> None:
    shown = show(standard(tmp_path, image_methods=["cascade_same_weights"]), {})
    assert shown.lines == ["None of these methods has a published number."]
