"""The controls of a notebook: what their button runs, and that a page without a reader has none."""

from pathlib import Path

import pytest
from IPython.display import Markdown
from made_up_runs import quick

from study import notebook_controls
from study.settings import SettingsError
from study.study import Study


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Quick's study on a few images."""
    small = {"image_test_size": 16, "image_train_size": 60, "image_training_epochs": 1}
    return Study(quick(results_folder=str(tmp_path), **small, image_methods=("erm", "tent")))


def test_the_button_runs_the_method_beside_adabn_with_what_was_chosen(
    study: Study, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "notebook.ipynb")
    shown = notebook_controls.controls(study)
    *fields, button, _ = shown.children
    assert [field.description for field in fields] == ["method", "rate", "batch", "severity"]
    assert fields[0].options == (("Tent", "tent"),), "what adapts"
    fields[1].value = 0.01
    fields[2].value = 8
    fields[3].value = 1
    button.click()
    table = capsys.readouterr().out
    assert "Tent" in table and "AdaBN" in table
    [tent] = [run for run in study.store.runs() if run.method == "tent"]
    assert tent.request.online_learning_rate == 0.01 and tent.request.batch_size == 8
    assert {domain.severity for domain in tent.request.stream} == {1}


def test_a_value_that_cannot_be_used_is_refused(study: Study) -> None:
    with pytest.raises(SettingsError, match="severity"):
        notebook_controls.compare(study, "tent", {"severity": 9})


def test_without_jupyterlab_a_sentence_stands_there(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert isinstance(notebook_controls.controls(study), Markdown)
