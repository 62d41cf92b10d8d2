"""Bad inputs, each given where a user would give it: what is said of it, and that nothing starts.

A row of BAD_INPUTS is one bad input: what it is, how it is given, what comes of it (an exit code of
run_all.sh, or SettingsError in a notebook), and what the one message says.
"""

import hashlib
import io
import json
import math
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import test_published
import test_speech
import test_text
import torch
from conftest import LONGEST_MESSAGE, real_data, write_npz
from safetensors.torch import load_file, save

from cascadetta_lib.data import load_dataset
from cascadetta_lib.data.images import ImageOptions
from cascadetta_lib.data.recordings import HELD_OUT_LIST, NOISE, TEST_LIST
from cascadetta_lib.models import ImageNetwork
from cascadetta_lib.training.pretrain import new_network
from cascadetta_lib.training.settings import Training
from study.notebook_parameters import settings_from
from study.settings import SettingsError
from study.shipped_networks import SHIPPED
from study.tools.pack_networks import pack
from study.workflow.command import main

Give = Callable[[Path], object]


class BadInput(NamedTuple):
    """A bad input. give: gives it to the program; its argument is an empty folder, in which it is
    called.
    """

    what: str
    give: Give
    outcome: int | type[SettingsError]
    words: tuple[str, ...]


# ---------------------------------------------------------------- how a bad input is given


def line(*arguments: str, prepare: Give = lambda here: None) -> Give:
    """On the command line, after `prepare(here)` has written what it names; HERE in an argument is
    that folder.
    """

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


def profile(content: str | bytes) -> Give:
    """In a profile of one's own."""
    text = content if isinstance(content, bytes) else content.encode()
    return line(
        "--profile", "mine.yaml", prepare=lambda here: (here / "mine.yaml").write_bytes(text)
    )


def images(prepare: Give, *pairs: str) -> Give:
    """As npz:mine, for the one notebook that reads images."""
    changed = {
        name: value
        for name, _, value in (pair.partition("=") for pair in ("image_dataset=npz:mine", *pairs))
    }
    if "image_weights" not in changed:
        changed.setdefault("image_training_batch_size", "8")
    given = [f"{name}={value}" for name, value in changed.items()]
    return line("--only", "02_adapt_image", "--set", *given, prepare=prepare)


def raw_reviews(prepare: Give) -> Give:
    """As amazon:mine."""
    return line(
        "--only",
        "03_adapt_text",
        "--set",
        "text_dataset=amazon:mine",
        "data_folder=HERE",
        prepare=prepare,
    )


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


def cells(*parameters: str) -> str:
    """A notebook of parameters cells, and of a cell that is none."""
    cell = {
        "cell_type": "code",
        "metadata": {"tags": ["parameters"]},
        "outputs": [],
        "execution_count": None,
    }
    several = [cell | {"source": source} for source in parameters] + [
        cell | {"source": "seed = 0", "metadata": {}}
    ]
    return json.dumps({"cells": several, "metadata": {}, "nbformat": 4, "nbformat_minor": 4})


def write_images(train: bytes | dict[str, Any] = b"", test: dict[str, Any] | None = None) -> Give:
    """40 training and 20 test images in the folder `mine`, with some arrays replaced (None leaves
    one out), or with what train.npz holds instead."""

    def write(here: Path) -> None:
        arrays = train if isinstance(train, dict) else {}
        path = write_npz(here / "mine", arrays, test) / "train.npz"
        if isinstance(train, bytes) and train:
            path.write_bytes(train)

    return write


X = np.random.default_rng(1).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
Y = np.arange(40) % 10
LARGE = np.full((20, 64, 64, 3), 200, np.uint8)


def with_networks(here: Path) -> None:
    """40 training images, and the shipped networks as a folder of somebody else's."""
    write_images()(here)
    (here / "nets").symlink_to(SHIPPED)


@cache
def packed() -> TemporaryDirectory[str]:
    """Two networks of the images of `write_images`: `erm-0`, which the notebook's methods start
    from, and `meta-0`, which only some exhibits would. The folder is removed at the end."""
    here = TemporaryDirectory()
    nets = Path(here.name) / "nets"
    dataset = load_dataset(f"npz:{write_npz(Path(here.name) / 'mine')}", ImageOptions())
    card: dict[str, Any] = {
        "network": ImageNetwork(depth=8, width=4),
        "training": Training(),
        "seed": 0,
        "options": {"input_scaling": "symmetric"},
        "provenance": {},
    }
    for name in ("erm", "meta"):
        model = new_network(dataset, card["network"], name, 0)
        history = pd.DataFrame({"epoch": [1], "held_out_accuracy": [0.5]})
        pack(nets, model, history, dataset, objective=name, **card)
    return here


def with_a_spoilt_network(spoil: Callable[[Path], object]) -> Give:
    """The training images, and two networks of them in `nets`: a sound `erm-0`, and a spoilt
    `meta-0`."""

    def write(here: Path) -> None:
        write_images()(here)
        shutil.copytree(Path(packed().name) / "nets", here / "nets")
        spoil(here / "nets" / "meta-0.safetensors")

    return write


def hidden(content: bytes) -> Callable[[Path], object]:
    """A network's file with another content, which its card says is right."""

    def spoil(path: Path) -> None:
        path.write_bytes(content)
        change_card(path, weights_sha256=hashlib.sha256(content).hexdigest())

    return spoil


def change_card(path: Path, **values: object) -> None:
    card = path.with_suffix(".json")
    card.write_text(json.dumps(json.loads(card.read_text()) | values))


def forget(name: str) -> Callable[[Path], object]:
    """Leave a line of the card out."""

    def spoil(path: Path) -> None:
        card = path.with_suffix(".json")
        values = json.loads(card.read_text())
        card.write_text(json.dumps({key: value for key, value in values.items() if key != name}))

    return spoil


