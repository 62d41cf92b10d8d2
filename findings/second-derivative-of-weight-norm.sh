#!/usr/bin/env bash
# torch 2.14.1 on a CPU: weight normalisation (torch.nn.utils.parametrizations.weight_norm, and the
# older torch.nn.utils.weight_norm, which calls the same function) has the right gradient, but the
# wrong gradient of a gradient, and nothing says so.
# Expected: what autograd differentiates twice, as for BatchNorm, LayerNorm or the same formula
# written out, v * (g / v.norm(...)), is the derivative of the gradient.
# Seen for a convolution in time (3 to 4 channels) before a linear layer: the errors, relative to
# central differences of the library's own loss or gradient, for weight_norm by dim and written out:
#                               dim=0   dim=1   dim=2   written out (dim=0)
#   gradient                    0.000   0.000   0.000   0.000
#   Hessian                     0.099   0.000   0.082   0.000
#   asymmetry of the Hessian    0.132   0.000   0.113   0.000
#   meta-gradient, three steps  0.073   0.000   0.016   0.000
#   gradient matching           0.214   0.000   0.186   0.000
# For the first and the last dim a fused function runs; in the derivative of its derivative the norm
# of v is a constant. Forward mode (torch.func.hessian) raises there. "Gradient matching" is the
# gradient of the squared distance between the gradients of two domains.
# Limits: float64, one small network as it is initialised; how large the error is depends on the
# network, and it shrinks with the gradient. Training by first gradients is right, and so is a
# penalty on the gradient by the input. Not tried on a GPU.
# Where the field meets it: second-order MAML and other gradients through steps of adaptation,
# sharpness, curvature and gradient matching, for SHOT's weight-normalised classifier (dim=0) or
# the positional convolution of wav2vec 2.0 and HuBERT (dim=2).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --no-compile --target "$folder" torch==2.14.1 numpy==2.4.6
PYTHONPATH=$folder python3 -W ignore - <<'CODE'
import torch
from torch.func import functional_call
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

torch.manual_seed(0)
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
inputs, labels = torch.randn(32, 3, 8), torch.randint(3, (32,))
others, other_labels = torch.randn(32, 3, 8), torch.randint(3, (32,))


class Written(torch.nn.Module):
    """Weight normalisation over all dimensions but the first, by its formula."""

    def forward(self, length, direction):
        return direction * (length / direction.norm(dim=(1, 2), keepdim=True))

    def right_inverse(self, weight):
        return weight.norm(dim=(1, 2), keepdim=True), weight


def make(kind):
    torch.manual_seed(1)
    convolution = torch.nn.Conv1d(3, 4, 3)
    if kind == "written":
        parametrize.register_parametrization(convolution, "weight", Written())
    else:
        weight_norm(convolution, dim=kind)
    layers = convolution, torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(24, 3)
    return torch.nn.Sequential(*layers)


def loss(network, parameters, inputs, labels):
    logits = functional_call(network, parameters, (inputs,))
    return torch.nn.functional.cross_entropy(logits, labels)


def adapted(network, parameters):
    """Return the parameters after three steps of gradient descent, with their graph."""
    for _ in range(3):
        value = loss(network, parameters, inputs, labels)
        gradients = torch.autograd.grad(value, list(parameters.values()), create_graph=True)
        pairs = zip(parameters.items(), gradients)
        parameters = {name: old - 0.5 * gradient for (name, old), gradient in pairs}
    return parameters


def mismatch(network, parameters):
    """Return the squared distance between the gradients for two sets of examples."""
    values = list(parameters.values())
    found = [
        torch.autograd.grad(loss(network, parameters, *data), values, create_graph=True)
        for data in ((inputs, labels), (others, other_labels))
    ]
    return sum((first - second).square().sum() for first, second in zip(*found))


def differences(function, flat, step=1e-5):
    """Return the derivative of a function by central differences."""
    columns = []
    for place in range(len(flat)):
        shift = torch.zeros_like(flat)
        shift[place] = step
        columns.append((function(flat + shift) - function(flat - shift)) / (2 * step))
    return torch.stack(columns, dim=-1).detach()


def error(found, true):
    return float((found - true).norm() / true.norm())


def measure(kind):
    network = make(kind)
    start = {name: value.detach() for name, value in network.named_parameters()}
    flat = torch.cat([value.flatten() for value in start.values()])

    def unpack(flat):
        parts = flat.split([value.numel() for value in start.values()])
        pairs = zip(start.items(), parts)
        return {name: part.view_as(value) for (name, value), part in pairs}

    def value(flat):
        return loss(network, unpack(flat), inputs, labels)

    def value_after_steps(flat):
        return loss(network, adapted(network, unpack(flat)), others, other_labels)

    def mismatched(flat):
        return mismatch(network, unpack(flat))

    def gradient(function):
        def differentiate(flat):
            flat = flat.detach().requires_grad_()
            return torch.autograd.grad(function(flat), flat)[0]

        return differentiate

    def by_differences(function):
        return differences(lambda flat: function(flat.detach().requires_grad_()), flat)

    hessian = torch.autograd.functional.hessian(value, flat)
    return {
        "gradient": error(gradient(value)(flat), by_differences(value)),
        "Hessian": error(hessian, differences(gradient(value), flat)),
        "asymmetry": error(hessian.T, hessian),
        "meta-gradient": error(
            gradient(value_after_steps)(flat), by_differences(value_after_steps)
        ),
        "matching": error(gradient(mismatched)(flat), by_differences(mismatched)),
    }


seen = {kind: measure(kind) for kind in (0, 1, 2, "written")}
for name in seen[0]:
    print(f"{name:14}", *(f"{seen[kind][name]:.3f}" for kind in seen))

for name in seen[0]:
    for kind in (1, "written"):
        assert seen[kind][name] < 1e-6, (kind, name)
    for kind in (0, 2):
        assert seen[kind][name] < 1e-6 if name == "gradient" else seen[kind][name] > 0.003
CODE
