"""Ten words spoken by eSpeak NG, so that everything runs without a download. Synthetic, not the paper's data.

The library and its voices come with the wheel espeakng-loader and are called through ctypes. Speakers (accent and
voice) of the test utterances are not among those of the training utterances.
"""

import ctypes
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cascadetta_lib.data import SpeechOptions, dataset
from cascadetta_lib.data.base import DataMissing, Split, code_version, mixed, write_atomically
from cascadetta_lib.data.speech import SAMPLE_RATE, SpeechDataset, as_int16, make_speech_dataset, whole_seconds

WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
ACCENTS = ("en", "en-us", "en-us-nyc", "en-029", "en-gb-scotland", "en-gb-x-rp", "en-gb-x-gbclan")
VOICES = ("m1", "m2", "m3", "m4", "m5", "m6", "m7", "f1", "f2", "f3", "f4")
SPEAKERS = tuple(f"{accent}+{voice}" for accent in ACCENTS for voice in VOICES)
TRAIN_COUNT, TEST_COUNT = 60, 20
"""Utterances of each word."""
TEST_SPEAKERS = len(SPEAKERS) // 4
RATE, PITCH = (120, 220), (20, 80)
"""Words a minute; eSpeak's scale of 0..100."""
LOUDNESS = (0.3, 0.9)
"""Largest absolute sample of the word."""
BACKGROUND = (-3.5, -2.5)
"""Standard deviation of the white noise behind the word, as a power of ten."""
SEED = 0
NOISE_SECONDS = 10
"""Of each kind of background noise."""


class SpeechDraw(NamedTuple):
    """How each of N words is spoken."""

    speaker: Tensor  # int64 (N,), an index into SPEAKERS
    rate: Tensor  # int64 (N,)
    pitch: Tensor  # int64 (N,)
    loudness: Tensor  # float32 (N,)
    onset: Tensor  # float32 (N,) in [0, 1): start of the word, as a share of the silence around it
    background: Tensor  # float32 (N,)


def draw_speech(count: int, speakers: Tensor, generator: torch.Generator) -> SpeechDraw:
    """Draw for `count` utterances of some of `speakers`, int64 (S,)."""

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, generator=generator)

    return SpeechDraw(
        speaker=speakers[torch.randint(len(speakers), (count,), generator=generator)],
        rate=torch.randint(RATE[0], RATE[1] + 1, (count,), generator=generator),
        pitch=torch.randint(PITCH[0], PITCH[1] + 1, (count,), generator=generator),
        loudness=uniform(*LOUDNESS),
        onset=uniform(0, 1),
        background=10 ** uniform(*BACKGROUND),
    )


@dataset("synthetic_speech", "speech", real=False)
def load_synthetic_speech(argument: str, options: SpeechOptions) -> SpeechDataset:
    """600 training and 200 test utterances of ten words. DataMissing if eSpeak NG cannot be loaded here."""
    made_by = code_version(sys.modules[__name__])
    path = Path(options.folder).expanduser() / "generated" / f"synthetic_speech-{made_by}.npz"
    if not path.is_file():
        arrays: dict[str, Any] = {key: tensor.numpy() for key, tensor in _make().items()}
        write_atomically(path, lambda file: np.savez(file, **arrays))
    with np.load(path, allow_pickle=False) as stored:
        tensors = {key: torch.from_numpy(stored[key]) for key in stored.files}
    return make_speech_dataset(
        name="synthetic_speech",
        source=f"{len(WORDS)} words spoken by the synthesiser eSpeak NG, synthetic, not the paper's data",
        official=False,
        class_names=WORDS,
        train=mixed(Split(tensors["train_x"], tensors["train_y"])),
        held_out=None,
        test=mixed(Split(tensors["test_x"], tensors["test_y"])),
        noise=tensors["noise"],
        options=options,
    )


def _make() -> dict[str, Tensor]:
    """train_x and test_x, int16 (N, 16000), train_y and test_y, word by word, and cuts of noise, int16 (K, 16000)."""
    generator = torch.Generator().manual_seed(SEED)
    speakers = torch.randperm(len(SPEAKERS), generator=generator)
    train_speakers, test_speakers = speakers[TEST_SPEAKERS:], speakers[:TEST_SPEAKERS]
    train_y, test_y = (torch.arange(len(WORDS)).repeat_interleave(count) for count in (TRAIN_COUNT, TEST_COUNT))
    draws = [draw_speech(len(train_y), train_speakers, generator), draw_speech(len(test_y), test_speakers, generator)]
    draw = SpeechDraw(*map(torch.cat, zip(*draws, strict=True)))
    spoken = _placed(*_speak([WORDS[label] for label in torch.cat([train_y, test_y])], draw), draw)
    spoken += draw.background[:, None] * torch.randn(spoken.shape, generator=generator)
    train_x, test_x = as_int16(spoken).split([len(train_y), len(test_y)])
    return {"train_x": train_x, "train_y": train_y, "test_x": test_x, "test_y": test_y, "noise": _noise(generator)}


