"""Speech Commands v0.01, in the layout of its archive: WORD/*.wav, two lists of the split,
_background_noise_/*.wav.

Any two or more of its words will do. Test utterances are those of testing_list.txt, held-out ones
those of validation_list.txt, and all others are for training. An utterance becomes one second at 16
kHz: stereo is averaged, another sampling rate is resampled, what is shorter is padded with zeros at
the end, and what is longer is cut. A file that cannot be used is left out, with a warning when the
files are read.
"""

import hashlib
import math
import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from cascadetta_lib.data import dataset, identity
from cascadetta_lib.data.base import DataMissing, Dataset, Split, code_version, kept_arrays, mixed
from cascadetta_lib.data.fetch import fetch
from cascadetta_lib.data.utterances import (
    SAMPLE_RATE,
    SAMPLES,
    SpeechOptions,
    as_int16,
    make_speech_dataset,
)

ARCHIVE = "speech_commands_v0.01"  # address and hash are torchaudio's
ADDRESS = f"http://download.tensorflow.org/data/{ARCHIVE}.tar.gz"
HASH = "sha256:743935421bb51cccdb6bdd152e04c5c70274e935c82119ad7faeec31780d811d"
NOISE = "_background_noise_"
TEST_LIST, HELD_OUT_LIST = "testing_list.txt", "validation_list.txt"
CONTENTS = (TEST_LIST, HELD_OUT_LIST, NOISE)
ALL_WORDS, ALL_UTTERANCES = 30, 64_000  # The whole archive holds 64,721 utterances of 30 words.


@dataset("speech_commands", "speech", folder="may")
def load_speech_commands(argument: str, options: SpeechOptions) -> Dataset:
    """The words in the folder `argument` or, downloaded if need be, in SpeechCommands of the data
    folder.

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
    state = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    digest = hashlib.sha256(
        f"{state} {code_version(__name__, as_int16.__module__)}".encode()
    ).hexdigest()[:16]
    kept = kept_arrays(
        data_folder / "generated" / f"speech_commands-{digest}.npz", lambda: _read_all(paths)
    )
    names, waveforms, noise = (
        kept["names"].tolist(),
        torch.from_numpy(kept["waveforms"]),
        kept["noise"],
    )
    classes = sorted({name.partition("/")[0] for name in names})
    if len(classes) < 2 or not len(noise):
        found = f"words in {len(classes)} folders and {len(noise)} seconds of {NOISE}"
        raise ValueError(
            f"{folder}: found {found} in usable .wav files; allowed are 2 words or more, and some "
            "noise"
        )

    lists = (
        (folder / listed).read_text(encoding="utf-8", errors="replace")
        for listed in (TEST_LIST, HELD_OUT_LIST)
    )
    tests, held_outs = (set(listed.split()) for listed in lists)
    split = torch.tensor([0 if name in tests else 1 if name in held_outs else 2 for name in names])
    everything = Split(
        waveforms, torch.tensor([classes.index(name.partition("/")[0]) for name in names])
    )
    first: dict[
        bytes, int
    ] = {}  # Some recordings are there twice; each stays in the first of the three parts alone.
    for place in split.argsort(stable=True).tolist():
        part = int(split[place])
        if first.setdefault(hashlib.sha256(waveforms[place].numpy().data).digest(), part) < part:
            split[place] = 3
    test, held_out, train = (
        everything.take((split == part).nonzero().squeeze(1)) for part in range(3)
    )
    repeated = int((split == 3).sum())
    twice = f", less {repeated} that are in another part again" if repeated else ""
    if not (len(test.y) and len(held_out.y) and len(train.y.unique()) == len(classes)):
        found = (
            f"{TEST_LIST} names {len(test.y)} of {len(names)} utterances, {HELD_OUT_LIST} "
            f"{len(held_out.y)}"
        )
        raise ValueError(
            f"{folder}: {found}; allowed are 1 or more that leave some of each word to train on"
        )
    return make_speech_dataset(
        name=identity(f"speech_commands:{argument}" if argument else "speech_commands"),
        source=f"Speech Commands v0.01, {len(names):,} utterances of {len(classes)} words{twice}",
        official=len(classes) == ALL_WORDS and len(names) >= ALL_UTTERANCES,
        class_names=tuple(classes),
        train=train,
        held_out=mixed(held_out),
        test=mixed(test),  # They have been read word by word.
        noise=torch.from_numpy(noise),
        options=options,
    )


def _read_all(paths: Sequence[Path]) -> dict[str, np.ndarray]:
    """Names, as WORD/FILE.wav, and waveforms, int16 (N, 16000), of utterances; seconds of noise,
    int16 (K, 16000).
    """
    names, waveforms, noise = [], [], [np.empty((0, SAMPLES), np.int16)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, recording in zip(paths, pool.map(read_recording, paths), strict=True):
            if recording is None:
                warnings.warn(f"{path} is no .wav file of sound and is left out", stacklevel=2)
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


def read_recording(path: Path) -> np.ndarray | None:
    """The samples of a file as int16 (L,) at 16 kHz, of one channel. None if it cannot be read,
    holds no numbers or has a sampling rate that no recorder has."""
    import soundfile
    from torchaudio.functional import resample

    try:
        samples, rate = soundfile.read(
            path, dtype="float32", always_2d=True
        )  # torchaudio.load needs TorchCodec.
    except (soundfile.SoundFileError, OSError):
        return None
    # The resampling filter grows with this ratio: at 16,001 Hz it would take gigabytes.
    if (
        not len(samples)
        or not np.isfinite(samples).all()
        or rate // math.gcd(rate, SAMPLE_RATE) > 1000
    ):
        return None
    return as_int16(resample(torch.from_numpy(samples).mean(1), rate, SAMPLE_RATE)).numpy()
