"""Bad inputs, each given where a user would give it: what is said of it, and that nothing starts.

A row of ATTACKS is one bad input: what it is, how it is given, what comes of it (an exit code of run_all.sh, or the
exception or warning of a public call), and what the one message says.
"""

import hashlib
import io
import json
import shutil
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import soundfile
import torch
from made_up_runs import Numbers, made_up_run, quick, stored

from cascadetta_lib.data import load_dataset
from cascadetta_lib.data.images import ImageOptions
from cascadetta_lib.models import ImageNetwork
from cascadetta_lib.objectives import Training
from cascadetta_lib.pretrain import new_network
from cascadetta_lib.settings import SettingsError, settings_from
from cascadetta_lib.store import CheckpointRequest, Store
from cascadetta_lib.study import Study
from exhibits import EXHIBITS
from workflow import run
from workflow.command import NOTEBOOK_FAILED, main
from workflow.pack import pack

LONGEST = 450  # characters of a message, beside the folder of the test
Give = Callable[[Path], object]


class Attack(NamedTuple):
    """A bad input. give: gives it to the program; its argument is an empty folder, in which it is called."""

    what: str
    give: Give
    outcome: int | type[Exception]
    words: tuple[str, ...]


# ---------------------------------------------------------------- how a bad input is given


def line(*arguments: str, prepare: Give = lambda here: None) -> Give:
    """On the command line, after `prepare(here)` has written what it names; HERE in an argument is that folder."""

    def give(here: Path) -> object:
        prepare(here)
        given = [argument.replace("HERE", str(here)) for argument in arguments]
        if not any("results_folder" in argument for argument in arguments):
            given += ["--set", "results_folder=results"]
        return main(given)

    return give


def values(*pairs: str, prepare: Give = lambda here: None) -> Give:
    """By --set."""
    return line("--set", *pairs, prepare=prepare)


