"""How well a batch knows the variance: against what is known of independent values."""

import math
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pytest
import torch
from conftest import write_npz
from made_up_runs import Numbers, content, keep, made_up_runs, points_of, quick
from torch import Tensor, nn

from cascadetta_lib.data.images import ImageDataset
from cascadetta_lib.data.streams import Domain
from cascadetta_lib.evaluation.batch_variance import batch_variance, squared_errors
from cascadetta_lib.models import ImageNetwork, build_network
from study.exhibits import EXHIBITS
from study.exhibits.kit.stored_runs import Runs
from study.requests import VarianceRequest, code_of_variance
from study.store import Made, Store
from study.study import Study

FOG = Domain("fog", 5)


def test_errors_of_independent_and_of_equal_pixels() -> None:
    """Equal pixels count as one: a batch of 32 then has 32 values, not 32 × 100."""
    generator = torch.Generator().manual_seed(0)
    independent = torch.randn(32 * 200, 3, 10, 10, generator=generator)
    equal = torch.randn(32 * 200, 3, 1, 1, generator=generator).expand(-1, -1, 10, 10)
    for x, values in ((independent, 32 * 100), (equal, 32)):
        of_variance, of_mean = squared_errors(x, 32)
        assert of_variance == pytest.approx((2 * values - 1) / values**2, rel=0.1)
        assert of_mean == pytest.approx(1 / values, rel=0.1)


def test_few_independent_values_err_as_said() -> None:
    """With 8 values the unbiased variance would err by 11 % more than the one that divides by 8."""
    x = torch.randn(8 * 20_000, 1, generator=torch.Generator().manual_seed(0))
    of_variance, _ = squared_errors(x, 8)
    assert of_variance**0.5 == pytest.approx(15**0.5 / 8, rel=0.01)


def test_errors_by_hand() -> None:
    """Variances 1 and 4, means 1 and 6, beside a channel that is constant."""
    x = torch.tensor([[0.0, 5.0], [2.0, 5.0], [4.0, 5.0], [8.0, 5.0]])
    of_variance, of_mean = squared_errors(x, 2)
    variance = 8.75  # of 0, 2, 4, 8, whose mean is 3.5
    expected = ((1 / variance - 1) ** 2 + (4 / variance - 1) ** 2) / 2
    assert of_variance == pytest.approx(expected)
    assert of_mean == pytest.approx(2.5**2 / variance)


