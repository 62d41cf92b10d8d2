"""Texts in a table and recordings in folders, of the user's own."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from conftest import real_data

from cascadetta_lib.data import DatasetName, load_dataset
from cascadetta_lib.data.base import DataMissing
from cascadetta_lib.data.reviews import TextDataset, TextOptions
from cascadetta_lib.data.utterances import SpeechDataset, SpeechOptions
from study.exhibits import EXHIBITS
from study.exhibits.kit.stored_runs import Runs
from study.settings import SettingsError, load_profile
from study.study import Study

ADJECTIVES = {"good": ("fine", "lovely", "superb"), "bad": ("awful", "dull", "poor")}


def table(path: Path, domains: tuple[str, ...] = ("news", "blog", "mail")) -> Path:
    """Twelve texts of each domain, of two labels."""
    lines = ["id,text,label,domain"]
    for domain in domains:
        for index in range(12):
            label = ("good", "bad")[index % 2]
            word = ADJECTIVES[label][index % 3]
            lines.append(f'{index},"a {word} {domain}, number {index}",{label},{domain}')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def load_texts(path: Path, **options: Any) -> TextDataset:
    real_data("nltk_data")  # which NLTK_DATA names
    found = load_dataset(f"csv:{path}", TextOptions(folder=str(path.parent), **options))
    assert isinstance(found, TextDataset)
    return found


def test_a_table_of_texts_is_a_dataset(tmp_path: Path) -> None:
    dataset = load_texts(table(tmp_path / "mine.csv"), held_out_fraction=0.25, msda_layers=0)
    assert dataset.class_names == ("bad", "good")
    assert (len(dataset.train.y), len(dataset.held_out.y)) == (9, 3)
    assert [len(dataset.domain(name).y) for name in ("blog", "mail")] == [12, 12]
    assert dataset.domain("blog").y.sum() == 6
    assert dataset.prepare(dataset.train.x).shape == (9, dataset.network_facts["inputs"])
    assert DatasetName.parse(f"csv:{tmp_path / 'mine.csv'}").vocabulary.standard == ("blog", "mail")
    assert "mine.csv" in dataset.source and str(tmp_path) not in dataset.source + dataset.name
    assert dataset.compare_with is None and not dataset.official


def test_texts_of_a_target_that_are_trained_on_are_told(tmp_path: Path) -> None:
    path = table(tmp_path / "mine.csv")
    header, first, second, *_ = path.read_text(encoding="utf-8").splitlines()
    copies = [line.rsplit(",", 1)[0] + ",blog\n" for line in (first, second)]
    with path.open("a", encoding="utf-8") as file:
        file.writelines(copies)
    source = load_texts(path, msda_layers=0).source
    assert "2 of its 26 test texts are training texts too" in source


def test_a_method_runs_on_a_table_in_the_order_that_the_stream_names(tmp_path: Path) -> None:
    real_data("nltk_data")
    path = table(tmp_path / "mine.csv")
    values = {
        "text_dataset": f"csv:{path}",
        "text_stream": ["mail", "blog"],
        "text_batch_size": 4,
        "text_training_batch_size": 4,
        "text_training_iterations": 4,
        "text_test_size": None,
        "text_train_size": None,
        "text_held_out_fraction": 0.25,
        "data_folder": str(tmp_path),
        "results_folder": str(tmp_path / "results"),
    }
    run = Study(load_profile("quick", values), "text").run("tent")
    assert list(run.batches["domain"].unique()) == ["mail", "blog"]
    with pytest.raises(SettingsError, match="no domain is named 'dvd'; allowed are blog, mail"):
        load_profile("quick", values | {"text_stream": ["dvd"]})


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("label,domain", "label,area", "the columns id, text, label, area, without 'domain'"),
        ("fine news, number 0", "...", "line 2: found a text without a word"),
        ("bad,blog", ",blog", "line 15: found an empty cell"),
        ('"a fine news, number 0"', "a fine news, number 0", "line 2: found more cells than"),
        ('number 0",good', 'number 0",Good', "found the labels 'Good' and 'good'"),
        (
            "bad,mail",
            "odd,mail",
            "found the label 'odd' in 'mail'; allowed are those of the source",
        ),
        ("good,news", "bad,news", "found the label 'bad' alone in the source 'news'"),
        (",mail", ",ma:il", "found the domain 'ma:il'; allowed is a name without ':'"),
        ("id,text", "text,text", "found the column 'text' twice"),
        ("a fine blog", "a f\udcffine blog", "is no table in UTF-8"),
    ],
)
def test_a_table_that_is_not_as_it_must_be_is_refused(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    path = table(tmp_path / "mine.csv")
    changed = path.read_text(encoding="utf-8").replace(old, new)
    path.write_bytes(changed.replace("a ...", "...").encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=words):
        load_dataset(f"csv:{path}", TextOptions(folder=str(tmp_path)))
    assert not list(tmp_path.glob("generated/*"))


def test_a_table_of_one_domain_or_none_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "mine.csv", ("news",))
    with pytest.raises(ValueError, match="found 1 domain, 'news'; allowed are 2 or more"):
        load_dataset(f"csv:{path}", TextOptions(folder=str(tmp_path)))
    path.write_text("text,label,domain\n")
    with pytest.raises(ValueError, match="found no rows"):
        load_dataset(f"csv:{path}", TextOptions(folder=str(tmp_path)))
    with pytest.raises(DataMissing, match="there is no .*nothing.csv"):
        load_dataset(f"csv:{tmp_path / 'nothing.csv'}", TextOptions(folder=str(tmp_path)))


def test_labels_that_are_numbers_are_in_the_order_of_the_numbers(tmp_path: Path) -> None:
    """As the outputs of a network are. As texts, 10 would come before 2."""
    path = table(tmp_path / "mine.csv")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(",good,", ",10,").replace(",bad,", ",2,"), encoding="utf-8")
    assert load_texts(path, msda_layers=0).class_names == ("2", "10")


def test_the_exhibit_of_steps_takes_the_tables_own_source(tmp_path: Path) -> None:
    """Which need not be called `books`, as that of Amazon's reviews is."""
    path = table(tmp_path / "mine.csv")
    settings = load_profile("quick", {"text_dataset": f"csv:{path}", "text_methods": ["tent"]})
    settings = settings.model_copy(update={"results_folder": str(tmp_path / "results")})
    study = Study(settings, "text")
    exhibit = EXHIBITS["online_text"]
    streams = set()
    for point in exhibit.points(settings):
        request = study.varied(**point.changes).request(point.method, point.objective)
        streams.add(tuple(domain.name for domain in request.stream))
    assert streams == {("blog", "mail"), ("news",)}
    assert exhibit.show(Runs(study)).lines[0].startswith("Missing: none of its")


