"""Your own recordings: `wav:FOLDER`, with FOLDER/WORD/*.wav of two or more words.

Two lists in FOLDER may name the recordings to test and to hold out: testing_list.txt and
validation_list.txt, with a line WORD/FILE.wav for each recording, as in Speech Commands. Without
the lists, the split is by speaker, and recordings should be called SPEAKER_anything.wav. If a name
has no "_", the whole name counts as a speaker, with a warning. One tenth of the speakers, at least
one, is for testing, another tenth is held out, and the others are for training. A hash of the
speakers' names draws them. Small and capital letters of a name count as the same.

The domain noise mixes in FOLDER/_background_noise_/*.wav, or white noise without such files. If
there are any, they must hold a whole second. A recording becomes one second at 16 kHz
(recordings.py). A file that cannot be used is left out with a warning.
"""

import hashlib
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from cascadetta_lib.data import DatasetName, dataset
from cascadetta_lib.data.base import (
    DataMissing,
    Dataset,
    Split,
    code_version,
    mixed,
    sorted_classes,
)
from cascadetta_lib.data.recordings import (
    HELD_OUT,
    HELD_OUT_LIST,
    NOISE,
    TEST_LIST,
    TESTED,
    TRAINED,
    in_parts,
    parts_by_lists,
    read_all,
    recordings_in,
    told_of_repeats,
    without_repeats,
)
from cascadetta_lib.data.utterances import (
    GENERATED,
    SAMPLES,
    SpeechOptions,
    as_int16,
    make_speech_dataset,
)
from cascadetta_lib.files import contents_hash, kept_arrays

WHITE_NOISE = 30
"""Seconds of white noise if the folder has no files of noise."""


@dataset("wav", "speech", folder="must", own=True)
def load_wav(argument: str, options: SpeechOptions) -> Dataset:
    """Load the recordings in the folder `argument`.

    Raises DataMissing if there is no such folder. Raises ValueError if its recordings cannot be
    used, or if its files of noise hold no whole second.
    """
    folder = Path(argument).expanduser()
    if not folder.is_dir():
        raise DataMissing(f"there is no folder {folder}; it must hold WORD/SPEAKER_….wav")
    paths = recordings_in(folder)
    version = code_version(__name__, read_all.__module__, as_int16.__module__)
    place = Path(options.folder).expanduser() / "generated"
    kept = kept_arrays(
        place / f"wav-{contents_hash(folder, paths)[:16]}-{version}.npz", lambda: read_all(paths)
    )
    names = kept["names"].tolist()
    waveforms = torch.from_numpy(kept["waveforms"])
    noise = torch.from_numpy(kept["noise"])
    classes = sorted_classes(name.partition("/")[0] for name in names)
    if len(classes) < 2:
        raise ValueError(
            f"{folder}: found {len(classes)} words with usable .wav files; allowed are 2 or more "
            "folders WORD/"
        )
    parts = without_repeats(torch.tensor(_parts(folder, names)), waveforms)
    labels = torch.tensor([classes.index(name.partition("/")[0]) for name in names])
    everything = Split(waveforms, labels)
    test, held_out, train = in_parts(everything, parts)
    lacking = sorted(set(range(len(classes))) - set(train.y.tolist()))
    if lacking or not len(test.y) or not len(held_out.y):
        of_word = f", and none of {classes[lacking[0]]!r} to train on" if lacking else ""
        raise ValueError(
            f"{folder}: found {len(test.y)} recordings to test and {len(held_out.y)} to hold out"
            f"{of_word}; allowed are 1 or more of each, and 1 or more of each word to train on"
        )
    noise_source = f"noise from {NOISE}/"
    if not any(path.parent.name == NOISE for path in paths):
        generator = torch.Generator().manual_seed(0)
        noise = as_int16(0.1 * torch.randn(WHITE_NOISE, SAMPLES, generator=generator))
        noise_source = "white noise"
    if not len(noise):
        raise ValueError(
            f"{folder / NOISE}: found no whole second in usable .wav files; allowed is 1 second or "
            "more, or no .wav file, for white noise"
        )
    return make_speech_dataset(
        name=DatasetName("wav", argument).key,
        source=f"the user's recordings in {folder.resolve().name}, {len(names):,} of "
        f"{len(classes)} words{told_of_repeats(parts)}",
        domain_source=f"{GENERATED}, {noise_source}",
        class_names=tuple(classes),
        train=train,
        held_out=mixed(held_out),
        test=mixed(test),
        noise=noise,
        options=options,
    )


def _parts(folder: Path, names: Sequence[str]) -> list[int]:
    """Return TESTED, HELD_OUT or TRAINED for each recording WORD/FILE.wav, by the lists or by
    speaker.

    Warns if the split is by speaker and names have no "_". Raises ValueError if there is one list
    alone, or neither and fewer than three speakers.
    """
    there = [name for name in (TEST_LIST, HELD_OUT_LIST) if (folder / name).is_file()]
    if len(there) == 1:
        raise ValueError(
            f"{folder}: found {there[0]} alone; allowed are both {TEST_LIST} and {HELD_OUT_LIST}, "
            "or neither, for a split by speaker"
        )
    if there:
        return parts_by_lists(folder, names)
    # Anna_1.wav and anna.WAV are of one speaker, who must be in one part only.
    speakers = [Path(name).stem.partition("_")[0].casefold() for name in names]
    unnamed = [name for name in names if "_" not in Path(name).stem]
    if unnamed:
        warnings.warn(
            f"{folder}: {len(unnamed):,} of {len(names):,} recordings are not called "
            f"SPEAKER_….wav, such as {unnamed[0]}: the whole name of each counts as a speaker, so "
            "one person may be trained on and tested",
            stacklevel=3,
        )
    drawn = sorted(set(speakers), key=lambda one: hashlib.sha256(one.encode()).hexdigest())
    if len(drawn) < 3:
        raise ValueError(
            f"{folder}: found recordings of {len(drawn)} speakers, {', '.join(drawn)}; allowed are "
            f"3 or more, each as SPEAKER_….wav, or {TEST_LIST} and {HELD_OUT_LIST}"
        )
    tenth = max(1, round(len(drawn) / 10))
    part_of = dict.fromkeys(drawn, TRAINED)
    part_of |= dict.fromkeys(drawn[:tenth], TESTED)
    part_of |= dict.fromkeys(drawn[tenth : 2 * tenth], HELD_OUT)
    return [part_of[speaker] for speaker in speakers]
