"""Count what one should not guess of the real data sets: classes, copies, and runs of one label.

    python -m study.tools.data_sheet [--data FOLDER] [--set NAME ...]

The counts are written to docs/data-sheet.csv and .md. Each line of the CSV has one number: set,
part, what was counted, and the count. One example is a copy of another if both have the same
content, bit by bit, such as pixels or words. The names and the order of files do not matter. A set
that the data folder lacks, or that --set does not name, keeps its lines of the existing CSV.
"""

import argparse
import csv
import hashlib
import io
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import soundfile

from cascadetta_lib.augment.text import words
from cascadetta_lib.data.amazon import labelled_files, read_reviews
from cascadetta_lib.data.amazon_counts import read_counts
from cascadetta_lib.data.base import DataMissing
from cascadetta_lib.data.tiny_imagenet import list_clean
from cascadetta_lib.files import read_arrays, write_atomically
from study import ROOT
from study.tools.corruption_statistics import official_cifar10

SHEET = ROOT / "docs" / "data-sheet.csv"
FIELDS = ("set", "part", "what", "count")
TEN_WORDS = ("down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes")
"""The words of Speech Commands that the study uses, and that are counted. Other words that the data
folder has are left out.
"""


class Part(NamedTuple):
    """The labelled examples of one part of a set.

    contents: a digest of each example's content.
    labels: the label of each example.
    ordered: whether the order of the examples means something, as that of rows in a file does. An
        order of file names does not.
    """

    name: str
    contents: Sequence[bytes]
    labels: Sequence[str]
    ordered: bool = False


Row = tuple[str, str, str, int]


def describe(name: str, parts: Sequence[Part]) -> list[Row]:
    """Return the lines of a set for the CSV.

    For each part they count its examples, classes and copies, and give the longest run of a label
    if the part is ordered. For each pair of parts they count the examples of the later part that
    are copies of one in the earlier part. Raises ValueError if a part has no example.
    """
    empty = [part.name for part in parts if not part.labels]
    if empty:
        raise ValueError(f"{name}: no example of {', '.join(empty)}")
    rows: list[Row] = []
    for part in parts:
        classes = Counter(part.labels)
        rows.append((name, part.name, "examples", len(part.labels)))
        rows.append((name, part.name, "classes", len(classes)))
        rows.append((name, part.name, "examples of the smallest class", min(classes.values())))
        rows.append((name, part.name, "examples of the largest class", max(classes.values())))
        groups = by_content([part])
        copies = [group for group in groups.values() if len(group) > 1]
        extra = sum(len(group) - 1 for group in copies)
        rows.append((name, part.name, "examples that repeat an earlier one", extra))
        unlike = sum(len({label for _, label in group}) > 1 for group in copies)
        rows.append((name, part.name, "repeated contents with unlike labels", unlike))
        if part.ordered:
            rows.append((name, part.name, "longest run of a label", longest_run(part.labels)))
    for place, later in enumerate(parts):
        for earlier in parts[:place]:
            known: dict[bytes, set[str]] = defaultdict(set)
            for content, label in zip(earlier.contents, earlier.labels, strict=True):
                known[content].add(label)
            shared = [
                label not in known[content]
                for content, label in zip(later.contents, later.labels, strict=True)
                if content in known
            ]
            between = f"{later.name} in {earlier.name}"
            rows.append(
                (name, between, "examples of the first that have a copy in the second", len(shared))
            )
            rows.append(
                (
                    name,
                    between,
                    "of these, examples whose label differs from those of all their copies",
                    sum(shared),
                )
            )
    return rows


def by_content(parts: Iterable[Part]) -> dict[bytes, list[tuple[str, str]]]:
    """Return the examples of each content, each as its part's name and its label."""
    groups: dict[bytes, list[tuple[str, str]]] = defaultdict(list)
    for part in parts:
        for content, label in zip(part.contents, part.labels, strict=True):
            groups[content].append((part.name, label))
    return groups


def longest_run(labels: Sequence[str]) -> int:
    """Return the length of the longest run of one label."""
    longest = 0
    run = 0
    previous = None
    for label in labels:
        run = run + 1 if label == previous else 1
        previous = label
        longest = max(longest, run)
    return longest


def digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def cifar10(folder: Path) -> list[Part]:
    """Read the official files. The content of an example is its pixels. Raises DataMissing if they
    are missing or altered.
    """
    parts = []
    for name, train in (("train", True), ("test", False)):
        read = official_cifar10(folder, train)
        contents = [digest(image.tobytes()) for image in read.data]
        parts.append(Part(name, contents, [str(label) for label in read.targets], ordered=True))
    return parts


def cifar100(folder: Path) -> list[Part]:
    """Read train.npz and test.npz in cifar-100. The content of an example is its pixels. Raises
    ValueError if a file cannot be read, or has no array x or y.
    """
    parts = []
    for name in ("train", "test"):
        path = folder / "cifar-100" / f"{name}.npz"
        arrays = read_arrays(path)
        if not {"x", "y"} <= arrays.keys():
            found = ", ".join(arrays) or "none"
            raise ValueError(f"{path} must hold the arrays x and y; found {found}")
        contents = [digest(image.tobytes()) for image in arrays["x"]]
        labels = [str(label) for label in arrays["y"].tolist()]
        parts.append(Part(name, contents, labels, ordered=True))
    return parts


def tiny_imagenet(folder: Path) -> list[Part]:
    """Read the JPEG files. The content of an example is the bytes of its file."""
    listed = list_clean(folder / "tiny-imagenet-200")
    parts = []
    for name, paths, labels in (
        ("train", listed.train, listed.train_y),
        ("validation", listed.test, listed.test_y),
    ):
        contents = [digest(path.read_bytes()) for path in paths]
        parts.append(Part(name, contents, [str(label) for label in labels]))
    return parts