def merged(small: dict[str, str], pairs: tuple[str, ...]) -> list[str]:
    """NAME=VALUE for what keeps the data small, and for what a row says instead or beside it."""
    changed = small | {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
    return [f"{name}={value}" for name, value in changed.items()]


def profile(content: str | bytes) -> Give:
    """In a profile of one's own."""
    text = content if isinstance(content, bytes) else content.encode()
    return line("--profile", "mine.yaml", prepare=lambda here: (here / "mine.yaml").write_bytes(text))


def images(prepare: Give, *pairs: str) -> Give:
    """As npz:mine, for the one notebook that reads images."""
    small = {"image_dataset": "npz:mine", "image_training_batch_size": "8"}
    return line("--only", "02_adapt_image", "--set", *merged(small, pairs), prepare=prepare)


def reviews(*pairs: str) -> Give:
    """The composed reviews, 300 a target domain."""
    return line("--only", "03_adapt_text", "--set", "text_dataset=reviews", "data_folder=HERE", *pairs)


def raw_reviews(prepare: Give) -> Give:
    """As amazon:mine."""
    return line("--only", "03_adapt_text", "--set", "text_dataset=amazon:mine", "data_folder=HERE", prepare=prepare)


def words(prepare: Give, *pairs: str) -> Give:
    """As speech_commands:mine."""
    small = {"speech_dataset": "speech_commands:mine", "speech_training_batch_size": "4", "data_folder": "HERE"}
    return line("--only", "04_adapt_speech", "--set", *merged(small, pairs), prepare=prepare)


def weights(spoil: Callable[[Path], object], *pairs: str) -> Give:
    """As a folder with the network of ERM for seed 0, which `spoil` is given the path of."""

    def prepare(here: Path) -> None:
        write_images()(here)
        dataset = load_dataset("npz:mine", ImageOptions(folder=str(here)))
        network = ImageNetwork(depth=8, width=4, block="pre_activation")
        card: dict[str, Any] = {"network": network, "objective": "erm", "training": Training(epochs=1), "seed": 0}
        card |= {"options": {"input_scaling": "symmetric"}, "provenance": {}}
        model = new_network(dataset, network, "erm", seed=0)
        spoil(pack(here / "nets", model, pd.DataFrame({"epoch": [1]}), dataset, **card))

    return images(prepare, *merged({"image_weights": "nets", "image_methods": "[erm]"}, pairs))


def entry(damage: Callable[[Path], object]) -> Give:
    """As an entry of the store beside a whole one, read by a report and by whoever asks for it again."""

    def make(folder: Path) -> dict[str, Any]:
        for name in ("batches", "accuracies"):
            pd.DataFrame({"step": [0, 1], "errors": [3, 4]}).to_csv(folder / f"{name}.csv", index=False)
        return {"provenance": {"fingerprint": "f"}}

    def give(here: Path) -> None:
        store, study = Store(here), Study(quick())
        whole, bad = (study.request(method) for method in ("tent", "cotta"))
        store.make_once("runs", whole, ("f", "s"), make)
        folder = store.make_once("runs", bad, ("f", "s"), make).folder
        damage(folder)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert [found.method for found in store.runs()] == ["tent"], "one bad entry does not end a report"
            store.make_once("runs", bad, ("f", "s"), make)
        assert sorted(found.method for found in store.runs()) == ["cotta", "tent"]
        warnings.warn("; ".join(str(warning.message) for warning in caught), stacklevel=1)
        assert folder.with_name(f"{folder.name}.damaged-1").exists()

    return give


def checkpoint(damage: Callable[[Path], object]) -> Give:
    """As a network in the store, whose maker must be called again."""

    def make(folder: Path) -> dict[str, Any]:
        (folder / "weights.safetensors").write_bytes(b"weights " * 100)
        (folder / "history.csv").write_text("epoch\n1\n")
        return {"provenance": {}}

    def give(here: Path) -> None:
        request: CheckpointRequest = Study(quick()).checkpoint_request("meta")
        store = Store(here)
        folder = store.make_once("checkpoints", request, ("f",), make).folder
        damage(folder)
        store.make_once("checkpoints", request, ("f",), make)
        assert (folder / "weights.safetensors").read_bytes() == b"weights " * 100

    return give


def cell(**variables: Any) -> Give:
    """As variables of a notebook, whether written there or injected by papermill -p."""
    return lambda here: settings_from({"profile": "quick"} | variables)


def notebook(text: str) -> Give:
    """As a notebook of one's own in the folder of notebooks."""

    def give(here: Path) -> object:
        (here / "notes").mkdir()
        (here / "notes" / "01_mine.ipynb").write_text(text)
        return main(["--set", "results_folder=results"], here / "notes")

    return give


# ---------------------------------------------------------------- what is written


def cells(parameters: str, *source: str) -> str:
    """A notebook of a parameters cell, and of another one if there is `source`."""
    empty: dict[str, Any] = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    both = [empty | {"metadata": {"tags": ["parameters"]}, "source": parameters}, empty | {"source": list(source)}]
    return json.dumps({"cells": both[: 1 + bool(source)], "metadata": {}, "nbformat": 4, "nbformat_minor": 4})


def write_images(**changes: Any) -> Give:
    """40 images of four classes in mine/train.npz and mine/test.npz; `changes` are arrays of train.npz, or a file's
    whole content."""

    def write(here: Path) -> None:
        arrays = {"x": np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), np.uint8), "y": np.arange(40) % 4}
        (here / "mine").mkdir()
        np.savez(here / "mine" / "test.npz", **arrays)  # type: ignore[arg-type]
        np.savez(here / "mine" / "train.npz", **(arrays | {name: changes[name] for name in changes if name in "xy"}))
        for name in ("train", "test"):
            if name in changes:
                (here / "mine" / f"{name}.npz").write_bytes(changes[name])

    return write


def false_header(shape: str) -> bytes:
    """An .npy file whose header claims a shape."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


def zipped(content: bytes) -> bytes:
    """An .npz file with `content` as its x."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("x.npy", content)
    return buffer.getvalue()


def write_raw(content: str) -> Give:
    """The raw archive's files, all of them with one content."""

    def write(here: Path) -> None:
        for domain in ("books", "dvd", "electronics", "kitchen"):
            (here / "mine" / domain).mkdir(parents=True)
            for name in ("positive", "negative"):
                (here / "mine" / domain / f"{name}.review").write_text(content)

    return write


