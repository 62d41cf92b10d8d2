"""Speech: spectrograms and domains against librosa and torchaudio, augmentations against audiomentations, the datasets
on made-up recordings, and on real ones where they are."""

import os
import re
import shutil
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
from scipy.signal import butter, sosfreqz
from torch import Tensor

from cascadetta_lib.augment import audio
from cascadetta_lib.data import SpeechOptions, load_dataset, speech, speech_commands, synthetic_speech
from cascadetta_lib.data.base import DataMissing, Split
from cascadetta_lib.data.speech import DOMAINS, HOP, SAMPLES, SpeechDataset, make_speech_dataset
from cascadetta_lib.data.speech_commands import HELD_OUT_LIST, NOISE, TEST_LIST
from cascadetta_lib.models import LeNetConfig
from cascadetta_lib.pretrain import build_model, held_out_accuracy

WORDS = ("left", "right", "stop")


def tones(count: int, seed: int = 0) -> Tensor:
    """Waveforms (N, 16000), float: chords that swell and fade, on faint noise."""
    generator = torch.Generator().manual_seed(seed)
    seconds = torch.arange(SAMPLES) / SAMPLES
    frequency = 100 + 3000 * torch.rand(count, 4, 1, generator=generator)
    envelope = torch.exp(-20 * (seconds - 0.2 - 0.6 * torch.rand(count, 1, generator=generator)) ** 2)
    chord = torch.sin(2 * torch.pi * frequency * seconds).mean(1) * envelope
    return 0.8 * chord + 0.001 * torch.randn(count, SAMPLES, generator=generator)


