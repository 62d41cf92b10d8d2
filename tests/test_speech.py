"""Speech: spectrograms and domains against librosa and torchaudio, augmentations against
audiomentations, the datasets on made-up recordings, and on real ones where they are."""

import hashlib
import os
import re
import shutil
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import librosa
import numpy as np
import pytest
import soundfile
import torch
import torchaudio
from audiomentations import ApplyImpulseResponse, Gain, HighPassFilter
from conftest import real_data, seeded, written
from torch import Tensor

from cascadetta_lib.augment import audio
from cascadetta_lib.data import DatasetName, load_dataset, recordings, speech_commands
from cascadetta_lib.data import utterances as speech
from cascadetta_lib.data.base import DataMissing
from cascadetta_lib.data.recordings import HELD_OUT_LIST, NOISE, TEST_LIST
from cascadetta_lib.data.utterances import DOMAINS, SAMPLES, SpeechDataset, SpeechOptions

pytestmark = pytest.mark.usefixtures("offline")
WORDS = ("left", "right", "stop")


def tones(count: int, seed: int = 0) -> Tensor:
    """Waveforms (N, 16000), float: chords that swell and fade, on faint noise."""
    generator = torch.Generator().manual_seed(seed)
    seconds = torch.arange(SAMPLES) / SAMPLES
    frequency = 100 + 3000 * torch.rand(count, 4, 1, generator=generator)
    envelope = torch.exp(
        -20 * (seconds - 0.2 - 0.6 * torch.rand(count, 1, generator=generator)) ** 2
    )
    chord = torch.sin(2 * torch.pi * frequency * seconds).mean(1) * envelope
    return 0.8 * chord + 0.001 * torch.randn(count, SAMPLES, generator=generator)


# Spectrograms and target domains
# ------------------------------------------------------------------------------------


def librosa_power(waveform: Tensor) -> np.ndarray:
    return librosa.feature.melspectrogram(
        y=waveform.numpy(), sr=16000, n_fft=2048, hop_length=512, n_mels=32
    )


def assert_near(ours: Tensor, power: np.ndarray) -> None:
    """Within 0.1 dB over the bins within 60 dB of the maximum."""
    theirs = librosa.power_to_db(power, ref=np.max)
    assert np.abs(ours.numpy() - theirs)[theirs > -60].max() < 0.1


def test_log_mel_is_librosas() -> None:
    waveforms = torch.cat([tones(6), torch.zeros(1, SAMPLES), torch.eye(1, SAMPLES)])
    for given in (waveforms, speech.as_int16(waveforms)):
        ours = speech.log_mel(given)
        assert ours.shape == (8, 1, 32, 32) and ours.dtype == torch.float32
        assert (ours[6] == 0).all(), "silence is no NaN"
        for waveform, spectrogram in zip(speech.as_float(given), ours, strict=True):
            assert_near(spectrogram[0], librosa_power(waveform))
    stored = torch.arange(-32768, 32768).to(torch.int16)
    assert torch.equal(speech.as_int16(speech.as_float(stored)), stored)
    assert speech.as_int16(torch.tensor([-2.0, 2.0])).tolist() == [-32768, 32767]


@pytest.mark.parametrize("name", DOMAINS)
def test_draws_fill_their_range_and_repeat(name: str) -> None:
    (value, seconds), again = (speech.draw_domain(name, 5000, 7, seeded(1)) for _ in range(2))
    assert torch.equal(value, again[0]) and torch.equal(seconds, again[1])
    low, high = speech.RANGES[name]
    assert low <= value.min() < low + 0.01 * (high - low) and high >= value.max() > high - 0.01 * (
        high - low
    )
    assert value.mean().item() == pytest.approx((low + high) / 2, abs=0.02 * (high - low))
    assert seconds.unique().tolist() == list(range(7))
    assert name != "shift" or value.unique().tolist() == list(range(-8, 9))


