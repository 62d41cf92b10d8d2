"""What the inner step adds to the gradient of pre-training on images, and how well the two routes
compute it.

`./run_all.sh python benchmarks/meta_gradient.py npz:FOLDER` takes a fresh network and the shipped
ones of the objective `meta`. It prints, on batches of randomised source images, in each reading of
Algorithm 1 (the release's, whose inner step moves BatchNorm and θ_m, and the paper's, which moves
ψ), at the α and λ of the training's beginning:

inner step: how far the exact meta-gradient is from the gradient of the same losses without an inner
step, and second order: how large its second-order term is, as shares of the norm of the exact one,
in float64; exact, difference: the error of each route in float32, on a GPU also with the
convolutions in TF32: of the whole gradient as a share of its norm, and of the second-order term,
which is what the route adds to the first order, as a share of that term.
"""

import argparse
import copy

import torch
from torch import Tensor, nn

from cascadetta_lib.data.base import Split
from cascadetta_lib.models import ImageNetwork
from cascadetta_lib.training.meta import META_GRADIENTS, MetaProblem, flatten, inner_parameter_names
from cascadetta_lib.training.objectives import Half, Training
from cascadetta_lib.training.pretrain import new_network
from study.provenance import provenance
from study.settings import load_profile
from study.study import Study

BATCHES, EXAMPLES = 3, 200
READINGS = {"release": "batchnorm_and_classifier", "paper": "all"}
"""The outer loss of each reading, and what its inner step moves."""
TRAINING = Training(epochs=1)


def first_order(model: nn.Module, problem: MetaProblem) -> Tensor:
    """The gradient on all parameters at ψ′, as if ψ′ did not depend on ψ. The model is left
    there."""
    parameters = dict(model.named_parameters())
    main, inner_loss = problem.at_psi(model)
    moved = [parameters[name] for name in problem.inner_names]
    steps = torch.autograd.grad(inner_loss, moved, retain_graph=True)
    found = torch.zeros(())
    if main.requires_grad:
        found = flatten(
            torch.autograd.grad(main, list(parameters.values()), materialize_grads=True)
        )
    with torch.no_grad():
        for parameter, step in zip(moved, steps, strict=True):
            parameter.sub_(step, alpha=problem.inner_learning_rate)
    return found.to(inner_loss.device) + flatten(
        torch.autograd.grad(problem.outer(model), list(parameters.values()))
    )


def measure(name: str, model: nn.Module, batch: Split, reading: str) -> None:
    """Print the line of one network, batch and reading."""

    def network(dtype: torch.dtype) -> nn.Module:
        return copy.deepcopy(model).to(dtype).train()

    def problem(dtype: torch.dtype, alpha: float) -> MetaProblem:
        train, test = (
            Half(x.to(dtype), y) for x, y in zip(batch.x.chunk(2), batch.y.chunk(2), strict=True)
        )
        names = inner_parameter_names(model, READINGS[reading])  # type: ignore[arg-type]
        return MetaProblem(train, test, names, alpha, reading, TRAINING.entropy_weight)  # type: ignore[arg-type]

    def gradient(route: str, dtype: torch.dtype, alpha: float) -> Tensor:
        return flatten(
            META_GRADIENTS[route](network(dtype), problem(dtype, alpha))[1].values()
        ).double()

    alpha, double, single = (
        TRAINING.inner_learning_rate_ratio * TRAINING.learning_rate,
        torch.float64,
        torch.float32,
    )
    exact = gradient("exact", double, alpha)
    inner_step = exact - gradient("exact", double, 0.0)
    second_order = exact - first_order(network(double), problem(double, alpha))
    told = [
        f"inner step {inner_step.norm() / exact.norm():.1e}, second order "
        f"{second_order.norm() / exact.norm():.1e}"
    ]
    for tf32 in (False, True) if batch.x.is_cuda else (False,):
        torch.backends.cudnn.allow_tf32 = tf32
        first = first_order(network(single), problem(single, alpha)).double()
        for route in META_GRADIENTS:
            found = gradient(route, single, alpha)
            whole = (found - exact).norm() / exact.norm()
            part = (found - first - second_order).norm() / second_order.norm()
            told.append(
                f"{route}{' in TF32' * tf32}: whole off by {whole:.1e}, second order by {part:.2f}"
            )
    torch.backends.cudnn.allow_tf32 = False
    print(f"{name}, {reading}: {'; '.join(told)}", flush=True)


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", help="as image_dataset of a profile; 32 × 32 pixels")
    study = Study(load_profile("study", {"image_dataset": parser.parse_args().dataset}))
    dataset, made = study.dataset, provenance(study.device, 0)
    print(
        f"{dataset.source}; {made['device']}; torch {torch.__version__}; code "
        f"{made['code_revision']}",
        flush=True,
    )
    fresh: nn.Module = new_network(dataset, ImageNetwork(block="pre_activation"), "meta", 0).to(
        study.device
    )
    shipped = {
        f"meta-{seed}": study.at_seed(seed).checkpoint("meta").model
        for seed in study.settings.seeds
    }
    for name, model in {"fresh": fresh, **shipped}.items():
        for seed in range(BATCHES):
            draws = torch.Generator().manual_seed(seed)
            chosen = torch.randperm(len(dataset.train.y), generator=draws)[:EXAMPLES].to(
                study.device
            )
            x, y = dataset.train.take(chosen)
            batch = Split(dataset.prepare(dataset.randomise(x, draws)), y)
            for reading in READINGS:
                measure(f"{name}, batch {seed}", model, batch, reading)


if __name__ == "__main__":
    main()
