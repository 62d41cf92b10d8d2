"""Exhibits from a tiny made-up set of runs, against numbers worked out by hand here."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import pandas as pd
import pytest

from cascadetta_lib import report
from cascadetta_lib.data.corruptions import CORRUPTIONS
from cascadetta_lib.evidence import Evidence
from cascadetta_lib.settings import Settings
from cascadetta_lib.streams import Domain, gradual, instantaneous
from cascadetta_lib.study import Run, RunConfig, Study, Trained, belongs


def made_up(method: str, seed: int, errors: tuple[int, int], alone: float | None, **provenance: Any) -> Run:
    """A run of two domains with two batches of 10 images each; all errors of a domain fall in its first batch."""
    settings = Settings(image_stream=("fog", "snow"), image_batch_size=10, image_methods=("erm", "tent", "cascade"))
    study = Study(settings.model_copy(update={"seed": seed}))
    config = RunConfig.model_validate(study.run_config(method).model_dump())
    batches = pd.DataFrame(
        {
            "step": [0, 0, 1, 1],
            "domain": ["fog", "fog", "snow", "snow"],
            "severity": 5,
            "position": [0, 10, 0, 10],
            "count": 10,
            "errors": [errors[0], 0, errors[1], 0],
            "entropy_main": 1.0,
            "entropy_auxiliary": 0.5 if method == "cascade" else float("nan"),
            "seconds": 0.1,
        }
    )
    rows = [(0, 1, 0.5), (0, 2, 0.6), (1, 2, 0.8)] + ([(1, -1, alone)] if alone is not None else [])
    accuracies = pd.DataFrame(rows, columns=["step", "after", "accuracy"])
    return Run(config, batches, accuracies, {**study.provenance(1.0), **provenance})


def as_in_the_paper(run: Run) -> Run:
    """The same numbers as if the network, its training and the stream had been the paper's."""
    checkpoint = run.config.checkpoint
    model = checkpoint.model.model_copy(update={"depth": 26, "width": 16})
    training = checkpoint.training.model_copy(update={"epochs": 75})
    checkpoint = checkpoint.model_copy(update={"model": model, "training": training})
    changed = replace(run, config=run.config.model_copy(update={"checkpoint": checkpoint}))
    return on_stream(changed, instantaneous(CORRUPTIONS, 5))


def on_stream(run: Run, stream: list[Domain], batch_size: int = 32) -> Run:
    """The same numbers as if they were from another stream."""
    config = run.config.model_copy(update={"stream": tuple(stream), "batch_size": batch_size})
    return replace(run, config=config)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [
        made_up("erm", 0, (8, 6), None),
        made_up("erm", 1, (8, 6), None),
        made_up("cascade", 0, (2, 4), 0.7),
        made_up("cascade", 1, (4, 4), 0.9),
    ]


def test_numbers_by_hand(runs: list[Run]) -> None:
    table = report.over_seeds(report.results(runs)).set_index(["method", "domain", "metric"])
    cascade = table.loc["cascade"]
    # fog: 2/20 and 4/20 wrong, so 10 % and 20 %.
    assert cascade.loc[("fog", "online_error"), "mean"] == pytest.approx(15)
    assert cascade.loc[("fog", "online_error"), "std"] == pytest.approx(50**0.5)
    # E: (10 + 20)/2 = 15 and (20 + 20)/2 = 20.
    assert cascade.loc[("all", "online_error"), "mean"] == pytest.approx(17.5)
    # A: (0.6 + 0.8)/2; F: 0.8 − 0.7 and 0.8 − 0.9.
    assert cascade.loc[("all", "average_accuracy"), "mean"] == pytest.approx(70)
    assert cascade.loc[("all", "forward_transfer"), "mean"] == pytest.approx(0)
    assert cascade.loc[("all", "forward_transfer"), "std"] == pytest.approx(200**0.5)
    assert cascade.loc[("all", "online_error"), "n"] == 2
    assert ("erm", "all", "forward_transfer") not in table.index


