"""Recordings of words in the layout of Speech Commands: WORD/FILE.wav, with lists of the files to
test and to hold out.

A recording becomes one second at 16 kHz. Its channels are averaged, and another sampling rate is
resampled. A shorter recording is padded with zeros at the end, and a longer one is cut. A file that
cannot be used, such as stereo whose channels cancel each other, is left out with a warning.
"""

import hashlib
import math
import os
import re
import struct
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cascadetta_lib.data.base import Split
from cascadetta_lib.data.utterances import SAMPLE_RATE, SAMPLES, as_int16

NOISE = "_background_noise_"
TEST_LIST = "testing_list.txt"
HELD_OUT_LIST = "validation_list.txt"
TESTED, HELD_OUT, TRAINED, REPEATED = range(4)
"""The parts of a split. A recording is REPEATED if a part that comes earlier here has a copy of it.
"""
ENTRY = re.compile(r"[\w ]+/[\w. -]+")
"""The form of a line in a list."""
LOUDEST = 10
"""Floats in a file are at most 1, or a little more. A larger number than this is of another scale,
such as that of int16.
"""
LOWEST_RATE = 4000
"""Samples per second. A file with fewer cannot be a recording of speech."""
MOST_CHANNELS = 8
CANCELLED = 1e-3
"""Channels cancel each other if the power of their mean is less than this share of their own power
(30 dB below it).
"""
UNCOMPRESSED = (1, 3, 0xFFFE)
"""The format codes of uncompressed samples in a header: whole numbers, floats, and formats that the
header describes further on.
"""


def recordings_in(folder: Path) -> list[Path]:
    """Return the files WORD/….wav in a folder, sorted by path, without hidden files and folders."""
    return [
        path
        for path in sorted(folder.glob("[!.]*/[!.]*"))
        if path.suffix.lower() == ".wav" and path.is_file()
    ]


def parts_by_lists(folder: Path, names: Sequence[str], official_lists: bool = False) -> list[int]:
    """Return TESTED, HELD_OUT or TRAINED for each recording WORD/FILE.wav, by the lists in the
    folder. A recording in both lists is TESTED, and one in neither is TRAINED.

    official_lists: whether both lists are the archive's own.

    Raises ValueError as `listed`.
    """
    part_of = dict.fromkeys(names, TRAINED)
    part_of |= dict.fromkeys(listed(folder, HELD_OUT_LIST, official_lists), HELD_OUT)
    part_of |= dict.fromkeys(listed(folder, TEST_LIST, official_lists), TESTED)
    return [part_of[name] for name in names]


def in_parts(everything: Split, parts: Tensor) -> tuple[Split, Split, Split]:
    """Return the recordings to test, those to hold out and those to train on. Recordings that are
    REPEATED are left out.
    """
    test, held_out, train = (
        everything.take((parts == part).nonzero().squeeze(1))
        for part in (TESTED, HELD_OUT, TRAINED)
    )
    return test, held_out, train


def listed(folder: Path, name: str, official_list: bool = False) -> set[str]:
    """Return the recordings that a list names, as WORD/FILE.wav.

    official_list: whether the list is the archive's own. Such a list may name files that the folder
        lacks.

    Raises ValueError if a line of any other list names no file. A line WORD/FILE is accepted, too,
    if the word has no folder here.
    """
    text = (folder / name).read_text(encoding="utf-8-sig", errors="replace")
    lines = [line.strip() for line in text.splitlines()]
    named = [line for line in lines if line]
    if official_list:
        return set(named)
    files = {f"{path.parent.name}/{path.name}" for path in folder.glob("*/*") if path.is_file()}
    words = {file.partition("/")[0].casefold() for file in files}
    for line in named:
        word = line.partition("/")[0].casefold()
        left_out = ENTRY.fullmatch(line) and word not in words
        if line not in files and not left_out:
            raise ValueError(
                f"{folder / name}: the line {line!r} names no file; allowed is WORD/FILE.wav, as "
                "the folders and files are called"
            )
    return set(named)


def without_repeats(parts: Tensor, waveforms: Tensor) -> Tensor:
    """Mark copies: return the part of each recording, or REPEATED if an earlier part has an exact
    copy of it. TESTED comes before HELD_OUT, and HELD_OUT before TRAINED.

    parts: the part of each recording, int64 (N,).
    waveforms: (N, 16000).
    """
    parts = parts.clone()
    first: dict[bytes, int] = {}
    for place in parts.argsort(stable=True).tolist():
        part = int(parts[place])
        if first.setdefault(hashlib.sha256(waveforms[place].numpy().data).digest(), part) < part:
            parts[place] = REPEATED
    return parts


