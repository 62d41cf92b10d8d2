"""The marginalised stacked denoising autoencoder in closed form (mSDA, Chen et al. 2012).

A layer is the linear map W that restores [x; 1] from its corruption best, in expectation over all corruptions: each
feature is dropped (set to 0) with probability p, the constant never. With S = Σ x̄ x̄ᵀ over the examples x̄ = [x; 1] and
q = (1−p, …, 1−p, 1):

    E[Q]_ij = S_ij q_i q_j (i ≠ j),   E[Q]_ii = S_ii q_i,   E[P]_ij = S_ij q_j,   W = E[P] E[Q]⁻¹,   h = tanh(W x̄)

Layers stack: the next one is fitted on h.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

RIDGE = 1e-5
"""Added to the diagonal of E[Q], so that a feature that no example has does not make it singular."""
CHUNK = 2048
"""Examples, or columns of the inverse, that are worked on at a time."""
TOLERANCE = 1e-6
"""Conjugate gradients stop where the preconditioned norm of every residual is this small, relative to its first."""
MAX_STEPS = 1000
TINY = torch.finfo(torch.float64).tiny


def fit_msda(x: Tensor, *, layers: int, probability: float, solver: str) -> list[Tensor]:
    """The weights W of each layer, float32 (D, D + 1), fitted on the examples x, (N, D), on their device.

    Raises ValueError for a number of layers below 1, a probability outside 0 ≤ p < 1 or an unknown solver.
    """
    if layers < 1:
        raise ValueError(f"text_msda_layers = {layers!r}: allowed is 1 or more")
    if not 0 <= probability < 1:
        raise ValueError(f"text_msda_probability = {probability!r}: allowed is 0 or more and less than 1")
    if solver not in SOLVERS:
        raise ValueError(f"text_msda_solver = {solver!r}: allowed are {', '.join(SOLVERS)}")
    weights: list[Tensor] = []
    for _ in range(layers):
        weights.append(_fit_layer(x, probability, SOLVERS[solver]))
        x = _hidden(x, weights[-1])
    return weights


def apply_msda(x: Tensor, weights: Sequence[Tensor], *, output: str) -> Tensor:
    """The features of the examples x, float32 (N, D).

    output: "last" for the last layer's, (N, D), or "all" for x and every layer's one after the other, (N, D·(L+1)).
    """
    if output not in ("last", "all"):
        raise ValueError(f"text_msda_output = {output!r}: allowed are last, all")
    kept = [x] if output == "all" else []
    for weight in weights:
        x = _hidden(x, weight)
        kept = [*kept, x] if output == "all" else [x]
    return torch.cat(kept, 1) if len(kept) > 1 else kept[0]


def _hidden(x: Tensor, weight: Tensor) -> Tensor:
    """tanh(W x̄), float32 (N, D)."""
    return torch.addmm(weight[:, -1], x, weight[:, :-1].T).tanh_()


def _fit_layer(x: Tensor, probability: float, invert: Callable[[Tensor], Tensor]) -> Tensor:
    """W = E[P] E[Q]⁻¹ without E[P]: E[Q] = diag(q) S diag(q) + C with a diagonal C, and E[P] is the upper part of
    S diag(q) = diag(q)⁻¹ (E[Q] − C); so W is the upper part of diag(q)⁻¹ (1 − C E[Q]⁻¹)."""
    examples = torch.cat([x.double(), x.new_ones(len(x), 1, dtype=torch.float64)], 1)
    q = torch.full_like(examples[0], 1 - probability)
    q[-1] = 1
    moments = examples.T @ examples
    own = moments.diagonal() * q * (1 - q) + RIDGE  # C
    moments.mul_(q).mul_(q[:, None]).diagonal().add_(own)
    weight = invert(moments)[:-1].mul_(-own[:-1, None])
    weight.diagonal().add_(1)
    return weight.div_(q[:-1, None]).float()


def _cholesky(matrix: Tensor) -> Tensor:
    """The inverse of a positive definite matrix, directly."""
    # cholesky_inverse would be the natural call; on a CPU with several threads it was measured 7 times as slow.
    identity = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    return torch.cholesky_solve(identity, torch.linalg.cholesky(matrix))


def _conjugate_gradient(matrix: Tensor) -> Tensor:
    """The inverse of a positive definite matrix, column by column in chunks, with the diagonal as preconditioner.

    It multiplies by the matrix and no more, some 50 times on the counts of real reviews, and each time costs about as
    much as all of the direct way: minutes at 5,000 features on a CPU.
    """
    inverse, scale = torch.empty_like(matrix), matrix.diagonal()[:, None]
    for start in range(0, len(matrix), CHUNK):
        columns = slice(start, start + CHUNK)
        residual = torch.zeros_like(matrix[:, columns])
        residual[columns].fill_diagonal_(1)
        solution = torch.zeros_like(residual)
        preconditioned = residual / scale
        direction = preconditioned
        norm = first = (residual * preconditioned).sum(0)
        for _ in range(MAX_STEPS):
            product = matrix @ direction
            # A column that is solved exactly has a direction of 0; it stays where it is.
            step = norm / (direction * product).sum(0).clamp_min(TINY)
            solution += step * direction
            residual -= step * product
            preconditioned = residual / scale
            before, norm = norm, (residual * preconditioned).sum(0)
            if (norm <= TOLERANCE**2 * first).all():
                break
            direction = preconditioned + norm / before.clamp_min(TINY) * direction
        else:
            raise RuntimeError(f"conjugate gradients have not converged in {MAX_STEPS} steps; take cholesky")
        inverse[:, columns] = solution
    return inverse


SOLVERS: dict[str, Callable[[Tensor], Tensor]] = {"cholesky": _cholesky, "conjugate_gradient": _conjugate_gradient}
