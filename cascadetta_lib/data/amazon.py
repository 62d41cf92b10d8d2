"""Amazon reviews, the paper's text data: raw (`amazon`, `amazon:FOLDER`) and as counts (`amazon_svmlight`).

The raw reviews are the multi-domain sentiment archive: DOMAIN/{positive,negative,unlabeled}.review. Those files look
like XML and are not: encodings are mixed, ampersands stray, closing tags may be missing; so they are cut by their tags
and nothing else. Labels are stars: up to 3 negative, 4 or 5 positive. The 2,000 labelled reviews of books are the
source; a target domain's test set is its unlabeled.review, whose reviews do carry ratings, else its labelled reviews.
"""

import html
import re
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pooch
import torch
from filelock import FileLock

from cascadetta_lib.augment.text import WordNetSynonyms, words
from cascadetta_lib.data import TextOptions, archives, dataset
from cascadetta_lib.data.archives import Archive
from cascadetta_lib.data.base import DataMissing, write_atomically
from cascadetta_lib.data.text import (
    DOMAINS,
    SOURCE_DOMAIN,
    Counts,
    Reviews,
    TextDataset,
    make_counts_dataset,
    make_text_dataset,
)

TRAIN_SIZE = 2000
TEST_SIZES = {"dvd": 3586, "electronics": 5681, "kitchen": 5945}
"""Reviews in the paper's data: of the source, and of each target domain."""
COMPARE_WITH = "Amazon Reviews"

# Raw reviews --------------------------------------------------------------------------------------------------------

FOLDER_NAMES = {"kitchen": ("kitchen", "kitchen_&_housewares")}
"""Domain to the names that its folder may have, where it is not the domain's own."""
LABELLED = {"negative": 0, "positive": 1}
"""Name of a file of labelled reviews to the label of a review without a rating."""
ARCHIVE = Archive(
    file="domain_sentiment_data.tar.gz",
    urls=("https://www.cs.jhu.edu/~mdredze/datasets/sentiment/domain_sentiment_data.tar.gz",),
    hash="a hash that nobody has published: it is recorded at the first download and checked ever after",
    folder="sorted_data_acl",
    contents=tuple(f"{domain}/{part}.review" for domain in (SOURCE_DOMAIN, *DOMAINS[:2]) for part in LABELLED),
)


class ReviewFile(NamedTuple):
    """What a file holds: texts and labels (0 or 1) of the reviews that can be used, and how many cannot."""

    texts: list[str]
    labels: list[int]
    empty: int  # without a word
    unrated: int  # without a rating, where the file's name gives no label


@dataset("amazon", "text", folder="may")
def load_amazon(argument: str, options: TextOptions) -> TextDataset:
    """The raw reviews in the folder `argument`, else in the data folder's sorted_data_acl, downloaded where it is not
    there. DataMissing where a file is missing, ValueError where one holds no reviews."""
    folder = Path(argument).expanduser() if argument else _ensure_raw(Path(options.folder).expanduser())
    source = [read_reviews(path, label) for path, label in _labelled_files(folder, SOURCE_DOMAIN)]
    targets, unlabeled = {}, []
    for domain in DOMAINS:
        path = _domain_folder(folder, domain) / "unlabeled.review"
        if path.is_file():
            unlabeled.append(domain)
            targets[domain] = [read_reviews(path, None)]
        else:
            targets[domain] = [read_reviews(*file) for file in _labelled_files(folder, domain)]
    official = _count(source) == TRAIN_SIZE and {name: _count(files) for name, files in targets.items()} == TEST_SIZES
    return make_text_dataset(
        name=f"amazon:{folder.resolve().name}" if argument else "amazon",
        source=f"multi-domain sentiment reviews, raw text{_skipped([*source, *sum(targets.values(), [])])}",
        domain_source=_describe_targets(unlabeled),
        official=official and len(unlabeled) == len(DOMAINS),
        compare_with=COMPARE_WITH,
        train=_joined(source),
        domains={domain: _joined(files) for domain, files in targets.items()},
        synonyms=WordNetSynonyms(options.folder),
        options=options,
    )