def told_of_repeats(parts: Tensor) -> str:
    """Say how many recordings are REPEATED, as a clause for `Dataset.source`. The clause is empty
    if there are none.
    """
    count = int((parts == REPEATED).sum())
    return f", without {count} copies of recordings in another part" if count else ""


def read_all(paths: Sequence[Path]) -> dict[str, np.ndarray]:
    """Read recordings. Those in _background_noise_ are noise, and all others are utterances. Files
    that cannot be used are left out with a warning.

    Returns three arrays by name:

    names: WORD/FILE.wav of each utterance.
    waveforms: the utterances, int16 (N, 16000).
    noise: the whole seconds of noise, int16 (K, 16000). The rest of each file is dropped.
    """
    names = []
    waveforms = []
    noise = [np.empty((0, SAMPLES), np.int16)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, recording in zip(paths, pool.map(_recording_or_fault, paths), strict=True):
            if isinstance(recording, str):
                warnings.warn(f"{path} {recording} and is left out", stacklevel=2)
            elif path.parent.name == NOISE:
                noise.append(recording[: len(recording) // SAMPLES * SAMPLES].reshape(-1, SAMPLES))
            else:
                names.append(f"{path.parent.name}/{path.name}")
                waveforms.append(np.pad(recording[:SAMPLES], (0, max(0, SAMPLES - len(recording)))))
    return {
        "names": np.array(names, dtype=np.str_),
        "waveforms": np.array(waveforms, dtype=np.int16).reshape(-1, SAMPLES),
        "noise": np.concatenate(noise),
    }


def _recording_or_fault(path: Path) -> np.ndarray | str:
    """Return the samples of a file, or a clause that says what is wrong with it."""
    try:
        return read_recording(path)
    except ValueError as error:
        return str(error)


def read_recording(path: Path) -> np.ndarray:
    """Return the samples of a file as int16 (L,) at 16 kHz, of one channel.

    Raises ValueError if the file cannot be read or is empty, if its numbers are not finite or far
    above 1, if no recorder has its sampling rate, if its header contradicts itself, or if its
    channels cancel each other. The message is a clause that says what is wrong.
    """
    # Imported here, because only recordings need them, and torchaudio works with few versions
    # of torch.
    import soundfile
    from torchaudio.functional import resample

    unusable = "is no .wav file of sound"
    try:
        samples, rate = soundfile.read(
            path, dtype="float32", always_2d=True
        )  # torchaudio.load needs TorchCodec.
    except (soundfile.SoundFileError, OSError):
        raise ValueError(unusable) from None
    # The resampling filter grows with the reduced rate: at 16,001 Hz it would take gigabytes.
    if rate < LOWEST_RATE or rate // math.gcd(rate, SAMPLE_RATE) > 1000:
        raise ValueError(f"has a sampling rate of {rate} Hz, which cannot be resampled")
    if not len(samples) or not np.isfinite(samples).all():
        raise ValueError(unusable)
    largest = np.abs(samples).max()
    if largest > LOUDEST:
        raise ValueError(f"holds numbers up to {largest:.0f}; allowed are −1 to 1")
    _check_header(path)
    mono = samples.mean(1)
    if np.square(mono).mean() < CANCELLED * np.square(samples).mean():
        raise ValueError("has channels that cancel each other")
    return as_int16(resample(torch.from_numpy(mono), rate, SAMPLE_RATE)).numpy()


def _check_header(path: Path) -> None:
    """Raise ValueError if the header of a RIFF file of uncompressed samples contradicts itself. The
    samples of such a file would be read as noise.
    """
    with path.open("rb") as file:
        start = file.read(4096)
    place = start.find(b"fmt ")
    if not start.startswith(b"RIFF") or not 0 < place <= len(start) - 24:
        return
    kind, channels, _, _, block, bits = struct.unpack_from("<HHIIHH", start, place + 8)
    plain = kind in UNCOMPRESSED
    if plain and (bits % 8 or channels > MOST_CHANNELS or 8 * block != channels * bits):
        raise ValueError(
            f"has a header of {channels} channels of {bits} bits in blocks of {block} bytes"
        )
