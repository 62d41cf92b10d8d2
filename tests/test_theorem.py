"""The check of Theorem 1, against the whole Hessian of a network that is small enough to have one."""

import pytest
import torch
from torch.func import functional_call

from cascadetta_lib import theorem
from cascadetta_lib.data.image import ImageDataset
from cascadetta_lib.models import Cascade, MLPConfig, ResNetConfig
from cascadetta_lib.pretrain import (
    Half,
    MetaProblem,
    TrainingConfig,
    batch_statistics,
    build_model,
    inner_parameter_names,
    self_supervised_loss,
)


@pytest.fixture
def small() -> tuple[Cascade, MetaProblem]:
    torch.manual_seed(0)
    model = build_model(MLPConfig(inputs=4, hidden=(5,), classes=2), "meta", seed=0).double()
    assert isinstance(model, Cascade)
    x, y = torch.randn(24, 4, dtype=torch.float64), torch.randint(2, (24,))
    halves = Half(x[:12], y[:12], None), Half(x[12:], y[12:], None)
    return model, MetaProblem(*halves, inner_parameter_names(model, "all"), 0.05, "paper", 0.1)


def test_curvatures_are_the_ends_of_the_spectrum(
    small: tuple[Cascade, MetaProblem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(theorem, "ITERATIONS", 3000)
    model, problem = small
    names = problem.inner_names
    parameters = dict(model.named_parameters())
    shapes = [parameters[name].shape for name in names]

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self) -> torch.Tensor:
            return self_supervised_loss(self.model, problem.meta_train)

    def loss(flat: torch.Tensor) -> torch.Tensor:
        parts = flat.split([shape.numel() for shape in shapes])
        moved = {f"model.{n}": p.view(s) for n, p, s in zip(names, parts, shapes, strict=True)}
        return functional_call(Loss(), moved, ())

    flat = torch.cat([parameters[name].detach().flatten() for name in names])
    with batch_statistics(model):
        spectrum = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, flat))
        before = {name: value.clone() for name, value in model.state_dict().items()}
        generator = torch.Generator().manual_seed(0)
        found = theorem._check(model, problem, 0.5, generator)
    assert found["largest_curvature"] == pytest.approx(spectrum[-1].item(), rel=1e-3)
    assert found["smallest_curvature"] == pytest.approx(spectrum[0].item(), rel=1e-3)
    assert spectrum[0] <= found["curvature_along_gradient"] <= spectrum[-1]
    assert found["error_chain_rule"] < 1e-12
    # Another learning rate and another point are another gradient.
    assert found["error_as_printed"] > 1e-3 and found["error_first_order"] > 1e-4
    for name, value in model.state_dict().items():
        assert torch.allclose(value, before[name], atol=1e-12), "the network is where it was"


def test_on_images_without_touching_the_network(dataset: ImageDataset) -> None:
    model = build_model(ResNetConfig(depth=8, width=4, classes=4), "meta", seed=0)
    assert isinstance(model, Cascade)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first = theorem.check_theorem(model, dataset, TrainingConfig(epochs=1), seed=0)
    assert first["error_chain_rule"] < 1e-4
    assert first["smallest_curvature"] <= first["curvature_along_gradient"] <= first["largest_curvature"] + 1e-6
    assert first == theorem.check_theorem(model, dataset, TrainingConfig(epochs=1), seed=0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
