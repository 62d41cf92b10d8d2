"""Losses: entropies of predictions, and TTT's rotation task."""

import math

import torch
from torch import Tensor

from cascadetta_lib.augment import generator_for
from cascadetta_lib.models import Outputs


def at_least_float32(logits: Tensor) -> Tensor:
    """Return half-precision logits in float32, to compute losses from. Other logits are returned as
    they are.

    Autocast on a CPU leaves softmax and entropy in bfloat16, where the entropy of a sure prediction
    is off by a tenth.
    """
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def full_precision(x: Tensor) -> torch.autocast:
    """Return a context that switches autocast off on the device of x.

    A method uses it for products of float32 matrices, such as cosines of features. Autocast would
    compute these in bfloat16.
    """
    return torch.autocast(x.device.type, enabled=False)


def probabilities(logits: Tensor) -> Tensor:
    """Return softmax(logits), (B, C) → (B, C), in float32 or better."""
    return at_least_float32(logits).softmax(1)


def log_probabilities(logits: Tensor) -> Tensor:
    """Return ln softmax(logits), (B, C) → (B, C), in float32 or better, with −10,000 in place of
    −∞.

    A class that a network masks by −∞ then adds 0 to an entropy, since exp(−10,000) is 0. With −∞
    it would add 0·(−∞), which is NaN.
    """
    values = at_least_float32(logits).log_softmax(1)
    return values.masked_fill(values.isneginf(), -1e4)


def entropy(logits: Tensor) -> Tensor:
    """Return the Shannon entropy of softmax(logits) in nats: (B, C) → (B,)."""
    log_p = log_probabilities(logits)
    return -(log_p.exp() * log_p).sum(1)


def entropy_of_mean(logits: Tensor) -> Tensor:
    """Return the entropy of the mean of softmax(logits) over the batch, (B, C) → a scalar in nats.

    The entropy is 0 if all examples are predicted as the same class with certainty.
    """
    # The mean is kept as a logarithm. In a collapsed head the mean probability of the other classes
    # rounds to 0, where the gradient of −p·ln p is infinite.
    mean = log_probabilities(logits).logsumexp(0) - math.log(len(logits))
    return -(mean.exp() * mean).sum()


def mean_weights(chosen: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the weights (B,) for a mean over the chosen examples of a batch. The weights sum to 1,
    or to 0 if no example is chosen.

    Weights are used instead of a boolean index, because the number of indexed examples would have
    to be read from the device.

    chosen: bool (B,). dtype: the dtype of the values to average. The weights have this dtype, or
    float32 if float32 is more precise.
    """
    return chosen.to(torch.promote_types(dtype, torch.float32)) / chosen.sum().clamp(min=1)


def information_loss(logits: Tensor, diversity: float) -> Tensor:
    """Return the mean entropy minus `diversity` times the entropy of the mean prediction: logits
    (B, C) → a scalar in nats.

    With `diversity` = 0 this is the paper's loss. With 1 it is the negative mutual information of x
    and the predicted class. Predicting one class for every x does not minimise that.
    """
    loss = entropy(logits).mean()
    return loss - diversity * entropy_of_mean(logits) if diversity else loss


def describe(outputs: Outputs) -> dict[str, Tensor]:
    """Describe the predictions of a batch by scalars, with the keys below. Without θ_a only the
    first is there.

    entropy_main: the mean entropy of z, in nats.
    entropy_auxiliary: the mean entropy of a, in nats.
    entropy_of_mean_auxiliary: the entropy of a's mean prediction, in nats.
    agreement: the share of examples with argmax a = argmax z.

    If θ_a has collapsed, the entropies of a are near 0 and the agreement is near 1/C.
    """
    z, a = outputs
    found = {"entropy_main": entropy(z).mean()}
    if a is not None:
        found["entropy_auxiliary"] = entropy(a).mean()
        found["entropy_of_mean_auxiliary"] = entropy_of_mean(a)
        found["agreement"] = (a.argmax(1) == z.argmax(1)).float().mean()
    return found


def rotate_randomly(x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rotate each image of x (B, C, H, H) by a random multiple of 90°, as TTT does.

    Returns the rotated images, and the multiples, int64 (B,) in 0..3. Raises ValueError for images
    that are not square.
    """
    height, width = x.shape[2:]
    if height != width:
        raise ValueError(
            f"images of {height}×{width} pixels change their shape when they are rotated by 90°; "
            "allowed are square ones"
        )
    quarters = torch.randint(4, (len(x),), generator=generator_for(x, generator), device=x.device)
    choices = torch.stack([x.rot90(count, (2, 3)) for count in range(4)])
    return choices[quarters, torch.arange(len(x), device=x.device)], quarters
