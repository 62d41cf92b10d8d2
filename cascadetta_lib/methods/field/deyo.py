"""DeYO (Lee et al. 2024): minimise the entropy of images that the network recognises by their
shape. Shuffling the patches of an image destroys its shape.
"""

import math

import torch
from torch import Tensor

from cascadetta_lib.augment import generator_for
from cascadetta_lib.losses import entropy, entropy_of_mean, mean_weights, probabilities
from cascadetta_lib.methods import METHODS
from cascadetta_lib.methods.tent import Tent
from cascadetta_lib.models import Outputs, as_outputs

SURE = 0.5
NORMAL = 0.4
"""SURE is τ: a chosen image has a lower entropy. NORMAL is E₀ in the weight exp(E₀ − H). Both are
shares of ln C, as the authors set them.
"""
DROP = 0.2
"""Shuffling the patches must lower the probability of the predicted class by more than this."""
PATCHES = 4
"""The number of patches along a side."""


@METHODS.add("deyo")
class DeYO(Tent):
    """Minimise the mean of (exp(E₀ − H) + exp(D))·H over the chosen images, those with entropy H <
    τ and drop D > 0.2.

    The drop is D = p(ŷ | x) − p(ŷ | x with shuffled patches), with the predicted class ŷ = argmax
    p(x).

    Differences from the release:

    - All images of a batch are shuffled, and share their BatchNorm statistics. The release shuffles
      only images with H < τ.
    - If no image is chosen and `diversity` is 0, the loss is 0, and only the optimiser's momentum
      moves the weights. The release takes no step.
    - The authors use SGD with plain momentum 0.9, not Nesterov momentum.
    - The authors do not adapt the last stage of networks for ImageNet.
    """

    label = "DeYO"
    modalities = ("image",)

    def shuffled(self, x: Tensor) -> Tensor:
        """Cut each image of x (B, C, H, W) into 4×4 patches, and put them together in a random
        order. The order is drawn for each image.

        Raises ValueError for any other shape, and unless H and W are multiples of 4.
        """
        if x.ndim != 4 or x.shape[2] % PATCHES or x.shape[3] % PATCHES:
            shape = tuple(x.shape)
            raise ValueError(
                f"{self.label} shuffles 4×4 patches of images (B, C, H, W) whose sides are "
                f"multiples of 4, not {shape}"
            )
        patches = (
            x.unflatten(3, (PATCHES, -1))
            .unflatten(2, (PATCHES, -1))
            .permute(0, 2, 4, 1, 3, 5)
            .flatten(1, 2)
        )
        draw = torch.rand(
            patches.shape[:2], generator=generator_for(x, self.generator), device=x.device
        )
        patches = patches[torch.arange(len(x), device=x.device)[:, None], draw.argsort(1)]
        return (
            patches.unflatten(1, (PATCHES, PATCHES))
            .permute(0, 3, 1, 4, 2, 5)
            .flatten(4, 5)
            .flatten(2, 3)
        )

    def loss(self, x: Tensor) -> tuple[Tensor, Outputs]:
        # The shuffled images come first, so that BatchNorm remembers the statistics of x.
        destroyed = self.predict(self.shuffled(x)).main
        outputs = as_outputs(self.model(x))
        unsure = entropy(outputs.main)
        logits = outputs.main.detach()
        chance, predicted = probabilities(logits).max(1, keepdim=True)
        drop = (chance - probabilities(destroyed).gather(1, predicted))[:, 0]
        largest = math.log(logits.shape[1])
        weights = mean_weights((unsure.detach() < SURE * largest) & (drop > DROP), unsure.dtype)
        weights = weights * ((NORMAL * largest - unsure.detach()).exp() + drop.exp())
        return (weights * unsure).sum() - self.diversity * entropy_of_mean(outputs.main), outputs
