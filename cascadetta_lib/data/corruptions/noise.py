"""Corruptions by noise."""

from torch import Tensor

from cascadetta_lib.data.corruptions.common import Draws


def gaussian_noise(x: Tensor, draws: Draws, sigma: float) -> Tensor:
    return x + draws.normal(x.shape, 0, sigma)


def shot_noise(x: Tensor, draws: Draws, photons: int) -> Tensor:
    return draws.poisson(x * photons) / photons


def impulse_noise(x: Tensor, draws: Draws, amount: float) -> Tensor:
    """Set channels of pixels to black or to white, each with probability `amount` / 2. Channels are
    drawn independently.
    """
    chance = draws.uniform(x.shape, 0, 1)
    return x.masked_fill(chance < amount / 2, 0).masked_fill(chance >= 1 - amount / 2, 1)


def speckle_noise(x: Tensor, draws: Draws, sigma: float) -> Tensor:
    return x + x * draws.normal(x.shape, 0, sigma)
