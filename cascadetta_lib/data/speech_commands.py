"""Speech Commands v0.01, in the layout of its archive: WORD/*.wav, two lists of the split, _background_noise_/*.wav.

Any two or more of its words will do. Test utterances are those of testing_list.txt, held-out ones those of
validation_list.txt, training ones all others; `held_out_fraction` is not used. Names in the lists without a file are
ignored and counted, since a list may be longer than what is there.

An utterance becomes one second at 16 kHz: stereo is averaged, another sampling rate resampled, what is shorter padded
by zeros at the end, what is longer cut. A file that cannot be read or that holds no sample is left out, counted and
named in a warning.
"""

import hashlib
import os
import shutil
import sys
import tarfile
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from cascadetta_lib.data import SpeechOptions, dataset, speech
from cascadetta_lib.data.base import DataMissing, Split, code_version, mixed, write_atomically
from cascadetta_lib.data.speech import SAMPLE_RATE, SAMPLES, SpeechDataset, as_int16, make_speech_dataset, whole_seconds

ARCHIVE = "speech_commands_v0.01"
ADDRESS = f"http://download.tensorflow.org/data/{ARCHIVE}.tar.gz"
HASH = "sha256:743935421bb51cccdb6bdd152e04c5c70274e935c82119ad7faeec31780d811d"
"""Address and hash as torchaudio has them, which checks a download."""
FOLDER = Path("SpeechCommands") / ARCHIVE
NOISE = "_background_noise_"
TEST_LIST, HELD_OUT_LIST = "testing_list.txt", "validation_list.txt"
ALL_WORDS, ALL_UTTERANCES = 30, 64_000
"""The archive holds 64,721 utterances of 30 words; what has as many words and at least so many is all of it."""
NAMED = 3
"""Files of a kind that a message names."""


@dataset("speech_commands", "speech", folder="may")
def load_speech_commands(argument: str, options: SpeechOptions) -> SpeechDataset:
    """The words in the folder `argument`, or in SpeechCommands/speech_commands_v0.01 of the data folder, where they are
    downloaded to if that is not there. DataMissing if words, lists or background noise are missing, ValueError if they
    are not as they must be.
    """
    folder = Path(argument).expanduser() if argument else Path(options.folder).expanduser() / FOLDER
    if not folder.is_dir():
        if argument:
            raise _missing(f"speech_commands:{argument}: there is no folder {folder}", folder)
        _download(folder)
    words = [path.name for path in sorted(folder.iterdir()) if path.name[0] not in "_." and any(path.glob("*.wav"))]
    if len(words) < 2:
        raise ValueError(f"{folder}: found {len(words)} folders of words with .wav files; allowed is 2 or more")
    tests, held_outs = (_names(folder, name) for name in (TEST_LIST, HELD_OUT_LIST))
    noise, broken_noise = _background(folder)
    utterances = _utterances(folder, words, Path(options.folder).expanduser() / "generated")

    in_test = torch.tensor([name in tests for name in utterances.names], dtype=torch.bool)
    in_held_out = torch.tensor([name in held_outs for name in utterances.names], dtype=torch.bool) & ~in_test
    for name, chosen in ((TEST_LIST, in_test), (HELD_OUT_LIST, in_held_out)):
        if not chosen.any():
            raise ValueError(f"{folder / name}: none of its names is that of an utterance; allowed are WORD/FILE.wav")
    y = torch.tensor([words.index(name.partition("/")[0]) for name in utterances.names])
    everything = Split(torch.from_numpy(utterances.waveforms), y)
    parts = (~in_test & ~in_held_out, in_held_out, in_test)
    train, held_out, test = (everything.take(chosen.nonzero().squeeze(1)) for chosen in parts)
    untrained = [word for label, word in enumerate(words) if label not in train.y]
    if untrained:
        raise ValueError(f"{folder}: no training utterance of {', '.join(untrained)}; the two lists name all of them")
    return make_speech_dataset(
        name=f"speech_commands:{folder.resolve().name}" if argument else "speech_commands",
        source=_source(utterances, words, broken_noise, len((tests | held_outs).difference(utterances.names))),
        official=len(words) == ALL_WORDS and len(utterances.names) >= ALL_UTTERANCES,
        class_names=tuple(words),
        train=train,
        held_out=mixed(held_out),
        test=mixed(test),  # read word by word
        noise=noise,
        options=options,
    )


# ---------------------------------------------------------------- the files


@dataclass(frozen=True)
class Utterances:
    """What the files of words hold. names: WORD/FILE.wav, sorted; waveforms: int16 (N, 16000). broken, empty: the names
    of files that are left out."""

    names: list[str]
    waveforms: np.ndarray
    broken: list[str]
    empty: list[str]


def read_utterance(path: Path) -> np.ndarray | None:
    """One second at 16 kHz, int16 (16000,), or None where the file cannot be read; (0,) where it holds no sample."""
    recording = _read(path)
    if recording is None or not len(recording):
        return recording
    second = np.zeros(SAMPLES, np.int16)
    second[: len(recording)] = recording[:SAMPLES]
    return second


def _read(path: Path) -> np.ndarray | None:
    """The samples of a file as int16 (L,) at 16 kHz, of one channel; None if it cannot be read."""
    import soundfile

    try:
        # torchaudio.load would need TorchCodec.
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError):
        return None
    recording = torch.from_numpy(samples).mean(1)
    if rate != SAMPLE_RATE and len(recording):
        from torchaudio.functional import resample

        recording = resample(recording, rate, SAMPLE_RATE)
    return as_int16(recording).numpy()