def beside(suffix: str, text: str) -> Callable[[Path], object]:
    """Another text in the file beside a network's."""
    return lambda path: path.with_suffix(suffix).write_text(text)


def tensors(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], object]:
    """Real numbers changed in a network's file, and the card with its new hash."""

    def spoil(path: Path) -> None:
        found = {
            name: change(x) if x.is_floating_point() else x for name, x in load_file(path).items()
        }
        hidden(save(found))(path)

    return spoil


def negative_variances(path: Path) -> None:
    """A network's running variances with the other sign."""
    found = load_file(path)
    for name in found:
        if name.endswith("running_var"):
            found[name] = -found[name]
    hidden(save(found))(path)


def carded(**values: object) -> Give:
    """A network with other values in its card."""
    return spoilt(lambda path: change_card(path, **values))


def robustbench(write: Callable[[Path], object]) -> Give:
    """A file Standard.pt by `write(path)` in the form of RobustBench's."""

    def prepare(here: Path) -> None:
        write_images()(here)
        write(here / "Standard.pt")

    asked = ("image_weights=robustbench:Standard.pt", "image_methods=[erm]")
    return images(prepare, *asked, "image_input_scaling=unit")


def published(**changes: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """The tensors of a small network of RobustBench's form; None leaves one out."""
    names = {name.replace("__", "."): value for name, value in changes.items()}
    state = test_published.made_up_state(classes=10) | names
    return {name: value for name, value in state.items() if value is not None}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5000])


def recordings(damage: Callable[[Path], object]) -> Give:
    """Recordings of three words in the folder `mine`, damaged."""

    def prepare(here: Path) -> None:
        damage(test_speech.write_words(here / "mine"))

    asked = ("speech_dataset=speech_commands:mine", "speech_training_batch_size=8")
    return line("--only", "04_adapt_speech", "--set", *asked, "data_folder=HERE", prepare=prepare)


def one_word(folder: Path) -> None:
    for word in test_speech.WORDS[1:]:
        shutil.rmtree(folder / word)


def all_tested(folder: Path) -> None:
    with (folder / TEST_LIST).open("a") as file:
        file.writelines(f"stop/{path.name}\n" for path in (folder / "stop").iterdir())


def counts(text: str, *pairs: str) -> Give:
    """Counts of reviews in the data folder, with a line more in that of dvd."""
    asked = ("text_dataset=amazon_counts", *(pairs or ("text_vocabulary_size=5000",)))

    def prepare(here: Path) -> None:
        test_text.write_counts(here / "amazon_svmlight", dvd=text)

    return line("--only", "03_adapt_text", "--set", *asked, "data_folder=HERE", prepare=prepare)


def without_kitchen(here: Path) -> None:
    test_text.write_counts(here / "amazon_svmlight")
    (here / "amazon_svmlight" / "kitchen_test.svmlight").unlink()


def public(name: str, damage: Callable[[Path], object]) -> Give:
    """The public images of a name, with the photographs of frost, damaged in a copy of links."""

    def prepare(here: Path) -> None:
        for folder in ("cifar-10-batches-py", "cifar-100", "frost"):
            source = real_data(folder)
            (here / folder).mkdir()
            for path in source.iterdir():
                (here / folder / path.name).symlink_to(path)
        damage(here)

    asked = (f"image_dataset={name}", "data_folder=HERE")
    return line("--only", "02_adapt_image", "--set", *asked, prepare=prepare)


def altered(name: str) -> Callable[[Path], object]:
    """One bit of a file is another."""

    def damage(here: Path) -> None:
        content = (here / name).read_bytes()
        (here / name).unlink()
        (here / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))

    return damage


def two_classes_exchanged(here: Path) -> None:
    path = here / "cifar-100" / "test.npz"
    with np.load(path) as arrays:
        x = arrays["x"]
        y = arrays["y"]
    path.unlink()
    np.savez(path, x=x, y=np.where(y == 3, 4, np.where(y == 4, 3, y)))


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch exploded",)


def spoilt(spoil: Callable[[Path], object]) -> Give:
    return images(
        with_a_spoilt_network(spoil), "image_weights=nets", "image_methods=[erm]", "seeds=[0]"
    )


def bomb(here: Path) -> None:
    write_images()(here)
    torch.save({"state_dict": {"module.fc.weight": Bomb()}}, here / "bomb.pt")


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


def two_pets(here: Path) -> None:
    for place in ("a", "b"):
        (here / place / "pets").mkdir(parents=True)


LAUGHS = "a: &a [1, 1]\n" + "".join(
    f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}, *{a}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)
)
PAGE = b"\n <!DOCTYPE html><html><head><title>Google Drive - Virus scan warning</title>"
CODE = '!!python/object/apply:os.system ["touch exploded"]'

