"""Images in folders: squares of any images, corruptions of 224 pixels, and target domains as they
are.
"""

import os
import re
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision.transforms import functional as transforms

from cascadetta_lib.data import DatasetName, load_dataset
from cascadetta_lib.data.base import DataMissing
from cascadetta_lib.data.corruptions import CORRUPTIONS, corrupt
from cascadetta_lib.data.folder import FolderDataset, square
from cascadetta_lib.data.images import ImageOptions
from cascadetta_lib.files import mapped_array
from study.exhibits import EXHIBITS
from study.exhibits.kit.captions import what_made
from study.exhibits.kit.show import show_all, without_runs
from study.settings import SettingsError, load_profile
from study.study import Study

RANDOM = np.random.default_rng(0)


def write(path: Path, width: int = 40, height: int = 36, mode: str = "RGB") -> None:
    """A random image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (height, width) if mode == "L" else (height, width, 3)
    Image.fromarray(RANDOM.integers(0, 256, shape, dtype=np.uint8)).save(path)


def write_part(place: Path, count: int, mode: str = "RGB", **sizes: int) -> None:
    for name in ("cat", "dog", "eel"):
        for index in range(count):
            write(place / name / f"{index}.png", mode=mode, **sizes)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """A source, test images and two target domains, of three classes."""
    folder = tmp_path / "pets"
    write_part(folder / "train", 6)
    write_part(folder / "test", 3)
    write_part(folder / "targets" / "2-rain", 3)
    write_part(folder / "targets" / "1-night", 2)
    return folder


def load(folder: Path, **options: Any) -> FolderDataset:
    data = ImageOptions(folder=str(folder.parent), **options)
    found = load_dataset(f"folder:{folder}", data)
    assert isinstance(found, FolderDataset)
    return found


def test_images_of_a_target_that_are_trained_on_are_told(pets: Path) -> None:
    assert "too" not in load(pets).source
    copied = next((pets / "train" / "cat").iterdir())
    shutil.copy(copied, pets / "targets" / "2-rain" / "cat" / "copy.png")
    assert "1 of its 25 test images are training images too" in load(pets).source


def test_a_folder_of_classes_is_a_dataset(pets: Path) -> None:
    dataset = load(pets, held_out_fraction=0.25)
    assert dataset.class_names == ("cat", "dog", "eel")
    assert [len(split.y) for split in (dataset.train, dataset.held_out, dataset.test)] == [14, 4, 9]
    assert dataset.test.x.shape == (9, 3, 64, 64), "of images between 32 and 64 pixels"
    for split in (dataset.train, dataset.test):
        assert not torch.equal(split.y, split.y.sort().values), "they come mixed"
    for index in range(9):
        label = dataset.class_names[int(dataset.test.y[index])]
        files = [square(path, 64) for path in (pets / "test" / label).glob("*.png")]
        assert any(np.array_equal(dataset.test.x[index].numpy(), file) for file in files)
    again = load(pets, held_out_fraction=0.25)
    assert again.fingerprint == dataset.fingerprint
    assert torch.equal(again.train.x, dataset.train.x)
    write(pets / "test" / "cat" / "0.png")
    assert load(pets).fingerprint != dataset.fingerprint


def test_targets_of_ones_own_are_the_domains_in_the_order_that_a_stream_names(pets: Path) -> None:
    dataset = load(pets)
    assert DatasetName.parse(f"folder:{pets}").vocabulary.standard == ("1-night", "2-rain")
    assert [len(dataset.domain(name, 1).y) for name in ("1-night", "2-rain")] == [6, 9]
    assert len(load(pets, test_size=4).domain("2-rain", 1).y) == 4
    assert dataset.origin == "other" and "1-night, 2-rain" in dataset.domain_source
    assert torch.equal(dataset.example("2-rain", 1, 3), dataset.domain("2-rain", 1).x[3])
    with pytest.raises(ValueError, match="no domain is named 'fog'; allowed are 1-night, 2-rain"):
        dataset.domain("fog", 5)
    with pytest.raises(ValueError, match="no domain is named 'fog'; allowed are 1-night, 2-rain"):
        dataset.example("fog", 5, 0)
    values = {"image_dataset": f"folder:{pets}", "image_stream": ["2-rain", "1-night", "2-rain"]}
    stream = load_profile("quick", values).image.domains
    assert [domain.name for domain in stream] == ["2-rain", "1-night", "2-rain"]
    for wrong in (["fog"], "gradual"):
        with pytest.raises(SettingsError, match="image_stream = .*1-night|image_stream = .*mixed"):
            load_profile("quick", values | {"image_stream": wrong})
    with pytest.raises(SettingsError, match="a run of its own"):
        load_profile("quick", {"image_dataset": [f"folder:{pets}", "digits"]})


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"test": 3, "targets/day": 4}, ""),  # test/ would end in a batch of one, day does not
        ({"test": 4, "targets/day": 3}, "day with 9 examples ends in a batch of one"),
        ({"targets/day": 3}, "day with 9 examples ends in a batch of one"),
        # A target may have the name of a corruption of held-out images.
        ({"train": 6, "test": 4, "targets/spatter": 3}, "spatter with 9 examples ends in a batch"),
    ],
)
def test_a_last_batch_of_one_is_one_of_the_targets(
    parts: dict[str, int], told: str, tmp_path: Path
) -> None:
    folder = tmp_path / "pets"
    for part, count in parts.items():
        write_part(folder / part, count, width=32, height=32)
    changes = {"image_batch_size": 4, "image_methods": ["adabn"], "data_folder": str(tmp_path)}
    changes |= {"image_dataset": f"folder:{folder}", "image_test_size": None}
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(3 * 32 * 32), nn.Linear(3 * 32 * 32, 3))
    nn.init.zeros_(network.get_parameter("2.weight"))  # It says one thing of any image.
    study = Study(load_profile("quick", changes)).bring(network, "mine")
    if not told:
        study.check()
        return
    with pytest.raises(ValueError, match=told):
        study.check()


def test_a_network_runs_on_targets_of_ones_own(pets: Path, tmp_path: Path) -> None:
    """One of them has the name of a corruption."""
    write_part(pets / "targets" / "fog", 2)
    values = {
        "image_dataset": f"folder:{pets}",
        "data_folder": str(tmp_path),
        "results_folder": str(tmp_path / "results"),
        "image_test_size": None,
        "image_batch_size": 4,
    }
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3, 8), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 3)
    )
    study = Study(load_profile("quick", values))
    run = study.bring(network, "mine", normalization="imagenet").run("tent")
    counts = run.batches.groupby("domain", sort=False)["count"].sum()
    assert counts.to_dict() == {"1-night": 6, "2-rain": 9, "fog": 6}
    assert "images a domain, batch 4" in what_made([run]), "it has no severity"


def test_what_targets_of_ones_own_do_not_make_is_said_and_not_asked_for(
    pets: Path, tmp_path: Path
) -> None:
    """Exhibits of severities, or of corruptions that are held out, ended the whole report."""
    values = {
        "image_dataset": f"folder:{pets}",
        "data_folder": str(tmp_path),
        "results_folder": str(tmp_path / "results"),
    }
    settings = load_profile("quick", values)
    shown = {
        each.exhibit.name: each for each in show_all(settings) if each.dataset == "folder-pets"
    }
    why_not = {name: each.lines[0] for name, each in shown.items() if not each.belongs_in_report}
    assert {"alarm", "choice", "comparison", "field", "gradual", "streams", "wild"} <= set(why_not)
    assert why_not["gradual"] == (
        "Not made: the exhibit needs the stream gradual, and folder-pets has only its own domains."
    )
    assert "rates are chosen" in why_not["comparison"]
    for name in ("severity", "cascade_parts"):
        assert why_not[name] == "Not made: the domains of folder-pets have no severities."
    assert "main_image" not in why_not and "recurring" not in why_not
    missing = without_runs(list(shown.values()))
    assert shown["main_image"].exhibit.title in missing
    assert shown["gradual"].exhibit.title not in missing
    study = Study(settings)
    assert all(not EXHIBITS[name].make(study) for name in why_not)


def test_without_a_source_all_images_are_test_images(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    write_part(folder, 2, width=260, height=240)
    (folder / "classes.txt").write_text("ant\ncat\ndog\neel\n")
    dataset = load(folder)
    assert dataset.class_names == ("ant", "cat", "dog", "eel") and dataset.classes == 4
    assert sorted(dataset.test.y.tolist()) == [1, 1, 2, 2, 3, 3]
    assert dataset.test.x.shape == (6, 3, 224, 224) and not len(dataset.train.y)
    assert DatasetName.parse(f"folder:{folder}").vocabulary.standard == CORRUPTIONS
    expected = corrupt(dataset.test.x, "contrast", 5)
    assert torch.equal(dataset.domain("contrast", 5).x, expected)
    assert "as JPEG files" in dataset.domain_source


@pytest.mark.parametrize(("width", "height"), [(300, 260), (260, 300), (224, 500)])
def test_an_image_of_any_size_becomes_a_square_as_usual_for_imagenet(
    tmp_path: Path, width: int, height: int
) -> None:
    write(tmp_path / "one.png", width, height)
    image = Image.open(tmp_path / "one.png")
    expected = transforms.center_crop(transforms.resize(image, 256), [224, 224])
    found = square(tmp_path / "one.png", 224).transpose(1, 2, 0)
    assert np.array_equal(found, np.asarray(expected))


def test_a_square_of_the_right_size_is_taken_as_it_is_and_grey_gets_three_channels(
    tmp_path: Path,
) -> None:
    write(tmp_path / "one.png", 32, 32)
    pixels = np.asarray(Image.open(tmp_path / "one.png"))
    assert np.array_equal(square(tmp_path / "one.png", 32).transpose(1, 2, 0), pixels)
    folder = tmp_path / "grey"
    write_part(folder, 2, mode="L", width=30, height=30)
    x = load(folder).test.x
    assert x.shape == (6, 3, 32, 32) and torch.equal(x[:, 0], x[:, 2])


Break = Callable[[Path], object]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda pets: (pets / "test" / "fox").mkdir(), "found the class 'fox'; allowed are the 3"),
        (
            lambda pets: write(pets / "targets" / "1-night" / "fox" / "0.png"),
            "1-night/fox: found the class 'fox'; allowed are the 3 classes",
        ),
        (lambda pets: (pets / "train" / "fox").mkdir(), "train/fox: found no image; allowed is 1"),
        (
            lambda pets: (pets / "targets" / "1-night").rename(pets / "targets" / "night:2"),
            "targets: found the domain 'night:2'; allowed is a name without ':'",
        ),
        (
            lambda pets: write(pets / "test" / "cat" / "0.png", mode="L"),
            "1 of 42 images are grey, such as .*0.png; allowed are only grey or only",
        ),
        (
            lambda pets: (pets / "test" / "cat" / "0.png").write_bytes(b"no image"),
            "0.png cannot be read as an image",
        ),
        (lambda pets: (pets / "classes.txt").write_text("cat\ndog\n"), "the class 'eel'"),
        (lambda pets: (pets / "classes.txt").write_text("cat\ncat\n"), "'cat' twice"),
        (
            lambda pets: (pets / "classes.txt").write_bytes("chaton\nété\n".encode("latin-1")),
            "classes.txt is no text in UTF-8: .*0xe9",
        ),
        (
            lambda pets: (pets / "classes.txt").write_text("ant\ncat\ndog\neel\n"),
            "train: found no images of 'ant'",
        ),
    ],
)
def test_a_folder_that_is_not_as_it_must_be_is_refused(
    pets: Path, change: Break, words: str
) -> None:
    """In one message, before work starts."""
    change(pets)
    with pytest.raises(ValueError, match=words) as refused:
        load(pets)
    assert "\n" not in str(refused.value)
    assert not list(pets.parent.glob("generated/*.npy"))


@pytest.mark.parametrize("ending", ["png", "tif", "pgm"])
def test_grey_images_of_16_bits_keep_their_levels(ending: str, tmp_path: Path) -> None:
    ramp = np.linspace(0, 65535, 32 * 32).round().astype(np.uint16).reshape(32, 32)
    path = tmp_path / f"ramp.{ending}"
    if ending == "pgm":
        path.write_bytes(b"P5 32 32 65535\n" + ramp.astype(">u2").tobytes())
    else:
        Image.fromarray(ramp).save(path)
    expected = (ramp / 257).round()
    assert np.array_equal(square(path, 32), np.stack([expected] * 3))


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_grey_images_of_32_bits_are_refused(kind: type, tmp_path: Path) -> None:
    path = tmp_path / "bright.tif"
    Image.fromarray(np.full((32, 32), 70_000, kind)).save(path)
    with pytest.raises(ValueError, match="bright.tif .*floats, or numbers outside 0..65535"):
        square(path, 32)


@pytest.mark.parametrize("kind", [np.int32, np.uint16])
@pytest.mark.parametrize("largest", [200, 4095])
def test_numbers_of_8_or_12_bits_in_16_are_refused(
    largest: int, kind: type, tmp_path: Path
) -> None:
    """They would be nearly black. An image that is black is taken."""
    path = tmp_path / "dark.tif"
    Image.fromarray(np.full((32, 32), largest, kind)).save(path)
    with pytest.raises(ValueError, match=f"dark.tif .* its largest number is {largest}"):
        square(path, 32)
    Image.fromarray(np.zeros((32, 32), kind)).save(path)
    assert not square(path, 32).any()


def test_hidden_images_are_left_out(pets: Path) -> None:
    """Such as what macOS leaves beside a file."""
    before = load(pets).fingerprint
    write(pets / "test" / "cat" / ".thumbs" / "0.png")
    (pets / "test" / "cat" / "._0.png").write_bytes(b"no image")
    assert load(pets).fingerprint == before


def test_classes_that_are_numbers_are_in_the_order_of_the_numbers(tmp_path: Path) -> None:
    """As the outputs of a network are. As texts, 10 would come before 2."""
    for name in range(12):
        write(tmp_path / "digits" / str(name) / "0.png", 32, 32)
    assert load(tmp_path / "digits").class_names == tuple(map(str, range(12)))
    write(tmp_path / "digits" / "none" / "0.png", 32, 32)
    assert load(tmp_path / "digits").class_names[:3] == ("0", "1", "10")


def test_an_image_of_too_many_pixels_is_named(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)  # Pillow refuses more than twice as many.
    path = pets / "test" / "cat" / "0.png"
    with pytest.raises(ValueError, match="png cannot be read as an image .*exceeds limit"):
        load(pets)
    with pytest.raises(ValueError, match="0.png cannot be read as an image .*exceeds limit"):
        square(path, 64)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="there is no folder .*nothing"):
        load(tmp_path / "nothing")
    write_part(tmp_path / "half" / "train", 2)
    with pytest.raises(DataMissing, match=re.escape("lacks test/CLASS/… or targets/NAME/CLASS/…")):
        load(tmp_path / "half")
    (tmp_path / "empty" / "targets").mkdir(parents=True)
    with pytest.raises(ValueError, match="targets: found no folder"):
        load(tmp_path / "empty")


def test_an_array_on_the_disk_takes_no_memory_and_is_made_again_when_it_is_damaged(
    tmp_path: Path,
) -> None:
    shape = (64, 3, 512, 512)
    path = tmp_path / "kept.npy"
    made = []

    def make() -> Any:
        made.append(1)
        for index in range(64):
            yield np.full((1, 3, 512, 512), index, np.uint8)

    tracemalloc.start()
    array = mapped_array(path, shape, make)
    images = torch.from_numpy(array)
    assert images[torch.tensor([5, 60])].float().mean((1, 2, 3)).tolist() == [5, 60]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < array.nbytes / 4
    array[0] = 9
    assert mapped_array(path, shape, make)[0].max() == 0 and len(made) == 1, "the file stays"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="does not hold what was kept in it"):
        assert mapped_array(path, shape, make)[7].max() == 7
    assert len(made) == 2
    path.with_suffix(".sha256").write_bytes(b"\xff")  # not UTF-8
    with pytest.warns(UserWarning, match="does not hold what was kept in it"):
        mapped_array(path, shape, make)
    assert len(made) == 3
    for ending in (".npy", ".sha256"):  # renamed, as by hand: it is not what was kept so
        path.with_suffix(ending).rename(tmp_path / f"other{ending}")
    with pytest.warns(UserWarning, match="does not hold what was kept in it"):
        mapped_array(tmp_path / "other.npy", shape, make)
    assert len(made) == 4


PARTS = [np.zeros((1, 2), np.uint8), np.ones((3, 2), np.uint8)]


def test_an_array_whose_maker_is_killed_as_its_file_appears_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so it is for another process, which may come at that moment."""
    path = tmp_path / "kept.npy"
    replace = os.replace

    def killed(old: Path, new: Path) -> None:
        replace(old, new)
        if new == path:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            mapped_array(path, (4, 2), lambda: PARTS)
    kept = mapped_array(path, (4, 2), lambda: pytest.fail("it is made again"))
    assert np.array_equal(kept, np.concatenate(PARTS))


def test_a_mapped_array_that_cannot_be_kept_is_made_each_time(tmp_path: Path) -> None:
    """In a folder that is a link to itself, and so cannot be made."""
    folder = tmp_path / "loop"
    folder.symlink_to(folder)
    told = r"kept\.npy cannot be kept \(.*\): it is made anew each time, and held in memory"
    for _ in range(2):
        with pytest.warns(UserWarning, match=told):
            made = mapped_array(folder / "kept.npy", (4, 2), lambda: iter(PARTS))
        assert np.array_equal(made, np.concatenate(PARTS))


def test_a_mapped_array_in_the_place_of_a_file_is_refused_before_it_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=f"{tmp_path}/file"):
        mapped_array(tmp_path / "file" / "kept.npy", (4, 2), lambda: pytest.fail("it is made"))