def test_the_table_by_hand(runs: list[Run]) -> None:
    table = report.main_table(runs)
    assert list(table.columns) == ["fog", "snow", "E", "A", "F", "n"]
    assert table.loc[("Cascade", "ours"), "n"] == "2"
    ours = table.loc[("Cascade", "ours")]
    assert ours["fog"] == "**15.00 ± 7.07**" and ours["E"] == "**17.50 ± 3.54**" and ours["F"] == "**0.00 ± 14.14**"
    assert table.loc[("ERM", "ours"), "fog"] == "40.00 ± 0.00" and table.loc[("ERM", "ours"), "F"] == "–"
    assert ("ERM", "paper") not in table.index, "the paper has no stream of these two"
    beside = report.main_table([on_stream(run, instantaneous(CORRUPTIONS, 5)) for run in runs])
    # The paper's, from its tab:main-result, severity 5; its best over all six methods is bold.
    assert beside.loc[("ERM", "paper"), "fog"] == "**19.49**"
    assert beside.loc[("Cascade", "paper"), ["fog", "E", "F"]].tolist() == ["19.81", "**22.99**", "**0.58**"]


def test_one_seed_has_no_deviation(runs: list[Run]) -> None:
    assert report.main_table(runs[2:3]).loc[("Cascade", "ours"), "fog"] == "**10.00**"


def test_the_papers_numbers_are_those_of_the_same_severity_and_stream(runs: list[Run]) -> None:
    def error(stream: list[Domain]) -> float:
        paper = report.paper_numbers([on_stream(runs[2], stream)])
        row = paper[(paper["method"] == "cascade") & (paper["domain"] == "all") & (paper["metric"] == "online_error")]
        return float(row["mean"].item())

    assert error(instantaneous(CORRUPTIONS, 5)) == 22.99
    assert error(instantaneous(CORRUPTIONS, 4)) == 19.43
    assert error(gradual(CORRUPTIONS)) == 17.51
    assert report.paper_numbers([on_stream(runs[2], [Domain("fog", 1), Domain("fog", 2)])]).empty
    assert report.paper_numbers([on_stream(runs[2], instantaneous(CORRUPTIONS, 5), batch_size=16)]).empty


def test_the_label_says_what_made_the_numbers(runs: list[Run]) -> None:
    text = report.label(runs)
    for part in (
        "MNIST",
        "generated",
        "Profile quick",
        "seeds 0, 1",
        "after the update",
        "CPU",
        "code ",
        "NOT comparable",
    ):
        assert part in text
    official = [as_in_the_paper(made_up("cascade", seed, (2, 4), 0.7, official_data=True)) for seed in (0, 1, 2)]
    assert report.comparable(official) and "NOT" not in report.label(official)
    assert not report.comparable(official[:2]), "two seeds are too few"
    assert not report.comparable([*official, runs[0]]), "one run on other data spoils it"
    assert not report.comparable([on_stream(run, [Domain("fog", 5)]) for run in official]), "a stream of one's own"
    before = [replace(run, config=run.config.model_copy(update={"predict": "before"})) for run in official]
    assert not report.comparable(before)
    with pytest.raises(ValueError, match="no runs"):
        report.label([])


def test_text_without_its_features_is_not_comparable(tmp_path: Path) -> None:
    settings = Settings(text_methods=("erm",), text_hidden=(50, 50), text_iterations=1000, data_folder=str(tmp_path))
    study = Study(settings, "text")
    config = RunConfig.model_validate(study.run_config("erm").model_dump())
    tables = made_up("erm", 0, (8, 6), None)
    provenance = {**study.provenance(1.0), "official_data": True}

    def with_features(features: str) -> list[Run]:
        source = config.checkpoint.source
        changed = source.model_copy(update={"options": source.options | {"features": features}})
        checkpoints = [config.checkpoint.model_copy(update={"source": changed, "seed": seed}) for seed in (0, 1, 2)]
        configs = [config.model_copy(update={"checkpoint": checkpoint}) for checkpoint in checkpoints]
        return [Run(each, tables.batches, tables.accuracies, provenance) for each in configs]

    assert report.comparable(with_features("msda")) and not report.comparable(with_features("counts"))
    paper = report.paper_numbers(with_features("msda"))
    row = paper[(paper["method"] == "cascade") & (paper["domain"] == "dvd")]
    assert row["mean"].item() == 19.19, "the paper's dvds are our dvd"


