"""Augmentations of speech, in batches and on the device.

Domain randomisation (Sec. 5.3 of the paper) is a gain, a high-pass filter and a convolution with an
impulse response, in this order and with audiomentations' default ranges. The gain resembles the
test domain "amplitude"; the paper names both. Both hardly change the network's input, because a
spectrogram is relative to its own maximum.
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
"""The coefficients of Butterworth polynomials, by the order of the high-pass filter. The filters
fall by 12, 18 and 24 dB per octave.
"""
REVERBERATION = (0.1, 0.6)  # seconds in which an impulse response falls by 60 dB
RESPONSE = round(REVERBERATION[1] * SAMPLE_RATE)  # samples of an impulse response
LARGEST_MASK = 4  # the most bands, or frames, that `spectrogram_copies` masks
NOISE = (
    0.005,
    0.02,
)  # range of the noise's standard deviation in `spectrogram_copies`; inputs span −1..1


def augment(waveforms: Tensor, generator: torch.Generator, *, probability: float) -> Tensor:
    """Apply domain randomisation to waveforms, each augmentation to each waveform with
    `probability`.

    waveforms: float32 (N, L). Returns float32 (N, L), with values that may leave [−1, 1].
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
    """Filter waveforms (N, L) by Butterworth high-pass filters.

    The result equals the output of scipy.signal.sosfilt for a filter that has settled on the first
    sample. audiomentations calls sosfilt in this way. Here the filter is applied in the frequency
    domain. Its response is H = 1/B(1/s), where B is the Butterworth polynomial. The bilinear
    transform gives 1/s = −j·tan(ω_c/2)/tan(ω/2).

    cutoff: in Hz, (N,). order: 2 to 4, (N,).
    """
    # A settled high-pass filter answers a constant with 0, so subtracting the first sample does not
    # change the result.
    moved = waveforms - waveforms[:, :1]
    length = waveforms.shape[1] + RESPONSE  # leaves the slowest filter 0.6 s to settle
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
    """Return the response 1/B(1/s) of a filter, complex and of the shape of `inverse`.

    coefficients: those of the Butterworth polynomial B, highest power first. inverse: 1/s.
    """
    polynomial = torch.zeros_like(inverse)
    for coefficient in coefficients:
        polynomial = polynomial * inverse + coefficient
    return 1 / polynomial


def reverberate(waveforms: Tensor, responses: Tensor) -> Tensor:
    """Convolve waveforms (N, L) with impulse responses (N, RESPONSE).

    Each result is scaled to a largest absolute value of 0.5, as audiomentations does. Then its tail
    is cut off: (N, L). Silence stays silent.
    """
    # torchaudio's fftconvolve takes four times as long, because it transforms lengths with large
    # prime factors.
    length = waveforms.shape[1] + RESPONSE
    whole = torch.fft.irfft(
        torch.fft.rfft(waveforms, length) * torch.fft.rfft(responses, length), length
    )
    largest = whole.abs().amax(1, keepdim=True)
    return torch.where(largest > 0, 0.5 / largest, 0) * whole[:, : waveforms.shape[1]]


def spectrogram_copies(x: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield `count` augmented versions of prepared spectrograms x (B, 1, bands, frames), with a
    mask and noise.

    The mask sets up to LARGEST_MASK adjacent bands, and up to LARGEST_MASK adjacent frames, to the
    batch's mean. The noise is Gaussian. All examples of a version share the mask and the noise's
    standard deviation, as in CoTTA.
    """
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