def _utterances(folder: Path, words: Sequence[str], kept: Path) -> Utterances:
    """All utterances of `words`, read from the files or from where an earlier call has kept them, in `kept`."""
    files = sorted(_files(folder, words))
    made_by = code_version(sys.modules[__name__], speech)
    digest = hashlib.sha256(f"{folder.resolve()} {files} {made_by}".encode()).hexdigest()[:16]
    path = kept / f"speech_commands-{digest}.npz"
    if not path.is_file():
        read = _read_all(folder, [name for name, _, _ in files])
        write_atomically(path, lambda file: np.savez(file, **read))
    with np.load(path, allow_pickle=False) as stored:
        names, broken, empty = (stored[key].tolist() for key in ("names", "broken", "empty"))
        utterances = Utterances(names, stored["waveforms"], broken, empty)
    for kind, left_out in (("cannot be read", utterances.broken), ("hold no sample", utterances.empty)):
        _warn(folder, kind, left_out)
    return utterances


def _warn(folder: Path, kind: str, left_out: Sequence[str]) -> None:
    """Name the first of the files that are left out, if there are any."""
    if left_out:
        first = ", ".join(left_out[:NAMED]) + (", …" if len(left_out) > NAMED else "")
        warnings.warn(f"{folder}: {len(left_out)} files {kind} and are left out: {first}", stacklevel=4)


def _files(folder: Path, words: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Name, size in bytes and time of the last change of each file of `words`."""
    for word in words:
        with os.scandir(folder / word) as entries:
            for entry in entries:
                if entry.name.endswith(".wav"):
                    status = entry.stat()
                    yield f"{word}/{entry.name}", status.st_size, status.st_mtime_ns


def _read_all(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """The fields of `Utterances`, as arrays."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        read = list(pool.map(lambda name: read_utterance(folder / name), names))
    found = {name: samples for name, samples in zip(names, read, strict=True) if samples is not None}
    whole = {name: samples for name, samples in found.items() if len(samples)}
    return {
        "names": np.array(list(whole), dtype=np.str_),
        "waveforms": np.stack(list(whole.values())) if whole else np.empty((0, SAMPLES), np.int16),
        "broken": np.array([name for name in names if name not in found], dtype=np.str_),
        "empty": np.array([name for name in found if name not in whole], dtype=np.str_),
    }


def _background(folder: Path) -> tuple[Tensor, int]:
    """The background noise in cuts of a second, int16 (K, 16000), and how many of its files cannot be read."""
    paths = sorted((folder / NOISE).glob("*.wav"))
    if not paths:
        raise _missing(f"{folder} holds no {NOISE}/*.wav, which the domain of background noise is made with", folder)
    recordings = [_read(path) for path in paths]
    broken = [path.name for path, recording in zip(paths, recordings, strict=True) if recording is None]
    cuts = whole_seconds([torch.from_numpy(recording) for recording in recordings if recording is not None])
    if not len(cuts):
        raise ValueError(f"{folder / NOISE}: none of {len(paths)} files can be read and lasts a second")
    _warn(folder / NOISE, "cannot be read", broken)
    return cuts, len(broken)


def _names(folder: Path, name: str) -> set[str]:
    """The names in a list of the split."""
    path = folder / name
    if not path.is_file():
        raise _missing(f"{folder} holds no {name}, which says how the utterances are split", folder)
    return set(path.read_text(encoding="utf-8").split())


def _source(utterances: Utterances, words: Sequence[str], broken_noise: int, unknown: int) -> str:
    counts = {"that cannot be read": len(utterances.broken), "without a sample": len(utterances.empty)}
    counts["of background noise that cannot be read"] = broken_noise
    notes = [f"{count} files {kind} left out" for kind, count in counts.items() if count]
    if unknown:
        notes.append(f"{unknown} names of the lists without a file")
    whole = f"Speech Commands v0.01, {len(utterances.names):,} utterances of {len(words)} words"
    return "; ".join([whole, *notes])


# ---------------------------------------------------------------- the archive


def _missing(what: str, folder: Path) -> DataMissing:
    return DataMissing(
        f"{what}. Unpack {ADDRESS} ({HASH}) to {folder}, so that the folders of its words, its two lists and {NOISE} "
        "lie there; the parameter data_folder names another data folder, speech_commands:FOLDER other folders of words."
    )


def _download(folder: Path) -> None:
    """Download and unpack the archive to `folder`, which appears only when all of it is there."""
    from torchaudio.datasets import SPEECHCOMMANDS

    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / f".{ARCHIVE}.lock"):
        if folder.is_dir():  # another job has made it while this one waited
            return
        temporary = folder.parent / f".{ARCHIVE}.unpacking"
        shutil.rmtree(temporary, ignore_errors=True)  # left by a job that was killed
        temporary.mkdir()
        try:
            SPEECHCOMMANDS(temporary, url=ARCHIVE, download=True)
            os.replace(temporary / FOLDER, folder)
        except (OSError, RuntimeError, EOFError, tarfile.TarError) as error:
            reason = f"{ADDRESS} cannot be downloaded ({error})"
            raise _missing(f"Speech Commands v0.01 is missing: {reason}", folder) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