def write_words(rate: int = 16000, classes: int = 2, damage: Callable[[Path], object] = lambda folder: None) -> Give:
    """Six short recordings a word, in the layout of Speech Commands."""

    def write(here: Path) -> None:
        folder, generator = here / "mine", np.random.default_rng(0)
        for name in [*("yes", "no", "up")[:classes], "_background_noise_"]:
            (folder / name).mkdir(parents=True)
            for number in range(6):
                length = 16000 if name.startswith("_") else 100
                soundfile.write(folder / name / f"{number}.wav", 0.1 * generator.standard_normal(length), rate)
        (folder / "testing_list.txt").write_text("yes/0.wav\nno/0.wav\n")
        (folder / "validation_list.txt").write_text("yes/1.wav\nno/1.wav\n")
        damage(folder)

    return write


def change(name: str, content: bytes) -> Callable[[Path], object]:
    """Damage of a folder: one of its files has another content."""
    return lambda folder: (folder / name).write_bytes(content)


def gone(name: str) -> Callable[[Path], object]:
    """Damage of a folder: one of its files is not there."""
    return lambda folder: (folder / name).unlink()


def flip(name: str) -> Callable[[Path], object]:
    """Damage of a folder: one bit of a file is another."""

    def damage(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / name).write_bytes(content)

    return damage


def write_again(path: Path) -> None:
    """The images beside a folder of weights get other classes."""
    mine = path.parents[1] / "mine"
    shutil.rmtree(mine)
    write_images(y=np.arange(40) % 2)(path.parents[1])
    shutil.copy(mine / "train.npz", mine / "test.npz")


def seal(folder: Path, description: bytes) -> None:
    """Another description whose checksum is true."""
    (folder / "entry.json").write_bytes(description)
    drop(folder, "entry.json")
    with (folder / "SHA256SUMS").open("a") as file:
        file.write(f"{hashlib.sha256(description).hexdigest()}  entry.json\n")


def drop(folder: Path, name: str) -> None:
    """The checksums of an entry without one of them."""
    lines = (folder / "SHA256SUMS").read_text().splitlines(keepends=True)
    (folder / "SHA256SUMS").write_text("".join(line for line in lines if not line.endswith(f"  {name}\n")))


def both(*damages: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda folder: [damage(folder) for damage in damages]


def two_pets(here: Path) -> None:
    for place in ("a", "b"):
        (here / place / "pets").mkdir(parents=True)


def injected(here: Path) -> None:
    """Images whose folder and source.txt hold HTML, on the way into an exhibit."""
    write_images()(here)
    bad = "<img src=x onerror=alert(1)>"
    (here / "mine" / "source.txt").write_text("<script>alert(1)</script> & more\n")
    (here / "mine").rename(here / bad)
    dataset = load_dataset(f"npz:{bad}", ImageOptions(folder=str(here)))
    settings = quick(image_dataset=f"npz:{here / bad}", image_methods=["erm"], seeds=[0])
    found = made_up_run(Study(settings), "erm", Numbers(), data_source=dataset.source)
    page = EXHIBITS["main_image"].show(stored(settings, [found]))._repr_html_()
    assert "<script" not in page and "<img src=x" not in page
    raise LookupError(page[page.index("&lt;script") :][:200])  # what a reader sees


LAUGHS = "a: &a [1, 1]\n" + "".join(
    f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}, *{a}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)
)
CODE = '!!python/object/apply:os.system ["touch exploded"]'
LATER = ["from cascadetta_lib.settings import settings_from\n", "image_epochz = 3\n", "settings_from(globals())"]

