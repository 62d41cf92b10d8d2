"""Augmentations of speech in batches on the device (domain randomisation, Sec. 5.3), drawn first and applied second.

Gain, high-pass filter and convolution with an impulse response, in that order, each with a probability of its own draw
and with the ranges that are audiomentations' defaults. Gain is close to the test domain "amplitude", although the paper
elsewhere leaves out what overlaps with a test domain; the paper names both, and so both stand here. Neither
changes what the network sees: its spectrograms are relative to the utterance's own maximum.
"""

import cmath
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

SAMPLE_RATE = 16_000
GAIN = (-12.0, 12.0)
"""dB"""
CUTOFF = (20.0, 2400.0)
"""Hz, drawn uniformly on the mel scale"""
ORDERS = (2, 3, 4)
"""Of the Butterworth filter: 12, 18 and 24 dB an octave."""
REVERBERATION = (0.1, 0.6)
"""Seconds in which an impulse response falls by 60 dB."""
RESPONSE = round(REVERBERATION[1] * SAMPLE_RATE)
"""Samples of an impulse response."""
LARGEST_REVERBERATED = 0.5
"""audiomentations scales each convolution to this largest absolute value, its tail included."""


class AudioDraw(NamedTuple):
    """What the augmentations do to each of N utterances."""

    gain: Tensor  # float32 (N,): amplitude ratio, 1 where gain is not applied
    filtered: Tensor  # bool (N,)
    cutoff: Tensor  # float32 (N,), Hz
    order: Tensor  # int64 (N,), one of ORDERS
    reverberated: Tensor  # bool (N,)
    responses: Tensor  # float32 (M, RESPONSE): one for each of the M utterances that are reverberated


def draw_augmentations(count: int, generator: torch.Generator, *, probability: float = 0.5) -> AudioDraw:
    """Draw for `count` utterances from `generator`, on its device; each of the three is applied with `probability`."""

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, generator=generator, device=generator.device)

    applied, filtered, reverberated = (uniform(0, 1) < probability for _ in range(3))
    gain = torch.where(applied, 10 ** (uniform(*GAIN) / 20), 1)
    # The mel scale is 2595·log10(1 + f/700).
    low, high = (torch.tensor(1 + frequency / 700).log10().item() for frequency in CUTOFF)
    cutoff = 700 * (10 ** uniform(low, high) - 1)
    order = torch.randint(ORDERS[0], ORDERS[-1] + 1, (count,), generator=generator, device=generator.device)
    decay = uniform(*REVERBERATION)[reverberated]
    seconds = torch.arange(RESPONSE, device=generator.device) / SAMPLE_RATE
    responses = torch.randn(len(decay), RESPONSE, generator=generator, device=generator.device)
    return AudioDraw(gain, filtered, cutoff, order, reverberated, responses * 10 ** (-3 * seconds / decay[:, None]))


def apply_augmentations(waveforms: Tensor, draw: AudioDraw) -> Tensor:
    """Apply `draw` to float waveforms (N, 16000); the result is float32 (N, 16000), and may leave [−1, 1]."""
    draw = AudioDraw(*(part.to(waveforms.device) for part in draw))
    result = waveforms * draw.gain[:, None]
    filtered, reverberated = (part.nonzero().squeeze(1) for part in (draw.filtered, draw.reverberated))
    if len(filtered):
        result[filtered] = high_pass(result[filtered], draw.cutoff[filtered], draw.order[filtered])
    if len(reverberated):
        result[reverberated] = reverberate(result[reverberated], draw.responses)
    return result


def augment_waveforms(waveforms: Tensor, generator: torch.Generator, *, probability: float = 0.5) -> Tensor:
    """Draw and apply."""
    return apply_augmentations(waveforms, draw_augmentations(len(waveforms), generator, probability=probability))


