"""Ten made-up words, so that everything runs without a download. They are synthetic and not the
paper's data.

A word is a sequence of vowels. As in speech, a vowel is a harmonic sound whose overtones are loud
near a few frequencies, the formants. Speakers differ in the pitch of the voice and in the length of
the vocal tract, which scales all formants. They also speak at different times, speeds and levels,
with noise in the background.
"""

import torch
from torch import Tensor

from cascadetta_lib.data import dataset
from cascadetta_lib.data.base import Dataset, Split
from cascadetta_lib.data.utterances import (
    SAMPLE_RATE,
    SAMPLES,
    SpeechOptions,
    as_int16,
    make_speech_dataset,
)

# number of words, and number of vowels in a word
WORDS = 10
VOWELS = 3
FORMANTS = ((300, 900), (900, 2400), (2400, 3600))  # Hz; the range of each formant of a vowel
BANDWIDTH = 150  # Hz; standard deviation of the peak at a formant
# number of utterances of each part, and seconds of background noise
TRAIN = 540
HELD_OUT = 60
TEST = 200
NOISE = 30


@dataset("synthetic_speech", "speech", real=False)
def load_synthetic_speech(argument: str, options: SpeechOptions) -> Dataset:
    """Compose 540 training, 60 held-out and 200 test utterances of ten words. The utterances are
    the same every time.
    """
    generator = torch.Generator().manual_seed(0)
    low, high = torch.tensor(FORMANTS, dtype=torch.float64).T
    formants = low + (high - low) * torch.rand(WORDS, VOWELS, len(FORMANTS), generator=generator)
    labels = torch.randperm(TRAIN + HELD_OUT + TEST, generator=generator) % WORDS
    utterances = torch.cat(
        [as_int16(utter(formants[part], generator)) for part in labels.split(50)]
    )
    sizes = [TRAIN, HELD_OUT, TEST]
    parts = zip(utterances.split(sizes), labels.split(sizes), strict=True)
    train, held_out, test = (Split(x, y) for x, y in parts)
    noise = torch.randn(NOISE, SAMPLES, generator=generator)
    return make_speech_dataset(
        name="synthetic_speech",
        source=f"{WORDS} words composed by data/synthetic_speech.py, synthetic, not the paper's "
        "data",
        class_names=tuple(f"word {number}" for number in range(1, WORDS + 1)),
        train=train,
        held_out=held_out,
        test=test,
        noise=as_int16(0.1 * noise),
        options=options,
    )


def utter(formants: Tensor, generator: torch.Generator) -> Tensor:
    """Return waveforms of words, (N, 16000), each spoken by another speaker.

    formants: the formants in Hz of each vowel of a word, (N, VOWELS, len(FORMANTS)).
    """

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(
            len(formants), 1, generator=generator, dtype=torch.float64
        )

    window = torch.hann_window(512, dtype=torch.float64)
    hop = 128
    seconds = torch.arange(SAMPLES + 1, dtype=torch.float64) / SAMPLE_RATE
    length = uniform(0.4, 0.8)
    pitch = uniform(90, 250)
    tract = uniform(0.85, 1.15)
    progress = (
        seconds - uniform(0, 1) * (1 - length)
    ) / length  # 0 where a word begins and 1 where it ends
    # A sawtooth has all harmonics. Their levels are set in short windows; each vowel lasts for many
    # windows.
    fourier = torch.stft(
        2 * (pitch * seconds % 1) - 1, 512, hop, window=window, return_complex=True
    )
    frequency = torch.linspace(0, SAMPLE_RATE / 2, fourier.shape[1], dtype=torch.float64)[
        :, None, None, None
    ]
    levels = torch.exp(-(((frequency - tract[..., None] * formants) / BANDWIDTH) ** 2) / 2).sum(3)
    vowel = (progress[:, ::hop] * VOWELS).long().clamp(0, VOWELS - 1)
    fourier *= levels.movedim(0, 1).gather(2, vowel[:, None].expand(fourier.shape))
    spoken = torch.istft(fourier, 512, hop, window=window, length=SAMPLES)
    spoken *= torch.sin(torch.pi * progress.clamp(0, 1))[:, :SAMPLES]
    spoken *= uniform(0.3, 0.9) / spoken.abs().amax(1, keepdim=True)
    return spoken + 10 ** uniform(-3.5, -2.5) * torch.randn(spoken.shape, generator=generator)
