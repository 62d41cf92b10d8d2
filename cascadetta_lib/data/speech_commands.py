"""Speech Commands v0.01, in the layout of its archive: WORD/*.wav, two lists of the split,
_background_noise_/*.wav.

Any two or more of its words can be used. testing_list.txt names the test utterances,
validation_list.txt the held-out ones; all others are for training. An utterance becomes one second
at 16 kHz: stereo is averaged, another sampling rate is resampled, shorter ones are padded with
zeros at the end, and longer ones are cut. A file that cannot be used, such as stereo whose channels
cancel each other, is left out, with a warning.

The recordings are called Speech Commands v0.01 if both lists have the SHA-256 of the archive's own
and the recordings have the archive's kind of name. In any other list each line must name a
file; lines of words without a folder here are skipped. Otherwise a misspelt line would leave a test
recording in the training part.
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

from cascadetta_lib.data import DatasetName, dataset
from cascadetta_lib.data.base import DataMissing, Dataset, Split, mixed
from cascadetta_lib.data.fetch import fetch
from cascadetta_lib.data.utterances import (
    SAMPLE_RATE,
    SAMPLES,
    SpeechOptions,
    as_int16,
    make_speech_dataset,
)
from cascadetta_lib.files import code_version, contents_hash, kept_arrays

ARCHIVE = "speech_commands_v0.01"  # address and hash are torchaudio's
ADDRESS = f"http://download.tensorflow.org/data/{ARCHIVE}.tar.gz"
HASH = "sha256:743935421bb51cccdb6bdd152e04c5c70274e935c82119ad7faeec31780d811d"
NOISE = "_background_noise_"
TEST_LIST = "testing_list.txt"
HELD_OUT_LIST = "validation_list.txt"
CONTENTS = (TEST_LIST, HELD_OUT_LIST, NOISE)
LISTS = {
    TEST_LIST: "3984cc8eaa0e96e3d657b62f954ff701389f96fa17648c730eb1e0439a1a37d6",
    HELD_OUT_LIST: "0993bb1e67efd5904c2a2fd0d8eb5ef420f4f5258f3fab2be602980082248cf7",
}
"""SHA-256 of the archive's own lists."""
ENTRY = re.compile(r"[\w ]+/[\w. -]+")
"""What a line of a list looks like."""
NAMED = re.compile(r"[0-9a-f]{8}_nohash_\d+\.wav")
"""The names of the archive's recordings: speaker and number."""
WHOLE = (30, 64_721)  # words and utterances of the archive
LOWEST_RATE = 4000
"""Samples per second, below which nothing is a recording of speech."""
MOST_CHANNELS = 8
CANCELLED = 1e-3
"""If the mean of the channels has less than this share of their power (30 dB less), they cancel."""
UNCOMPRESSED = (1, 3, 0xFFFE)
"""The format codes of a header: whole numbers, floats, and formats described further on."""


@dataset("speech_commands", "speech", folder="may")
def load_speech_commands(argument: str, options: SpeechOptions) -> Dataset:
    """Load the words in the folder `argument` or, downloaded if need be, in SpeechCommands of the
    data folder.

    DataMissing if lists or background noise are missing, ValueError if what is there cannot be
    used."""
    data_folder = Path(options.folder).expanduser()
    if argument:
        folder = Path(argument).expanduser()
        if absent := [part for part in CONTENTS if not (folder / part).exists()]:
            raise DataMissing(
                f"speech_commands:{argument}: {folder} lacks {', '.join(absent)}, as in {ADDRESS}"
            )
    else:
        place = data_folder / "SpeechCommands"
        folder = fetch("Speech Commands v0.01", [ADDRESS], place, HASH, "1.4 GB", ARCHIVE, CONTENTS)
    paths = [
        path
        for path in sorted(folder.glob("[!.]*/*"))
        if path.suffix.lower() == ".wav" and path.is_file()
    ]
    version = code_version(__name__, as_int16.__module__)
    kept = kept_arrays(
        data_folder
        / "generated"
        / f"speech_commands-{contents_hash(folder, paths)[:16]}-{version}.npz",
        lambda: read_all(paths),
    )
    names = kept["names"].tolist()
    waveforms = torch.from_numpy(kept["waveforms"])
    noise = kept["noise"]
    classes = sorted({name.partition("/")[0] for name in names})
    if len(classes) < 2 or not len(noise):
        found = f"words in {len(classes)} folders and {len(noise)} seconds of {NOISE}"
        raise ValueError(
            f"{folder}: found {found} in usable .wav files; allowed are 2 words or more, and some "
            "noise"
        )

    own_lists = all(
        hashlib.sha256((folder / name).read_bytes()).hexdigest() == known
        for name, known in LISTS.items()
    )
    tests = listed(folder, TEST_LIST, own_lists)
    held_outs = listed(folder, HELD_OUT_LIST, own_lists)
    parts = []
    for name in names:
        if name in tests:
            parts.append(0)
        elif name in held_outs:
            parts.append(1)
        else:
            parts.append(2)
    split = torch.tensor(parts)
    everything = Split(
        waveforms, torch.tensor([classes.index(name.partition("/")[0]) for name in names])
    )
    split = without_repeats(split, waveforms)
    test, held_out, train = (
        everything.take((split == part).nonzero().squeeze(1)) for part in range(3)
    )
    if not (len(test.y) and len(held_out.y) and len(train.y.unique()) == len(classes)):
        found = (
            f"{TEST_LIST} names {len(test.y)} of {len(names)} utterances, {HELD_OUT_LIST} "
            f"{len(held_out.y)}"
        )
        raise ValueError(
            f"{folder}: {found}; allowed are 1 or more that leave some of each word to train on"
        )
    named = all(NAMED.fullmatch(name.partition("/")[2]) for name in names)
    own = own_lists and named
    if own:
        title = "Speech Commands v0.01"
    elif named:
        title = "recordings of unknown origin, named as in Speech Commands"
    else:
        title = "recordings of unknown origin"
    return make_speech_dataset(
        name=DatasetName("speech_commands", argument or None).key,
        source=f"{title}, {len(names):,} utterances of {len(classes)} words"
        f"{told_of_repeats(split)}",
        recognised=own and (len(classes), len(names)) == WHOLE,
        class_names=tuple(classes),
        train=train,
        held_out=mixed(held_out),
        test=mixed(test),  # They have been read word by word.
        noise=torch.from_numpy(noise),
        options=options,
    )


