"""Bad inputs, each given where a user would give it: what is said of it, and that nothing starts.

A row of ATTACKS is one bad input: what it is, how it is given, what comes of it (an exit code of
run_all.sh, or SettingsError in a notebook), and what the one message says. There is a row for each
way in; what each kind of value and of file must be is held by the tests of its own module.
"""

import hashlib
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import LONGEST_MESSAGE, write_npz
from safetensors.torch import save

from cascadetta_lib.data import load_dataset
from cascadetta_lib.data.images import ImageOptions
from cascadetta_lib.models import ImageNetwork
from cascadetta_lib.training.objectives import Training
from cascadetta_lib.training.pretrain import new_network
from study.settings import SettingsError, settings_from
from study.tools.pack import pack
from study.weights import SHIPPED
from study.workflow import run
from study.workflow.command import main

Give = Callable[[Path], object]


class Attack(NamedTuple):
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


def write_images(train: bytes = b"") -> Give:
    """40 training images in the folder `mine`, or what train.npz holds instead."""

    def write(here: Path) -> None:
        path = write_npz(here / "mine") / "train.npz"
        path.write_bytes(train or path.read_bytes())

    return write


def with_networks(here: Path) -> None:
    """40 training images, and the shipped networks as a folder of somebody else's."""
    write_images()(here)
    (here / "nets").symlink_to(SHIPPED)


def with_a_spoilt_network(spoil: Callable[[Path], object]) -> Give:
    """40 training images of two classes, and two networks of them in `nets`: a sound `erm-0`, which
    the notebook's methods start from, and a spoilt `meta-0`, which only some exhibits would."""

    def write(here: Path) -> None:
        write_images()(here)
        dataset = load_dataset(f"npz:{here / 'mine'}", ImageOptions())
        card: dict[str, Any] = {
            "network": ImageNetwork(depth=8, width=4),
            "training": Training(),
            "seed": 0,
        }
        card |= {"options": {"input_scaling": "symmetric"}, "provenance": {}}
        for name in ("erm", "meta"):
            model = new_network(dataset, card["network"], name, 0)
            pack(
                here / "nets",
                model,
                pd.DataFrame({"epoch": [1], "held_out_accuracy": [0.5]}),
                dataset,
                objective=name,
                **card,
            )
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
CODE = '!!python/object/apply:os.system ["touch exploded"]'

