"""The check of Theorem 1, against the whole Hessian of a network that is small enough to have one."""

import pytest
import torch
from torch.func import functional_call

from cascadetta_lib import theorem
from cascadetta_lib.data.images import ImageDataset
from cascadetta_lib.losses import entropy
from cascadetta_lib.meta import MetaProblem, batch_statistics, inner_parameter_names
from cascadetta_lib.models import Cascade, ImageNetwork, TextNetwork, build_network
from cascadetta_lib.objectives import Half, Training


def test_curvatures_are_the_ends_of_the_spectrum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theorem, "ITERATIONS", 3000)
    model = build_network(TextNetwork(hidden=(5,)), classes=2, inputs=4, seed=0).double()
    assert isinstance(model, Cascade)
    torch.manual_seed(0)
    x, y = torch.randn(24, 4, dtype=torch.float64), torch.randint(2, (24,))
    names = inner_parameter_names(model, "all")
    problem = MetaProblem(Half(x[:12], y[:12]), Half(x[12:], y[12:]), names, 0.05, "paper", 0.1)
    inner = [dict(model.named_parameters())[name].detach() for name in names]

    def loss(flat: torch.Tensor) -> torch.Tensor:
        parts = flat.split([value.numel() for value in inner])
        moved = {name: part.view_as(value) for name, part, value in zip(names, parts, inner, strict=True)}
        return entropy(functional_call(model, moved, (problem.meta_train.x,)).auxiliary).mean()

    with batch_statistics(model):
        hessian = torch.autograd.functional.hessian(loss, torch.cat([value.flatten() for value in inner]))
        spectrum = torch.linalg.eigvalsh(hessian)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        found = theorem._check(model, problem, 0.5, torch.Generator().manual_seed(0))
        equal = theorem._check(model, problem, 0.05, torch.Generator().manual_seed(0))
    assert found["largest_curvature"] == pytest.approx(spectrum[-1].item(), rel=1e-3)
    assert found["smallest_curvature"] == pytest.approx(spectrum[0].item(), rel=1e-3)
    assert spectrum[0] <= found["curvature_along_gradient"] <= spectrum[-1]
    assert found["error_chain_rule"] < 1e-12
    # Another learning rate and another point are another gradient.
    assert found["error_as_printed"] > 1e-3 and found["error_first_order"] > 1e-4
    assert 1e-12 < equal["error_moved_point"] < equal["error_first_order_equal_rates"]
    assert equal["error_first_order_equal_rates"] == equal["error_first_order"]
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), "the network is where it was"


def test_on_images_without_touching_the_network(dataset: ImageDataset) -> None:
    model = build_network(ImageNetwork(depth=8, width=4), classes=4, seed=0)
    assert isinstance(model, Cascade)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first = theorem.check_theorem(model, dataset, Training(), seed=0)
    assert first["error_chain_rule"] < 1e-4
    assert first["smallest_curvature"] <= first["curvature_along_gradient"] <= first["largest_curvature"] + 1e-6
    assert first == theorem.check_theorem(model, dataset, Training(), seed=0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