def _placed(recordings: Sequence[np.ndarray], rate: int, draw: SpeechDraw) -> Tensor:
    """Recordings at `rate`, int16, as one second each at 16 kHz, float (N, 16000), loudness and onset as drawn."""
    from torchaudio.functional import resample

    seconds = torch.zeros(len(recordings), rate)
    for row, recording, onset in zip(seconds, recordings, draw.onset.tolist(), strict=True):
        loud = np.flatnonzero(np.abs(recording.astype(np.int32)) > 0.01 * 32768)
        word = torch.from_numpy(recording[loud[0] : loud[-1] + 1][:rate].astype(np.float32))
        start = int(onset * (rate - len(word) + 1))
        row[start : start + len(word)] = word
    placed = resample(seconds, rate, SAMPLE_RATE)
    return placed * (draw.loudness / placed.abs().amax(1))[:, None]


def _noise(generator: torch.Generator) -> Tensor:
    """White, pink and brown noise and a hum of 50 Hz, NOISE_SECONDS of each: int16 (K, 16000)."""
    length = NOISE_SECONDS * SAMPLE_RATE
    frequency = torch.fft.rfftfreq(length, 1 / SAMPLE_RATE)
    recordings = []
    for slope in (0, 0.5, 1):  # amplitude falls as frequency to this power
        spectrum = torch.fft.rfft(torch.randn(length, generator=generator))
        recordings.append(torch.fft.irfft(spectrum * frequency.clamp_min(20) ** -slope, length))
    seconds = torch.arange(length) / SAMPLE_RATE
    harmonics = torch.arange(1, 9)[:, None]
    phase = 2 * torch.pi * torch.rand(len(harmonics), 1, generator=generator)
    recordings.append((torch.sin(2 * torch.pi * 50 * harmonics * seconds + phase) / harmonics).sum(0))
    return whole_seconds([as_int16(0.1 * recording / recording.std()) for recording in recordings])


# ---------------------------------------------------------------- eSpeak NG

SYNCHRONOUS = 2  # espeak_AUDIO_OUTPUT: samples go to the callback, and the call returns when all are made
DO_NOT_EXIT = 0x8000  # without it, voices that are not found end the whole process
UTF8 = 1
RATE_PARAMETER, PITCH_PARAMETER = 1, 3
Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


def _speak(words: Sequence[str], draw: SpeechDraw) -> tuple[list[np.ndarray], int]:
    """Each word as int16 (L,), and the sampling rate in Hz. DataMissing if the library cannot be used."""
    # What eSpeak NG says next depends on what it has said before, even across espeak_Terminate. A copy of the library
    # is loaded as another library, with a state of its own: the same words come out whenever they are made.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        library, voices = _library(Path(folder))
        rate = library.espeak_Initialize(SYNCHRONOUS, 0, str(voices).encode(), DO_NOT_EXIT)
        if rate <= 0:
            raise _missing(f"it does not start with the voices in {voices} (a path beyond 160 characters is too long)")
        try:
            return _recorded(library, words, draw), rate
        finally:
            library.espeak_Terminate()


def _recorded(library: ctypes.CDLL, words: Sequence[str], draw: SpeechDraw) -> list[np.ndarray]:
    parts: list[np.ndarray] = []

    @Callback
    def keep(samples: "ctypes._Pointer[ctypes.c_short]", count: int, events: int) -> int:
        if samples and count > 0:
            parts.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    library.espeak_SetSynthCallback(keep)
    library.espeak_ng_SetRandSeed(ctypes.c_long(SEED))
    recordings = []
    for word, speaker, rate, pitch in zip(words, *(part.tolist() for part in draw[:3]), strict=True):
        parts.clear()
        text = word.encode() + b"\0"
        status = library.espeak_SetVoiceByName(SPEAKERS[speaker].encode())
        library.espeak_SetParameter(RATE_PARAMETER, rate, 0)
        library.espeak_SetParameter(PITCH_PARAMETER, pitch, 0)
        status = status or library.espeak_Synth(text, ctypes.c_size_t(len(text)), 0, 1, 0, UTF8, None, None)
        if status or not parts:
            raise _missing(f"it does not say {word!r} as {SPEAKERS[speaker]} (code {status})")
        recordings.append(np.concatenate(parts))
    return recordings


def _library(folder: Path) -> tuple[ctypes.CDLL, Path]:
    """eSpeak NG, from a copy in `folder`, and the folder of its voices."""
    try:
        import espeakng_loader

        library = Path(espeakng_loader.get_library_path())
        return ctypes.CDLL(str(shutil.copy(library, folder))), Path(espeakng_loader.get_data_path())
    except (ImportError, OSError, RuntimeError) as error:
        raise _missing(str(error)) from error


def _missing(reason: str) -> DataMissing:
    return DataMissing(
        f"synthetic_speech is spoken by eSpeak NG, which cannot be used here: {reason}. "
        "`pip install espeakng-loader` brings it; or name another dataset of speech, such as speech_commands."
    )
