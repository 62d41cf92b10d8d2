"""Speech Commands v0.01: `speech_commands`, or `speech_commands:FOLDER`.

The layout is that of the archive: WORD/*.wav, _background_noise_/*.wav and two lists. Any two or
more of the archive's words can be used. testing_list.txt names the test utterances, and
validation_list.txt the held-out ones. All others are for training. For how a file is read, see
recordings.py.

The recordings are called Speech Commands v0.01 if both lists have the SHA-256 of the archive's own
lists, and all recordings are named as in the archive. If a list is not the archive's, each line of
both must name a file: a misspelt line would leave a test recording in the training part. Lines of
words that have no folder here are skipped.
"""

import hashlib
import re
from pathlib import Path

import torch

from cascadetta_lib.data import DatasetName, dataset
from cascadetta_lib.data.base import DataMissing, Dataset, Split, code_version, mixed
from cascadetta_lib.data.fetch import fetch
from cascadetta_lib.data.recordings import (
    HELD_OUT_LIST,
    NOISE,
    TEST_LIST,
    in_parts,
    parts_by_lists,
    read_all,
    recordings_in,
    told_of_repeats,
    without_repeats,
)
from cascadetta_lib.data.utterances import SpeechOptions, as_int16, make_speech_dataset
from cascadetta_lib.files import contents_hash, kept_arrays

ARCHIVE = "speech_commands_v0.01"  # address and hash are torchaudio's
ADDRESS = f"http://download.tensorflow.org/data/{ARCHIVE}.tar.gz"
HASH = "sha256:743935421bb51cccdb6bdd152e04c5c70274e935c82119ad7faeec31780d811d"
CONTENTS = (TEST_LIST, HELD_OUT_LIST, NOISE)
LISTS = {
    TEST_LIST: "3984cc8eaa0e96e3d657b62f954ff701389f96fa17648c730eb1e0439a1a37d6",
    HELD_OUT_LIST: "0993bb1e67efd5904c2a2fd0d8eb5ef420f4f5258f3fab2be602980082248cf7",
}
"""The SHA-256 of the archive's own lists."""
NAMED = re.compile(r"[0-9a-f]{8}_nohash_\d+\.wav")
"""The form of the archive's file names: speaker and number."""
WHOLE = (30, 64_721)  # words and utterances of the archive


@dataset("speech_commands", "speech", folder="may")
def load_speech_commands(argument: str, options: SpeechOptions) -> Dataset:
    """Load the recordings in the folder `argument`.

    If `argument` is "", the archive is used. It is unpacked to SpeechCommands/ in the data folder,
    and downloaded if it is missing.

    Raises DataMissing if a list or the background noise is missing, and ValueError if what is there
    cannot be used.
    """
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
    paths = recordings_in(folder)
    version = code_version(__name__, read_all.__module__, as_int16.__module__)
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

    official_lists = all(
        hashlib.sha256((folder / name).read_bytes()).hexdigest() == known
        for name, known in LISTS.items()
    )
    parts = torch.tensor(parts_by_lists(folder, names, official_lists))
    everything = Split(
        waveforms, torch.tensor([classes.index(name.partition("/")[0]) for name in names])
    )
    parts = without_repeats(parts, waveforms)
    test, held_out, train = in_parts(everything, parts)
    if not (len(test.y) and len(held_out.y) and len(train.y.unique()) == len(classes)):
        found = (
            f"{TEST_LIST} names {len(test.y)} of {len(names)} utterances, {HELD_OUT_LIST} "
            f"{len(held_out.y)}"
        )
        raise ValueError(
            f"{folder}: {found}; each list must name 1 or more, and each word needs 1 or more to "
            "train on"
        )
    named = all(NAMED.fullmatch(name.partition("/")[2]) for name in names)
    from_archive = official_lists and named
    if from_archive:
        title = "Speech Commands v0.01"
    elif named:
        title = "recordings of unknown origin, named as in Speech Commands"
    else:
        title = "recordings of unknown origin"
    return make_speech_dataset(
        name=DatasetName("speech_commands", argument or None).key,
        source=f"{title}, {len(names):,} utterances of {len(classes)} words"
        f"{told_of_repeats(parts)}",
        recognised=from_archive and (len(classes), len(names)) == WHOLE,
        class_names=tuple(classes),
        train=train,
        held_out=mixed(held_out),
        test=mixed(test),  # The recordings are read word by word.
        noise=torch.from_numpy(noise),
        options=options,
    )
