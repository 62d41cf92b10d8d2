"""What data are called: names, shapes and texts are no proof. Each row claims to be somebody else's
data, and what is said of it shows that nothing of that was believed.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import test_speech
import test_text
from conftest import real_data, write_npz

from cascadetta_lib.data import load_dataset
from cascadetta_lib.data.base import Dataset
from cascadetta_lib.data.images import ImageOptions
from cascadetta_lib.data.recordings import HELD_OUT_LIST, TEST_LIST
from cascadetta_lib.data.reviews import TextOptions
from cascadetta_lib.data.utterances import SpeechOptions


def images(here: Path, name: str, **options: object) -> Dataset:
    return load_dataset(name, ImageOptions(folder=str(here), **options))  # type: ignore[arg-type]


def called_cifar10(here: Path) -> Dataset:
    """Ten classes at 32 pixels in a folder of that name, with a source that says so."""
    folder = write_npz(here / "cifar10")
    (folder / "source.txt").write_text("CIFAR-10, the official pixels")
    return images(here, f"npz:{folder}")


def called_cifar100(here: Path) -> Dataset:
    y = np.arange(200) % 100
    x = np.random.default_rng(0).integers(0, 256, (200, 32, 32, 3), np.uint8)
    return images(here, f"npz:{write_npz(here / 'cifar-100', {'x': x, 'y': y})}")


def a_part_of_cifar10(here: Path) -> Dataset:
    return images(real_data("cifar-10-batches-py").parent, "cifar10", train_size=100)


def words(here: Path) -> Path:
    return test_speech.write_words(here / "SpeechCommands" / "speech_commands_v0.01")


def sounds(here: Path) -> Dataset:
    return load_dataset("speech_commands", SpeechOptions(folder=str(here)))


def named_as_the_archives(here: Path) -> Dataset:
    """Recordings under the archive's kind of name, in its folder."""
    folder = words(here)
    for path in [*folder.glob("*/*_nohash_0.wav")]:
        path.rename(path.with_name(f"0000000{path.name}"))
    for name in (TEST_LIST, HELD_OUT_LIST):
        lines = (folder / name).read_text().split()[:-1]
        changed = [line.replace("/", "/0000000") for line in lines]
        (folder / name).write_text("\n".join(changed))
    return sounds(here)


def counts(here: Path) -> Dataset:
    test_text.write_counts(here / "amazon_svmlight")
    return load_dataset("amazon_counts", TextOptions(folder=str(here), vocabulary_size=5000))


CLAIMS: dict[str, tuple[Callable[[Path], Dataset], str]] = {
    # What claims to be something, and a word of what is said of it instead.
    "a folder cifar10": (called_cifar10, ""),
    "a folder cifar-100": (called_cifar100, "the user's images"),
    "a part of CIFAR-10": (a_part_of_cifar10, ""),
    "recordings in the archive's folder": (lambda here: (words(here), sounds(here))[1], "unknown"),
    "recordings of the archive's names": (named_as_the_archives, "unknown origin, named as in"),
    "counts in the field's layout": (counts, ""),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CLAIMS)
def test_nothing_is_believed_by_its_name_shape_or_layout(tmp_path: Path, name: str) -> None:
    claim, said = CLAIMS[name]
    dataset = claim(tmp_path)
    assert not dataset.official and not dataset.recognised
    assert said in dataset.source