BAD_INPUTS = [
    # ------------------------------------------------------------ the command line
    BadInput("no name after --only", line("--only"), 2, ("--only", "expected at least one")),
    BadInput(
        "an empty name after --only",
        line("--only", ""),
        2,
        ("--only", "no such notebook", "10_report"),
    ),
    BadInput(
        "a notebook by its file name",
        line("--only", "10_report.ipynb"),
        2,
        ("did you mean '10_report'",),
    ),
    BadInput(
        "a misspelled notebook to force",
        line("--force", "10_reprot"),
        2,
        ("did you mean '10_report'",),
    ),
    BadInput(
        "a notebook to force that is left out",
        line("--only", "10_report", "--force", "01_pretrain"),
        2,
        ("--force 01_pretrain", "10_report"),
    ),
    BadInput("half a job", line("--jobs", "2.5"), 2, ("--jobs", "'2.5'", "int")),
    BadInput("no jobs", line("--jobs", "0"), 2, ("--jobs 0", "from 1 on")),
    BadInput(
        "a profile for a GPU",
        line("--profile", "paper"),
        2,
        ("'cuda'", "--set device=auto", "--cluster"),
    ),
    BadInput(
        "a plan for a GPU", line("--profile", "paper", "--dry-run"), 2, ("'cuda'", "no such device")
    ),
    BadInput(
        "a cluster that is nowhere",
        line("--cluster", "slrum"),
        2,
        ("--cluster slrum", "config.yaml"),
    ),
    BadInput("two letters off", line("--sedes", "0"), 2, ("--sedes", "did you mean '--seeds'")),
    BadInput("a word on its own", line("quick"), 2, ("quick is no argument",)),
    BadInput("no seeds", line("--seeds", ""), 2, ("seeds = []", "one value")),
    BadInput("a range of seeds", line("--seeds", "0-3"), 2, ("seeds = '0-3'", "--set")),
    BadInput("a seed and a half", line("--seeds", "1.5"), 2, ("seeds = 1.5", "integer")),
    BadInput("seeds twice", line("--seeds", "1", "--set", "seeds=[2]"), 2, ("seeds=[2]", "twice")),
    BadInput("a bracket too many", line("--seeds", "0]"), 2, ("--set seeds=[0]]", "not YAML")),
    BadInput("no profile", line("--profile", ""), 2, ("profile ''", "quick")),
    BadInput(
        "a folder for a profile", line("--profile", "HERE"), 2, ("no such profile or file", "quick")
    ),
    BadInput("a profile of 5,000 letters", line("--profile", "p" * 5000), 2, ("profile 'ppp",)),
    BadInput("a profile with a NUL", line("--profile", "a\0b"), 2, (r"profile 'a\x00b'",)),
    BadInput(
        "a profile in braces", line("--profile", "{x}.yaml"), 2, ("'{x}.yaml'", "no such profile")
    ),
    # ------------------------------------------------------------ names and values by --set
    BadInput("no name", values("=3"), 2, ("''", "is no parameter")),
    BadInput(
        "no equals sign",
        values("image_training_epochs"),
        2,
        ("image_training_epochs", "NAME=VALUE"),
    ),
    BadInput(
        "two equals signs",
        values("image_training_epochs==3"),
        2,
        ("image_training_epochs = '=3'", "integer"),
    ),
    BadInput(
        "no value", values("image_training_epochs="), 2, ("image_training_…", "one of the two")
    ),
    BadInput(
        "one name for two values",
        values("image_training_epochs=2", "image_training_epochs=3"),
        2,
        ("image_training_epochs=3", "twice"),
    ),
    BadInput("the seed of one job", values("seed=3"), 2, ("seed=3", "use --seeds")),
    BadInput(
        "a page of no notebook",
        values("figures_notebooks=[02_adapt]"),
        2,
        ("figures_notebooks", "did you mean '02_adapt_image'"),
    ),
    BadInput(
        "a list in itself",
        values("image_dataset=&a [*a]"),
        2,
        ("image_dataset = [[", "[...]", "a list of them"),
    ),
    BadInput(
        "one name for a list", values("image_methods=erm"), 2, ("image_methods = 'erm'", "a list")
    ),
    BadInput(
        "nothing in a list", values("image_methods=[null]"), 2, ("image_methods = None", "string")
    ),
    BadInput(
        "code",
        values(f"image_training_epochs={CODE}"),
        2,
        ("image_training_epochs=", "not YAML", "os.system"),
    ),
    BadInput("a NUL", values(r'data_folder="a\0b"'), 2, (r"data_folder = '", "NUL")),
    BadInput(
        "the home of nobody",
        values("data_folder=~nosuchuser/x"),
        2,
        ("data_folder=~nosuchuser/x", "home"),
    ),
    BadInput(
        "two results folders", values("results_folder=[a, b]"), 2, ("results_folder = ", "string")
    ),
    BadInput(
        "a profile with a line break",
        values(r'profile="a\nb"'),
        2,
        (r"profile = 'a\nb'", "used as a folder's name"),
    ),
    BadInput(
        "a device of somebody else", values("device=tpu"), 2, ("device = 'tpu'", "auto, cpu, cuda")
    ),
    BadInput(
        "a GPU that is not there",
        values("device=cuda"),
        2,
        ("device = 'cuda'", "allowed are auto and cpu"),
    ),
    BadInput(
        "epochs without a training",
        line("--profile", "laptop", "--set", "image_training_epochs=3"),
        2,
        ("image_training_epochs=3", "image_weights = shipped", "change nothing"),
    ),
    BadInput(
        "a depth of what is shipped",
        values("image_weights=shipped", "image_network_depth=14"),
        2,
        ("image_network_depth=14", "it would change nothing"),
    ),
    # ------------------------------------------------------------ values
    BadInput(
        "a misspelt name",
        values("image_epoch=3"),
        2,
        ("'image_epoch' (from --set)", "did you mean 'image_training_epochs'"),
    ),
    BadInput("a misspelt seed", values("sed=3"), 2, ("'sed'", "did you mean 'seed'")),
    BadInput("a number for a name", values("7=3"), 2, ("'7' (from --set) is no parameter",)),
    *(
        BadInput(f"{pair} by --set", values(pair), 2, words)
        for pair, words in (
            ("image_training_epochs=many", ("image_training_epochs = 'many'", "integer")),
            ("image_training_epochs=0", ("= 0", "greater than or equal to 1")),
            ("image_training_epochs=true", ("image_training_epochs = True", "a number")),
            ("image_training_epochs={a: 1}", ("image_training_epochs = {'a': 1}", "a list")),
            ("image_training_iterations=10", ("image_training_…", "one of the two")),
            ("image_crop_and_flip=perhaps", ("image_crop_and_flip = 'perhaps'",)),
            ("image_network_depth=27", ("image_network_depth = 27", "6n + 2")),
            ("image_network_depth=6000000002", ("image_network_depth", "less than")),
            ("image_network_width=1", ("image_network_width = 1",)),
            ("image_network_width=1000000000", ("image_network_width = 1000000000",)),
            ("image_training_schedule=cosine", ("= 'cosine'", "ttt_steps")),
            ("image_training_batch_size=3", ("image_training_batch_size = 3",)),
            ("image_train_size=1", ("image_train_size = 1",)),
            ("image_test_size=0", ("image_test_size = 0",)),
            ("speech_held_out_fraction=1.0", ("= 1.0", "less than 1")),
            ("text_held_out_fraction=.nan", ("text_held_out_fraction = nan", "finite")),
            ("image_training_learning_rate=.inf", ("= inf", "finite")),
            ("image_online_learning_rate=.inf", ("image_online_learning_rate", "finite")),
            ("image_ablation_learning_rates=[.nan]", ("image_ablation_learning_rates = nan",)),
            ("image_ablation_batch_sizes=[8, 8]", ("different",)),
            ("image_ablation_batch_sizes=[0]", ("image_ablation_batch_sizes = 0",)),
            ("image_severity=6", ("image_severity = 6",)),
            ("image_methods=[tnet]", ("tnet", "did you mean 'tent'")),
            ("image_methods=[erm, erm]", ("different",)),
            ("image_methods=[]", ("image_methods",)),
            ("text_objectives=[ttt]", ("ttt is no pre-training for text; allowed are", "meta")),
            ("image_dataset=cifar11", ("cifar11", "did you mean 'cifar10'")),
            ("image_dataset=npz", ("npz:PATH",)),
            ("image_dataset=[]", ("image_dataset = []",)),
            ("image_dataset=npz:~nosuchuser/pets", ("npz:~nosuchuser/pets", "home")),
            ("image_stream=[foog]", ("foog", "did you mean 'fog'")),
            ("image_stream=[]", ("empty",)),
            ("image_predict=afterwards", ("= 'afterwards'", "did you mean 'after'")),
            ("seeds=[1, 1]", ("different",)),
            ("seeds=[-1]", ("greater than or equal to 0",)),
            ("seeds=[18446744073709551616]", ("less than",)),
            ("profile=a/b", ("profile = 'a/b'", "folder")),
            ("profile=runs", ("runs", "one of checkpoints")),
            ("text_dataset=cifar10", ("no text dataset", "amazon")),
            ("text_methods=[ttt]", ("ttt is no method for text", "'tent'")),
            ("text_batch_size=1", ("no variance",)),
            ("text_stream=[dvds]", ("did you mean 'dvd'",)),
            ("text_stream=['dvd:2']", ("only the corruptions of images have a severity",)),
            ("text_stream=correlatd", ("instantaneous, mixed", "did you mean 'correlated'")),
            ("text_network_hidden=[]", ("text_network_hidden",)),
            ("text_network_hidden=[8, 0]", ("text_network_hidden",)),
            ("speech_stream=gradual", ("speech_stream = 'gradual'",)),
            ("image_dirichlet_delta=0", ("image_dirichlet_delta = 0", "greater than 0")),
            ("image_order_seed=-1", ("image_order_seed = -1", "greater than or equal to 0")),
            ("speech_dataset=synthetic_speech:x", ("allowed is synthetic_speech",)),
            ("seeds=[010]", ("010", "without a zero in front")),
            ("image_severity=1:30", ("image_severity = '1:30'", "integer")),
            ("image_severity=2.5", ("image_severity = 2.5", "integer")),
            ("image_severity=five", ("image_severity = 'five'", "integer")),
            ("image_severity=[3]", ("image_severity = [3]",)),
            ("image_severity=-1", ("image_severity = -1",)),
            ("image_batch_size=1e400", ("image_batch_size = ",)),
            ("image_batch_size=-32", ("image_batch_size = -32",)),
            ("image_online_learning_rate=1,5", ("image_online_learning_rate = ",)),
            ("image_online_learning_rate=1e-3x", ("= '1e-3x'", "number")),
            ("image_methods=[Tent]", ("'Tent'", "did you mean 'tent'")),
            ("image_methods=[ada_bn]", ("'ada_bn'", "did you mean 'adabn'")),
            ("image_methods=tent adabn", ("image_methods = 'tent adabn'", "a list")),
            ("image_stream=[snow:0]", ("snow:0",)),
            ("image_stream=[snow:6]", ("snow:6",)),
            ("image_stream=['snow:']", ("snow:",)),
            ("image_stream=[Fog]", ("'Fog'", "did you mean 'fog'")),
            ("image_stream=[jpeg]", ("'jpeg'",)),
            ("image_dataset=CIFAR10", ("'CIFAR10'", "did you mean 'cifar10'")),
            ("image_dataset=cifar-10", ("'cifar-10'", "did you mean 'cifar10'")),
            ("image_dataset='npz:'", ("npz:",)),
            ("seeds=0,1", ("seeds = '0,1'",)),
            ("seeds=[one]", ("seeds = 'one'", "integer")),
            ("seeds=[1e3.5]", ("seeds = '1e3.5'",)),
            ("seeds=[true]", ("seeds = [True]", "a number")),
            ("seeds=[0x1, 1]", ("seeds = [1, 1]", "different")),
            ("text_methods=[sarr]", ("'sarr'", "did you mean 'sar'")),
            ("text_stream=[DVD]", ("'DVD'", "did you mean 'dvd'")),
            ("speech_stream=[pich]", ("'pich'", "did you mean 'pitch'")),
            ("speech_held_out_fraction=-0.1", ("speech_held_out_fraction = -0.1",)),
            (f"image_training_epochs=1{'0' * 30}", ("image_training_epochs = 1000", "less than")),
            ("image_online_learning_rate=1e308", ("= 1e+308", "less than 1,000,000,000,000")),
            ("image_batch_size=100000000000000", ("image_batch_size = 1000", "less than")),
            (f"image_statistics_memory=1{'0' * 30}", ("statistics_memory = 1000", "less than")),
        )
    ),
    BadInput(
        "a network of 4,950,000,000 parameters",
        values("image_network_depth=1202", "image_network_width=256"),
        2,
        ("network_depth = 1202 and network_width = 256", "make a network of 4,950,", "500,000,000"),
    ),
    BadInput(
        "layers of 4,300,000,000 parameters",
        values("text_network_hidden=[65536, 65536]"),
        2,
        ("network_hidden = (65536, 65536)", "at most 500,000,000 are allowed"),
    ),
    # ------------------------------------------------------------ what could only fail later
    BadInput(
        "no example to train on",
        images(write_images(), "image_held_out_fraction=0.999"),
        2,
        ("held_out_fraction = 0.999", "leaves none of 40 examples"),
    ),
    BadInput(
        "a class that is held out to the last example",
        images(write_images(), "image_held_out_fraction=0.7"),
        2,
        ("no source example of class", "image_held_out_fraction"),
    ),
    BadInput(
        "a memory for a method of its own",
        images(write_images(), "image_statistics_memory=8", "image_methods=[adabn, tema]"),
        2,
        ("has no option memory (given 8)",),
    ),
    BadInput(
        "a memory for predictions before the update",
        images(
            write_images(),
            "image_statistics_memory=8",
            "image_predict=before",
            "image_methods=[adabn, cotta]",
        ),
        2,
        ("memory needs predict='after'",),
    ),
    BadInput(
        "a batch of one text",
        line("--only", "03_adapt_text", "--set", "text_test_size=33"),
        2,
        ("dvd with 33 examples ends in a batch of one", "text_batch_size"),
    ),
    # ------------------------------------------------------------ public data, altered
    BadInput(
        "CIFAR-10 with one bit of a batch altered",
        public("cifar10", altered("cifar-10-batches-py/data_batch_3")),
        3,
        ("cifar-10-batches-py is missing or altered",),
    ),
    BadInput(
        "CIFAR-10 with one bit of its names altered",
        public("cifar10", altered("cifar-10-batches-py/batches.meta")),
        3,
        ("cifar-10-batches-py is missing or altered",),
    ),
    BadInput(
        "CIFAR-100 with two classes exchanged",
        public("cifar100", two_classes_exchanged),
        3,
        ("test.npz is not CIFAR-100", "fingerprint"),
    ),
    BadInput(
        "a photograph of frost altered",
        public("cifar10", altered("frost/frost3.png")),
        3,
        ("frost3.png is not the original photograph: put there",),
    ),
    BadInput(
        "a photograph of frost missing",
        public("cifar10", lambda here: (here / "frost" / "frost4.jpg").unlink()),
        3,
        ("frost lacks frost4.jpg: put there",),
    ),
    # ------------------------------------------------------------ a profile of one's own
    BadInput(
        "a profile in UTF-16", profile("seed: 1\n".encode("utf-16")), 2, ("mine.yaml", "utf-8")
    ),
    BadInput(
        "a profile file that is a number", profile("26"), 2, ("mine.yaml", "no names and values")
    ),
    BadInput("a profile with a NUL in it", profile("seed: \0"), 2, ("mine.yaml", "not YAML")),
    BadInput("tabs", profile("image_methods:\n\t- erm\n"), 2, ("mine.yaml", "not YAML", r"\t")),
    BadInput(
        "a name twice",
        profile("image_training_epochs: 1\nimage_training_epochs: 2\n"),
        2,
        ("image_training_epochs is named twice",),
    ),
    BadInput(
        "a name of 5,000 letters",
        profile(f"? image_{'x' * 5000}\n: 3\n"),
        2,
        ("'image_xxx", "is no parameter"),
    ),
    BadInput("a billion laughs", profile(f"{LAUGHS}seeds: *h\n"), 2, ("(from mine.yaml)",)),
    BadInput("5,000 brackets", profile("seeds: " + "[" * 5000), 2, ("mine.yaml", "not YAML")),
    BadInput("5,000 digits", profile("seed: " + "9" * 5000), 2, ("mine.yaml", "digits")),
    BadInput(
        "digits of another base",
        profile("seed: 0x" + "f" * 5000),
        2,
        ("seed (from mine.yaml)", "more than 300 digits"),
    ),
    # ------------------------------------------------------------ folders
    BadInput(
        "results among processes", values("results_folder=/proc/x"), 2, ("/proc/x", "No such file")
    ),
    BadInput(
        "results in a device",
        values("results_folder=/dev/null/x"),
        2,
        ("/dev/null", "Not a directory"),
    ),
    BadInput(
        "results of a long name", values(f"results_folder={'r' * 300}"), 2, ("File name too long",)
    ),
    BadInput(
        "results in a file",
        values("results_folder=mine/x", prepare=lambda here: (here / "mine").touch()),
        2,
        ("mine/x", "Not a directory"),
    ),
    BadInput(
        "data in a device",
        line("--only", "03_adapt_text", "--set", "data_folder=/dev/null/x"),
        2,
        ("/dev/null",),
    ),
    BadInput(
        "two folders of one name",
        values("image_dataset=['npz:a/pets', 'npz:b/pets']", prepare=two_pets),
        2,
        ("image_dataset", "a/pets and npz:", "would both be called npz-pets in tables"),
    ),
    BadInput(
        "two files of one name in tables",
        values("text_dataset=[amazon, 'amazon:other']"),
        2,
        ("text_dataset", "amazon and amazon:", "would both be called amazon in tables"),
    ),
    BadInput(
        "a link to itself",
        values("image_dataset=npz:mine", prepare=lambda here: (here / "mine").symlink_to("mine")),
        2,
        ("npz:", "cannot be a path"),
    ),
    BadInput(
        "a dataset of capitals",
        values("image_dataset=NPZ:mine"),
        2,
        ("'NPZ'", "did you mean 'npz'"),
    ),
    BadInput(
        "a dataset twice", values("image_dataset=[digits, digits]"), 2, ("several different ones",)
    ),
    BadInput(
        "reviews that are nowhere",
        raw_reviews(lambda here: None),
        3,
        ("text_dataset", "mine/books/negative.review"),
    ),
    BadInput(
        "images that are nowhere", images(lambda here: None), 3, ("mine/train.npz", "numpy.savez")
    ),
    BadInput(
        "a file for the folder",
        images(lambda here: (here / "mine").touch()),
        3,
        ("mine/train.npz",),
    ),
    BadInput(
        "a folder for the file",
        images(lambda here: (here / "mine" / "train.npz").mkdir(parents=True)),
        3,
        ("mine/train.npz", "numpy.savez"),
    ),
    # ------------------------------------------------------------ npz files
    BadInput(
        "a header of 9 exabytes",
        images(write_images(train=zipped(false_header("(9000000000000000000,)")))),
        2,
        ("train.npz cannot be read",),
    ),
    BadInput(
        "an array alone",
        images(write_images(train=false_header("(0,)"))),
        2,
        ("train.npz cannot be read",),
    ),
    BadInput(
        "a batch above the source",
        images(write_images(), "image_training_batch_size=37"),
        2,
        ("image_training_batch_size = 37", "36 source examples"),
    ),
    *(
        BadInput(f"npz: {words[0]}", images(write_images(*arrays)), 2, words)
        for arrays, words in (
            (({"x": None},), ("train.npz: found no array x",)),
            (({}, {"y": None}), ("test.npz: found no array y",)),
            (({"x": X.astype(np.float32)},), ("train.npz: found x of dtype float32", "uint8")),
            (({"y": Y.astype(np.float64)},), ("train.npz: found y of dtype float64", "int64")),
            (({"x": X[..., 0]},), ("found x of shape (40, 32, 32)", "channels last")),
            (
                ({"x": X.transpose(0, 3, 1, 2)},),
                ("found x of shape (40, 3, 32, 32)", "channels last"),
            ),
            (({"x": X[:, :28, :28]},), ("found x of shape (40, 28, 28, 3)", "(N, 32, 32, 3)")),
            (({"y": Y[:39]},), ("found y of shape (39,) for 40 images",)),
            (({"y": Y[:, None]},), ("found y of shape (40, 1) for 40 images",)),
            (({}, {"x": LARGE}), ("test.npz: found images of 64 pixels; allowed is 32",)),
            (({"y": Y - 1},), ("train.npz: found label -1",)),
            (({"y": Y * 2},), ("train.npz: found 10 labels, the largest 18",)),
            (({"y": Y * 0},), ("train.npz: found 1 class; allowed is at least 2",)),
            (({}, {"y": Y[:20] + 1}), ("test.npz: found label 10", "0..9")),
            (({}, {"x": X[:0], "y": Y[:0]}), ("test.npz: found no images",)),
            (({"x": X.astype(np.int16)},), ("found x of dtype int16", "uint8")),
            (({"x": X.astype(bool)},), ("found x of dtype bool", "uint8")),
            (({"y": Y.astype(np.int32)},), ("found y of dtype int32", "int64")),
            (({"y": Y.astype(str)},), ("found y of dtype", "int64")),
            (({"y": np.eye(10, dtype=np.int64)[Y]},), ("found y of shape (40, 10) for 40",)),
            (({"x": X[..., :1]},), ("found x of shape (40, 32, 32, 1)",)),
            (({"x": np.concatenate([X, X[..., :1]], 3)},), ("of shape (40, 32, 32, 4)",)),
            (({"x": X.reshape(40, -1)},), ("found x of shape (40, 3072)",)),
            (({"x": X[0], "y": Y[:1]},), ("found x of shape (32, 32, 3)",)),
            (({"x": X[:, :, :31]},), ("found x of shape (40, 32, 31, 3)",)),
            (({"y": np.int64(3)},), ("found y of shape () for 40",)),
            (({}, {"y": Y[:20] - 1}), ("test.npz: found label -1",)),
            (({}, {"x": X[:19]}), ("test.npz: found y of shape (20,) for 19",)),
            (({"y": None},), ("train.npz: found no array y",)),
            (({"x": X // 128},), ("train.npz: found no level above 1", "0…255")),
            (({}, {"x": X[:20] * 0}), ("test.npz: found no level above 0", "0…255")),
            (({}, {"x": X[:20, :, :, ::3]}), ("test.npz: found x of shape (20, 32, 32, 1)",)),
        )
    ),
    # ------------------------------------------------------------ recordings and counts
    *(
        BadInput(f"recordings: {words[0]}", recordings(damage), code, words)
        for damage, code, words in (
            (one_word, 2, ("found words in 1 folders", "2 words or more")),
            (
                lambda folder: (folder / TEST_LIST).write_text("bed/1.wav"),
                2,
                ("testing_list.txt names 0 of 30",),
            ),
            (
                lambda folder: (folder / TEST_LIST).write_text("stop/0.wav", "utf-16"),
                2,
                ("testing_list.txt: the line", "names no file"),
            ),
            (
                lambda folder: (folder / HELD_OUT_LIST).write_text(""),
                2,
                ("validation_list.txt 0; each list must name 1 or more",),
            ),
            (lambda folder: (folder / TEST_LIST).unlink(), 3, ("lacks testing_list.txt",)),
            (lambda folder: shutil.rmtree(folder / NOISE), 3, ("lacks _background_noise_",)),
            (
                lambda folder: (folder / NOISE / "hiss.wav").write_bytes(b"x"),
                2,
                ("0 seconds of _background_noise_",),
            ),
            (all_tested, 2, ("each word needs 1 or more to train on",)),
        )
    ),
    *(
        BadInput(f"counts: {text}", counts(text), 2, ("dvd_test.svmlight", *words))
        for text, words in (
            ("1 5000:1", ("columns 0..4999",)),
            ("1 3:x", ("columns 0..4999",)),
            ("1 3:inf", ("not finite",)),
            ("1 3:-1", ("below 0",)),
            ("2 3:1", ("labels [-1.0, 1.0, 2.0]; allowed are −1 and +1",)),
        )
    ),
    BadInput(
        "counts of three domains",
        line(
            *("--only", "03_adapt_text", "--set", "text_dataset=amazon_counts"),
            *("text_vocabulary_size=5000", "data_folder=HERE"),
            prepare=without_kitchen,
        ),
        3,
        ("lacks kitchen_test.svmlight",),
    ),
    BadInput(
        "counts of another vocabulary",
        counts("", "text_vocabulary_size=50"),
        2,
        ("vocabulary_size = 50: allowed is 5000",),
    ),
    # ------------------------------------------------------------ weights
    BadInput(
        "weights that are empty",
        values("image_weights=''"),
        2,
        ("image_weights=''", "names no networks; allowed are train, shipped", "FOLDER"),
    ),
    BadInput(
        "a release that is empty",
        cell(image_weights="release:"),
        SettingsError,
        ("image_weights = 'release:'", "names no networks"),
    ),
    BadInput(
        "weights that are nowhere",
        images(write_images(), "image_weights=shiped"),
        2,
        ("there is no folder", "shiped; allowed are train", "did you mean 'shipped'"),
    ),
    BadInput(
        "a kind of weights that is none",
        images(write_images(), "image_weights=releas:x.pth"),
        2,
        ("releas:x.pth", "did you mean 'release:FILE'"),
    ),
    BadInput(
        "a release that is nowhere",
        images(write_images(), "image_weights=release:x.pth"),
        2,
        ("x.pth", "no such file"),
    ),
    BadInput(
        "a network cut short",
        spoilt(lambda path: path.write_bytes(path.read_bytes()[:-9])),
        2,
        ("meta-0.safetensors", "its card says", "damaged"),
    ),
    BadInput(
        "a foreign network",
        spoilt(hidden(save({"a": torch.ones(1)}))),
        2,
        ("meta-0", "does not fit the network"),
    ),
    BadInput(
        "a network of another width",
        spoilt(lambda path: change_card(path, network=ImageNetwork(depth=8, width=8).model_dump())),
        2,
        ("meta-0", "does not fit the network"),
    ),
    BadInput(
        "a network of larger images",
        spoilt(lambda path: change_card(path, input_shape=[3, 64, 64])),
        2,
        ("meta-0", "inputs of shape (3, 64, 64)", "inputs of shape (3, 32, 32)"),
    ),
    BadInput(
        "a network of speech",
        spoilt(lambda path: change_card(path, modality="speech")),
        2,
        ("meta-0", "a network for speech data", "is image data"),
    ),
    BadInput(
        "another network's card",
        spoilt(lambda path: change_card(path, objective="erm")),
        2,
        ("its card says erm-0",),
    ),
    BadInput(
        "code in place of a network",
        spoilt(hidden(pickle.dumps(Bomb()))),
        2,
        ("meta-0", "no whole safetensors"),
    ),
    BadInput(
        "code in a published file",
        images(bomb, "image_weights=robustbench:bomb.pt", "image_methods=[erm]"),
        2,
        ("bomb.pt", "read safely"),
    ),
    BadInput(
        "weights of another seed",
        images(with_networks, "image_weights=nets", "image_methods=[erm]", "seeds=[0, 7]"),
        2,
        ("no network erm-7", "erm-0"),
    ),
    *(
        BadInput(f"a card with {words[0]}", carded(**card), 2, words)
        for card, words in (
            ({"classes": 4}, ("has 4 classes", "has 10 classes")),
            ({"options": {"input_scaling": "unit"}}, ("'unit'", "'symmetric'")),
            ({"options": {}}, ("does not say with which input_scaling the network was trained",)),
            (
                {"sample_errors": 99},
                ("errs on ", "and its card says 99: is it the card of another network?"),
            ),
            ({"clean_error": math.nan}, ("clean_error = nan", "finite number")),
            ({"clean_error": -5}, ("clean_error = -5", "greater than or equal to 0")),
            ({"seed": 4}, ("its card says meta-4",)),
            ({"seed": "x"}, ("seed = 'x': Input should be a valid integer",)),
            ({"licence": "MIT"}, ("licence = 'MIT': Extra inputs are not permitted",)),
            (
                {"network": {"depth": 27, "width": 4}},
                ("network.ImageNetwork.depth = 27", "6n + 2"),
            ),
            ({"network": {"foo": 1}}, ("network.ImageNetwork.foo = 1: Extra inputs",)),
            (
                {"network": {"depth": 1202, "width": 256}},
                ("does not fit the network", "the network has 4,950,", "parameters, but the file"),
            ),
        )
    ),
    *(
        BadInput(f"a network's file: {words[0]}", spoilt(spoil), 2, words)
        for spoil, words in (
            (lambda path: hidden(path.read_bytes()[:-10])(path), ("no whole safetensors file",)),
            (
                tensors(lambda x: x.half()),
                (" as torch.float16, and the network has it as torch.float32",),
            ),
            (
                tensors(lambda x: torch.full_like(x, math.nan)),
                ("holds values in", "that are no finite numbers"),
            ),
            (beside(".csv", ""), ("meta-0.csv is no table of epochs",)),
            (beside(".csv", "<html>"), ("is no table of epochs",)),
            (
                beside(".csv", "epoch,held_out_accuracy\n"),
                ("is no table of epochs: it has no rows",),
            ),
            (
                beside(".csv", "epoch,held_out_accuracy\n1,7\n"),
                ("held_out_accuracy has values outside 0…1",),
            ),
            (negative_variances, ("holds variances below 0 in", "running_var")),
            (beside(".json", "{"), ("card of a network: its text = b'{': Invalid JSON",)),
            (lambda path: path.with_suffix(".json").unlink(), ("has no card meta-0.json",)),
            (forget("training"), ("is no card of a network: training: Field required",)),
        )
    ),
    *(
        BadInput(f"RobustBench's file: {words[0]}", robustbench(write), 2, ("Standard.pt", *words))
        for write, words in (
            (lambda path: path.write_bytes(PAGE), ("is a web page, not weights",)),
            (lambda path: cut(test_published.write(path, published())), ("is cut short after ",)),
            (
                lambda path: cut(test_published.write(path, published(), legacy=True)),
                ("is cut short after",),
            ),
            (lambda path: path.write_bytes(b""), ("is cut short after 0 bytes",)),
            (
                lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n" * 99),
                ("holds no weights under 'state_dict'",),
            ),
            (
                lambda path: torch.save({"state_dict": {0: torch.ones(2)}}, path),
                ("another network than RobustBench's",),
            ),
            (
                lambda path: torch.save({"net": published()}, path),
                ("no weights under 'state_dict'",),
            ),
            (
                lambda path: test_published.write(path, {"a": torch.ones(2)}),
                ("holds another network than RobustBench's",),
            ),
            (
                lambda path: test_published.write(path, published(fc__weight=None)),
                ("another network than RobustBench's",),
            ),
            (
                lambda path: test_published.write(
                    path, published(block2__layer__1__bn2__bias=None)
                ),
                ("does not fit the network",),
            ),
            (
                lambda path: test_published.write(path, published(mu=torch.zeros(1, 3, 1, 1))),
                ("does not fit the network that it should hold: Unexpected",),
            ),
            (
                lambda path: test_published.write(
                    path, published(block1__layer__0__conv1__weight=torch.zeros(16_000, 1, 1, 1))
                ),
                ("does not fit", "numbers"),
            ),
        )
    ),
    # ------------------------------------------------------------ a notebook and its parameters
    *(
        BadInput(
            f"a notebook with {name}",
            cell(**{name: 9}),
            SettingsError,
            (name, "is no parameter", "did you mean"),
        )
        for name in (
            *("image_epoch", "text_epochz", "sed", "profil", "result_folder", "imag_epochs"),
            *("Image_epochs", "txt_hidden", "severity", "methods", "sevrity", "batch", "_seed"),
        )
    ),
    BadInput(
        "a number in words",
        cell(image_training_epochs="two"),
        SettingsError,
        ("image_training_epochs = 'two'", "notebook", "integer"),
    ),
    BadInput(
        "an array",
        cell(image_ablation_learning_rates=np.ones(3)),
        SettingsError,
        ("image_ablation_learning_rates = array", "a list"),
    ),
    *(
        BadInput(
            f"{dataset!r} in a notebook",
            cell(image_dataset=dataset),
            SettingsError,
            ("image_dataset", "cannot be a path"),
        )
        for dataset in ("npz:~nosuchuser/pets", "npz:a\0b")
    ),
    BadInput(
        "a profile with its ending",
        cell(profile="quick.yaml"),
        SettingsError,
        ("'quick.yaml'", "'quick'"),
    ),
    BadInput(
        "a profile that is a number",
        cell(profile=3),
        SettingsError,
        ("profile '3'", "no such profile"),
    ),
    BadInput("a notebook that is no JSON", notebook("{"), 2, ("01_mine.ipynb",)),
    BadInput("a notebook without cells", notebook("{}"), 2, ("01_mine.ipynb",)),
    BadInput("no parameters cell", notebook(cells()), 2, ("01_mine.ipynb", "0 cells")),
    BadInput(
        "two parameters cells",
        notebook(cells("seed = 0", "seeds = [0]")),
        2,
        ("01_mine.ipynb", "2 cells"),
    ),
    BadInput("a notebook that computes", notebook(cells("seed = 1 + x")), 2, ("of plain values",)),
    BadInput("a notebook of no parameter", notebook(cells("sed: int = 1")), 2, ("'sed'", "'seed'")),
]


@pytest.mark.parametrize("bad", BAD_INPUTS, ids=[bad.what for bad in BAD_INPUTS])
def test_a_bad_input_is_told_in_one_message_and_nothing_starts(
    bad: BadInput,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "'cuda'" in "".join(bad.words) and torch.cuda.is_available():
        pytest.skip("a GPU is no bad input here")
    monkeypatch.chdir(tmp_path)
    if isinstance(bad.outcome, int):
        try:
            code = bad.give(tmp_path)
        except SystemExit as stop:  # of argparse
            code = stop.code
        message = capsys.readouterr().err
        assert code == bad.outcome, message
        message = message[message.rindex("run_all.sh: ") :]
    else:
        with pytest.raises(bad.outcome) as error:
            bad.give(tmp_path)
        message = str(error.value)
    assert [word for word in bad.words if word not in message] == [], message
    assert (
        len(message.replace(str(tmp_path), "")) <= LONGEST_MESSAGE and "Traceback" not in message
    ), message
    assert "\n" not in message.strip() or "not YAML" in message, (
        "YAML shows the lines around a fault"
    )
    assert not (tmp_path / "exploded").exists() and not list(tmp_path.glob("results/**/*.ipynb"))
    assert not list(tmp_path.glob("results/**/snakemake.log")), "no job is started"