def record(folder: Path, speakers: int, each: int = 2) -> Path:
    """Recordings of two words by some speakers, half a second at 8 kHz."""
    generator = np.random.default_rng(0)
    for word in ("left", "right"):
        (folder / word).mkdir(parents=True)
        for speaker in range(speakers):
            for index in range(each):
                sound = generator.uniform(-0.5, 0.5, 4000)
                soundfile.write(folder / word / f"s{speaker}_{index}.wav", sound, 8000)
    return folder


def load_recordings(folder: Path) -> SpeechDataset:
    found = load_dataset(f"wav:{folder}", SpeechOptions(folder=str(folder.parent)))
    assert isinstance(found, SpeechDataset)
    return found


def test_recordings_are_split_by_speaker(tmp_path: Path) -> None:
    folder = record(tmp_path / "mine", speakers=5)
    dataset = load_recordings(folder)
    assert dataset.class_names == ("left", "right")
    counts = [len(split.y) for split in (dataset.train, dataset.held_out, dataset.test)]
    assert counts == [12, 4, 4], "three speakers, one and one"
    whole = [set(map(bytes, split.x.numpy())) for split in (dataset.train, dataset.test)]
    assert not whole[0] & whole[1]
    assert dataset.noise.shape[1] == 16000 and len(dataset.noise)
    assert dataset.prepare(dataset.domain("noise").x).shape == (4, 1, 32, 32)
    assert load_recordings(folder).fingerprint == dataset.fingerprint


def test_a_name_without_a_speaker_is_told(tmp_path: Path) -> None:
    """Else a speaker could be trained on and tested without a word."""
    folder = record(tmp_path / "mine", speakers=5)
    for path in folder.glob("*/s4_*.wav"):
        path.rename(path.with_name(path.name.replace("_", "-")))
    told = (
        r"mine: 4 of 20 recordings are not called SPEAKER_….wav, such as left/s4-0.wav: the whole"
    )
    with pytest.warns(UserWarning, match=told):
        load_recordings(folder)
    for name, index in (("testing_list.txt", 0), ("validation_list.txt", 1)):
        (folder / name).write_text(f"left/s0_{index}.wav\n")
    load_recordings(folder)  # Split by lists, without a warning, which would be an error.


def test_recordings_that_are_in_another_part_again_are_told(tmp_path: Path) -> None:
    folder = record(tmp_path / "mine", speakers=5)
    assert load_recordings(folder).source.endswith("20 of 2 words")
    for word in ("left", "right"):
        sound = (folder / word / "s0_0.wav").read_bytes()
        for speaker in range(1, 5):
            (folder / word / f"s{speaker}_0.wav").write_bytes(sound)
    dataset = load_recordings(folder)
    used = sum(len(split.y) for split in (dataset.train, dataset.held_out, dataset.test))
    assert dataset.source.endswith(
        f"20 of 2 words, without {20 - used} copies of recordings in another part"
    )
    assert used < 20


