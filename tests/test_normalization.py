"""The normalisation that a network learned with comes with the network, and a wrong one is told."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import CLASSES, blobs, make_blobs, seeded
from torch import Tensor, nn

from cascadetta_lib.data.base import Modality
from cascadetta_lib.methods import adapt
from cascadetta_lib.models import INPUT_NORMALIZATIONS, Cascade, Outputs, normalized
from cascadetta_lib.models.input_normalization import Normalization, read_normalization
from study.brought_networks import bring
from study.clean_errors import check_normalization
from study.published_networks import NetworkError
from study.settings import load_profile
from study.study import Study

IMAGENET = INPUT_NORMALIZATIONS["imagenet"]
UNIT = torch.rand(4, 3, 32, 32, generator=seeded(1))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("imagenet", IMAGENET),
        (((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), IMAGENET),
        ({"mean": IMAGENET.mean, "std": IMAGENET.deviation, "crop_pct": 0.9}, IMAGENET),
        (SimpleNamespace(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]), IMAGENET),
        (((127 / 255), (128 / 255)), Normalization((127 / 255,), (128 / 255,))),
        ((0.5, 0.5), INPUT_NORMALIZATIONS["symmetric"]),
        (IMAGENET, IMAGENET),
    ],
)
def test_a_normalisation_is_read_as_people_write_it(given: Any, expected: Normalization) -> None:
    assert read_normalization(given) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("imagnet", "did you mean 'imagenet'"),
        ((0.5, 0.0), "allowed are unit, symmetric"),
        ({"std": (1.0,)}, "a configuration with mean and std"),
        (0.5, "a pair"),
        (((0.5, 0.5), (0.5, 0.5, 0.5)), "2 means and 3 deviations"),
        (("a", "b"), "a pair"),
        ((0.5, math.nan), "a pair"),
        ((0.5, math.inf), "a pair"),
        ((math.nan, 1), "a pair"),
        (((0.5, -math.inf), 1), "a pair"),
        ((0.5, 10**400), "a pair"),
        ((True, True), "a pair"),
    ],
)
def test_any_other_normalisation_is_refused(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_normalization(given)


def test_a_network_sees_what_it_learned_with() -> None:
    seen = normalized(nn.Identity(), "imagenet")(UNIT)
    for channel, (mean, deviation) in enumerate(zip(*IMAGENET, strict=True)):
        expected = (UNIT[:, channel] - mean) / deviation
        assert torch.equal(seen[:, channel], expected)
    assert torch.equal(normalized(nn.Identity(), "levels")(UNIT).round(), (255 * UNIT).round())
    assert not list(
        normalized(nn.Linear(2, 2), "unit").state_dict().keys() - {"1.weight", "1.bias"}
    )


class Doubling(Cascade):
    """A cascade with a forward of its own."""

    def forward(self, x: Tensor) -> Outputs:
        main, auxiliary = super().forward(x)
        return Outputs(2 * main, auxiliary)


def test_a_cascade_that_does_more_keeps_what_it_does() -> None:
    parts = nn.Flatten(), nn.Linear(3 * 32 * 32, 4), nn.Linear(4, 4)
    hooked = Cascade(*parts)
    hooked.register_forward_hook(lambda module, inputs, found: found._replace(main=2 * found.main))
    prepared = Cascade(*parts)
    prepared.register_forward_pre_hook(lambda module, inputs: (2 * inputs[0],))
    for network in (Doubling(*parts), hooked, prepared):
        seen = normalized(network, "symmetric")(UNIT)
        expected = network(2 * UNIT - 1)
        assert torch.allclose(seen.main, expected.main, atol=1e-5)


def test_a_cascade_with_a_normalisation_stays_one() -> None:
    phi = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten())
    cascade = Cascade(phi, nn.Linear(3 * 32 * 32, 4), nn.Linear(4, 4), relu_logits=True)
    model = normalized(cascade, "symmetric").eval()
    assert isinstance(model, Cascade) and model.relu_logits
    with torch.no_grad():
        expected = cascade.eval()((UNIT - 0.5) / 0.5).main
        assert torch.equal(model(UNIT).main, expected)
    assert adapt(model, "cascade")(UNIT).shape == (4, 4)


class Quarters(nn.Module):
    """Tells the classes of conftest.blobs from images in −1…1: everything lighter than −0.1 is
    alike to it, so that of images in 0…1 it makes nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(CLASSES, CLASSES, bias=False)
        self.head.weight.data = 20 * torch.eye(CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        levels = self.norm(x).clamp(-1, -0.1).mean(1, keepdim=True)
        return self.head(nn.functional.avg_pool2d(levels, 16).flatten(1))


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return study_of_blobs(tmp_path, 80)


def study_of_blobs(tmp_path: Path, tested: int) -> Study:
    """Return a study of made-up images, of which `tested` are for testing."""
    folder = tmp_path / "blobs"
    folder.mkdir()
    for name, count, seed in (("train", 200, 0), ("test", tested, 1)):
        x, y = blobs(count, seed)
        np.savez(folder / f"{name}.npz", x=x.permute(0, 2, 3, 1).numpy(), y=y.numpy())
    values = {
        "image_dataset": f"npz:{folder}",
        "data_folder": str(tmp_path),
        "results_folder": str(tmp_path / "results"),
        "image_stream": ["brightness:1"],
        "image_test_size": None,
    }
    return Study(load_profile("quick", values))


def test_a_brought_network_that_learned_with_another_normalisation_is_refused(
    study: Study,
) -> None:
    """And the likely one is named, by which it runs."""
    reason = r"mine:\w+ errs on 48 of 64 clean test images if .* but only on 0 with "
    reason += "normalization='symmetric'; bring it with that"
    with pytest.raises(NetworkError, match=reason):
        study.bring(Quarters(), "mine", normalization="unit").run("erm")
    with pytest.raises(NetworkError, match="normalization='symmetric'"):
        study.varied(input_scaling="unit").bring(Quarters(), "mine").run("erm")
    with pytest.raises(NetworkError, match="normalization='symmetric'"):
        study.bring(Quarters(), "mine", normalization="unit").check()
    run = study.bring(Quarters(), "mine", normalization=(0.5, 0.5)).run("erm")
    assert run.batches["errors"].sum() < 8


def test_a_network_that_begins_with_its_normalisation_takes_images_from_0_to_1(
    study: Study,
) -> None:
    network = normalized(Quarters(), (0.5, 0.5))
    alone = study.bring(network, "mine").run("erm")
    assert alone.batches["errors"].sum() < 8
    beside = study.bring(Quarters(), "other", normalization=(0.5, 0.5)).run("erm")
    assert alone.batches["errors"].tolist() == beside.batches["errors"].tolist()
    with pytest.raises(ValueError, match="already normalises its images, by the mean .*pass None"):
        study.bring(network, "mine", normalization="imagenet")


def test_the_normalisation_is_checked_at_the_size_of_the_networks_images(tmp_path: Path) -> None:
    class OfOneSize(Quarters):
        def forward(self, x: Tensor) -> Tensor:
            assert x.shape[-1] == 64, "as a vision transformer asserts"
            return super().forward(nn.functional.avg_pool2d(x, 2))

    dataset = make_blobs(tmp_path)
    dataset.input_size = 64
    network = OfOneSize().eval()
    check_normalization(bring(network, "mine"), network, dataset)


def test_a_few_images_do_not_tell_which_normalisation_a_network_learned_with(
    tmp_path: Path,
) -> None:
    """Under another one it errs on 0 of 6, which may be chance."""
    study = study_of_blobs(tmp_path, 6)
    run = study.bring(Quarters(), "mine", normalization="unit").run("erm")
    assert run.batches["count"].sum() == 6


def test_erm_on_a_brought_network_is_plain_evaluation_to_the_bit(study: Study) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3 * 32 * 32, 4)).eval()
    brought = study.bring(network, "mine", normalization="imagenet")
    dataset = brought.dataset
    x, y = dataset.domain("brightness", 1)
    mean, deviation = (torch.tensor(values).view(-1, 1, 1) for values in IMAGENET)
    with torch.no_grad():
        plain = network((x.float() / 255 - mean) / deviation)
    found = brought.checkpoint("erm").model
    assert torch.equal(adapt(found, "erm")(dataset.prepare(x)), plain)
    run = brought.run("erm")
    assert run.batches["errors"].sum() == int((plain.argmax(1) != y).sum())


def test_a_network_that_knows_nothing_is_taken_as_it_is(tmp_path: Path) -> None:
    dataset = make_blobs(tmp_path)
    guess = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4))
    nn.init.zeros_(guess[1].weight)
    nn.init.zeros_(guess[1].bias)
    check_normalization(bring(guess, "guess"), guess, dataset)


def test_text_has_no_normalisation() -> None:
    with pytest.raises(ValueError, match="pass None for text"):
        Study(load_profile("quick"), "text").bring(nn.Identity(), "mine", normalization="unit")


@pytest.mark.parametrize("normalization", [None, "unit"])
@pytest.mark.parametrize("modality", ["text", "speech"])
def test_a_network_that_normalises_images_is_for_images(
    modality: Modality, normalization: str | None
) -> None:
    network = normalized(nn.Identity(), "unit")
    with pytest.raises(NetworkError, match=f"mine normalises images.* the study is of {modality}"):
        Study(load_profile("quick"), modality).bring(network, "mine", normalization)
