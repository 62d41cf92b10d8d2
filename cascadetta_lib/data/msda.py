"""Marginalised stacked denoising autoencoders (mSDA, Chen et al. 2012), which have a closed form.

Each feature of an example x is dropped, that is set to 0, with probability p. A constant 1 beside
the features is always kept. A layer is the linear map W that best restores x from what is left of
x̄ = [x; 1], in expectation over what is dropped. Let S = Σ x̄ x̄ᵀ be a sum over the examples, and
let q = (1−p, …, 1−p, 1). Then:

    E[Q]_ij = S_ij q_i q_j (i ≠ j),   E[Q]_ii = S_ii q_i,   E[P]_ij = S_ij q_j,
    W = E[P] E[Q]⁻¹,   h = tanh(W x̄)

Layers are stacked: each is fitted on the h of the layer before. The features of an example are x
and the h of all layers, side by side.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

RIDGE = 1e-5
"""Added to the diagonal of E[Q]. Without it, a feature that no example has would make E[Q]
singular.
"""


def fit_msda(x: Tensor, *, layers: int, probability: float) -> list[Tensor]:
    """Fit `layers` stacked layers on the examples x, (N, D).

    probability: p, the probability that a feature is dropped, in [0, 1).

    Returns the W of each layer, float32 (D, D + 1), on the device of x.
    """
    weights: list[Tensor] = []
    for _ in range(layers):
        weights.append(_fit_layer(x, probability))
        x = apply_msda(x, weights[-1:])[-1]
    return weights


def apply_msda(x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Return the examples x, float32 (N, D), and the h of each layer, of the same shape.

    weights: the W of each layer, from `fit_msda`.
    """
    outputs = [x]
    for weight in weights:
        outputs.append(torch.addmm(weight[:, -1], outputs[-1], weight[:, :-1].T).tanh_())
    return outputs


def _fit_layer(x: Tensor, probability: float) -> Tensor:
    """Return W, float32 (D, D + 1), the solution of E[Q] Wᵀ = E[P]ᵀ."""
    examples = torch.cat([x.double(), x.new_ones(len(x), 1, dtype=torch.float64)], 1)
    q = torch.full_like(examples[0], 1 - probability)
    q[-1] = 1
    moments = examples.T @ examples
    expected_p = (moments * q)[:-1]
    own = moments.diagonal() * q + RIDGE
    expected_q = moments.mul_(q).mul_(q[:, None])
    expected_q.diagonal().copy_(own)
    return torch.cholesky_solve(expected_p.T, torch.linalg.cholesky(expected_q)).T.float()