def numbers(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Spectrograms -------------------------------------------------------------------------------------------------------


def librosa_log_mel(waveform: Tensor) -> np.ndarray:
    power = librosa.feature.melspectrogram(y=waveform.numpy(), sr=16000, n_fft=2048, hop_length=512, n_mels=32)
    return librosa.power_to_db(power, ref=np.max)


def assert_as_librosa(waveforms: Tensor) -> None:
    """Within 0.1 dB over the bins within 60 dB of the maximum."""
    ours = speech.log_mel(waveforms)
    assert ours.shape == (len(waveforms), 1, 32, 32) and ours.dtype == torch.float32
    for waveform, spectrogram in zip(speech.as_float(waveforms), ours[:, 0].numpy(), strict=True):
        theirs = librosa_log_mel(waveform)
        assert np.abs(spectrogram - theirs)[theirs > -60].max() < 0.1


def test_log_mel_is_librosas() -> None:
    waveforms = torch.cat([tones(6), torch.zeros(1, SAMPLES), torch.eye(1, SAMPLES)])
    assert_as_librosa(waveforms)
    assert_as_librosa(speech.as_int16(waveforms))


def test_silence_is_no_nan() -> None:
    silent = speech.log_mel(torch.zeros(2, SAMPLES, dtype=torch.int16))
    assert (silent == 0).all() and (librosa_log_mel(torch.zeros(SAMPLES)) == 0).all()


def test_int16_there_and_back() -> None:
    stored = torch.arange(-32768, 32768).to(torch.int16)
    assert torch.equal(speech.as_int16(speech.as_float(stored)), stored)
    assert speech.as_int16(torch.tensor([-2.0, 2.0])).tolist() == [-32768, 32767]


# The target domains -------------------------------------------------------------------------------------------------


def drawn(*value: float) -> speech.DomainDraw:
    return speech.DomainDraw(torch.tensor(value, dtype=torch.float32), torch.arange(len(value)))


@pytest.mark.parametrize("name", DOMAINS)
def test_draws_fill_their_range_and_repeat(name: str) -> None:
    draw, again = (speech.draw_domain(name, 5000, 7, numbers(1)) for _ in range(2))
    assert all(map(torch.equal, draw, again))
    low, high = speech.RANGES[name]
    assert low <= draw.value.min() < low + 0.01 * (high - low) and high >= draw.value.max() > high - 0.01 * (high - low)
    assert draw.value.mean().item() == pytest.approx((low + high) / 2, abs=0.02 * (high - low))
    assert draw.cut.unique().tolist() == list(range(7))
    if name == "shift":
        assert draw.value.unique().tolist() == list(range(-8, 9))


def test_amplitude_is_a_factor_which_the_spectrogram_does_not_show() -> None:
    x, draw = tones(3), drawn(0.7, 1.0, 1.1)
    changed = speech.change_waveforms(x, "amplitude", draw, x)
    assert torch.allclose(changed, torch.stack([0.7 * x[0], x[1], 1.1 * x[2]]))
    assert torch.allclose(speech.domain_spectrograms(x, "amplitude", draw, x), speech.log_mel(x), atol=0.01)


def test_noise_is_a_mixture() -> None:
    x, noise = tones(2), 0.1 * torch.randn(2, SAMPLES, generator=numbers(0))
    mixed = speech.change_waveforms(x, "noise", drawn(0.0, 0.45), noise)
    assert torch.allclose(mixed, torch.stack([x[0], 0.55 * x[1] + 0.45 * noise[1]]))


@pytest.mark.parametrize("value", [0.8, 0.93, 1.0, 1.17])
def test_pitch_is_linear_interpolation(value: float) -> None:
    x, draw = tones(1), drawn(value)
    theirs = np.interp(np.arange(0, SAMPLES, 1 / draw.value.item()), np.arange(SAMPLES), x[0].numpy())[:SAMPLES]
    ours = speech.change_waveforms(x, "pitch", draw, x)[0].numpy()
    np.testing.assert_allclose(ours[: len(theirs)], theirs, atol=1e-6)
    assert not ours[len(theirs) :].any(), "padded at the end"


@pytest.mark.parametrize("rate", [0.8, 0.97, 1.0, 1.2])
def test_stretch_is_a_phase_vocoder(rate: float) -> None:
    x = tones(2)
    fourier = torch.stft(x, 2048, 512, window=torch.hann_window(2048), pad_mode="constant", return_complex=True)
    advance = torch.linspace(0, torch.pi * 512, 1025)[:, None]
    vocoded = torchaudio.functional.phase_vocoder(fourier, rate, advance).abs()[..., :32]
    power = torch.zeros(2, 1025, 32)
    power[..., : vocoded.shape[2]] = vocoded**2
    filters = torch.from_numpy(librosa.filters.mel(sr=16000, n_fft=2048, n_mels=32))
    theirs = librosa.power_to_db((filters @ power)[0].numpy(), ref=np.max)
    ours = speech.domain_spectrograms(x, "stretch", drawn(rate, rate), x)[0, 0].numpy()
    assert np.abs(ours - theirs)[theirs > -60].max() < 0.1


@pytest.mark.parametrize("frames", [-8, -1, 0, 5])
def test_shift_moves_frames_and_fills_with_nothing(frames: int) -> None:
    x = tones(1)
    ours = speech.domain_spectrograms(x, "shift", drawn(frames), x)[0, 0]
    power = librosa.feature.melspectrogram(y=x[0].numpy(), sr=16000, n_fft=2048, hop_length=512, n_mels=32)
    moved = np.zeros_like(power)
    moved[:, max(0, frames) : 32 + min(0, frames)] = power[:, max(0, -frames) : 32 - max(0, frames)]
    np.testing.assert_allclose(ours, librosa.power_to_db(moved, ref=np.max), atol=0.1)
    if frames:
        assert (ours[:, :frames] if frames > 0 else ours[:, frames:]).max() == speech.FLOOR


# Training augmentations against audiomentations ---------------------------------------------------------------------


def as_drawn(x: Tensor, **changes: Tensor) -> Tensor:
    """`x` augmented by nothing but `changes` to the draw."""
    count, none = len(x), torch.zeros(len(x), dtype=torch.bool)
    draw = audio.AudioDraw(torch.ones(count), none, torch.ones(count), torch.full((count,), 2), none, torch.empty(0, 1))
    return audio.apply_augmentations(x, draw._replace(**changes))


def theirs(transform: Any, x: Tensor, **parameters: Any) -> np.ndarray:
    """What audiomentations' `transform` makes of a waveform with these parameters."""
    transform.randomize_parameters(x.numpy(), 16000)
    transform.parameters |= {"should_apply": True} | parameters
    return transform.apply(x.numpy(), 16000)


def test_gain_is_audiomentations() -> None:
    x, gain = tones(4), torch.tensor([0.2512, 0.5, 2.0, 3.981])
    for waveform, ratio, ours in zip(x, gain, as_drawn(x, gain=gain), strict=True):
        np.testing.assert_allclose(ours, theirs(Gain(p=1.0), waveform, amplitude_ratio=ratio.item()), rtol=1e-6)


CUTOFFS = (20.0, 150.0, 900.0, 2400.0)


@pytest.mark.parametrize("order", audio.ORDERS)
def test_high_pass_is_audiomentations(order: int) -> None:
    x = 0.1 + tones(4)  # a constant, on which the filter must have settled
    ours = audio.high_pass(x, torch.tensor(CUTOFFS), torch.full((4,), order))
    for waveform, cutoff, result in zip(x, CUTOFFS, ours, strict=True):
        expected = theirs(HighPassFilter(p=1.0), waveform, cutoff_freq=cutoff, rolloff=6 * order)
        np.testing.assert_allclose(result, expected, atol=1e-4)


@pytest.mark.parametrize("order", audio.ORDERS)
@pytest.mark.parametrize("cutoff", CUTOFFS)
def test_response_of_the_high_pass(order: int, cutoff: float) -> None:
    """Within 1 dB at half the cutoff, at it (−3 dB), at twice that, and near the top."""
    impulse = torch.zeros(1, SAMPLES)
    impulse[0, SAMPLES // 2] = 1
    response = torch.fft.rfft(audio.high_pass(impulse, torch.tensor([cutoff]), torch.tensor([order])))[0].abs()
    places = [round(cutoff / 2), round(cutoff), round(2 * cutoff), 7900]  # 1 Hz a bin
    settings = butter(order, cutoff, "highpass", fs=16000, output="sos")
    _, expected = sosfreqz(settings, worN=np.array(places, dtype=float), fs=16000)
    assert np.abs(20 * np.log10(response[places].numpy() / np.abs(expected))).max() < 1
    assert 20 * np.log10(response[places[1]].item()) == pytest.approx(-3, abs=0.5)


def test_impulse_response_is_audiomentations(tmp_path: Path) -> None:
    x, responses = tones(3), audio.draw_augmentations(3, numbers(0), probability=1.0).responses
    ours = as_drawn(x, reverberated=torch.ones(3, dtype=torch.bool), responses=responses)
    for index, result in enumerate(ours):
        path = tmp_path / f"{index}.wav"
        soundfile.write(path, responses[index].numpy(), 16000, subtype="FLOAT")
        expected = theirs(ApplyImpulseResponse(str(path), p=1.0), x[index], ir_file_path=str(path))
        np.testing.assert_allclose(result, expected, atol=1e-5)


def test_draws_have_audiomentations_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = audio.draw_augmentations(2000, numbers(0))
    for applied in (draw.gain != 1, draw.filtered, draw.reverberated):
        assert applied.float().mean().item() == pytest.approx(0.5, abs=0.05)
    decibels = 20 * draw.gain[draw.gain != 1].log10()
    assert -12 <= decibels.min() < -11.8 and 11.8 < decibels.max() <= 12 and abs(decibels.mean()) < 0.6
    draw = audio.draw_augmentations(20_000, numbers(0), probability=0.0)
    monkeypatch.setattr("numpy.random.uniform", np.random.default_rng(0).uniform)
    transform = HighPassFilter(p=1.0)
    samples = []
    for _ in range(5000):
        transform.randomize_parameters(np.zeros(1, np.float32), 16000)
        samples.append((transform.parameters["cutoff_freq"], transform.parameters["rolloff"] // 6))
    cutoffs, orders = map(np.array, zip(*samples, strict=True))
    shares = np.array([0.1, 0.25, 0.5, 0.75, 0.9])
    np.testing.assert_allclose(np.quantile(draw.cutoff, shares), np.quantile(cutoffs, shares), rtol=0.1)
    assert 20 <= draw.cutoff.min() and draw.cutoff.max() <= 2400
    np.testing.assert_allclose(np.bincount(draw.order) / 20_000, np.bincount(orders) / 5000, atol=0.04)


def test_impulse_responses_fade_by_60_decibels_in_their_time() -> None:
    responses = audio.draw_augmentations(400, numbers(0), probability=1.0).responses
    power = responses.square().mean(0)
    assert responses.shape == (400, 9600)
    assert (power[:160].mean() / power[1600:1760].mean()).log10() * 10 > 10, "0.1 s later, on the average of all"
    assert 10 * power[-160:].mean().log10() < -55


def test_augmentations_repeat_and_leave_their_input() -> None:
    x = tones(20)
    before = x.clone()
    draw, again = (audio.draw_augmentations(20, numbers(5)) for _ in range(2))
    assert all(map(torch.equal, draw, again))
    first = audio.apply_augmentations(x, draw)
    assert torch.equal(first, audio.apply_augmentations(x, again)) and torch.equal(x, before)
    untouched = (draw.gain == 1) & ~draw.filtered & ~draw.reverberated
    assert untouched.any() and torch.equal(first[untouched], x[untouched])
    assert torch.equal(audio.augment_waveforms(x, numbers(0), probability=0.0), x)
    silent = audio.augment_waveforms(torch.zeros(4, SAMPLES), numbers(0), probability=1.0)
    assert not silent.any(), "silence stays silence"


def test_copies_keep_most_of_a_spectrogram() -> None:
    x = torch.rand(5, 1, 32, 32, generator=numbers(0)) * 2 - 1
    before = x.clone()
    copies = list(audio.spectrogram_copies(x, 40, numbers(1)))
    assert all(map(torch.equal, copies, audio.spectrogram_copies(x, 40, numbers(1)))) and torch.equal(x, before)
    draw = audio.draw_copies(40, numbers(1))
    assert draw.width.unique().tolist() == [0, 1, 2, 3, 4]
    for copy, (bands, frames), deviation in zip(copies, draw.width.tolist(), draw.deviation.tolist(), strict=True):
        kept = ((copy - x).abs() < 6 * deviation).all(0)[0]
        assert 32 - kept.any(1).sum() == bands and 32 - kept.any(0).sum() == frames, "the same place in all of a batch"
        assert (copy - x)[:, :, kept].std().item() == pytest.approx(deviation, rel=0.1)


# Speech Commands, made up -------------------------------------------------------------------------------------------


def test_what_is_heard_stays_in_range(tmp_path: Path) -> None:
    """A player refuses samples beyond [−1, 1], which a louder or a stretched clip would have."""
    square = torch.tensor([32767, -32768], dtype=torch.int16).repeat_interleave(40).repeat(200)
    clips = Split(square.repeat(40, 1), torch.arange(40) % 2)
    dataset = make_speech_dataset(
        name="loud",
        source="made up by the tests",
        official=False,
        class_names=("one", "other"),
        train=clips,
        held_out=None,
        test=clips,
        noise=square[None],
        options=SpeechOptions(folder=str(tmp_path)),
    )
    for name in DOMAINS:
        loudest = max(dataset.example(name, index).abs().max().item() for index in range(10))
        assert 0.5 < loudest <= 1, name
    assert max(dataset._heard("amplitude", index).abs().max().item() for index in range(10)) > 1


def test_each_domain_has_draws_of_its_own() -> None:
    assert len(set(speech.DOMAIN_SEEDS.values())) == len(DOMAINS)


def write_words(folder: Path, count: int = 10, words: tuple[str, ...] = WORDS) -> Path:
    """`count` recordings a word, of which numbers 0, 1 are test and 2 held-out, and a recording of noise of 2.5 s."""
    for index, word in enumerate(words):
        (folder / word).mkdir(parents=True)
        for number, waveform in enumerate(tones(count, seed=index)):
            soundfile.write(folder / word / f"{number}_nohash_0.wav", speech.as_int16(waveform).numpy(), 16000)
    for name, chosen in ((TEST_LIST, (0, 1)), (HELD_OUT_LIST, (2,))):
        lines = [f"{word}/{number}_nohash_0.wav" for word in words for number in chosen]
        (folder / name).write_text("\n".join(lines) + "\n")
    (folder / NOISE).mkdir()
    soundfile.write(folder / NOISE / "hiss.wav", 0.1 * np.random.default_rng(0).standard_normal(40000), 16000)
    return folder


@pytest.fixture
def words(tmp_path: Path) -> Path:
    return write_words(tmp_path / "SpeechCommands" / "speech_commands_v0.01")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No test reaches beyond this machine; what would be downloaded is written down."""
    asked: list[str] = []

    def refuse(url: str, path: str, **options: Any) -> None:
        asked.append(url)
        Path(path).write_bytes(b"half")
        raise OSError("no network")

    monkeypatch.setattr("torchaudio.datasets.speechcommands.download_url_to_file", refuse)
    return asked


def load(folder: Path, name: str = "speech_commands", **options: Any) -> SpeechDataset:
    dataset = load_dataset(name, SpeechOptions(folder=str(folder), **options))
    assert isinstance(dataset, SpeechDataset)
    return dataset


def test_splits_are_those_of_the_lists(words: Path, tmp_path: Path) -> None:
    dataset = load(tmp_path)
    assert dataset.class_names == WORDS and dataset.compare_with == "Google Commands" and not dataset.official
    assert [len(split.y) for split in (dataset.train, dataset.held_out, dataset.test)] == [21, 3, 6]
    recordings = {name: speech.as_int16(tones(10, seed=index)) for index, name in enumerate(WORDS)}
    for split, expected in ((dataset.train, range(3, 10)), (dataset.held_out, [2]), (dataset.test, [0, 1])):
        assert split.x.dtype == torch.int16 and split.y.dtype == torch.int64
        found = {(y.item(), x.numpy().tobytes()) for x, y in zip(split.x, split.y, strict=True)}
        chosen = [(label, recordings[word][number]) for label, word in enumerate(WORDS) for number in expected]
        assert found == {(label, recording.numpy().tobytes()) for label, recording in chosen}
    assert dataset.test.y.tolist() != sorted(dataset.test.y.tolist()), "the words are mixed"
    assert dataset.noise.shape == (2, SAMPLES), "two whole seconds of 2.5"
    assert str(tmp_path) not in dataset.source and "30 utterances of 3 words" in dataset.source


def test_sizes(words: Path, tmp_path: Path) -> None:
    whole, part = load(tmp_path), load(tmp_path, train_size=7, test_size=4, held_out_fraction=0.5)
    assert (len(part.train.y), len(part.held_out.y), len(part.test.y)) == (7, 3, 6), "the list says what is held out"
    assert part.fingerprint == whole.fingerprint and re.fullmatch("[0-9a-f]{16}", part.fingerprint)
    assert torch.equal(part.train.x, load(tmp_path, train_size=7).train.x)
    for name in ("clean", *DOMAINS):
        assert torch.equal(part.domain(name, 1).x, whole.domain(name, 1).x[:4])


def test_own_folder(words: Path, tmp_path: Path) -> None:
    dataset = load(tmp_path / "data", f"speech_commands:{words}")
    assert dataset.name == "speech_commands:speech_commands_v0.01" and dataset.fingerprint == load(tmp_path).fingerprint


def test_contract(words: Path, tmp_path: Path) -> None:
    dataset = load(tmp_path)
    assert dataset.domain_names == ("amplitude", "pitch", "noise", "stretch", "shift")
    clean = dataset.domain("clean", 1)
    assert torch.equal(clean.x, speech.log_mel(dataset.test.x)) and torch.equal(clean.y, dataset.test.y)
    for name in DOMAINS:
        domain, again = dataset.domain(name, 1), load(tmp_path).domain(name, 1)
        assert domain.x.dtype == torch.float32 and domain.x.shape == (6, 1, 32, 32) and domain.x.isfinite().all()
        assert torch.equal(domain.x, again.x) and torch.equal(domain.y, clean.y)
        assert (name == "amplitude") == torch.allclose(domain.x, clean.x, atol=0.01)
        assert domain.x.min() >= speech.FLOOR and domain.x.max() <= 0
    for name, severity in (("pich", 1), ("pitch", 0), ("pitch", 5)):
        with pytest.raises(ValueError, match="did you mean 'pitch'|allowed is 1"):
            dataset.domain(name, severity)

    batch = dataset.train.x[:5]
    assert dataset.weak_augment(batch, numbers(0)) is batch
    first, second = (dataset.randomise(batch, numbers(1)) for _ in range(2))
    assert first.shape == (5, 1, 32, 32) and first.dtype == torch.float32 and torch.equal(first, second)
    assert not torch.allclose(first, speech.log_mel(batch), atol=1.0)
    for x in (batch, first, dataset.domain("noise", 1).x[:5]):
        prepared = dataset.prepare(x)
        assert prepared.dtype == torch.float32 and prepared.shape == (5, 1, 32, 32)
        assert -1 <= prepared.min() and prepared.max() == 1
    assert len(list(dataset.augmented_copies(prepared, 3, numbers(0)))) == 3


def test_without_probability_nothing_is_randomised(words: Path, tmp_path: Path) -> None:
    dataset = load(tmp_path, augmentation_probability=0.0)
    assert torch.equal(dataset.randomise(dataset.train.x, numbers(0)), speech.log_mel(dataset.train.x))


@pytest.mark.parametrize("room", [0, 2 * 5 * 32 * 32 * 4, 2**30])
def test_what_is_kept_of_the_randomising_changes_nothing(
    words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Two passes over three batches, with room for none, two and all of them: the same spectrograms, and the generator
    goes on as if all had been drawn anew; another batch, or another place in the draws, is another one."""
    monkeypatch.setattr(speech, "REMEMBERED", room)
    dataset, batches = load(tmp_path), load(tmp_path).train.x[:15].split(5)
    made, plain = [], audio.augment_waveforms
    monkeypatch.setattr(speech, "augment_waveforms", lambda *a, **k: made.append(1) or plain(*a, **k))
    passes = []
    for _ in range(2):
        generator = numbers(3)
        passes.append([dataset.randomise(batch, generator) for batch in batches] + [generator.get_state()])
    assert all(torch.equal(one, two) for one, two in zip(*passes, strict=True))
    assert len(made) == {0: 6, 2**30: 3}.get(room, 4)
    fresh = numbers(3)
    assert torch.equal(passes[0][0], speech.log_mel(plain(speech.as_float(batches[0]), fresh)))
    assert not torch.equal(dataset.randomise(batches[1], numbers(3)), passes[0][0])
    first = dataset.randomise(batches[0], numbers(3)).zero_()
    assert not torch.equal(dataset.randomise(batches[0], numbers(3)), first), "what is handed out may be written to"
    assert not torch.equal(dataset.randomise(batches[0], numbers(4)), passes[0][0])


@pytest.mark.parametrize("name", ["clean", *DOMAINS])
def test_examples_are_those_of_the_domain(words: Path, tmp_path: Path, name: str) -> None:
    dataset = load(tmp_path)
    spectrograms = dataset.domain(name, 1).x
    for index in range(6):
        example = dataset.example(name, index)
        assert example.shape == (SAMPLES,) and example.dtype == torch.float32
        heard = speech.log_mel(example[None])[0, 0]
        # Through sound and back, a stretch (with made-up phases) and the ends of a shift are not quite what they were.
        near = {"stretch": 5.0, "shift": 1.5}.get(name, 0.01)
        loud = spectrograms[index, 0] > -20
        assert (heard - spectrograms[index, 0])[loud].abs().median() < near


def test_example_of_shift_moves_whole_frames(words: Path, tmp_path: Path) -> None:
    dataset = load(tmp_path)
    for index in range(6):
        moved, original = dataset.example("shift", index), dataset.example("clean", index)
        samples = HOP * int(dataset._draw("shift", torch.tensor([index])).value)
        expected = torch.zeros(SAMPLES)
        expected[max(0, samples) : SAMPLES + min(0, samples)] = original[max(0, -samples) : SAMPLES - max(0, samples)]
        assert torch.equal(moved, expected)


def test_domains_and_recordings_are_kept(words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(tmp_path).domain("pitch", 1)
    monkeypatch.setattr(speech, "domain_spectrograms", None)
    monkeypatch.setattr(speech_commands, "read_utterance", None)
    again = load(tmp_path)
    assert torch.equal(again.domain("pitch", 1).x, first.x)
    (words / "left" / "9_nohash_0.wav").unlink()
    with pytest.raises(TypeError):
        load(tmp_path)  # a folder that has changed is read again
    monkeypatch.undo()
    assert load(tmp_path).fingerprint != again.fingerprint


# Bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "rate"), [(8000, 16000), (20000, 16000), (SAMPLES, 16000), (8000, 8000), (4000, 8000), (48000, 48000)]
)
@pytest.mark.parametrize("channels", [1, 2])
def test_other_recordings_become_a_second(tmp_path: Path, samples: int, rate: int, channels: int) -> None:
    seconds = np.arange(samples) / rate
    left = 0.5 * np.sin(2 * np.pi * 440 * seconds)
    recording = left[:, None] if channels == 1 else np.stack([left, 0.2 * left], 1)
    soundfile.write(tmp_path / "one.wav", recording, rate)
    ours = speech_commands.read_utterance(tmp_path / "one.wav")
    assert ours is not None and ours.shape == (SAMPLES,) and ours.dtype == np.int16
    expected = np.zeros(SAMPLES)
    length = min(SAMPLES, samples * 16000 // rate)
    expected[:length] = (0.5 if channels == 1 else 0.3) * np.sin(2 * np.pi * 440 * np.arange(length) / 16000)
    inside = slice(100, length - 100)  # at its ends, a resampled sound rings
    assert np.abs(ours / 32768 - expected)[inside].max() < 0.005
    assert not ours[length:].any()


def test_files_that_cannot_be_used_are_left_out_and_named(words: Path, tmp_path: Path) -> None:
    whole = load(tmp_path)
    for number in range(5):
        (words / "left" / f"broken{number}.wav").write_bytes(np.random.default_rng(number).bytes(2000))
    (words / "left" / "nothing.wav").touch()
    soundfile.write(words / "right" / "empty.wav", np.zeros(0), 16000)
    (words / "right" / "note.txt").write_text("no recording")
    with pytest.warns(UserWarning) as caught:
        dataset = load(tmp_path)
    messages = [str(warning.message) for warning in caught]
    assert any(re.search(r"6 files cannot be read.*left/broken0\.wav, .*…$", message) for message in messages)
    assert any(re.search(r"1 files hold no sample.*: right/empty\.wav$", message) for message in messages)
    assert "6 files that cannot be read left out; 1 files without a sample left out" in dataset.source
    assert dataset.fingerprint == whole.fingerprint


def test_a_list_may_name_files_that_are_not_there(words: Path, tmp_path: Path) -> None:
    with (words / TEST_LIST).open("a") as file:
        file.write("bed/0_nohash_0.wav\nleft/77_nohash_0.wav\n")
    dataset = load(tmp_path)
    assert len(dataset.test.y) == 6 and "2 names of the lists without a file" in dataset.source


def only_one_word(folder: Path) -> None:
    for word in WORDS[1:]:
        shutil.rmtree(folder / word)


def no_recordings(folder: Path) -> None:
    for word in WORDS:
        for path in (folder / word).iterdir():
            path.write_bytes(b"")


def all_listed(folder: Path) -> None:
    with (folder / TEST_LIST).open("a") as file:
        file.writelines(f"stop/{path.name}\n" for path in (folder / "stop").iterdir())


FAULTS: list[tuple[Callable[[Path], object], type[Exception], str]] = [
    (only_one_word, ValueError, "found 1 folders of words.*allowed is 2 or more"),
    (lambda folder: (folder / TEST_LIST).write_text("bed/1.wav"), ValueError, r"testing_list\.txt: none of its names"),
    (lambda folder: (folder / HELD_OUT_LIST).write_text(""), ValueError, r"validation_list\.txt: none of its names"),
    (lambda folder: (folder / TEST_LIST).unlink(), DataMissing, r"holds no testing_list\.txt.*sha256:7439"),
    (lambda folder: shutil.rmtree(folder / NOISE), DataMissing, "holds no _background_noise_.*sha256:7439"),
    (lambda folder: (folder / NOISE / "hiss.wav").write_bytes(b"x"), ValueError, "none of 1 files can be read"),
    (all_listed, ValueError, "no training utterance of stop"),
]


@pytest.mark.parametrize(("damage", "error", "message"), FAULTS)
def test_faults(words: Path, tmp_path: Path, damage: Callable[[Path], object], error: Any, message: str) -> None:
    damage(words)
    with pytest.raises(error, match=message):
        load(tmp_path)


@pytest.mark.filterwarnings("ignore:.*cannot be read")
def test_a_folder_in_which_no_file_can_be_read(words: Path, tmp_path: Path) -> None:
    no_recordings(words)
    with pytest.raises(ValueError, match=r"testing_list\.txt: none of its names is that of an utterance"):
        load(tmp_path)


def test_missing_data_is_asked_for_once_and_leaves_nothing(tmp_path: Path, offline: list[str]) -> None:
    with pytest.raises(DataMissing) as caught:
        load(tmp_path)
    for part in (*offline, "no network", speech_commands.HASH, str(tmp_path), "data_folder", "speech_commands:FOLDER"):
        assert part in str(caught.value)
    assert offline == [speech_commands.ADDRESS]
    assert not [path for path in (tmp_path / "SpeechCommands").iterdir() if path.suffix != ".lock"]


def test_a_download_appears_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(root: Path, *, url: str, download: bool) -> None:
        assert not (tmp_path / "SpeechCommands" / url).exists()
        write_words(root / "SpeechCommands" / url)

    monkeypatch.setattr("torchaudio.datasets.SPEECHCOMMANDS", download)
    assert len(load(tmp_path).test.y) == 6
    assert {path.name for path in (tmp_path / "SpeechCommands").iterdir()} <= {
        "speech_commands_v0.01",
        ".speech_commands_v0.01.lock",
    }


def test_a_missing_folder_of_the_users_own_is_not_downloaded(tmp_path: Path, offline: list[str]) -> None:
    with pytest.raises(DataMissing, match="there is no folder"):
        load(tmp_path, f"speech_commands:{tmp_path / 'none'}")
    assert not offline


# Synthetic speech ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> SpeechDataset:
    return load(tmp_path_factory.mktemp("data"), "synthetic_speech")


def test_judging_on_held_out_speech_transforms_nothing_anew(
    spoken: SpeechDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build_model(LeNetConfig(classes=spoken.classes), "erm", seed=0)
    first = held_out_accuracy(model, spoken, running_statistics=False, batch_size=64)
    monkeypatch.setattr(speech, "log_mel", None)
    assert held_out_accuracy(model, spoken, running_statistics=False, batch_size=64) == first


def test_unaugmented_speech_is_transformed_once(spoken: SpeechDataset) -> None:
    assert spoken.plain is spoken.plain
    assert spoken.plain_held_out is spoken.plain_held_out
    for plain, split in ((spoken.plain, spoken.train), (spoken.plain_held_out, spoken.held_out)):
        assert torch.equal(plain.y, split.y)
        assert torch.equal(spoken.prepare(plain.x[:50]), spoken.prepare(split.x[:50]))


def test_synthetic_speech(spoken: SpeechDataset) -> None:
    assert spoken.classes == 10 and not spoken.official and "synthetic, not the paper's data" in spoken.source
    assert [len(split.y) for split in (spoken.train, spoken.held_out, spoken.test)] == [540, 60, 200]
    assert spoken.test.y.bincount().tolist() == [20] * 10 and spoken.test.y[:32].unique().numel() > 7
    largest = speech.as_float(spoken.test.x).abs().amax(1)
    assert 0.25 < largest.min() and largest.max() < 0.95
    assert spoken.noise.shape == (40, SAMPLES) and spoken.noise.float().std(1).min() > 100
    assert len({x.numpy().tobytes() for x in torch.cat([spoken.train.x, spoken.test.x])}) == 740


def test_the_same_is_said_again(spoken: SpeechDataset, tmp_path: Path) -> None:
    assert load(tmp_path, "synthetic_speech").fingerprint == spoken.fingerprint
    name = next((tmp_path / "generated").iterdir())
    written = name.stat().st_mtime_ns
    assert load(tmp_path, "synthetic_speech").fingerprint == spoken.fingerprint
    assert name.stat().st_mtime_ns == written


def test_words_can_be_told_apart(spoken: SpeechDataset) -> None:
    """By the nearest mean spectrum over time of the training utterances, which knows nothing of order."""
    train, test = (spoken.prepare(split.x).mean(3).flatten(1) for split in (spoken.train, spoken.test))
    means = torch.stack([train[spoken.train.y == label].mean(0) for label in range(10)])
    assert (torch.cdist(test, means).argmin(1) == spoken.test.y).float().mean() > 0.3


def test_without_the_synthesiser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("espeakng_loader.get_library_path", lambda: str(tmp_path / "none.so"))
    with pytest.raises(DataMissing, match=r"eSpeak NG, which cannot be used.*none\.so.*pip install espeakng-loader"):
        load(tmp_path, "synthetic_speech")
    monkeypatch.undo()
    monkeypatch.setattr("espeakng_loader.get_data_path", lambda: str(tmp_path / "voices"))
    with pytest.raises(DataMissing, match="it does not start with the voices in"):
        load(tmp_path, "synthetic_speech")
    monkeypatch.undo()
    monkeypatch.setattr(synthetic_speech, "SPEAKERS", ("tlh-none+m1",) * len(synthetic_speech.SPEAKERS))
    with pytest.raises(DataMissing, match="it does not say 'yes' as tlh-none"):
        load(tmp_path, "synthetic_speech")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_the_gpu_as_on_the_cpu(spoken: SpeechDataset) -> None:
    on_gpu = load(Path(spoken.options.folder), "synthetic_speech", device="cuda")
    assert on_gpu.train.x.is_cuda and on_gpu.fingerprint == spoken.fingerprint
    indices = torch.arange(50)
    for name in ("clean", *DOMAINS):
        assert on_gpu.domain(name, 1).x.is_cuda
        assert torch.allclose(on_gpu._spectrograms(name, indices).cpu(), spoken._spectrograms(name, indices), atol=0.1)
    augmented = [dataset.randomise(dataset.train.x[:50], numbers(0)).cpu() for dataset in (spoken, on_gpu)]
    assert torch.allclose(*augmented, atol=0.1)
    assert on_gpu.randomise(on_gpu.train.x[:5], torch.Generator("cuda").manual_seed(0)).is_cuda


# Real data ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> Path:
    """The folder of real data; the test is skipped where it is not unpacked."""
    folder = Path(os.environ.get("CASCADETTA_DATA", "~/.cache/cascadetta-real")).expanduser()
    if not (folder / "SpeechCommands").is_dir():
        pytest.skip(f"no real utterances in {folder}; unpack ../shared/data and set CASCADETTA_DATA")
    return folder


def test_real_utterances_of_ten_words(real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "SpeechCommands").symlink_to(real / "SpeechCommands")
    dataset = load(tmp_path)
    assert dataset.classes == 10 and not dataset.official
    assert [len(split.y) for split in (dataset.train, dataset.held_out, dataset.test)] == [2828, 392, 854]
    assert dataset.noise.shape == (120, SAMPLES)
    assert dataset.test.y[:100].unique().numel() == 10
    assert_as_librosa(dataset.test.x[:100])
    for name in DOMAINS:
        assert dataset.domain(name, 1).x.isfinite().all()
    monkeypatch.setattr(speech_commands, "_read_all", lambda *a: pytest.fail("read twice"))
    load(tmp_path)


def test_a_sample_of_all_words(real: Path, tmp_path: Path) -> None:
    sample = real / "speech_sample" / "speech_commands_v0.01"
    with pytest.raises(DataMissing, match="_background_noise_"):
        load(tmp_path, f"speech_commands:{sample}")
    folder = tmp_path / "words"
    folder.mkdir()
    for path in sample.iterdir():
        (folder / path.name).symlink_to(path)
    (folder / NOISE).symlink_to(real / "SpeechCommands" / "speech_commands_v0.01" / NOISE)
    dataset = load(tmp_path, f"speech_commands:{folder}")
    assert dataset.classes == 30 and "300 utterances of 30 words" in dataset.source and not dataset.official
    assert sum(len(split.y) for split in (dataset.train, dataset.held_out, dataset.test)) == 300
    assert "names of the lists without a file" in dataset.source
