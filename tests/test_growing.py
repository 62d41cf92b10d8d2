"""The table that grows in a notebook while its runs are being made."""

import re
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import RichOutput, capture_output
from made_up_runs import quick

from study import exhibits
from study.study import Study


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """A study of text that takes seconds, with CoTTA first among its methods."""
    settings = quick(
        results_folder=str(tmp_path),
        text_methods=["cotta", "erm", "adabn"],
        text_stream=["dvd"],
        text_training_iterations=2,
        text_test_size=40,
    )
    return Study(settings, "text")


def displayed(study: Study) -> list[RichOutput]:
    """What a cell displays that runs the main study, beside its result."""
    shell = InteractiveShell.instance()
    try:
        with capture_output() as captured:
            exhibits.run("main_text", study)
    finally:
        shell.clear_instance()
    outputs: list[RichOutput] = captured.outputs
    return outputs


def rows(output: RichOutput) -> list[str]:
    """The methods of a table that was displayed."""
    return re.findall(r"<th>(ERM|AdaBN|CoTTA)\b", output.data["text/html"])


def test_a_row_comes_with_each_method_and_cotta_last(study: Study) -> None:
    outputs = displayed(study)
    assert [output.update for output in outputs] == [False, True, True, True], "all in one place"
    assert [rows(output) for output in outputs] == [
        ["ERM"],
        ["ERM", "AdaBN"],
        ["CoTTA", "ERM", "AdaBN"],
        [],
    ]


def test_nothing_is_displayed_where_nobody_watches(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASCADETTA_HEADLESS", "1")
    assert not displayed(study)
