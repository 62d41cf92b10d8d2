"""Losses: entropies of predictions, and TTT's rotation task."""

import math

import torch
from torch import Tensor

from cascadetta_lib.augment import generator_for
from cascadetta_lib.models import Outputs


def at_least_float32(logits: Tensor) -> Tensor:
    """Return logits of half precision in float32, in which losses are computed, and others as they
    are.

    On a CPU autocast leaves softmax and entropy in bfloat16, where the entropy of a sure prediction
    is off by a tenth.
    """
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def full_precision(x: Tensor) -> torch.autocast:
    """Switch autocast off, on the device of x: a context for products of matrices that a method
    makes of float32 numbers, such as cosines of features. Autocast would make them in bfloat16.
    """
    return torch.autocast(x.device.type, enabled=False)


def probabilities(logits: Tensor) -> Tensor:
    """Return softmax(logits), (B, C) → (B, C), in float32 or better."""
    return at_least_float32(logits).softmax(1)


def log_probabilities(logits: Tensor) -> Tensor:
    """Return ln softmax(logits), (B, C) → (B, C), in float32 or better, with −10,000 in the place
    of −∞.

    So a class that a network masks by −∞ adds 0 to an entropy, not 0·(−∞): exp(−10,000) is 0 too.
    """
    values = at_least_float32(logits).log_softmax(1)
    return values.masked_fill(values.isneginf(), -1e4)


def entropy(logits: Tensor) -> Tensor:
    """Return the Shannon entropy of softmax(logits) in nats: (B, C) → (B,)."""
    log_p = log_probabilities(logits)
    return -(log_p.exp() * log_p).sum(1)


def entropy_of_mean(logits: Tensor) -> Tensor:
    """Return the entropy of the mean of softmax(logits) over the batch, (B, C) → a scalar in
    nats. It is 0 if every example is surely predicted as one and the same class.
    """
    # By logarithms, since the gradient of −p·ln p is infinite at p = 0, to which the mean of a
    # collapsed head rounds.
    mean = log_probabilities(logits).logsumexp(0) - math.log(len(logits))
    return -(mean.exp() * mean).sum()


def mean_weights(chosen: Tensor, dtype: torch.dtype) -> Tensor:
    """Return weights (B,) for a mean over the chosen ones of B examples. They sum to 1, or to 0 if
    none is chosen.

    Weights take the place of a boolean index, whose size would have to be read from the device.

    chosen: bool (B,). dtype: that of the values. The weights have it, or float32 if it is less
    precise.
    """
    return chosen.to(torch.promote_types(dtype, torch.float32)) / chosen.sum().clamp(min=1)


def information_loss(logits: Tensor, diversity: float) -> Tensor:
    """Return the mean entropy less `diversity` times the entropy of the mean prediction: logits
    (B, C) → a scalar in nats.

    0 is the paper's entropy; 1 is the negative mutual information of x and the predicted class,
    which predicting one class for every x does not minimise.
    """
    loss = entropy(logits).mean()
    return loss - diversity * entropy_of_mean(logits) if diversity else loss


def describe(outputs: Outputs) -> dict[str, Tensor]:
    """Describe θ_m and θ_a on a batch by scalars: the mean entropies of z and of a and the entropy
    of a's mean prediction, in nats, and their agreement, the share of examples with argmax a =
    argmax z. Without θ_a the last three are missing.

    A collapsed θ_a has entropy_auxiliary and entropy_of_mean_auxiliary near 0 and agreement near
    1/C.
    """
    z, a = outputs
    found = {"entropy_main": entropy(z).mean()}
    if a is not None:
        found["entropy_auxiliary"] = entropy(a).mean()
        found["entropy_of_mean_auxiliary"] = entropy_of_mean(a)
        found["agreement"] = (a.argmax(1) == z.argmax(1)).float().mean()
    return found


def rotate_randomly(x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Turn each image of (B, C, H, H) by a random multiple of 90°, as TTT does. Returns also by how
    many, int64 (B,).
    """
    quarters = torch.randint(4, (len(x),), generator=generator_for(x, generator), device=x.device)
    choices = torch.stack([x.rot90(count, (2, 3)) for count in range(4)])
    return choices[quarters, torch.arange(len(x), device=x.device)], quarters