def test_each_layer_of_a_network_is_measured_and_the_network_stays(dataset: ImageDataset) -> None:
    model = build_network(ImageNetwork(depth=8, width=4), classes=4, seed=0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    layers = batch_variance(model, dataset, [FOG, FOG], 4)
    norms = [name for name, child in model.named_modules() if isinstance(child, nn.BatchNorm2d)]
    assert {layer["layer"] for layer in layers} == set(norms) and len(layers) == len(norms)
    assert layers[0]["values"] == 32 * 32
    assert layers[0]["independent_error"] == pytest.approx((2 * 4096 - 1) ** 0.5 / 4096)
    assert all(layer["variance_error"] > layer["independent_error"] for layer in layers)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert layers == batch_variance(model, dataset, [FOG], 4)


def test_what_cannot_be_measured_is_refused(dataset: ImageDataset) -> None:
    model = build_network(ImageNetwork(depth=8, width=4), classes=4, seed=0)
    with pytest.raises(
        ValueError, match="fog: the comparison needs two batches of 1000 among the first 1024"
    ):
        batch_variance(model, dataset, [FOG], 1000)
    with pytest.raises(ValueError, match=r"stream = \[\]; allowed is at least one domain"):
        batch_variance(model, dataset, [], 4)
    with pytest.raises(ValueError, match="no BatchNorm layer"):
        batch_variance(nn.Flatten(), dataset, [FOG], 4)
    with torch.no_grad():
        next(model.parameters())[0] = torch.nan
    with pytest.raises(ValueError, match="the inputs of the BatchNorm layer .* hold NaN"):
        batch_variance(model, dataset, [FOG], 4)


@pytest.mark.parametrize("value", [0.1, 0.3, 1 / 3, 100.1])
def test_a_constant_channel_does_not_count(value: float) -> None:
    """The variance of such a channel may round to more than 0."""
    constant = torch.full((64, 1, 7, 7), value)
    assert all(math.isnan(error) for error in squared_errors(constant, 8))
    varying = torch.randn(64, 1, 7, 7, generator=torch.Generator().manual_seed(0))
    both = torch.cat([varying, constant], 1)
    assert squared_errors(both, 8) == squared_errors(varying, 8)


class Unreached(nn.Module):
    """A network with a BatchNorm whose inputs are 0, and one that its forward does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.usual = nn.BatchNorm2d(3)
        self.constant = nn.BatchNorm2d(3)
        self.unused = nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.usual(x) + self.constant(0 * x)


def test_a_layer_without_a_variance_is_left_out(dataset: ImageDataset) -> None:
    [layer] = batch_variance(Unreached(), dataset, [FOG], 4)
    assert layer["layer"] == "usual" and layer["variance_error"] > 0
    unreached = Unreached()
    unreached.usual = nn.Identity()
    with pytest.raises(ValueError, match="every BatchNorm layer is unused or has constant inputs"):
        batch_variance(unreached, dataset, [FOG], 4)


def test_the_exhibit_shows_what_the_store_has(tmp_path: Path) -> None:
    settings = quick(results_folder=str(tmp_path), image_dataset="cifar10", image_batch_size=10)
    store = Store(settings.results_path)
    errors = {"adabn": 3, "source_prior": 2}
    points = points_of(settings, ["batch_variance"])
    runs = made_up_runs(
        settings, lambda method, *asked: Numbers((errors[method],) * 12), points, (0,)
    )
    for run in runs:
        keep(store, run)
    shown = EXHIBITS["batch_variance"].show(Runs.of_settings(settings))
    assert not shown.parts and "was not measured" in shown.lines[0]
    layer = {"layer": "stem", "channels": 16, "values": 1024}
    layer |= {"variance_error": 0.1, "mean_error": 0.2, "independent_error": 0.014}
    [adabn] = [run for run in runs if run.method == "adabn"]
    made_by = adabn.provenance
    request = VarianceRequest.of(adabn.request)
    code = code_of_variance(request.checkpoint)
    key = (made_by.fingerprint, made_by.domain_source, code)
    store.make_once("variance", request, key, lambda _: Made(made_by, {"layers": [layer]}))
    shown = EXHIBITS["batch_variance"].show(Runs.of_settings(settings))
    row = content(shown, "batch-variance").loc["stem"]
    assert row["error of the variance (%)"] == "10.00" and row["if independent (%)"] == "1.40"
    assert (
        row["effective independent values per example"] == "19.9"
    )  # √(2 · 199.5 − 1) / 199.5 is 0.1, of 10 examples
    right = content(shown, "batch-variance-figure").axes[1]
    assert right.lines[0].get_ydata() == pytest.approx([10.0] * 5)


def test_a_study_keeps_what_it_measures(tmp_path: Path) -> None:
    small = {"image_test_size": 20, "image_batch_size": 8, "image_training_epochs": 1}
    settings = quick(
        results_folder=str(tmp_path), image_stream=("fog", "snow"), image_train_size=200, **small
    )
    study = Study(settings)
    run = study.run("adabn")
    layers = study.batch_variance(run)
    assert layers == study.batch_variance(run) == study.store.batch_variance(run)
    assert len(list((tmp_path / "variance").glob("*/entry.json"))) == 1
    assert all(layer["variance_error"] > 0 for layer in layers)


def test_batches_too_large_for_the_measurement_are_not_measured(tmp_path: Path) -> None:
    """Two batches of 513 fit into a domain, and not into the 1,024 images that are used of it."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (1026, 32, 32, 3), dtype=np.uint8)
    write_npz(tmp_path / "own", test={"x": images, "y": np.arange(1026) % 10})
    settings = quick(
        results_folder=str(tmp_path),
        image_dataset=f"npz:{tmp_path / 'own'}",
        image_stream=("brightness",),
        image_test_size=1026,
        image_batch_size=513,
    )
    study = Study(settings).bring(plain_network(0.0), "mine")
    assert len(EXHIBITS["batch_variance"].make(study)) == 6
    assert not (tmp_path / "variance").exists()


def plain_network(shift: float) -> nn.Module:
    """A network for ten classes, whose channels are all shifted before the second BatchNorm."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=4),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, stride=4),
        nn.BatchNorm2d(4),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 10),
    )
    nn.init.constant_(network.get_parameter("1.bias"), shift)
    return network


def test_another_study_is_not_asked_of_a_run(tmp_path: Path) -> None:
    """It would keep the numbers of its own network, or of its own images, under the run's name."""
    small = {"image_test_size": 20, "image_batch_size": 8, "image_stream": ("fog",)}
    settings = quick(results_folder=str(tmp_path), **small)
    study = Study(settings).bring(plain_network(0.0), "mine")
    run = study.run("adabn")
    others = {
        "weights": Study(settings).bring(plain_network(2.0), "another"),
        "seed": study.at_seed(1),
        "test_size": study.varied(test_size=18),
    }
    for name, other in others.items():
        with pytest.raises(ValueError, match=f"the run has {name} = .*, and the study .*: use"):
            other.batch_variance(run)
    assert not (tmp_path / "variance").exists()
    assert study.varied(severity=1, batch_size=4).batch_variance(run) == study.batch_variance(run)