def read_reviews(path: Path, label: int | None) -> ReviewFile:
    """The reviews of one file. label: that of a review without a rating; None: such a review is skipped and counted.

    A review without a word is skipped and counted, and so is one that the end of the file cuts off before its text.
    Bytes are UTF-8, or Windows' Latin-1 in a review where they are not; a missing closing tag ends with the review;
    HTML's entities are resolved; control characters become spaces. ValueError for a file that holds no reviews.
    """
    texts, labels, empty, unrated = [], [], 0, 0
    for raw in path.read_bytes().split(b"<review>")[1:]:
        review = _decode(raw)
        text = _field(review, "review_text")
        stars = re.match(r"[1-5](\.\d+)?$", _field(review, "rating"))
        if not words(text):
            empty += 1
        elif stars is None and label is None:
            unrated += 1
        else:
            texts.append(text)
            labels.append(int(float(stars[0]) > 3) if stars else int(label or 0))
    if not texts:
        raise ValueError(f"{path}: found no review with a text and a rating; allowed is a .review file of the archive")
    return ReviewFile(texts, labels, empty, unrated)


def _decode(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("cp1252", errors="replace")


def _field(review: str, tag: str) -> str:
    """What stands between a tag and its closing one, or the end of the review; nothing where the tag is missing."""
    inside = review.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0].partition("</review>")[0]
    resolved = html.unescape(inside).replace("’", "'")
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", resolved).strip()  # control characters


def _domain_folder(folder: Path, domain: str) -> Path:
    """DataMissing where the folder of a domain is missing."""
    names = FOLDER_NAMES.get(domain, (domain,))
    for name in names:
        if (folder / name).is_dir():
            return folder / name
    fault = f"{folder} lacks the folder {' or '.join(names)}; it must hold {', '.join((SOURCE_DOMAIN, *DOMAINS))}"
    raise DataMissing(f"{fault}. {archives.advice(ARCHIVE, folder.parent)}")


def _labelled_files(folder: Path, domain: str) -> list[tuple[Path, int]]:
    """A domain's files of labelled reviews and the labels that their names give; DataMissing where one is missing."""
    files = [(_domain_folder(folder, domain) / f"{part}.review", label) for part, label in LABELLED.items()]
    for path, _ in files:
        if not path.is_file():
            raise DataMissing(f"there is no {path}. {archives.advice(ARCHIVE, folder.parent)}")
    return files


def _count(files: Iterable[ReviewFile]) -> int:
    """All reviews, also those that are skipped: the paper's sizes count them."""
    return sum(len(file.texts) + file.empty + file.unrated for file in files)


def _joined(files: Iterable[ReviewFile]) -> Reviews:
    texts = [text for file in files for text in file.texts]
    return Reviews(texts, torch.tensor([label for file in files for label in file.labels]))


def _skipped(files: Iterable[ReviewFile]) -> str:
    empty, unrated = (sum(getattr(file, reason) for file in files) for reason in ("empty", "unrated"))
    counted = [f"{count} {reason}" for count, reason in ((empty, "empty"), (unrated, "without a rating")) if count]
    return f" ({' and '.join(counted)} skipped)" if counted else ""


def _describe_targets(unlabeled: list[str]) -> str:
    if len(unlabeled) == len(DOMAINS):
        return "the archive's unlabeled.review files, whole"
    labelled = ", ".join(domain for domain in DOMAINS if domain not in unlabeled)
    return f"labelled reviews of {labelled} (the archive's unlabeled.review files are not there)"


def _ensure_raw(folder: Path) -> Path:
    """The unpacked archive in the data folder; what is there is used as it is."""
    unpacked = folder / ARCHIVE.folder
    if not unpacked.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{ARCHIVE.folder}.lock"):
            if not unpacked.exists():  # another job may have unpacked it while this one waited
                try:
                    archives.unpack(_download(folder), ARCHIVE, folder)
                except (tarfile.TarError, EOFError, OSError) as error:
                    fault = f"{folder / ARCHIVE.file} cannot be unpacked ({error}); remove it"
                    raise DataMissing(f"{fault}. {archives.advice(ARCHIVE, folder)}") from None
    return unpacked