def test_amplitude_and_noise() -> None:
    x = tones(3)
    noise = 0.1 * torch.randn(3, SAMPLES, generator=seeded(0))
    value = torch.tensor([0.7, 1.0, 1.1])
    assert torch.allclose(speech.change_waveforms("amplitude", x, value, noise), value[:, None] * x)
    assert torch.allclose(
        speech.domain_spectrograms("amplitude", x, value, noise), speech.log_mel(x), atol=0.01
    )
    mixed = speech.change_waveforms("noise", x[:2], torch.tensor([0.0, 0.45]), noise[:2])
    assert torch.allclose(mixed, torch.stack([x[0], 0.55 * x[1] + 0.45 * noise[1]]))


@pytest.mark.parametrize("value", [0.8, 0.93, 1.0, 1.17])
def test_pitch_is_linear_interpolation(value: float) -> None:
    x = tones(1)
    drawn = torch.tensor([value])
    theirs = np.interp(np.arange(0, SAMPLES, 1 / drawn.item()), np.arange(SAMPLES), x[0].numpy())[
        :SAMPLES
    ]
    ours = speech.change_waveforms("pitch", x, drawn, x)[0].numpy()
    np.testing.assert_allclose(ours[: len(theirs)], theirs, atol=1e-6)
    assert not ours[len(theirs) :].any(), "padded at the end"


@pytest.mark.parametrize("rate", [0.8, 0.97, 1.0, 1.2])
def test_stretch_is_a_phase_vocoder(rate: float) -> None:
    x = tones(2)
    fourier = torch.stft(
        x, 2048, 512, window=torch.hann_window(2048), pad_mode="constant", return_complex=True
    )
    advance = torch.linspace(0, torch.pi * 512, 1025)[:, None]
    vocoded = torchaudio.functional.phase_vocoder(fourier, rate, advance).abs()[..., :32]
    power = torch.zeros(2, 1025, 32)
    power[..., : vocoded.shape[2]] = vocoded**2
    filters = torch.from_numpy(librosa.filters.mel(sr=16000, n_fft=2048, n_mels=32))
    ours = speech.domain_spectrograms("stretch", x, torch.tensor([rate, rate]), x)
    assert_near(ours[0, 0], (filters @ power)[0].numpy())


@pytest.mark.parametrize("frames", [-8, -1, 0, 5])
def test_shift_moves_frames_and_fills_with_nothing(frames: int) -> None:
    x = tones(1)
    value = torch.tensor([float(frames)])
    power = librosa_power(x[0])
    moved = np.zeros_like(power)
    moved[:, max(0, frames) : 32 + min(0, frames)] = power[:, max(0, -frames) : 32 - max(0, frames)]
    ours = speech.domain_spectrograms("shift", x, value, x)[0, 0]
    np.testing.assert_allclose(ours, librosa.power_to_db(moved, ref=np.max), atol=0.1)


# Training augmentations against audiomentations
# ---------------------------------------------------------------------


def theirs(transform: Any, x: Tensor, **parameters: Any) -> np.ndarray:
    """What audiomentations' `transform` makes of a waveform with these parameters."""
    transform.randomize_parameters(x.numpy(), 16000)
    transform.parameters |= {"should_apply": True} | parameters
    return transform.apply(x.numpy(), 16000)


CUTOFFS = (20.0, 150.0, 900.0, 2400.0)


@pytest.mark.parametrize("order", audio.BUTTERWORTH)
def test_high_pass_is_audiomentations(order: int) -> None:
    x = 0.1 + tones(4)  # a constant, on which the filter must have settled
    ours = audio.high_pass(x, torch.tensor(CUTOFFS), torch.full((4,), order))
    for waveform, cutoff, result in zip(x, CUTOFFS, ours, strict=True):
        expected = theirs(HighPassFilter(p=1.0), waveform, cutoff_freq=cutoff, rolloff=6 * order)
        np.testing.assert_allclose(result, expected, atol=1e-4)


def test_reverberation_is_audiomentations(tmp_path: Path) -> None:
    x = tones(3)
    responses = torch.randn(3, audio.RESPONSE, generator=seeded(0))
    for index, result in enumerate(audio.reverberate(x, responses)):
        path = tmp_path / f"{index}.wav"
        soundfile.write(path, responses[index].numpy(), 16000, subtype="FLOAT")
        expected = theirs(ApplyImpulseResponse(str(path), p=1.0), x[index], ir_file_path=str(path))
        np.testing.assert_allclose(result, expected, atol=1e-5)


