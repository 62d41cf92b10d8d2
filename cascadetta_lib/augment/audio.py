"""Augmentations of speech, in batches and on the device.

Domain randomisation (Sec. 5.3 of the paper) is a gain, a high-pass filter and a convolution with an
impulse response, in that order and with audiomentations' default ranges. The gain resembles the
test domain "amplitude"; the paper names both, and neither changes what the network sees, because
spectrograms are relative to their own maximum.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from cascadetta_lib.augment import change_chosen, generator_for

SAMPLE_RATE = 16_000
GAIN = (-12.0, 12.0)  # dB
CUTOFF = (20.0, 2400.0)  # Hz, drawn uniformly on the mel scale
BUTTERWORTH = {
    2: (1, 2**0.5, 1),
    3: (1, 2, 2, 1),
    4: (1, 2.613125929752753, 2 + 2**0.5, 2.613125929752753, 1),
}
"""Orders of the high-pass filter, 12, 18 and 24 dB an octave, and the coefficients of their
Butterworth polynomials.
"""
REVERBERATION = (0.1, 0.6)  # seconds in which an impulse response falls by 60 dB
RESPONSE = round(REVERBERATION[1] * SAMPLE_RATE)  # samples of an impulse response
LARGEST_MASK = 4  # bands and frames that a mask of `spectrogram_copies` covers at most
NOISE = (
    0.005,
    0.02,
)  # standard deviation of the noise of `spectrogram_copies`; the network's input spans −1..1


def augment(waveforms: Tensor, generator: torch.Generator, *, probability: float) -> Tensor:
    """Augment float32 waveforms (N, L), each by every augmentation with `probability`; the result
    may leave [−1, 1].
    """

    device = waveforms.device
    generator = generator_for(waveforms, generator)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(len(waveforms), generator=generator, device=device)

    def respond(waveforms: Tensor, decay: Tensor) -> Tensor:
        seconds = torch.arange(RESPONSE, device=device) / SAMPLE_RATE
        noise = torch.randn(len(decay), RESPONSE, generator=generator, device=device)
        return reverberate(waveforms, noise * 10 ** (-3 * seconds / decay[:, None]))

    louder, filtered, reverberated = (uniform(0, 1) < probability for _ in range(3))
    gain = torch.where(louder, 10 ** (uniform(*GAIN) / 20), 1)
    # The mel scale is 2595·log10(1 + f/700).
    low, high = (math.log10(1 + frequency / 700) for frequency in CUTOFF)
    cutoff = 700 * (10 ** uniform(low, high) - 1)
    orders = min(BUTTERWORTH), max(BUTTERWORTH) + 1
    order = torch.randint(*orders, (len(waveforms),), generator=generator, device=device)
    decay = uniform(*REVERBERATION)
    result = waveforms * gain[:, None]
    change_chosen(result, filtered, high_pass, cutoff, order)
    change_chosen(result, reverberated, respond, decay)
    return result


def high_pass(waveforms: Tensor, cutoff: Tensor, order: Tensor) -> Tensor:
    """Filter waveforms (N, L) by a Butterworth high-pass with `cutoff` (N,) in Hz and `order` (N,),
    2 to 4.

    The result is that of scipy.signal.sosfilt with a filter that has settled on the first sample,
    which is how audiomentations calls it. It is computed in the frequency domain as H = 1/B(1/s),
    where B is the Butterworth polynomial and the bilinear transform gives 1/s =
    −j·tan(ω_c/2)/tan(ω/2).
    """
    # A settled high-pass filter answers a constant with 0, so the first sample may be subtracted
    # beforehand.
    moved = waveforms - waveforms[:, :1]
    length = waveforms.shape[1] + RESPONSE  # leaves the slowest filter 0.3 s and more to settle
    half_frequency = torch.linspace(0, torch.pi / 2, length // 2 + 1, device=waveforms.device)
    ratio = torch.tan(torch.pi * cutoff / SAMPLE_RATE)[:, None] / torch.tan(half_frequency)[1:]
    inverse = torch.complex(torch.zeros_like(ratio), -ratio)
    for one, coefficients in BUTTERWORTH.items():
        change_chosen(inverse, order == one, partial(_response, coefficients))
    response = F.pad(inverse, (1, 0))  # Nothing passes at 0 Hz.
    return torch.fft.irfft(torch.fft.rfft(moved, length) * response, length)[
        :, : waveforms.shape[1]
    ]


def _response(coefficients: Sequence[float], inverse: Tensor) -> Tensor:
    """Return H of a filter by the coefficients of its Butterworth polynomial, highest power first,
    at 1/s.
    """
    polynomial = torch.zeros_like(inverse)
    for coefficient in coefficients:
        polynomial = polynomial * inverse + coefficient
    return 1 / polynomial


def reverberate(waveforms: Tensor, responses: Tensor) -> Tensor:
    """Convolve waveforms (N, L) with impulse responses (N, RESPONSE), scale the largest absolute
    value to 0.5 as audiomentations does, and cut the tail off: (N, L). Silence stays silent."""
    # torchaudio's fftconvolve takes four times as long, because it transforms lengths with large
    # prime factors.
    length = waveforms.shape[1] + RESPONSE
    whole = torch.fft.irfft(
        torch.fft.rfft(waveforms, length) * torch.fft.rfft(responses, length), length
    )
    largest = whole.abs().amax(1, keepdim=True)
    return torch.where(largest > 0, 0.5 / largest, 0) * whole[:, : waveforms.shape[1]]


def spectrogram_copies(x: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield `count` versions of prepared spectrograms (B, 1, bands, frames) with up to LARGEST_MASK
    adjacent bands and as many frames set to the batch's mean and with Gaussian noise. A draw serves
    the whole batch, as in CoTTA."""
    low, high = NOISE
    width = torch.randint(LARGEST_MASK + 1, (count, 2), generator=generator)
    places = torch.tensor(x.shape[2:]) - width + 1
    first = (torch.rand(count, 2, generator=generator) * places).long()
    deviations = (low + (high - low) * torch.rand(count, generator=generator)).tolist()
    generator = generator_for(x, generator)
    for start, end, deviation in zip(
        first.tolist(), (first + width).tolist(), deviations, strict=True
    ):
        copy = x.clone()
        copy[:, :, start[0] : end[0]] = copy[..., start[1] : end[1]] = x.mean()
        yield copy + deviation * torch.randn(x.shape, generator=generator, device=x.device)