ATTACKS = [
    # ------------------------------------------------------------ the command line
    Attack("no name after --only", line("--only"), 2, ("--only", "expected at least one")),
    Attack("an empty name after --only", line("--only", ""), 2, ("--only", "no such notebook", "10_report")),
    Attack("a notebook by its file name", line("--only", "10_report.ipynb"), 2, ("did you mean '10_report'",)),
    Attack("a misspelled notebook to force", line("--force", "10_reprot"), 2, ("did you mean '10_report'",)),
    Attack("half a job", line("--jobs", "2.5"), 2, ("--jobs", "'2.5'", "int")),
    Attack("fewer than no jobs", line("--jobs=-1"), 2, ("--jobs -1", "from 1 on")),
    Attack("a profile for a GPU", line("--profile", "paper"), 2, ("'cuda'", "--set device=auto", "--cluster")),
    Attack("a plan for a GPU", line("--profile", "paper", "--dry-run"), 2, ("'cuda'", "no such device")),
    Attack("a cluster that is nowhere", line("--cluster", "slrum"), 2, ("--cluster slrum", "config.yaml")),
    Attack("two letters off", line("--sedes", "0"), 2, ("--sedes", "did you mean '--seeds'")),
    Attack("no seeds", line("--seeds", ""), 2, ("seeds = []", "one value")),
    Attack("a range of seeds", line("--seeds", "0-3"), 2, ("seeds = '0-3'", "--set")),
    Attack("a seed and a half", line("--seeds", "1.5"), 2, ("seeds = 1.5", "integer")),
    Attack("a seed of 2**64", line("--seeds", str(2**64)), 2, ("seeds", "less than 4294967296")),
    Attack("true for a seed", line("--seeds", "true"), 2, ("seeds = [True]", "allowed is a number")),
    Attack("seeds in their own brackets", line("--seeds", "[0]"), 2, ("seeds = [[0]]", "allowed is a number")),
    Attack("a bracket too many", line("--seeds", "0]"), 2, ("--set seeds=[0]]", "not YAML")),
    Attack("no profile", line("--profile", ""), 2, ("profile ''", "quick")),
    Attack("a folder for a profile", line("--profile", "HERE"), 2, ("no such profile or file", "quick")),
    Attack("a profile of 5,000 letters", line("--profile", "p" * 5000), 2, ("profile 'ppp",)),
    Attack("a profile with a NUL", line("--profile", "a\0b"), 2, (r"profile 'a\x00b'",)),
    Attack("a profile in braces", line("--profile", "{x}.yaml"), 2, ("'{x}.yaml'", "no such profile")),
    # ------------------------------------------------------------ names and values by --set
    Attack("no name", values("=3"), 2, ("''", "is no parameter")),
    Attack("capitals", values("IMAGE_EPOCHS=3"), 2, ("'IMAGE_EPOCHS'", "is no parameter")),
    Attack("a dot for a line", values("image.epochs=3"), 2, ("'image.epochs'", "is no parameter")),
    Attack("a name without its modality", values("depth=26"), 2, ("'depth'", "is no parameter")),
    Attack("a name of another modality", values("text_severity=3"), 2, ("'text_severity'", "is no parameter")),
    Attack("two equals signs", values("image_epochs==3"), 2, ("image_epochs = '=3'", "integer")),
    Attack("no value", values("image_epochs="), 2, ("image_…", "one of the two")),
    Attack("a word for a number", values("image_width=wide"), 2, ("image_width = 'wide'", "integer")),
    Attack("true for a number", values("image_train_size=true"), 2, ("image_train_size = True", "a number")),
    Attack("a number for true", values("image_crop_and_flip=3"), 2, ("image_crop_and_flip = 3", "valid boolean")),
    Attack("a date", values("image_epochs=2020-01-01"), 2, ("image_epochs = datetime.date", "a number")),
    Attack("a map", values("image_methods={erm: 1}"), 2, ("image_methods = {'erm': 1}", "a list of them")),
    Attack("a list in a list", values("image_methods=[[erm]]"), 2, ("image_methods = [['erm']]", "a list of them")),
    Attack("a list in itself", values("image_dataset=&a [*a]"), 2, ("image_dataset = [[", "[...]", "a list of them")),
    Attack("one name for a list", values("image_methods=erm"), 2, ("image_methods = 'erm'", "tuple")),
    Attack("nothing in a list", values("image_methods=[null]"), 2, ("image_methods = None", "string")),
    Attack("code", values(f"image_epochs={CODE}"), 2, ("image_epochs=", "not YAML", "os.system")),
    Attack("a NUL", values(r'data_folder="a\0b"'), 2, (r"data_folder = '", "NUL")),
    Attack("the home of nobody", values("data_folder=~nosuchuser/x"), 2, ("data_folder=~nosuchuser/x", "home")),
    Attack("two results folders", values("results_folder=[a, b]"), 2, ("results_folder = ", "string")),
    Attack("a profile as a path", values("profile=../mine"), 2, ("profile = '../mine'", "names a folder")),
    Attack("a profile named as the store", values("profile=checkpoints"), 2, ("'checkpoints'", "are taken")),
    Attack("a profile with a line break", values(r'profile="a\nb"'), 2, (r"profile = 'a\nb'", "names a folder")),
    Attack("a device of somebody else", values("device=tpu"), 2, ("device = 'tpu'", "auto, cpu, cuda")),
    Attack("a GPU that is not there", values("device=cuda"), 2, ("device = 'cuda'", "allowed are auto and cpu")),
    # ------------------------------------------------------------ numbers without an end
    Attack("an infinite rate", values("text_learning_rate=.inf"), 2, ("text_learning_rate = inf", "finite")),
    Attack("a rate below all", values("speech_learning_rate=-.inf"), 2, ("speech_learning_rate = -inf",)),
    Attack("a rate that is none", values("text_online_learning_rate=.nan"), 2, ("= nan", "finite")),
    Attack("rates, one infinite", values("image_choice_learning_rates=[0.1, .inf]"), 2, ("= inf", "finite")),
    Attack("a rate that overflows", values("image_learning_rate=1.0e+999"), 2, ("image_learning_rate = inf",)),
    Attack("half an infinite weight", values("image_online_diversity=.inf"), 2, ("image_online_diversity = inf",)),
    Attack("a share that is none", values("text_eda_strength=.nan"), 2, ("text_eda_strength = nan",)),
    Attack("a share above one", values("speech_held_out_fraction=1.5"), 2, ("= 1.5", "less than 1")),
    Attack("a width of 10**9", values("image_width=1000000000"), 2, ("image_width = 1000000000", "less than")),
    Attack("a depth of 6e9", values("image_depth=6000000002"), 2, ("image_depth = 6000000002", "less than")),
    Attack("a depth of no network", values("image_trial_depth=27"), 2, ("image_trial_depth = 27", "6n + 2")),
    Attack("half a batch", values("image_batch_size=0.5"), 2, ("image_batch_size = 0.5", "integer")),
    Attack("fewer than no examples", values("image_test_size=-5"), 2, ("image_test_size = -5", "equal to 1")),
    Attack("a severity of 9", values("image_stream=['fog:9']"), 2, ("image_stream = ['fog:9']", "1, 2, 3, 4, 5")),
    Attack("two severities", values("image_stream=['fog:5:5']"), 2, ("image_stream = ['fog:5:5']",)),
    # ------------------------------------------------------------ a profile of one's own
    Attack("a profile in UTF-16", profile("seed: 1\n".encode("utf-16")), 2, ("mine.yaml", "utf-8")),
    Attack("a profile that is a picture", profile(b"\x89PNG\r\n\x1a\n\x00\x00"), 2, ("mine.yaml", "utf-8")),
    Attack("a profile that is a number", profile("26"), 2, ("mine.yaml", "no names and values")),
    Attack("two profiles in one file", profile("seed: 1\n---\nseed: 2\n"), 2, ("mine.yaml", "not YAML", "document")),
    Attack("tabs", profile("image_methods:\n\t- erm\n"), 2, ("mine.yaml", "not YAML", r"\t")),
    Attack("a name twice", profile("image_epochs: 1\nimage_epochs: 2\n"), 2, ("image_epochs is named twice",)),
    Attack("a name that is a list", profile("? [a, b]\n: 3\n"), 2, ("mine.yaml", "not YAML", "unhashable")),
    Attack("a name that is a number", profile("7: 3\n"), 2, ("7 (from mine.yaml) is no parameter",)),
    Attack("a name that is nothing", profile("~: 3\n"), 2, ("None (from mine.yaml) is no parameter",)),
    Attack("a name of 5,000 letters", profile(f"? image_{'x' * 5000}\n: 3\n"), 2, ("'image_xxx", "is no parameter")),
    Attack("a billion laughs", profile(f"{LAUGHS}seeds: *h\n"), 2, ("(from mine.yaml)",)),
    Attack("5,000 brackets", profile("seeds: " + "[" * 5000), 2, ("mine.yaml", "not YAML")),
    Attack("5,000 digits", profile("seed: " + "9" * 5000), 2, ("mine.yaml", "digits")),
    Attack("digits of another base", profile("seed: 0x" + "f" * 5000), 2,
           ("seed (from mine.yaml)", "hundreds of digits")),
    Attack("code in a profile", profile(f"image_epochs: {CODE}\n"), 2, ("mine.yaml", "not YAML")),
    Attack("sections", profile("image:\n  epochs: 3\n"), 2, ("'image' (from mine.yaml) is no parameter",)),
    # ------------------------------------------------------------ folders
    Attack("results among processes", values("results_folder=/proc/x"), 2, ("/proc/x", "No such file")),
    Attack("results in a device", values("results_folder=/dev/null/x"), 2, ("/dev/null", "Not a directory")),
    Attack("results of a long name", values(f"results_folder={'r' * 300}"), 2, ("File name too long",)),
    Attack("results in a file", values("results_folder=mine/x", prepare=lambda here: (here / "mine").touch()), 2,
           ("mine/x", "Not a directory")),
    Attack("data in a device", line("--only", "03_adapt_text", "--set", "data_folder=/dev/null/x"), 2, ("/dev/null",)),
    Attack("two folders of one name", values("image_dataset=['npz:a/pets', 'npz:b/pets']", prepare=two_pets), 2,
           ("image_dataset", "two folders have one name")),
    Attack("a link to itself",
           values("image_dataset=npz:mine", prepare=lambda here: (here / "mine").symlink_to("mine")),
           2, ("npz:", "cannot be a folder")),
    Attack("a dataset of capitals", values("image_dataset=NPZ:mine"), 2, ("'NPZ'", "did you mean 'npz'")),
    Attack("a dataset twice", values("image_dataset=[digits, digits]"), 2, ("several different ones",)),
    Attack("a folder too many", values("image_dataset=cifar10:mine"), 2, ("allowed is cifar10",)),
    Attack("reviews that are nowhere", raw_reviews(lambda here: None), 3,
           ("text_dataset", "mine/books/negative.review")),
    Attack("words that are nowhere", words(lambda here: None), 3, ("mine lacks testing_list.txt", "http")),
    Attack("images that are nowhere", images(lambda here: None), 3, ("mine/train.npz", "numpy.savez")),
    Attack("a file for the folder", images(lambda here: (here / "mine").touch()), 3, ("mine/train.npz",)),
    Attack("a folder for the file", images(lambda here: (here / "mine" / "train.npz").mkdir(parents=True)), 3,
           ("mine/train.npz", "numpy.savez")),
    # ------------------------------------------------------------ npz files
    Attack("16 bits", images(write_images(x=np.zeros((40, 32, 32, 3), np.int16))), 2, ("train.npz", "uint8")),
    Attack("numbers that are none", images(write_images(x=np.full((40, 32, 32, 3), np.nan))), 2, ("float64", "uint8")),
    Attack("images of 48 pixels", images(write_images(x=np.zeros((40, 48, 48, 3), np.uint8))), 2, ("48, 48", "64, 64")),
    Attack("labels of a column", images(write_images(y=np.zeros((40, 1), np.int64))), 2,
           ("(40, 1)", "a label an image")),
    Attack("labels of truth", images(write_images(y=np.arange(40) % 2 > 0)), 2, ("y of dtype bool", "int64")),
    Attack("labels with a gap", images(write_images(y=np.arange(40) % 2 * 9)), 2,
           ("2 labels, the largest 9", "in use")),
    Attack("a single image", images(write_images(x=np.zeros((1, 32, 32, 3), np.uint8), y=np.zeros(1, np.int64))), 2,
           ("1 class", "at least 2")),
    Attack("nothing in the file", images(write_images(test=b"")), 2, ("test.npz cannot be read",)),
    Attack("a text in the file", images(write_images(train=b"x,y\n1,2\n")), 2, ("train.npz cannot be read",)),
    Attack("a header of 9 exabytes", images(write_images(train=zipped(false_header("(9000000000000000000,)")))),
           2, ("train.npz cannot be read",)),
    Attack("a header of fewer than none", images(write_images(train=zipped(false_header("(-5, 32, 32, 3)")))), 2,
           ("train.npz cannot be read",)),
    Attack("a header of code", images(write_images(train=zipped(false_header("__import__('os').abort()")))), 2,
           ("train.npz cannot be read",)),
    Attack("an array alone", images(write_images(train=false_header("(0,)"))), 2, ("train.npz cannot be read",)),
    Attack("nothing left to train on", images(write_images(), "image_held_out_fraction=0.999"), 2,
           ("held_out_fraction = 0.999", "none is left")),
    Attack("a batch above the source", images(write_images(), "image_training_batch_size=37"), 2,
           ("image_training_batch_size = 37", "36 source examples")),
    Attack("two examples of the source", images(write_images(), "image_train_size=2"), 2, ("1 source examples",)),
    Attack("HTML in a folder's name and source.txt", injected, LookupError, ("&lt;script&gt;alert(1)", "&amp; more")),
    # ------------------------------------------------------------ weights
    Attack("weights that are nowhere", images(write_images(), "image_weights=shiped"), 2,
           ("shiped", "There: none", "weights=train")),
    Attack("a release that is nowhere", images(write_images(), "image_weights=release:x.pth"), 2,
           ("x.pth", "no such file")),
    Attack("weights of another objective", weights(lambda path: None, "image_methods=[tent, cascade]"), 2,
           ("has no network meta-0", "There: erm-0")),
    Attack("weights of another seed", weights(lambda path: None, "seeds=[0, 1]"), 2,
           ("no network erm-1", "There: erm-0")),
    Attack("weights without a card", weights(lambda path: path.with_suffix(".json").unlink()), 2,
           ("has no card erm-0",)),
    Attack("a card that is a list", weights(lambda path: path.with_suffix(".json").write_text("[]")), 2,
           ("is no card",)),
    Attack("one bit of the weights", weights(lambda path: flip(path.name)(path.parent)), 2, ("SHA-256", "damaged")),
    Attack("weights for other classes", weights(write_again), 2, ("4 classes", "2 classes")),
    # ------------------------------------------------------------ reviews
    Attack("a layer of nothing", reviews("text_hidden=[64, 0]"), 2, ("text_hidden = 0", "greater")),
    Attack("a batch of one at the end", reviews("text_batch_size=299"), 2,
           ("dvd with 300 examples", "batch of one", "text_batch_size")),
    Attack("a batch above the reviews", reviews("text_training_batch_size=19", "text_train_size=18"), 2,
           ("text_training_batch_size = 19", "16 source examples")),
    Attack("review files without a review", raw_reviews(write_raw("all good")), 2, ("negative.review", "allowed is")),
    Attack("reviews without words", raw_reviews(write_raw("<review><review_text>…</review_text></review>")), 2,
           ("negative.review", "found no review")),
    # ------------------------------------------------------------ recordings
    Attack("16,001 samples a second", words(write_words(16_001)), 2, ("mine", "words in 0 folders")),
    Attack("44,101 samples a second", words(write_words(44_101)), 2, ("mine", "words in 0 folders")),
    Attack("one word", words(write_words(classes=1)), 2, ("words in 1 folders", "2 words or more")),
    Attack("a batch above the words", words(write_words(classes=3), "speech_training_batch_size=99"), 2,
           ("speech_training_batch_size = 99", "14 source examples")),
    Attack("a list in UTF-16", words(write_words(damage=change("testing_list.txt", "yes/0.wav".encode("utf-16")))), 2,
           ("testing_list.txt names 0 of 12",)),
    Attack("noise that is text", words(write_words(damage=lambda folder: [
        path.write_text("shh") for path in (folder / "_background_noise_").iterdir()])), 2, ("0 seconds of _back",)),
    Attack("fewer words than a batch", words(write_words(), "speech_train_size=3"), 2,
           ("speech_training_batch_size = 4", "3 source examples")),
    # ------------------------------------------------------------ the store
    Attack("an empty table", entry(change("batches.csv", b"")), UserWarning, ("left out", "batches.csv", "made again")),
    Attack("no checksums at all", entry(change("SHA256SUMS", b"")), UserWarning, ("left out", "made again")),
    Attack("a table without its checksum", entry(both(flip("batches.csv"), partial(drop, name="batches.csv"))),
           UserWarning, ("left out", "batches.csv", "made again")),
    Attack("a description of another form", entry(partial(seal, description=b"[]")), UserWarning,
           ("left out", "made again")),
    Attack("a description without a request", entry(partial(seal, description=b"{}")), UserWarning,
           ("left out", "made again")),
    Attack("a table that is a folder",
           entry(both(gone("batches.csv"), lambda folder: (folder / "batches.csv").mkdir())),
           UserWarning, ("left out", "batches.csv", "made again")),
    Attack("a link to nowhere",
           entry(both(gone("batches.csv"), lambda folder: (folder / "batches.csv").symlink_to("x"))),
           UserWarning, ("left out", "batches.csv", "made again")),
    Attack("one bit of a trained network", checkpoint(flip("weights.safetensors")), UserWarning,
           ("is damaged", "damaged-1", "made again")),
    Attack("half a trained network", checkpoint(change("weights.safetensors", b"weights ")), UserWarning,
           ("is damaged", "damaged-1", "made again")),
    Attack("a trained network without its training", checkpoint(gone("history.csv")), UserWarning,
           ("is damaged", "damaged-1", "made again")),
    Attack("an empty folder of a network",
           checkpoint(both(*map(gone, ("history.csv", "weights.safetensors", "entry.json", "SHA256SUMS")))),
           UserWarning,
           ("is damaged", "damaged-1", "made again")),
    # ------------------------------------------------------------ a notebook and its parameters
    Attack("a misspelled parameter", cell(image_batchsize=3), SettingsError, ("image_batchsize", "'image_batch_size'")),
    Attack("a parameter of no modality", cell(sedes=[3]), SettingsError, ("sedes", "did you mean 'seeds'")),
    Attack("a number in words", cell(image_epochs="two"), SettingsError,
           ("image_epochs = 'two'", "notebook", "integer")),
    Attack("true in a cell", cell(seed=True), SettingsError, ("seed = True", "allowed is a number")),
    Attack("a shell's seed", cell(seed="0; rm -rf /"), SettingsError, ("seed = '0; rm -rf /'", "integer")),
    Attack("a rate that is none in a cell", cell(image_learning_rate=float("nan")), SettingsError, ("= nan", "finite")),
    Attack("an array", cell(image_learning_rates=np.ones(3)), SettingsError,
           ("image_learning_rates = array", "a list")),
    Attack("a set", cell(image_methods={"erm"}), SettingsError, ("image_methods = {'erm'}", "a list of them")),
    Attack("a path", cell(data_folder=Path("x")), SettingsError, ("data_folder = ", "a text")),
    Attack("5,000 digits in a cell", cell(image_epochs=10**5000), SettingsError, ("image_epochs (from", "of fewer")),
    Attack("a profile with its ending", cell(profile="quick.yaml"), SettingsError, ("'quick.yaml'", "'quick'")),
    Attack("a profile that is a number", cell(profile=3), SettingsError, ("profile '3'", "no such profile")),
    Attack("a notebook that is no JSON", notebook("{"), 2, ("01_mine.ipynb",)),
    Attack("a notebook without cells", notebook("{}"), 2, ("01_mine.ipynb",)),
    Attack("a notebook that computes", notebook(cells("seed = 1 + x")), 2,
           ("of plain values",)),
    Attack("a misspelled name in a notebook's later cell", notebook(cells("seed = 0", *LATER)), 4,
           ("01_mine.ipynb", "image_epochz (from the notebook)", "'image_epochs'")),
    Attack("a notebook of no parameter", notebook(cells("sed = 1")), 2, ("'sed'", "'seed'")),
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.what for attack in ATTACKS])
@pytest.mark.filterwarnings("ignore:.*left out")
def test_a_bad_input_is_told_in_one_message_and_nothing_starts(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def started(*arguments: object) -> int:
        raise AssertionError("jobs are started")

    monkeypatch.chdir(tmp_path)
    if attack.outcome != NOTEBOOK_FAILED:
        monkeypatch.setattr(run, "run_snakemake", started)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    if isinstance(attack.outcome, int):
        try:
            code = attack.give(tmp_path)
        except SystemExit as stop:  # of argparse
            code = stop.code
        message = capsys.readouterr().err
        assert code == attack.outcome, message
        message = message[message.rindex("run_all.sh: ") :]
    elif issubclass(attack.outcome, Warning):
        with pytest.warns(attack.outcome) as caught:
            attack.give(tmp_path)
        message = str(caught[-1].message)
    else:
        with pytest.raises(attack.outcome) as error:
            attack.give(tmp_path)
        message = str(error.value)
    assert [word for word in attack.words if word not in message] == [], message
    shown = message.replace(str(tmp_path), "")
    assert "Traceback" not in message and not (tmp_path / "exploded").exists()
    if attack.outcome != NOTEBOOK_FAILED:  # it has started, and shows the lines that failed
        assert len(shown) <= LONGEST, message
        assert not list(tmp_path.glob("results/**/*.ipynb"))