def test_draws_have_audiomentations_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Observed by what the filter and the reverberation are called with; the first sample shows the
    gain.
    """
    seen: dict[str, Any] = {}
    monkeypatch.setattr(
        audio, "high_pass", lambda x, cutoff, order: seen.update(cutoff=cutoff, order=order) or x
    )
    monkeypatch.setattr(
        audio, "reverberate", lambda x, responses: seen.update(responses=responses) or x
    )
    gain = audio.augment(torch.ones(4000, 1), seeded(0), probability=0.5)[:, 0]
    for count in ((gain != 1).sum(), len(seen["cutoff"]), len(seen["responses"])):
        assert int(count) / 4000 == pytest.approx(0.5, abs=0.05)
    decibels = 20 * gain[gain != 1].log10()
    transform = Gain(p=1.0)
    assert (
        transform.min_gain_db <= decibels.min() < -11.8
        and 11.8 < decibels.max() <= transform.max_gain_db
    )
    assert abs(decibels.mean()) < 0.6
    power = seen["responses"].square().mean(0)
    assert power.shape == (9600,) and 10 * power[-160:].mean().log10() < -55
    assert (power[:160].mean() / power[1600:1760].mean()).log10() * 10 > 10, (
        "0.1 s later, on the average of all"
    )

    np.random.seed(0)  # from which audiomentations draws
    filtering = HighPassFilter(p=1.0)
    samples = []
    for _ in range(5000):
        filtering.randomize_parameters(np.zeros(1, np.float32), 16000)
        samples.append((filtering.parameters["cutoff_freq"], filtering.parameters["rolloff"] // 6))
    cutoffs, orders = map(np.array, zip(*samples, strict=True))
    shares = np.array([0.1, 0.25, 0.5, 0.75, 0.9])
    np.testing.assert_allclose(
        np.quantile(seen["cutoff"], shares), np.quantile(cutoffs, shares), rtol=0.15
    )
    assert 20 <= seen["cutoff"].min() and seen["cutoff"].max() <= 2400
    ours = np.bincount(seen["order"]) / len(seen["order"])
    np.testing.assert_allclose(ours, np.bincount(orders) / 5000, atol=0.06)


def test_augmentations_repeat_and_leave_their_input() -> None:
    x = tones(20)
    before = x.clone()
    first, again = (audio.augment(x, seeded(5), probability=0.5) for _ in range(2))
    assert torch.equal(first, again) and torch.equal(x, before)
    same = (first == x).all(1)
    assert same.any() and not same.all()
    assert torch.equal(audio.augment(x, seeded(5), probability=0.0), x)
    assert not audio.augment(torch.zeros(4, SAMPLES), seeded(0), probability=1.0).any(), (
        "silence stays silent"
    )


def test_copies_keep_most_of_a_spectrogram() -> None:
    x = torch.rand(5, 1, 32, 32, generator=seeded(0)) * 2 - 1
    before = x.clone()
    copies = list(audio.spectrogram_copies(x, 40, seeded(1)))
    assert all(
        map(torch.equal, copies, audio.spectrogram_copies(x, 40, seeded(1)))
    ) and torch.equal(x, before)
    masked = []
    for copy in copies:
        change = (copy - x).abs()
        # The noise is below 0.1; a row or column that changes by more almost everywhere is masked
        # in all of the batch.
        large = (change > 0.1).float().mean((0, 1))
        masked.append([int((large.mean(1) > 0.7).sum()), int((large.mean(0) > 0.7).sum())])
        assert 0.004 < change[:, :, large < 0.05].square().mean().sqrt() < 0.022
    assert {count for pair in masked for count in pair} == {0, 1, 2, 3, 4}


# Speech Commands, made up
# -------------------------------------------------------------------------------------------


def write_words(folder: Path) -> Path:
    """Ten recordings a word, of which numbers 0, 1 are test and 2 held-out, and a recording of
    noise of 2.5 s.
    """
    for index, word in enumerate(WORDS):
        (folder / word).mkdir(parents=True)
        for number, waveform in enumerate(tones(10, seed=index)):
            soundfile.write(
                folder / word / f"{number}_nohash_0.wav", speech.as_int16(waveform).numpy(), 16000
            )
    for name, chosen in ((TEST_LIST, (0, 1)), (HELD_OUT_LIST, (2,))):
        lines = [f"{word}/{number}_nohash_0.wav" for word in WORDS for number in chosen]
        (folder / name).write_text(
            "\n".join([*lines, "bed/77_nohash_0.wav"]) + "\n"
        )  # the last is not there
    (folder / NOISE).mkdir()
    soundfile.write(
        folder / NOISE / "hiss.wav", 0.1 * np.random.default_rng(0).standard_normal(40000), 16000
    )
    return folder


@pytest.fixture
def words(tmp_path: Path) -> Path:
    return write_words(tmp_path / "SpeechCommands" / "speech_commands_v0.01")


def load(folder: Path, name: str = "speech_commands", **options: Any) -> SpeechDataset:
    dataset = load_dataset(name, SpeechOptions(folder=str(folder), **options))
    assert isinstance(dataset, SpeechDataset)
    return dataset


def test_splits_are_those_of_the_lists(words: Path, tmp_path: Path) -> None:
    dataset = load(tmp_path)
    assert (
        dataset.class_names == WORDS
        and dataset.compare_with == "Google Commands"
        and not dataset.official
    )
    assert [len(split.y) for split in (dataset.train, dataset.held_out, dataset.test)] == [21, 3, 6]
    recordings = {name: speech.as_int16(tones(10, seed=index)) for index, name in enumerate(WORDS)}
    for split, expected in (
        (dataset.train, range(3, 10)),
        (dataset.held_out, [2]),
        (dataset.test, [0, 1]),
    ):
        assert split.x.dtype == torch.int16 and split.y.dtype == torch.int64
        found = {(y.item(), x.numpy().tobytes()) for x, y in zip(split.x, split.y, strict=True)}
        chosen = [
            (label, recordings[word][number])
            for label, word in enumerate(WORDS)
            for number in expected
        ]
        assert found == {(label, recording.numpy().tobytes()) for label, recording in chosen}
    assert dataset.test.y.tolist() != sorted(dataset.test.y.tolist()), "the words are mixed"
    assert dataset.noise.shape == (2, SAMPLES), "two whole seconds of 2.5"
    assert str(tmp_path) not in dataset.source and "30 utterances of 3 words" in dataset.source
    own = load(tmp_path / "data", f"speech_commands:{words}")
    assert (
        own.name == DatasetName("speech_commands", str(words)).key
        and own.fingerprint == dataset.fingerprint
    )


def test_a_recording_in_two_parts_stays_in_the_first(words: Path, tmp_path: Path) -> None:
    """Two test recordings are learned from as well, one of them under another word, and a held-out
    one is.
    """
    names = [path.name for path in sorted((words / WORDS[0]).glob("*.wav"))]
    before = load(tmp_path)
    for source, copied in ((0, 5), (2, 6)):  # a test and a held-out utterance
        shutil.copy(words / WORDS[0] / names[source], words / WORDS[0] / names[copied])
    shutil.copy(words / WORDS[0] / names[1], words / WORDS[1] / names[7])
    after = load(tmp_path)
    assert torch.equal(after.test.x, before.test.x) and torch.equal(
        after.held_out.x, before.held_out.x
    )
    learned = {x.numpy().tobytes() for x in after.train.x}
    assert len(after.train.y) == 18 and not learned & {
        x.numpy().tobytes() for x in (*after.test.x, *after.held_out.x)
    }
    assert "without 3 copies of recordings in another part" in after.source


def test_sizes(words: Path, tmp_path: Path) -> None:
    whole = load(tmp_path)
    part = load(tmp_path, train_size=7, test_size=4, held_out_fraction=0.5)
    assert (len(part.train.y), len(part.held_out.y), len(part.test.y)) == (7, 3, 6), (
        "the list says what is held out"
    )
    assert part.fingerprint == whole.fingerprint and re.fullmatch("[0-9a-f]{16}", part.fingerprint)
    assert torch.equal(part.train.x, load(tmp_path, train_size=7).train.x)
    for name in ("clean", *DOMAINS):
        assert torch.equal(part.domain(name).x, whole.domain(name).x[:4])


def test_the_dataset_keeps_its_promises(words: Path, tmp_path: Path) -> None:
    dataset = load(tmp_path)
    assert dataset.vocabulary.standard == ("amplitude", "pitch", "noise", "stretch", "shift")
    assert dataset.network_facts == {"classes": 3}
    clean = dataset.domain("clean")
    assert torch.equal(clean.x, speech.log_mel(dataset.test.x)) and torch.equal(
        clean.y, dataset.test.y
    )
    for name in DOMAINS:
        domain = dataset.domain(name)
        assert (
            domain.x.dtype == torch.float32
            and domain.x.shape == (6, 1, 32, 32)
            and domain.x.isfinite().all()
        )
        assert torch.equal(domain.y, clean.y)
        assert (name == "amplitude") == torch.allclose(domain.x, clean.x, atol=0.01)
        assert domain.x.min() >= speech.FLOOR and domain.x.max() <= 0

    batch = dataset.train.x[:5]
    assert dataset.weak_augment(batch, seeded(0)) is batch
    first, second = (dataset.randomise(batch, seeded(1)) for _ in range(2))
    assert (
        first.shape == (5, 1, 32, 32)
        and first.dtype == torch.float32
        and torch.equal(first, second)
    )
    assert not torch.allclose(first, speech.log_mel(batch), atol=1.0)
    for x in (batch, first, dataset.domain("noise").x[:5]):
        prepared = dataset.prepare(x)
        assert prepared.dtype == torch.float32 and prepared.shape == (5, 1, 32, 32)
        assert -1 <= prepared.min() and prepared.max() == 1
    assert len(list(dataset.augmented_copies(prepared, 3, seeded(0)))) == 3
    for plain, split in (
        (dataset.plain, dataset.train),
        (dataset.plain_held_out, dataset.held_out),
    ):
        assert torch.equal(plain.y, split.y) and torch.equal(
            dataset.prepare(plain.x), dataset.prepare(split.x)
        )
    assert dataset.plain is dataset.plain, "the transform is computed once"


@pytest.mark.parametrize("name", ["clean", "amplitude", "pitch", "noise"])
def test_examples_are_those_of_the_domain(words: Path, tmp_path: Path, name: str) -> None:
    dataset = load(tmp_path)
    dataset.test.x[:2].mul_(
        2
    )  # A player refuses samples beyond [−1, 1], which a louder clip would have.
    spectrograms = dataset.domain(name).x
    for index in range(6):
        example = dataset.example(name, index)
        assert (
            example.shape == (SAMPLES,)
            and example.dtype == torch.float32
            and example.abs().max() <= 1
        )
        heard = speech.log_mel(example[None])[0, 0]
        loud = spectrograms[index, 0] > -20
        assert index < 2 or (heard - spectrograms[index, 0])[loud].abs().median() < 0.01


def test_domains_that_there_are_not_are_refused(words: Path, tmp_path: Path) -> None:
    dataset = load(tmp_path)
    with pytest.raises(ValueError, match="no domain is named 'foo'; allowed are clean, amplitude"):
        dataset.domain("foo")
    for name in ("foo", "stretch", "shift"):  # of the last two there is no waveform
        with pytest.raises(ValueError, match=f"'{name}'; allowed are clean, amplitude, pitch, noi"):
            dataset.example(name, 0)


def test_domains_and_recordings_are_kept(words: Path, tmp_path: Path) -> None:
    first = load(tmp_path).domain("pitch")
    before = written(tmp_path / "generated")
    again = load(tmp_path)
    assert torch.equal(again.domain("pitch").x, first.x)
    assert before and written(tmp_path / "generated") == before, "they were not made again"
    (words / "left" / "9_nohash_0.wav").unlink()
    assert load(tmp_path).fingerprint != again.fingerprint, (
        "a folder that has changed is read again"
    )


# Bad input
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "rate"),
    [(8000, 16000), (20000, 16000), (SAMPLES, 16000), (8000, 8000), (4000, 8000), (48000, 48000)],
)
@pytest.mark.parametrize("channels", [1, 2])
def test_other_recordings_become_a_second(
    tmp_path: Path, samples: int, rate: int, channels: int
) -> None:
    left = 0.5 * np.sin(2 * np.pi * 440 * np.arange(samples) / rate)
    recording = left[:, None] if channels == 1 else np.stack([left, 0.2 * left], 1)
    soundfile.write(tmp_path / "one.wav", recording, rate)
    ours = recordings.read_all([tmp_path / "one.wav"])["waveforms"][0]
    assert ours.shape == (SAMPLES,) and ours.dtype == np.int16
    expected = np.zeros(SAMPLES)
    length = min(SAMPLES, samples * 16000 // rate)
    expected[:length] = (0.5 if channels == 1 else 0.3) * np.sin(
        2 * np.pi * 440 * np.arange(length) / 16000
    )
    inside = slice(100, length - 100)  # at its ends, a resampled sound rings
    assert np.abs(ours / 32768 - expected)[inside].max() < 0.005
    assert not ours[length:].any()


def test_files_that_cannot_be_used_are_left_out_and_named(words: Path, tmp_path: Path) -> None:
    whole = load(tmp_path)
    (words / "left" / "broken.wav").write_bytes(np.random.default_rng(0).bytes(2000))
    soundfile.write(words / "right" / "empty.WAV", np.zeros(0), 16000, format="WAV")
    soundfile.write(words / "right" / "nan.wav", np.full(9, np.nan), 16000, subtype="FLOAT")
    soundfile.write(words / NOISE / "empty.wav", np.zeros(0), 16000)
    for rate in (16_001, 44_101):  # which no recorder has
        soundfile.write(words / "left" / f"{rate}.wav", np.zeros(1000, dtype=np.int16), rate)
    (words / "right" / "note.txt").write_text("no recording")
    (words / "right" / "dangling.wav").symlink_to(words / "none.wav")
    os.mkfifo(words / "right" / "pipe.wav")
    with pytest.warns(
        UserWarning, match=r"(wav is no \.wav file of sound|resampled) and is left out$|WAV is no"
    ) as caught:
        dataset = load(tmp_path)
    assert len(caught) == 6 and dataset.fingerprint == whole.fingerprint


def in_header(place: int, form: str, value: int) -> Callable[[Path], None]:
    """Write another value at a place of a sound file's header."""

    def spoil(path: Path) -> None:
        content = bytearray(path.read_bytes())
        struct.pack_into(form, content, place, value)
        path.write_bytes(content)

    return spoil