def test_a_speaker_is_one_however_the_files_are_written(tmp_path: Path) -> None:
    """Else one speaker was trained on and tested."""
    folder = record(tmp_path / "mine", speakers=5, each=4)
    before = load_recordings(folder)
    for path in folder.glob("*/*_0.wav"):
        path.rename(path.with_name(path.name.replace("_0.wav", ".WAV").upper()))
    for path in folder.glob("*/*_1.wav"):
        path.rename(path.with_name(path.name.upper()))
    after = load_recordings(folder)
    for one, other in ((before.train, after.train), (before.test, after.test)):
        assert sorted(map(bytes, one.x.numpy())) == sorted(map(bytes, other.x.numpy()))


def test_a_table_that_changes_under_its_size_and_time_is_read_anew(tmp_path: Path) -> None:
    path = table(tmp_path / "mine.csv")
    first = load_texts(path, msda_layers=0)
    status = path.stat()
    path.write_text(path.read_text().replace("superb", "lovely").replace("lovely", "superb"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    assert load_texts(path, msda_layers=0).fingerprint != first.fingerprint


def test_noise_of_ones_own_takes_the_place_of_white_noise_or_is_refused(tmp_path: Path) -> None:
    """It is never left out without a word."""
    folder = record(tmp_path / "mine", speakers=3)
    assert load_recordings(folder).domain_source.endswith("(seeds 0 to 4), white noise")
    place = folder / "_background_noise_"
    place.mkdir()
    hum = np.full(16000, 0.25)
    soundfile.write(place / "hum.wav", hum, 16000)
    dataset = load_recordings(folder)
    assert dataset.domain_source.endswith("(seeds 0 to 4), noise from _background_noise_/")
    assert dataset.noise.unique().tolist() == [8192] and len(dataset.noise) == 1
    soundfile.write(place / "hum.wav", hum[:-1], 16000)
    with pytest.raises(ValueError, match="_background_noise_: found no whole second"):
        load_recordings(folder)
    (place / "hum.wav").write_bytes(b"x")
    with (
        pytest.warns(UserWarning, match="hum.wav is no .wav file"),
        pytest.raises(ValueError, match="_background_noise_: found no whole second"),
    ):
        load_recordings(folder)


def test_hidden_recordings_are_left_out(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Such as what macOS leaves beside a file."""
    folder = record(tmp_path / "mine", speakers=3)
    fingerprint = load_recordings(folder).fingerprint
    (folder / "left" / "._s0_0.wav").write_bytes(b"no sound")
    assert load_recordings(folder).fingerprint == fingerprint
    assert not recwarn.list


def test_recordings_are_split_by_lists_where_there_are(tmp_path: Path) -> None:
    folder = record(tmp_path / "mine", speakers=1, each=4)
    (folder / "testing_list.txt").write_text("left/s0_0.wav\nright/s0_0.wav\n")
    with pytest.raises(ValueError, match="found testing_list.txt alone; allowed are both"):
        load_recordings(folder)
    (folder / "validation_list.txt").write_text("left/s0_1.wav\n")
    dataset = load_recordings(folder)
    assert [len(split.y) for split in (dataset.train, dataset.held_out, dataset.test)] == [5, 1, 2]
    assert sorted(dataset.test.y.tolist()) == [0, 1]


def test_a_folder_or_a_dead_link_with_the_name_of_a_recording_is_left_out(tmp_path: Path) -> None:
    folder = record(tmp_path / "mine", speakers=3)
    fingerprint = load_recordings(folder).fingerprint
    (folder / "left" / "folder.wav").mkdir()
    (folder / "left" / "link.wav").symlink_to(tmp_path / "nothing")
    assert load_recordings(folder).fingerprint == fingerprint


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: record(folder, 1), "recordings of 1 speakers, s0; allowed are 3 or more"),
        (lambda folder: record(folder / "left", 3), "found 0 words|found 1 words"),
        (lambda folder: folder.mkdir(), "found 0 words with usable .wav files"),
    ],
)
def test_recordings_that_cannot_be_used_are_refused(
    tmp_path: Path, change: Callable[[Path], object], words: str
) -> None:
    change(tmp_path / "mine")
    with pytest.raises(ValueError, match=words):
        load_recordings(tmp_path / "mine")


def test_a_folder_of_recordings_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="there is no folder .*nothing"):
        load_recordings(tmp_path / "nothing")