def high_pass(waveforms: Tensor, cutoff: Tensor, order: Tensor) -> Tensor:
    """Butterworth high-pass of waveforms (N, L), at `cutoff` (N,) in Hz and of `order` (N,), 2 to 4: what
    scipy.signal.sosfilt makes with the filter settled on the first sample, as audiomentations calls it.

    In the frequency domain: H = 1/B(1/s) with B the Butterworth polynomial of that order and, by the bilinear
    transform, 1/s = −j·tan(ω_c/2)/tan(ω/2).
    """
    # A settled high-pass filter gives 0 for a constant: the first sample can be taken away beforehand.
    moved = waveforms - waveforms[:, :1]
    length = _padded(waveforms.shape[1])
    half_frequency = torch.linspace(0, torch.pi / 2, length // 2 + 1, device=waveforms.device)
    ratio = torch.tan(torch.pi * cutoff / SAMPLE_RATE)[:, None] / torch.tan(half_frequency)[1:]
    inverse = torch.complex(torch.zeros_like(ratio), -ratio)
    polynomial = torch.zeros_like(inverse)
    for coefficient in _butterworth(waveforms.device)[order].T:
        polynomial = polynomial * inverse + coefficient[:, None]
    response = F.pad(1 / polynomial, (1, 0))  # nothing passes at 0 Hz
    return torch.fft.irfft(torch.fft.rfft(moved, length) * response, length)[:, : waveforms.shape[1]]


def reverberate(waveforms: Tensor, responses: Tensor) -> Tensor:
    """Convolution of waveforms (N, L) with impulse responses (N, RESPONSE), scaled to a largest absolute value of 0.5
    before its tail is cut, as audiomentations does: (N, L). Silence stays silence."""
    length = _padded(waveforms.shape[1])
    whole = torch.fft.irfft(torch.fft.rfft(waveforms, length) * torch.fft.rfft(responses, length), length)
    largest = whole.abs().amax(1, keepdim=True)
    scale = torch.where(largest > 0, LARGEST_REVERBERATED / largest, 0)
    return scale * whole[:, : waveforms.shape[1]]


def _padded(samples: int) -> int:
    """The length of the Fourier transforms: holds a whole convolution (25,600 = 2^10·5² for a second), and more than
    the 0.3 s in which the slowest filter falls by 120 dB."""
    return samples + RESPONSE


def _butterworth(device: torch.device) -> Tensor:
    """(5, 5): row n holds zeros and then the coefficients, from the highest power, of the Butterworth polynomial
    B_n(p) = Π_k (p − e^{jπ(2k+n−1)/2n}), k = 1..n."""
    table = torch.zeros(5, 5)
    for order in ORDERS:
        coefficients = torch.ones(1, dtype=torch.complex128)
        for k in range(1, order + 1):
            pole = cmath.exp(1j * cmath.pi * (2 * k + order - 1) / (2 * order))
            coefficients = F.pad(coefficients, (0, 1)) - pole * F.pad(coefficients, (1, 0))
        table[order, -order - 1 :] = coefficients.real
    return table.to(device)


# ---------------------------------------------------------------- copies for CoTTA


LARGEST_MASK = 4
"""Frames and bands that a mask covers at most."""
NOISE = (0.005, 0.02)
"""Standard deviation of the noise, in units of the network's input, which spans −1..1."""


class CopiesDraw(NamedTuple):
    """What the masks and the noise are in each of N copies of a batch."""

    width: Tensor  # int64 (N, 2): bands and frames that are masked, 0..LARGEST_MASK
    start: Tensor  # float32 (N, 2) in [0, 1): place of the mask, as a share of the places where it fits
    deviation: Tensor  # float32 (N,): of the Gaussian noise


def draw_copies(count: int, generator: torch.Generator) -> CopiesDraw:
    """Draw `count` copies from `generator`, on its device."""
    device = generator.device
    width = torch.randint(LARGEST_MASK + 1, (count, 2), generator=generator, device=device)
    start = torch.rand(count, 2, generator=generator, device=device)
    low, high = NOISE
    return CopiesDraw(width, start, low + (high - low) * torch.rand(count, generator=generator, device=device))


def spectrogram_copies(x: Tensor, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """`count` versions of prepared spectrograms (B, 1, bands, frames) that keep the word: a few bands and a few frames
    set to the batch's mean, and Gaussian noise. One draw serves all of a batch, as CoTTA's release does with images."""
    draw = draw_copies(count, generator)
    places = torch.tensor(x.shape[2:], device=draw.width.device) - draw.width + 1
    first = (draw.start * places).long()
    end = first + draw.width
    for number in range(count):
        (band, frame), (last_band, last_frame) = first[number].tolist(), end[number].tolist()
        copy = x.clone()
        copy[:, :, band:last_band] = copy[..., frame:last_frame] = x.mean()
        noise = torch.randn(x.shape, generator=generator, device=generator.device).to(x.device)
        yield copy + draw.deviation[number].item() * noise