def in_stereo(right: float) -> Callable[[Path], None]:
    """Add a channel that is `right` times the other."""

    def spoil(path: Path) -> None:
        left, rate = soundfile.read(path)
        soundfile.write(path, np.stack([left, right * left], 1), rate)

    return spoil


def as_floats(scale: float) -> Callable[[Path], None]:
    """Write the samples as floats, `scale` times as large."""

    def spoil(path: Path) -> None:
        samples, rate = soundfile.read(path)
        soundfile.write(path, scale * samples, rate, subtype="FLOAT")

    return spoil


SILENCE_OR_NOISE: dict[str, tuple[Callable[[Path], None], str]] = {
    # What is done to a sound recording, and what is said of it.
    "opposed channels": (in_stereo(-1), "channels that cancel each other"),
    "nearly opposed channels": (in_stereo(-0.98), "channels that cancel each other"),
    "7 bits": (in_header(34, "<H", 7), "1 channels of 7 bits in blocks of 2 bytes"),
    "8 bits for 16": (in_header(34, "<H", 8), "1 channels of 8 bits in blocks of 2 bytes"),
    "1,024 channels": (in_header(22, "<H", 1024), "1024 channels of 16 bits"),
    "2 channels for 1": (in_header(22, "<H", 2), "2 channels of 16 bits in blocks of 2 bytes"),
    "1 sample per second": (in_header(24, "<I", 1), "has a sampling rate of 1 Hz, which cannot be"),
    "floats of int16": (as_floats(3000), "holds numbers up to "),
}