def test_a_method_that_loses_its_way_is_named() -> None:
    adabn, cascade = made_up("tent", 0, (8, 6), 0.5), made_up("cascade", 0, (2, 8), 0.7)
    adabn = replace(adabn, config=adabn.config.model_copy(update={"method": "adabn"}))
    # In snow, the last domain: 6 and 8 of 20 wrong.
    (line,) = report.drift_lines([adabn, cascade])
    assert "Cascade loses its way" in line and "snow, it errs on 40.0 %, AdaBN on 30.0 %" in line
    assert report.drift_lines([adabn]) == report.drift_lines([cascade]) == report.drift_lines([]) == []


def test_the_report_finds_stored_runs_of_every_seed_and_no_foreign_ones(tmp_path: Path, runs: list[Run]) -> None:
    settings = Settings(
        image_stream=("fog", "snow"),
        image_batch_size=10,
        image_methods=("cascade", "erm"),
        results_folder=str(tmp_path),
    )
    foreign = replace(runs[0], config=runs[0].config.model_copy(update={"online_learning_rate": 0.5}))
    # The same profile on data that has since changed: older, so it is no seed more.
    old_data = runs[0].config.model_copy(update={"domain_source": "an archive"})
    old = replace(runs[0], config=old_data, provenance=runs[0].provenance | {"finished": "2020-01-01T00:00:00+00:00"})
    for run in [*runs, foreign, old]:
        folder = tmp_path / "runs" / run.config.key
        folder.mkdir(parents=True)
        run.batches.to_csv(folder / "batches.csv", index=False)
        run.accuracies.to_csv(folder / "accuracies.csv", index=False)
        description = {"config": run.config.model_dump(mode="json"), "provenance": run.provenance}
        (folder / "run.json").write_text(json.dumps(description))
    (tmp_path / "runs" / "half.part").mkdir()
    # What an earlier format or an earlier version left does not count, and does no harm.
    shutil.copytree(tmp_path / "runs" / runs[0].config.key, tmp_path / "runs" / "0123456789abcdef")
    (tmp_path / "runs" / "fedcba9876543210").mkdir()
    (tmp_path / "runs" / "fedcba9876543210" / "run.json").write_text('{"config": {"method": "erm"}, "provenance": {}}')
    found = Evidence(settings).main("image", "digits")
    assert [(run.config.method, run.seed) for run in found] == [("cascade", 0), ("cascade", 1), ("erm", 0), ("erm", 1)]
    assert Evidence(settings).main("image", "cifar10") == []
    assert belongs(found[0], settings, "image", "digits")


def test_figures_show_the_numbers(runs: list[Run]) -> None:
    bars = [patch.get_width() for patch in report.metrics_figure(runs).axes[0].patches]  # type: ignore[attr-defined]
    assert bars == pytest.approx([35.0, 17.5])
    lines = {line.get_label(): line for line in report.stream_figure(runs, window=1).axes[0].lines}
    # Seeds 0 and 1 of the cascade: 20 % and 40 % in fog's first batch, nothing in its second.
    assert lines["Cascade"].get_ydata().tolist() == pytest.approx([30, 0, 40, 0])
    assert lines["Cascade"].get_xdata().tolist() == [10, 20, 30, 40]
    labels = {line.get_label() for line in report.entropy_figure(runs).axes[1].lines}
    assert "Cascade" in labels and "ERM" not in labels


def test_every_published_number_is_there() -> None:
    assert len(pd.read_csv(report.PAPER_RESULTS)) == 862


def test_collapse_is_told_of_the_epoch_that_was_kept(runs: list[Run]) -> None:
    config = runs[2].config.checkpoint
    alive = {"held_out_accuracy": 0.9, "entropy_main": 0.5, "entropy_auxiliary": 1.0, "agreement": 0.8}
    rows = [
        alive | {"entropy_of_mean_auxiliary": 2.0},
        alive | {"held_out_accuracy": 0.8, "entropy_of_mean_auxiliary": 0.0},
    ]
    (line,) = report.collapse_lines([Trained(config, pd.DataFrame(rows))])
    assert "has held" in line and "80 %" in line
    (line,) = report.collapse_lines([Trained(config, pd.DataFrame([rows[0] | {"agreement": 0.1}]))])
    assert "not collapsed, **but does not agree with z**" in line
    (line,) = report.collapse_lines([Trained(config, pd.DataFrame(rows[1:]))])
    assert "**collapsed**" in line
    assert report.collapse_lines([Trained(config, pd.DataFrame([{"held_out_accuracy": 1.0}]))]) == []