ATTACKS = [
    # ------------------------------------------------------------ the command line
    Attack("no name after --only", line("--only"), 2, ("--only", "expected at least one")),
    Attack(
        "an empty name after --only",
        line("--only", ""),
        2,
        ("--only", "no such notebook", "10_report"),
    ),
    Attack(
        "a notebook by its file name",
        line("--only", "10_report.ipynb"),
        2,
        ("did you mean '10_report'",),
    ),
    Attack(
        "a misspelled notebook to force",
        line("--force", "10_reprot"),
        2,
        ("did you mean '10_report'",),
    ),
    Attack(
        "a notebook to force that is left out",
        line("--only", "10_report", "--force", "01_pretrain"),
        2,
        ("--force 01_pretrain", "10_report"),
    ),
    Attack("half a job", line("--jobs", "2.5"), 2, ("--jobs", "'2.5'", "int")),
    Attack("no jobs", line("--jobs", "0"), 2, ("--jobs 0", "from 1 on")),
    Attack(
        "a profile for a GPU",
        line("--profile", "paper"),
        2,
        ("'cuda'", "--set device=auto", "--cluster"),
    ),
    Attack(
        "a plan for a GPU", line("--profile", "paper", "--dry-run"), 2, ("'cuda'", "no such device")
    ),
    Attack(
        "a cluster that is nowhere",
        line("--cluster", "slrum"),
        2,
        ("--cluster slrum", "config.yaml"),
    ),
    Attack("two letters off", line("--sedes", "0"), 2, ("--sedes", "did you mean '--seeds'")),
    Attack("a word on its own", line("quick"), 2, ("quick is no argument",)),
    Attack("no seeds", line("--seeds", ""), 2, ("seeds = []", "one value")),
    Attack("a range of seeds", line("--seeds", "0-3"), 2, ("seeds = '0-3'", "--set")),
    Attack("a seed and a half", line("--seeds", "1.5"), 2, ("seeds = 1.5", "integer")),
    Attack("seeds twice", line("--seeds", "1", "--set", "seeds=[2]"), 2, ("seeds=[2]", "twice")),
    Attack("a bracket too many", line("--seeds", "0]"), 2, ("--set seeds=[0]]", "not YAML")),
    Attack("no profile", line("--profile", ""), 2, ("profile ''", "quick")),
    Attack(
        "a folder for a profile", line("--profile", "HERE"), 2, ("no such profile or file", "quick")
    ),
    Attack("a profile of 5,000 letters", line("--profile", "p" * 5000), 2, ("profile 'ppp",)),
    Attack("a profile with a NUL", line("--profile", "a\0b"), 2, (r"profile 'a\x00b'",)),
    Attack(
        "a profile in braces", line("--profile", "{x}.yaml"), 2, ("'{x}.yaml'", "no such profile")
    ),
    # ------------------------------------------------------------ names and values by --set
    Attack("no name", values("=3"), 2, ("''", "is no parameter")),
    Attack(
        "no equals sign",
        values("image_training_epochs"),
        2,
        ("image_training_epochs", "NAME=VALUE"),
    ),
    Attack(
        "two equals signs",
        values("image_training_epochs==3"),
        2,
        ("image_training_epochs = '=3'", "integer"),
    ),
    Attack("no value", values("image_training_epochs="), 2, ("image_…", "one of the two")),
    Attack(
        "one name for two values",
        values("image_training_epochs=2", "image_training_epochs=3"),
        2,
        ("image_training_epochs=3", "twice"),
    ),
    Attack("the seed of one job", values("seed=3"), 2, ("seed=3", "use --seeds")),
    Attack(
        "a page of no notebook",
        values("figures_notebooks=[02_adapt]"),
        2,
        ("figures_notebooks", "did you mean '02_adapt_image'"),
    ),
    Attack(
        "a list in itself",
        values("image_dataset=&a [*a]"),
        2,
        ("image_dataset = [[", "[...]", "a list of them"),
    ),
    Attack(
        "one name for a list", values("image_methods=erm"), 2, ("image_methods = 'erm'", "a list")
    ),
    Attack(
        "nothing in a list", values("image_methods=[null]"), 2, ("image_methods = None", "string")
    ),
    Attack(
        "code",
        values(f"image_training_epochs={CODE}"),
        2,
        ("image_training_epochs=", "not YAML", "os.system"),
    ),
    Attack("a NUL", values(r'data_folder="a\0b"'), 2, (r"data_folder = '", "NUL")),
    Attack(
        "the home of nobody",
        values("data_folder=~nosuchuser/x"),
        2,
        ("data_folder=~nosuchuser/x", "home"),
    ),
    Attack(
        "two results folders", values("results_folder=[a, b]"), 2, ("results_folder = ", "string")
    ),
    Attack(
        "a profile with a line break",
        values(r'profile="a\nb"'),
        2,
        (r"profile = 'a\nb'", "names a folder"),
    ),
    Attack(
        "a device of somebody else", values("device=tpu"), 2, ("device = 'tpu'", "auto, cpu, cuda")
    ),
    Attack(
        "a GPU that is not there",
        values("device=cuda"),
        2,
        ("device = 'cuda'", "allowed are auto and cpu"),
    ),
    Attack(
        "epochs without a training",
        line("--profile", "laptop", "--set", "image_training_epochs=3"),
        2,
        ("image_training_epochs=3", "image_weights = shipped", "change nothing"),
    ),
    Attack(
        "a depth of what is shipped",
        values("image_weights=shipped", "image_network_depth=14"),
        2,
        ("image_network_depth=14", "no network is trained"),
    ),
    # ------------------------------------------------------------ a profile of one's own
    Attack("a profile in UTF-16", profile("seed: 1\n".encode("utf-16")), 2, ("mine.yaml", "utf-8")),
    Attack("a profile that is a number", profile("26"), 2, ("mine.yaml", "no names and values")),
    Attack("a profile with a NUL in it", profile("seed: \0"), 2, ("mine.yaml", "not YAML")),
    Attack("tabs", profile("image_methods:\n\t- erm\n"), 2, ("mine.yaml", "not YAML", r"\t")),
    Attack(
        "a name twice",
        profile("image_training_epochs: 1\nimage_training_epochs: 2\n"),
        2,
        ("image_training_epochs is named twice",),
    ),
    Attack(
        "a name of 5,000 letters",
        profile(f"? image_{'x' * 5000}\n: 3\n"),
        2,
        ("'image_xxx", "is no parameter"),
    ),
    Attack("a billion laughs", profile(f"{LAUGHS}seeds: *h\n"), 2, ("(from mine.yaml)",)),
    Attack("5,000 brackets", profile("seeds: " + "[" * 5000), 2, ("mine.yaml", "not YAML")),
    Attack("5,000 digits", profile("seed: " + "9" * 5000), 2, ("mine.yaml", "digits")),
    Attack(
        "digits of another base",
        profile("seed: 0x" + "f" * 5000),
        2,
        ("seed (from mine.yaml)", "hundreds of digits"),
    ),
    # ------------------------------------------------------------ folders
    Attack(
        "results among processes", values("results_folder=/proc/x"), 2, ("/proc/x", "No such file")
    ),
    Attack(
        "results in a device",
        values("results_folder=/dev/null/x"),
        2,
        ("/dev/null", "Not a directory"),
    ),
    Attack(
        "results of a long name", values(f"results_folder={'r' * 300}"), 2, ("File name too long",)
    ),
    Attack(
        "results in a file",
        values("results_folder=mine/x", prepare=lambda here: (here / "mine").touch()),
        2,
        ("mine/x", "Not a directory"),
    ),
    Attack(
        "data in a device",
        line("--only", "03_adapt_text", "--set", "data_folder=/dev/null/x"),
        2,
        ("/dev/null",),
    ),
    Attack(
        "two folders of one name",
        values("image_dataset=['npz:a/pets', 'npz:b/pets']", prepare=two_pets),
        2,
        ("image_dataset", "two of them have one name"),
    ),
    Attack(
        "two files of one name in tables",
        values("text_dataset=[amazon, 'amazon:other']"),
        2,
        ("text_dataset", "two of them have one name"),
    ),
    Attack(
        "a link to itself",
        values("image_dataset=npz:mine", prepare=lambda here: (here / "mine").symlink_to("mine")),
        2,
        ("npz:", "cannot be a folder"),
    ),
    Attack(
        "a dataset of capitals",
        values("image_dataset=NPZ:mine"),
        2,
        ("'NPZ'", "did you mean 'npz'"),
    ),
    Attack(
        "a dataset twice", values("image_dataset=[digits, digits]"), 2, ("several different ones",)
    ),
    Attack(
        "reviews that are nowhere",
        raw_reviews(lambda here: None),
        3,
        ("text_dataset", "mine/books/negative.review"),
    ),
    Attack(
        "images that are nowhere", images(lambda here: None), 3, ("mine/train.npz", "numpy.savez")
    ),
    Attack(
        "a file for the folder",
        images(lambda here: (here / "mine").touch()),
        3,
        ("mine/train.npz",),
    ),
    Attack(
        "a folder for the file",
        images(lambda here: (here / "mine" / "train.npz").mkdir(parents=True)),
        3,
        ("mine/train.npz", "numpy.savez"),
    ),
    # ------------------------------------------------------------ npz files
    Attack(
        "a header of 9 exabytes",
        images(write_images(train=zipped(false_header("(9000000000000000000,)")))),
        2,
        ("train.npz cannot be read",),
    ),
    Attack(
        "an array alone",
        images(write_images(train=false_header("(0,)"))),
        2,
        ("train.npz cannot be read",),
    ),
    Attack(
        "a batch above the source",
        images(write_images(), "image_training_batch_size=37"),
        2,
        ("image_training_batch_size = 37", "36 source examples"),
    ),
    # ------------------------------------------------------------ weights
    Attack(
        "weights that are nowhere",
        images(write_images(), "image_weights=shiped"),
        2,
        ("there is no folder", "shiped; allowed are train", "did you mean 'shipped'"),
    ),
    Attack(
        "a kind of weights that is none",
        images(write_images(), "image_weights=releas:x.pth"),
        2,
        ("weights = 'releas:", "did you mean 'release:FILE'"),
    ),
    Attack(
        "a release that is nowhere",
        images(write_images(), "image_weights=release:x.pth"),
        2,
        ("x.pth", "no such file"),
    ),
    Attack(
        "a network cut short",
        spoilt(lambda path: path.write_bytes(path.read_bytes()[:-9])),
        2,
        ("meta-0.safetensors", "its card says", "damaged"),
    ),
    Attack(
        "a foreign network",
        spoilt(hidden(save({"a": torch.ones(1)}))),
        2,
        ("meta-0", "does not fit the network"),
    ),
    Attack(
        "a network of another width",
        spoilt(lambda path: change_card(path, network=ImageNetwork(depth=8, width=8).model_dump())),
        2,
        ("meta-0", "does not fit the network"),
    ),
    Attack(
        "a network of larger images",
        spoilt(lambda path: change_card(path, input_shape=[3, 64, 64])),
        2,
        ("meta-0", "inputs of shape (3, 64, 64)", "inputs of shape (3, 32, 32)"),
    ),
    Attack(
        "a network of speech",
        spoilt(lambda path: change_card(path, modality="speech")),
        2,
        ("meta-0", "a network of speech", "is image"),
    ),
    Attack(
        "another network's card",
        spoilt(lambda path: change_card(path, objective="erm")),
        2,
        ("is by its card erm-0",),
    ),
    Attack(
        "code in place of a network",
        spoilt(hidden(pickle.dumps(Bomb()))),
        2,
        ("meta-0", "no whole safetensors"),
    ),
    Attack(
        "code in a published file",
        images(bomb, "image_weights=robustbench:bomb.pt", "image_methods=[erm]"),
        2,
        ("bomb.pt", "read safely"),
    ),
    Attack(
        "weights of another seed",
        images(with_networks, "image_weights=nets", "image_methods=[erm]", "seeds=[0, 7]"),
        2,
        ("no network erm-7", "erm-0"),
    ),
    # ------------------------------------------------------------ a notebook and its parameters
    Attack(
        "a number in words",
        cell(image_training_epochs="two"),
        SettingsError,
        ("image_training_epochs = 'two'", "notebook", "integer"),
    ),
    Attack(
        "an array",
        cell(image_ablation_learning_rates=np.ones(3)),
        SettingsError,
        ("image_ablation_learning_rates = array", "a list"),
    ),
    Attack(
        "a profile with its ending",
        cell(profile="quick.yaml"),
        SettingsError,
        ("'quick.yaml'", "'quick'"),
    ),
    Attack(
        "a profile that is a number",
        cell(profile=3),
        SettingsError,
        ("profile '3'", "no such profile"),
    ),
    Attack("a notebook that is no JSON", notebook("{"), 2, ("01_mine.ipynb",)),
    Attack("a notebook without cells", notebook("{}"), 2, ("01_mine.ipynb",)),
    Attack("no parameters cell", notebook(cells()), 2, ("01_mine.ipynb", "0 cells")),
    Attack(
        "two parameters cells",
        notebook(cells("seed = 0", "seeds = [0]")),
        2,
        ("01_mine.ipynb", "2 cells"),
    ),
    Attack("a notebook that computes", notebook(cells("seed = 1 + x")), 2, ("of plain values",)),
    Attack("a notebook of no parameter", notebook(cells("sed: int = 1")), 2, ("'sed'", "'seed'")),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.what for attack in ATTACKS])
def test_a_bad_input_is_told_in_one_message_and_nothing_starts(
    attack: Attack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def started(*arguments: object) -> int:
        raise AssertionError("jobs are started")

    monkeypatch.chdir(tmp_path)
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
    else:
        with pytest.raises(attack.outcome) as error:
            attack.give(tmp_path)
        message = str(error.value)
    assert [word for word in attack.words if word not in message] == [], message
    assert (
        len(message.replace(str(tmp_path), "")) <= LONGEST_MESSAGE and "Traceback" not in message
    ), message
    assert "\n" not in message.strip() or "not YAML" in message, (
        "YAML shows the lines around a fault"
    )
    assert not (tmp_path / "exploded").exists() and not list(tmp_path.glob("results/**/*.ipynb"))