@pytest.mark.parametrize("name", SILENCE_OR_NOISE)
def test_what_would_be_read_as_silence_or_noise_is_left_out(
    words: Path, tmp_path: Path, name: str
) -> None:
    spoil, told = SILENCE_OR_NOISE[name]
    whole = load(tmp_path)
    spoiled = words / "left" / "spoiled.wav"
    shutil.copy(words / "left" / "5_nohash_0.wav", spoiled)
    spoil(spoiled)
    with pytest.warns(UserWarning, match=rf"spoiled\.wav .*{re.escape(told)}.* is left out"):
        assert load(tmp_path).fingerprint == whole.fingerprint


def test_channels_that_only_differ_are_averaged(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, (16000, 8))
    for channels in (noise, noise * [1, 0, 0, 0, 0, 0, 0, 0], noise[:, :2] * [1, -0.8]):
        soundfile.write(tmp_path / "one.wav", channels, 16000, subtype="FLOAT")
        found = recordings.read_all([tmp_path / "one.wav"])["waveforms"][0] / 32768
        assert np.abs(found - channels.mean(1)).max() < 1e-4


@pytest.mark.parametrize(
    ("encoding", "prefix", "spoil"),
    [("utf-8-sig", "", str), ("utf-8", " ", str), ("utf-8", "", lambda line: f"{line} \r")],
)
def test_lists_of_editors_name_what_they_name(
    words: Path, tmp_path: Path, encoding: str, prefix: str, spoil: Callable[[str], str]
) -> None:
    """A byte order mark, blanks at the ends of a line, and names with a blank in them."""
    for word in WORDS:
        (words / word / "0_nohash_0.wav").rename(words / word / "0 again.wav")
    for listed in (TEST_LIST, HELD_OUT_LIST):
        lines = (words / listed).read_text().replace("0_nohash_0", "0 again", 2).splitlines()
        lines = [line.replace("/0_nohash_0", "/0 again") for line in lines]
        (words / listed).write_text(
            "\n".join(prefix + spoil(line) for line in lines), encoding=encoding
        )
    dataset = load(tmp_path)
    assert [len(split.y) for split in (dataset.train, dataset.held_out, dataset.test)] == [21, 3, 6]