def _download(folder: Path) -> Path:
    """The archive's file in `folder`, downloaded where it is not there, with the hash that the first one had."""
    path, sidecar = folder / ARCHIVE.file, folder / f"{ARCHIVE.file}.sha256"
    known = sidecar.read_text().split()[0] if sidecar.is_file() else None
    try:
        pooch.retrieve(ARCHIVE.urls[0], known and f"sha256:{known}", fname=ARCHIVE.file, path=folder)
    except ValueError:
        reason = f"what {ARCHIVE.urls[0]} sent is not what {sidecar.name} has recorded"
    except OSError as error:  # every fault of requests is one; the messages of those are long
        reason = f"{ARCHIVE.urls[0]} cannot be downloaded ({error.strerror or type(error).__name__})"
    else:
        line = f"{pooch.file_hash(path)}  {ARCHIVE.file}\n"
        write_atomically(sidecar, lambda file: file.writelines([line.encode()]))
        return path
    raise DataMissing(f"the Amazon reviews are missing: {reason}. {archives.advice(ARCHIVE, folder)}")


# Counts -------------------------------------------------------------------------------------------------------------

FEATURES = 5000


@dataset("amazon_svmlight", "text")
def load_amazon_svmlight(argument: str, options: TextOptions) -> TextDataset:
    """The reviews as counts of 5,000 unigrams and bigrams: DOMAIN_{train,test}.svmlight in the data folder's
    amazon_svmlight. The source is books_train; the target domains are the _test files.

    DataMissing where a file is missing, ValueError where one is not as it must be, or for another vocabulary_size.
    """
    if options.vocabulary_size != FEATURES:
        found = f"text_vocabulary_size = {options.vocabulary_size!r}"
        raise ValueError(f"{found}: amazon_svmlight holds counts of {FEATURES} features, allowed is {FEATURES}")
    folder = Path(options.folder).expanduser() / "amazon_svmlight"
    train = _read_counts(folder / f"{SOURCE_DOMAIN}_train.svmlight")
    domains = {domain: _read_counts(folder / f"{domain}_test.svmlight") for domain in DOMAINS}
    return make_counts_dataset(
        name="amazon_svmlight",
        source=f"multi-domain sentiment reviews as counts of {FEATURES} unigrams and bigrams",
        domain_source="the _test.svmlight files",
        compare_with=COMPARE_WITH,
        train=train,
        domains=domains,
        options=options,
    )


def _read_counts(path: Path) -> Counts:
    """One file: a review a line, its label −1 or +1, then COLUMN:COUNT of the counts that are not 0."""
    from sklearn.datasets import load_svmlight_file

    if not path.is_file():
        raise DataMissing(
            f"there is no {path}; the folder {path.parent} must hold {SOURCE_DOMAIN}_train.svmlight and "
            f"{', '.join(f'{domain}_test.svmlight' for domain in DOMAINS)}, the reviews as counts of {FEATURES} "
            "features in svmlight's format. They are no public archive of their own; the dataset 'amazon' makes its "
            f"own counts from {ARCHIVE.urls[0]}"
        )
    try:
        counts, labels = load_svmlight_file(str(path), dtype=np.float32)
    except ValueError as error:
        raise _fault(path, f"a file that cannot be read ({error})", "LABEL COLUMN:COUNT … on each line") from None
    if not len(labels):
        raise _fault(path, "no reviews", "at least 1")
    strange = set(labels.tolist()) - {-1.0, 1.0}
    if strange:
        raise _fault(path, f"label {min(strange):g}", "−1 and +1")
    if counts.shape[1] != FEATURES:
        raise _fault(path, f"{counts.shape[1]} features", f"{FEATURES}, the largest column that a line names")
    if not (counts.data >= 0).all():
        raise _fault(path, f"the count {counts.data.min():g}", "0 and more")
    return Counts(counts, torch.from_numpy((labels > 0).astype(np.int64)))


def _fault(path: Path, found: str, allowed: str) -> ValueError:
    return ValueError(f"{path}: found {found}; allowed is {allowed}")
