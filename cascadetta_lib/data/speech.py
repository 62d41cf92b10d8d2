"""What all speech datasets share: one-second utterances, the log-mel spectrograms that the network sees, five domains.

An utterance is stored as int16 (16000,), one second at 16 kHz, on the device. A domain is stored as its finished
spectrograms, float32 (N, 1, 32, 32) in dB, because stretch and shift act on frames, not on samples; randomised
utterances are spectrograms too.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cascadetta_lib.augment.audio import augment_waveforms, spectrogram_copies
from cascadetta_lib.data import SpeechOptions
from cascadetta_lib.data.base import (
    Copies,
    Dataset,
    Modality,
    Split,
    code_version,
    fingerprint,
    split_source,
    to_device,
    write_atomically,
)
from cascadetta_lib.registry import nearest

SAMPLE_RATE = 16_000
SAMPLES = 16_000
"""Of an utterance: one second."""
FFT, HOP, BANDS, FRAMES = 2048, 512, 32, 32
SMALLEST_POWER = 1e-10
"""Power below this counts as this (−100 dB), as in librosa's power_to_db."""
FLOOR = -80.0
"""dB below the utterance's maximum under which nothing is told apart."""
BATCH = 256
"""Utterances turned into spectrograms at once: the Fourier transforms of one take 260 kB."""
CACHED = 8
"""Utterances at once on a CPU, whose transforms fit into its cache."""
REMEMBERED = 2**30
"""Bytes of randomised spectrograms that a dataset keeps at most: those of 50 epochs of 5,000 utterances."""

SOURCE_DOMAIN = "clean"
RANGES = {
    "amplitude": (0.7, 1.1),
    "pitch": (0.8, 1.2),
    "noise": (0.0, 0.45),
    "stretch": (0.8, 1.2),
    "shift": (-8, 8),
}
"""The target domains in the order of the stream, and the range that each one's value is drawn from (Sec. 5.3):
amplitude a in a·x; pitch p: x resampled to p times its length; noise p in (1 − p)·x + p·n; stretch: frames run
through r times as fast; shift: frames later, an integer."""
DOMAINS = tuple(RANGES)
DOMAIN_SEEDS = {name: seed for seed, name in enumerate(DOMAINS)}
"""One for each domain: with the same, an utterance of low pitch would be one of little noise as well."""


# ---------------------------------------------------------------- spectrograms


def log_mel(waveforms: Tensor) -> Tensor:
    """Log-mel spectrograms in dB of waveforms (N, 16000), int16 or float in [−1, 1]: float32 (N, 1, 32, 32), bands
    from low to high and frames in time.

    As librosa's `power_to_db(melspectrogram(..., n_fft=2048, hop_length=512, n_mels=32), ref=np.max)` makes them: power
    in 32 bands (Slaney's mel scale and norm), frames centred and the ends padded by zeros, in dB relative to the
    largest value of the utterance, −80..0. A silent utterance is 0 everywhere, since each value is its own maximum.
    Because of the reference, a constant factor on the waveform changes nothing.
    """
    # The transforms of a few utterances fit into a CPU's cache, those of a batch do not: a quarter of the time less.
    parts = [waveforms] if waveforms.is_cuda else waveforms.split(CACHED)
    return torch.cat([_decibels(_mel(_power(as_float(part)))) for part in parts])


def as_float(waveforms: Tensor) -> Tensor:
    """Waveforms in [−1, 1), float32, of int16 ones; float ones as they are."""
    return waveforms.float() / 32768 if waveforms.dtype == torch.int16 else waveforms


def as_int16(waveforms: Tensor) -> Tensor:
    """Waveforms in [−1, 1) as int16, which is how they are stored; what is beyond is clipped."""
    return (waveforms * 32768).round().clamp(-32768, 32767).to(torch.int16)


def _fourier(waveforms: Tensor) -> Tensor:
    """Complex short-time Fourier transforms (N, 1025, 32) of waveforms (N, 16000)."""
    window = torch.hann_window(FFT, device=waveforms.device)
    return torch.stft(waveforms, FFT, HOP, window=window, pad_mode="constant", return_complex=True)


def _power(waveforms: Tensor) -> Tensor:
    """Power spectrograms (N, 1025, 32) of waveforms (N, 16000)."""
    fourier = _fourier(waveforms)
    return fourier.real.square() + fourier.imag.square()  # on a CPU half the time of abs