@pytest.mark.parametrize(
    "line",
    ["left/78_nohash_0.wav", "./left/0_nohash_0.wav", "left\\0_nohash_0.wav", "Left/0_nohash_0.wav"]
    + ["left", "/left/0_nohash_0.wav", "left/0_nohash_0.WAV", "left/"],
)
def test_a_line_of_a_list_that_names_no_file_stops(words: Path, tmp_path: Path, line: str) -> None:
    """That recording would be trained on."""
    with (words / TEST_LIST).open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(ValueError, match=r"testing_list\.txt: the line .* names no file; allowed"):
        load(tmp_path)


def test_recordings_exchanged_under_their_names_are_other_data(words: Path, tmp_path: Path) -> None:
    """Sizes and times stay, as with tar or cp -p."""
    before = load(tmp_path)
    paths = [words / word / "0_nohash_0.wav" for word in WORDS[:2]]
    contents = [path.read_bytes() for path in paths]
    times = [path.stat().st_mtime_ns for path in paths]
    for path, content, time in zip(paths, reversed(contents), times, strict=True):
        path.write_bytes(content)
        os.utime(path, ns=(time, time))
    assert load(tmp_path).fingerprint != before.fingerprint


def test_only_the_archives_own_lists_are_called_by_its_name(words: Path, tmp_path: Path) -> None:
    assert load(tmp_path).source.startswith("recordings of unknown origin, 30 utterances")
    sample = tmp_path / "sample"
    sample.mkdir()
    for path in real_data("speech_sample/speech_commands_v0.01").iterdir():
        (sample / path.name).symlink_to(path)
    (sample / NOISE).symlink_to(words / NOISE)
    dataset = load(tmp_path, f"speech_commands:{sample}")
    assert dataset.source.startswith("Speech Commands v0.01, 300 utterances of 30 words")
    assert not dataset.recognised, "300 are not all"