def speech(folder: Path) -> list[Part]:
    """Read the recordings of TEN_WORDS. The content of an example is its waveform, and its part is
    that of `archive_part`.
    """
    place = folder / "SpeechCommands" / "speech_commands_v0.01"
    found: dict[str, tuple[list[bytes], list[str]]] = {
        name: ([], []) for name in ("training", "validation", "testing")
    }
    for path in sorted(path for word in TEN_WORDS for path in place.glob(f"{word}/*.wav")):
        samples, _ = soundfile.read(path, dtype="int16")
        contents, labels = found[archive_part(path.name)]
        contents.append(digest(samples.tobytes()))
        labels.append(path.parent.name)
    return [Part(name, contents, labels) for name, (contents, labels) in found.items()]


def archive_part(name: str) -> str:
    """Return the part of Speech Commands that a recording belongs to: training, validation or
    testing.

    The rule is that of the archive's README. A hash of the speaker's name puts 10 % each into
    validation and testing.

    name: the file's name, which has the speaker's name before _nohash_.
    """
    most = 2**27 - 1
    speaker = name.partition("_nohash_")[0]
    hashed = int(hashlib.sha1(speaker.encode()).hexdigest(), 16)
    percentage = hashed % (most + 1) * (100 / most)
    if percentage < 10:
        return "validation"
    return "testing" if percentage < 20 else "training"


def amazon(folder: Path) -> list[Part]:
    """Read the labelled reviews, a part per domain. The content of an example is its words."""
    parts = []
    for domain in ("books", "dvd", "electronics", "kitchen"):
        reviews, _ = read_reviews(labelled_files(folder / "sorted_data_acl", domain))
        contents = [digest(" ".join(words(text)).encode()) for text in reviews.texts]
        parts.append(Part(domain, contents, [str(label) for label in reviews.labels.tolist()]))
    return parts


def counts(domain: str) -> Callable[[Path], list[Part]]:
    """Return a reader of a domain's count files. The content of an example is its row of counts."""

    def read(folder: Path) -> list[Part]:
        parts = []
        for name in ("train", "test"):
            found = read_counts(folder / "amazon_svmlight" / f"{domain}_{name}.svmlight")
            contents = [digest(row.toarray().tobytes()) for row in found.counts]
            labels = [str(label) for label in found.labels.tolist()]
            parts.append(Part(name, contents, labels, ordered=True))
        return parts

    return read


READERS: dict[str, tuple[str, Callable[[Path], list[Part]]]] = {
    "CIFAR-10": ("cifar-10-batches-py", cifar10),
    "CIFAR-100": ("cifar-100", cifar100),
    "Tiny-ImageNet": ("tiny-imagenet-200", tiny_imagenet),
    "Speech Commands, ten words": ("SpeechCommands", speech),
    "Amazon, labelled": ("sorted_data_acl", amazon),
    **{
        f"Amazon counts, {domain}": ("amazon_svmlight", counts(domain))
        for domain in ("books", "dvd", "electronics", "kitchen")
    },
}
"""For each set: its folder in the data folder, and its reader."""


def read_sheet(path: Path) -> list[Row]:
    """Read the lines of a data sheet; none if there is no file."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [
            (row["set"], row["part"], row["what"], int(row["count"]))
            for row in csv.DictReader(file)
        ]


def write_sheet(rows: Sequence[Row], path: Path) -> None:
    """Write the CSV and, beside it, the same as Markdown, one table per set."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(FIELDS)
    writer.writerows(rows)
    write_atomically(path, lambda file: file.write(table.getvalue().encode()))
    lines = [
        "# Data sheet",
        "",
        "Written by `python -m study.tools.data_sheet` from the real data; a test compares the "
        "CSV with the sets that are at hand. A copy is an example with the same content, bit by "
        "bit: pixels of CIFAR, bytes of Tiny-ImageNet's files, samples of a recording, words of a"
        " review, a row of counts. In a row such as *test in train*, the first part is *test* and"
        " the second *train*.",
        "The study trains on no copy of a held-out example. Copies between training and test "
        "images stay, as in everybody's numbers.",
    ]
    for name in dict.fromkeys(row[0] for row in rows):
        lines += ["", f"## {name}", "", "| part | what | count |", "|---|---|---:|"]
        lines += [
            f"| {part} | {what} | {count:,} |" for of, part, what, count in rows if of == name
        ]
    text = "\n".join(lines) + "\n"
    write_atomically(path.with_suffix(".md"), lambda file: file.write(text.encode()))


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the sheet. If a set cannot be described, print a message, write nothing and exit with
    2.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", default=os.environ.get("CASCADETTA_DATA", "data"))
    parser.add_argument(
        "--set", nargs="+", action="extend", choices=list(READERS), help="default: all"
    )
    parser.add_argument("--output", type=Path, default=SHEET)
    asked = parser.parse_args(arguments)
    folder = Path(asked.data).expanduser()
    known = read_sheet(asked.output)
    rows: list[Row] = []
    for name, (place, read) in READERS.items():
        wanted = asked.set is None or name in asked.set
        if wanted and (folder / place).exists():
            try:
                rows += describe(name, read(folder))
            except (DataMissing, ValueError, OSError, soundfile.SoundFileError) as error:
                parser.exit(2, f"data_sheet: {folder / place} cannot be described: {error}\n")
            print(f"{name}: computed", flush=True)
        else:
            rows += [row for row in known if row[0] == name]
            print(f"{name}: as it was", flush=True)
    write_sheet(rows, asked.output)


if __name__ == "__main__":
    main()