def listed(folder: Path, name: str, own: bool = False) -> set[str]:
    """Return the recordings that a list names, as WORD/FILE.wav.

    own: whether it is the archive's list, of which a folder may hold a part. ValueError where a
    line of another list names no file, though its word has a folder here.
    """
    text = (folder / name).read_text(encoding="utf-8-sig", errors="replace")
    lines = [line.strip() for line in text.splitlines()]
    named = [line for line in lines if line]
    if own:
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
    """Return the part of each recording, 0, 1 or 2; 3 for a copy of one in an earlier part."""
    parts = parts.clone()
    first: dict[bytes, int] = {}
    for place in parts.argsort(stable=True).tolist():
        part = int(parts[place])
        if first.setdefault(hashlib.sha256(waveforms[place].numpy().data).digest(), part) < part:
            parts[place] = 3
    return parts


def told_of_repeats(parts: Tensor) -> str:
    """Say how many recordings `without_repeats` leaves out; empty if none."""
    count = int((parts == 3).sum())
    return f", less {count} that are in another part again" if count else ""


def read_all(paths: Sequence[Path]) -> dict[str, np.ndarray]:
    """Read the names, as WORD/FILE.wav, and waveforms, int16 (N, 16000), of utterances; and seconds
    of noise, int16 (K, 16000).
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
    """Return the samples of a file, or what is wrong with it."""
    try:
        return read_recording(path)
    except ValueError as error:
        return str(error)


def read_recording(path: Path) -> np.ndarray:
    """Return the samples of a file as int16 (L,) at 16 kHz, of one channel.

    ValueError, with what is wrong, where it cannot be read, holds no numbers, has a sampling rate
    that no recorder has, a header that contradicts itself, or channels whose mean is silence.
    """
    # Here, because only recordings need them, and torchaudio takes few versions of torch.
    import soundfile
    from torchaudio.functional import resample

    unusable = "is no .wav file of sound"
    try:
        samples, rate = soundfile.read(
            path, dtype="float32", always_2d=True
        )  # torchaudio.load needs TorchCodec.
    except (soundfile.SoundFileError, OSError):
        raise ValueError(unusable) from None
    # The resampling filter grows with this ratio: at 16,001 Hz it would take gigabytes.
    odd_rate = rate < LOWEST_RATE or rate // math.gcd(rate, SAMPLE_RATE) > 1000
    if not len(samples) or not np.isfinite(samples).all() or odd_rate:
        raise ValueError(unusable)
    _check_header(path)
    mono = samples.mean(1)
    if np.square(mono).mean() < CANCELLED * np.square(samples).mean():
        raise ValueError("has channels that cancel each other")
    return as_int16(resample(torch.from_numpy(mono), rate, SAMPLE_RATE)).numpy()


def _check_header(path: Path) -> None:
    """Raise ValueError for a RIFF file of plain samples whose header contradicts itself. Its
    samples would be read as noise.
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