def _mel(power: Tensor) -> Tensor:
    """Power in mel bands (N, 32, 32) of power spectrograms (N, 1025, 32)."""
    return _mel_filters(power.device) @ power


@cache
def _mel_filters(device: torch.device) -> Tensor:
    """(32, 1025)"""
    from torchaudio.functional import melscale_fbanks

    filters = melscale_fbanks(FFT // 2 + 1, 0, SAMPLE_RATE / 2, BANDS, SAMPLE_RATE, norm="slaney", mel_scale="slaney")
    return filters.T.contiguous().to(device)


def _decibels(power: Tensor) -> Tensor:
    """(N, 1, 32, 32) in dB, relative to the maximum of each of `power` (N, 32, 32)."""
    decibels = 10 * power.clamp_min(SMALLEST_POWER).log10()
    return (decibels - decibels.amax((1, 2), keepdim=True)).clamp_min(FLOOR)[:, None]


# ---------------------------------------------------------------- the target domains


class DomainDraw(NamedTuple):
    """What a domain does to each of N utterances. Print it, apply it twice, test it."""

    value: Tensor  # float32 (N,), in the domain's range
    cut: Tensor  # int64 (N,), which cut of background noise; the noise domain alone looks at it


def draw_domain(name: str, count: int, cuts: int, generator: torch.Generator) -> DomainDraw:
    """Draw the domain `name` for `count` utterances, with `cuts` cuts of noise to choose from."""
    low, high = RANGES[name]
    if name == "shift":
        value = torch.randint(int(low), int(high) + 1, (count,), generator=generator).float()
    else:
        value = low + (high - low) * torch.rand(count, generator=generator)
    return DomainDraw(value, torch.randint(cuts, (count,), generator=generator))


def change_waveforms(waveforms: Tensor, name: str, draw: DomainDraw, noise: Tensor) -> Tensor:
    """Waveforms (N, 16000), float, as those of the domain amplitude, pitch or noise; `noise` is float (K, 16000).

    amplitude: without clipping, as in the public recipe. So it changes `log_mel`, which is relative to the utterance's
    own maximum, only where power is below −100 dB: this domain is as good as no shift, whatever the paper's was.
    pitch: speed and pitch move together; by linear interpolation, as in the public recipe, so that of an utterance
    made shorter by a fifth what was above 6.4 kHz folds back. Cut, or padded by zeros at the end.
    """
    value = draw.value.to(waveforms.device)[:, None]
    if name == "amplitude":
        return value * waveforms
    if name == "noise":
        return (1 - value) * waveforms + value * noise[draw.cut.to(noise.device)]
    # On the CPU, because not every device has float64.
    position = torch.arange(SAMPLES) / draw.value.double().cpu()[:, None]
    before = position.long().clamp_max(SAMPLES - 1)
    share = (position - before).clamp_max(1).float().to(waveforms.device)
    before = before.to(waveforms.device)
    after = (before + 1).clamp_max(SAMPLES - 1)
    moved = torch.lerp(waveforms.gather(1, before), waveforms.gather(1, after), share)
    return torch.where((position < SAMPLES).to(waveforms.device), moved, 0)


def domain_spectrograms(waveforms: Tensor, name: str, draw: DomainDraw, noise: Tensor) -> Tensor:
    """Spectrograms as of `log_mel` of float waveforms (N, 16000) in the domain `name`.

    stretch: a phase vocoder interpolates magnitudes between frames and adds up phases; power has no phases, so the
    magnitudes alone are computed, for each utterance at its own rate. shift: of the power, before the dB.
    """
    if name in ("amplitude", "pitch", "noise"):
        return log_mel(change_waveforms(waveforms, name, draw, noise))
    power = _power(waveforms)
    frame, value = torch.arange(FRAMES, device=waveforms.device), draw.value.to(waveforms.device)[:, None]
    if name == "stretch":
        return _decibels(_mel(_frames_at(power.sqrt(), value * frame).square()))
    return _decibels(_frames_at(_mel(power), frame - value))


def _frames_at(frames: Tensor, position: Tensor) -> Tensor:
    """Frames (N, F, T) at the positions (N, T'), linearly interpolated, zero beyond the ends: (N, F, T')."""
    distance = torch.arange(frames.shape[2], device=frames.device)[:, None] - position[:, None, :]
    return frames @ (1 - distance.abs()).clamp_min(0)


# ---------------------------------------------------------------- the dataset


@dataclass(kw_only=True)
class SpeechDataset(Dataset):
    """Utterances of single words.

    test: all test utterances, unchanged. noise: cuts of background noise, int16 (K, 16000). Both on the device.
    """

    modality: ClassVar[Modality] = "speech"
    unit: ClassVar[str] = "utterances"
    options: SpeechOptions
    test: Split
    noise: Tensor
    _kept: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def domain_names(self) -> tuple[str, ...]:
        return DOMAINS

    @cached_property
    def plain(self) -> Split:
        """The source as spectrograms in dB, float32 (N, 1, 32, 32), computed once and not in every epoch."""
        return _as_spectrograms(self.train)

    @cached_property
    def plain_held_out(self) -> Split:
        """The same of the held-out utterances."""
        return _as_spectrograms(self.held_out)

    @property
    def domain_source(self) -> str:
        return f"domains generated by data/speech.py (seeds {', '.join(map(str, DOMAIN_SEEDS.values()))})"

    def domain(self, name: str, severity: int) -> Split:
        """The first `options.test_size` test utterances in the domain `name`, or unchanged as `clean`; x holds their
        spectrograms, float32 (N, 1, 32, 32) in dB. Raises ValueError for any other name or a severity but 1.
        """
        _check_domain(name)
        if severity != 1:
            raise ValueError(f"severity {severity!r} of {name}: a domain of speech has one severity; allowed is 1")
        clean = self.test.take(slice(self.options.test_size))
        made_by = code_version(sys.modules[__name__])
        kept = Path(self.options.folder).expanduser() / "generated" / f"{self.fingerprint}-{made_by}"
        path = kept / f"{name}-{len(clean.y)}.npy"
        if not path.is_file():
            made = torch.cat([self._spectrograms(name, part) for part in torch.arange(len(clean.y)).split(BATCH)])
            write_atomically(path, lambda file: np.save(file, made.cpu().numpy()))
        return to_device(Split(torch.from_numpy(np.load(path, allow_pickle=False)), clean.y), self.options.device)

    def example(self, name: str, index: int) -> Tensor:
        """The test utterance `index` in a domain, to listen to: float32 (16000,) on the CPU, clipped to [−1, 1].

        For shift the samples are moved by whole frames. ValueError for a name that is no domain's.
        """
        return self._heard(name, index).clamp(-1, 1)

    def _heard(self, name: str, index: int) -> Tensor:
        _check_domain(name)
        waveform = as_float(self.test.x[index : index + 1].cpu())
        if name == SOURCE_DOMAIN:
            return waveform[0]
        draw = self._draw(name, torch.tensor([index]))
        if name == "stretch":
            return _stretched(waveform[0], draw.value.item())
        if name == "shift":
            samples = int(draw.value.item()) * HOP
            return F.pad(waveform[0], (samples, -samples))  # a negative pad cuts
        return change_waveforms(waveform, name, draw, as_float(self.noise.cpu()))[0]

    def _spectrograms(self, name: str, indices: Tensor) -> Tensor:
        """The spectrograms (M, 1, 32, 32) of the test utterances `indices` (M,) in a domain."""
        waveforms = as_float(self.test.x[indices.to(self.test.x.device)])
        if name == SOURCE_DOMAIN:
            return log_mel(waveforms)
        return domain_spectrograms(waveforms, name, self._draw(name, indices), as_float(self.noise))

    def _draw(self, name: str, indices: Tensor) -> DomainDraw:
        """What the domain does to the test utterances `indices`. Drawn for all of them, so that an utterance meets the
        same draw however many are used."""
        generator = torch.Generator().manual_seed(DOMAIN_SEEDS[name])
        draw = draw_domain(name, len(self.test.y), len(self.noise), generator)
        return DomainDraw(*(part[indices] for part in draw))

    def weak_augment(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """`x` itself: the paper has no augmentation of speech beside domain randomisation."""
        return x

    def randomise(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """The spectrograms, float32 (N, 1, 32, 32) in dB, of utterances, int16 (N, 16000), after gain, high-pass and
        impulse response. A gain may leave [−1, 1], and is not clipped.

        On a CPU this is more than half of a training, and every objective at one seed meets the same batches and draws:
        what was made once is kept, up to REMEMBERED bytes.
        """
        if x.device.type != "cpu":
            return self._randomised(x, generator)
        key = fingerprint([x, generator.get_state()])
        if key in self._kept:
            made, state = self._kept[key]
            generator.set_state(state)
            return made.clone()
        made = self._randomised(x, generator)
        if sum(kept.nbytes for kept, _ in self._kept.values()) + made.nbytes <= REMEMBERED:
            self._kept[key] = made.clone(), generator.get_state()
        return made

    def _randomised(self, x: Tensor, generator: torch.Generator) -> Tensor:
        return log_mel(augment_waveforms(as_float(x), generator, probability=self.options.augmentation_probability))

    def prepare(self, x: Tensor) -> Tensor:
        """Waveforms (N, 16000), int16 or float, or spectrograms (N, 1, 32, 32) in dB to the network's input:
        (dB + 40)/40, so −1..1, float32 (N, 1, 32, 32)."""
        spectrograms = log_mel(x) if x.ndim == 2 else x
        return (spectrograms - FLOOR / 2) / (-FLOOR / 2)

    @property
    def augmented_copies(self) -> Copies:
        """Spectrograms masked and with noise: ours, because CoTTA defines none for speech."""
        return spectrogram_copies


def _as_spectrograms(utterances: Split) -> Split:
    """Utterances, int16 (N, 16000), as spectrograms in dB, float32 (N, 1, 32, 32)."""
    return Split(torch.cat([log_mel(waveforms) for waveforms in utterances.x.split(BATCH)]), utterances.y)


def _check_domain(name: str) -> None:
    known = (SOURCE_DOMAIN, *DOMAINS)
    if name not in known:
        raise ValueError(f"no domain is named {name!r}; {nearest(name, known)}")


def _stretched(waveform: Tensor, rate: float) -> Tensor:
    """A waveform (16000,) run through `rate` times as fast at its own pitch, cut or padded to its length."""
    from torchaudio.functional import phase_vocoder

    advance = torch.linspace(0, torch.pi * HOP, FFT // 2 + 1)[:, None]
    fourier = phase_vocoder(_fourier(waveform[None]), rate, advance)[..., :FRAMES]
    fourier = F.pad(fourier, (0, FRAMES - fourier.shape[2]))
    return torch.istft(fourier, FFT, HOP, window=torch.hann_window(FFT), length=SAMPLES)[0]


def whole_seconds(recordings: Sequence[Tensor]) -> Tensor:
    """Recordings of noise, int16 (L,) each at 16 kHz, cut into seconds: (K, 16000); a rest of a second is left out."""
    cuts = [recording[: len(recording) // SAMPLES * SAMPLES].view(-1, SAMPLES) for recording in recordings]
    return torch.cat([torch.empty(0, SAMPLES, dtype=torch.int16), *cuts])


def make_speech_dataset(
    *,
    name: str,
    source: str,
    official: bool,
    class_names: tuple[str, ...],
    train: Split,
    held_out: Split | None,
    test: Split,
    noise: Tensor,
    options: SpeechOptions,
) -> SpeechDataset:
    """The dataset made of all of its utterances (int16 (N, 16000), on the CPU), cut as the options say.

    held_out: the data's own validation split, used whole; None sets a part of the training utterances aside, as
    `options.held_out_fraction` says. noise: cuts of background noise, int16 (K, 16000). official: whether the data is
    the paper's; the dataset is where, besides, nothing of it is cut away.
    """
    everything = [*train, *(held_out or ()), *test, noise]
    train_count, test_count = options.train_size or len(train.y), options.test_size or len(test.y)
    whole = train_count >= len(train.y) and test_count >= len(test.y)
    if held_out is None:
        fitted, held_out = split_source(
            train.x, train.y, train_size=options.train_size, held_out_fraction=options.held_out_fraction
        )
    else:
        order = torch.randperm(len(train.y), generator=torch.Generator().manual_seed(0))
        fitted = train.take(order[: options.train_size].sort().values)
    return SpeechDataset(
        name=name,
        source=source,
        fingerprint=fingerprint(everything),
        official=official and whole,
        compare_with="Google Commands",
        class_names=class_names,
        train=to_device(fitted, options.device),
        held_out=to_device(held_out, options.device),
        test=to_device(test, options.device),
        options=options,
        noise=noise.to(options.device),
    )