def test_a_missing_and_a_packed_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = (speech_commands.ADDRESS, speech_commands.HASH, str(tmp_path), "data_folder")
    with pytest.raises(DataMissing, match=".*".join(parts)):
        load(tmp_path)
    packed = tmp_path / "SpeechCommands" / "speech_commands_v0.01.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(write_words(tmp_path / "words"), ".")
    monkeypatch.setattr(
        speech_commands, "HASH", f"sha256:{hashlib.sha256(packed.read_bytes()).hexdigest()}"
    )
    assert len(load(tmp_path).test.y) == 6


# Synthetic speech
# --------------------------------------------------------------------------------------------------


def test_synthetic_speech(tmp_path: Path) -> None:
    spoken = load(tmp_path, "synthetic_speech")
    assert (
        spoken.classes == 10
        and not spoken.official
        and "synthetic, not the paper's data" in spoken.source
    )
    assert [len(split.y) for split in (spoken.train, spoken.held_out, spoken.test)] == [
        540,
        60,
        200,
    ]
    assert spoken.test.y.bincount().min() > 8 and spoken.test.y[:32].unique().numel() > 7
    largest = speech.as_float(spoken.test.x).abs().amax(1)
    assert 0.25 < largest.min() and largest.max() < 0.95 and spoken.noise.float().std(1).min() > 100
    assert len({x.numpy().tobytes() for x in torch.cat([spoken.train.x, spoken.test.x])}) == 740
    assert load(tmp_path / "other", "synthetic_speech").fingerprint == spoken.fingerprint
    # The nearest mean spectrum over time of the training utterances, which knows nothing of order,
    # tells words apart.
    train, test = (
        spoken.prepare(split.x).mean(3).flatten(1) for split in (spoken.train, spoken.test)
    )
    means = torch.stack([train[spoken.train.y == label].mean(0) for label in range(10)])
    assert (torch.cdist(test, means).argmin(1) == spoken.test.y).float().mean() > 0.3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_the_gpu_as_on_the_cpu(tmp_path: Path) -> None:
    spoken, on_gpu = (
        load(tmp_path, "synthetic_speech", device=device) for device in ("cpu", "cuda")
    )
    assert on_gpu.train.x.is_cuda and on_gpu.fingerprint == spoken.fingerprint
    for name in ("clean", *DOMAINS):
        assert on_gpu.domain(name).x.is_cuda
        assert torch.allclose(on_gpu.domain(name).x.cpu(), spoken.domain(name).x, atol=0.1)
    assert on_gpu.randomise(on_gpu.train.x[:5], seeded(0)).is_cuda, "by draws of its own"


# Real data
# --------------------------------------------------------------------------------------------------


def test_real_utterances(tmp_path: Path) -> None:
    (tmp_path / "SpeechCommands").symlink_to(real_data("SpeechCommands"))
    dataset = load(tmp_path)
    assert dataset.classes == 10 and not dataset.official
    assert [len(split.y) for split in (dataset.train, dataset.held_out, dataset.test)] == [
        2776,
        390,
        854,
    ]
    assert "without 54 copies of recordings in another part" in dataset.source
    assert dataset.noise.shape == (120, SAMPLES) and dataset.test.y[:100].unique().numel() == 10
    for waveform, spectrogram in zip(
        speech.as_float(dataset.test.x), dataset.domain("clean").x[:50, 0], strict=False
    ):
        assert_near(spectrogram, librosa_power(waveform))
    for name in DOMAINS:
        assert dataset.domain(name).x.isfinite().all()
