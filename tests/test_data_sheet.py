"""The data sheet: counts of made-up parts, and the committed sheet against the real data."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from conftest import real_data

from cascadetta_lib.data.base import DataMissing
from study.tools.data_sheet import (
    READERS,
    SHEET,
    Part,
    archive_part,
    describe,
    longest_run,
    main,
    read_sheet,
    write_sheet,
)


def test_copies_and_labels_are_counted() -> None:
    first = Part("train", [b"a", b"b", b"a", b"c", b"a"], ["0", "1", "0", "1", "1"], ordered=True)
    second = Part("test", [b"c", b"d", b"b", b"b"], ["1", "0", "0", "1"])
    found = {(part, what): count for _, part, what, count in describe("made up", [first, second])}
    assert found["train", "examples"] == 5 and found["test", "examples"] == 4
    assert found["train", "examples of the smallest class"] == 2
    assert found["train", "examples that repeat an earlier one"] == 2
    assert found["train", "repeated contents with unlike labels"] == 1
    assert found["train", "longest run of a label"] == 2
    assert ("test", "longest run of a label") not in found
    assert found["test", "examples that repeat an earlier one"] == 1
    assert found["test in train", "examples of the first that have a copy in the second"] == 3
    assert (
        found[
            "test in train", "of these, examples whose label differs from those of all their copies"
        ]
        == 1
    )
    assert longest_run([]) == 0 and longest_run(["1", "0", "0", "0", "1"]) == 3


@pytest.mark.parametrize(
    ("place", "name", "said"),
    [
        ("SpeechCommands", "Speech Commands, ten words", "no example of training, validation, tes"),
        ("cifar-10-batches-py", "CIFAR-10", "cifar-10-batches-py is missing or not the official"),
    ],
)
def test_a_set_that_is_not_there_as_a_whole_is_refused_and_nothing_is_written(
    place: str, name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / place).mkdir()
    sheet = tmp_path / "sheet.csv"
    with pytest.raises(SystemExit) as stopped:
        main(["--data", str(tmp_path), "--output", str(sheet), "--set", name, "--set", "CIFAR-100"])
    told = capsys.readouterr().err
    assert stopped.value.code == 2
    assert told.startswith(f"data_sheet: {tmp_path / place} cannot be described: ") and said in told
    assert "download" not in told and not sheet.exists()


def broken_archive(folder: Path) -> None:
    (folder / "train.npz").write_bytes(b"no archive")


def archive_without_x(folder: Path) -> None:
    np.savez(folder / "train.npz", y=np.zeros(2))


def broken_recording(folder: Path) -> None:
    words = folder / "speech_commands_v0.01" / "left"
    words.mkdir(parents=True)
    (words / "s1_nohash_0.wav").write_bytes(b"no recording")


@pytest.mark.parametrize(
    ("break_it", "place", "name", "said"),
    [
        (broken_archive, "cifar-100", "CIFAR-100", "train.npz cannot be read ("),
        (archive_without_x, "cifar-100", "CIFAR-100", "must hold the arrays x and y; found y"),
        (broken_recording, "SpeechCommands", "Speech Commands, ten words", "s1_nohash_0.wav"),
    ],
)
def test_a_damaged_file_is_named_and_nothing_is_written(
    break_it: Callable[[Path], None],
    place: str,
    name: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / place).mkdir()
    break_it(tmp_path / place)
    sheet = tmp_path / "sheet.csv"
    with pytest.raises(SystemExit) as stopped:
        main(["--data", str(tmp_path), "--output", str(sheet), "--set", name])
    told = capsys.readouterr().err
    assert stopped.value.code == 2 and not sheet.exists()
    assert told.startswith(f"data_sheet: {tmp_path / place} cannot be described: ") and said in told


def test_a_domain_without_a_folder_is_not_another(tmp_path: Path) -> None:
    """kitchen may be called kitchen_&_housewares, and no other domain may."""
    reviews = b"<review><rating>5.0</rating><review_text>good</review_text></review>"
    for domain in ("books", "electronics", "kitchen_&_housewares"):
        place = tmp_path / "sorted_data_acl" / domain
        place.mkdir(parents=True)
        for part in ("negative", "positive"):
            (place / f"{part}.review").write_bytes(reviews)
    _, read = READERS["Amazon, labelled"]
    with pytest.raises(DataMissing, match=r"there is no .*dvd/negative\.review"):
        read(tmp_path)
    shutil.copytree(place.with_name("books"), place.with_name("dvd"))
    assert [part.name for part in read(tmp_path)] == ["books", "dvd", "electronics", "kitchen"]


def test_the_other_words_of_the_whole_archive_are_not_counted(tmp_path: Path) -> None:
    name = "Speech Commands, ten words"
    place, read = READERS[name]
    for word in ("left", "right", "bed"):
        folder = tmp_path / place / "speech_commands_v0.01" / word
        folder.mkdir(parents=True)
        for speaker in range(40):
            soundfile.write(folder / f"s{speaker}_nohash_0.wav", np.zeros(4, np.int16), 16000)
    rows = describe(name, read(tmp_path))
    assert sum(count for _, _, what, count in rows if what == "examples") == 80
    assert {count for _, _, what, count in rows if what == "classes"} == {2}


def test_a_sheet_comes_back_as_it_was_written(tmp_path: Path) -> None:
    rows = [("a, set", "train", "examples", 12_345), ("b", "test", "classes", 2)]
    write_sheet(rows, tmp_path / "sheet.csv")
    assert read_sheet(tmp_path / "sheet.csv") == rows
    assert "| train | examples | 12,345 |" in (tmp_path / "sheet.md").read_text()
    assert read_sheet(tmp_path / "none.csv") == []


def test_the_archives_rule_decides_the_part_of_a_recording() -> None:
    """It gives the archive's own lists."""
    lists = real_data("speech_sample/speech_commands_v0.01")
    for name, part in (("testing_list.txt", "testing"), ("validation_list.txt", "validation")):
        lines = (lists / name).read_text().split()
        assert {archive_part(line.partition("/")[2]) for line in lines} == {part}


@pytest.mark.parametrize("name", READERS)
def test_the_committed_sheet_is_that_of_the_real_data(name: str) -> None:
    place, read = READERS[name]
    folder = real_data(place).parent
    committed = [row for row in read_sheet(SHEET) if row[0] == name]
    assert committed == describe(name, read(folder))


def test_the_committed_markdown_is_that_of_the_committed_sheet(tmp_path: Path) -> None:
    write_sheet(read_sheet(SHEET), tmp_path / SHEET.name)
    committed = SHEET.with_suffix(".md").read_text(encoding="utf-8")
    assert (tmp_path / SHEET.name).with_suffix(".md").read_text(encoding="utf-8") == committed
