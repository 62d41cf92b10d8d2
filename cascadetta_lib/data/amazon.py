"""Amazon reviews, the paper's text data: `amazon`, or `amazon:FOLDER`.

The files are those of the multi-domain sentiment archive:
DOMAIN/{positive,negative,unlabeled}.review. They look like XML but are not valid: encodings are
mixed, ampersands are not escaped, and closing tags may be missing. So the text is cut at its tags.
Reviews of up to 3 stars are negative, and reviews of 4 and 5 stars positive.

The 2,000 labelled reviews of books are the source. A target domain consists of the reviews in its
unlabeled.review, which have ratings too. If that file is missing, it consists of its labelled
reviews.
"""

import html
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cascadetta_lib.augment.text import FindSynonyms, words
from cascadetta_lib.data import DatasetName, dataset
from cascadetta_lib.data.base import DataMissing, Dataset
from cascadetta_lib.data.fetch import fetch
from cascadetta_lib.data.reviews import (
    DOMAINS,
    SOURCE_DOMAIN,
    Reviews,
    Synonyms,
    TextOptions,
    make_text_dataset,
)

ADDRESS = "https://www.cs.jhu.edu/~mdredze/datasets/sentiment/domain_sentiment_data.tar.gz"
FOLDER = "sorted_data_acl"
NLTK_DATA = (
    "https://raw.githubusercontent.com/nltk/nltk_data/005569f5d91002697c5dfd5bced624209af0b3bb"
)
NLTK_PACKAGES = {
    "wordnet": ("md5:b3f38606f626e54c6f060548546f71f0", "11 MB"),
    "stopwords": ("md5:8726a900bca7083674536e2593686361", "34 kB"),
}
"""nltk's packages of WordNet and of stop words: the hash of each .zip file, as in nltk's own index,
and its size.
"""


@dataset("amazon", "text", folder="may")
def load_amazon(argument: str, options: TextOptions) -> Dataset:
    """Load the raw reviews in the folder `argument`.

    If `argument` is "", the folder is sorted_data_acl in the data folder. It is downloaded if it is
    missing.

    Raises DataMissing if a file is missing, and ValueError if a file holds no reviews.
    """
    folder = Path(argument).expanduser()
    if (
        not argument
    ):  # No hash of the archive is published, so `fetch` records the hash of the first download.
        folder = fetch(
            "Amazon Reviews",
            [ADDRESS],
            options.folder,
            None,
            "about 30 MB",
            FOLDER,
            [SOURCE_DOMAIN],
        )
    files = {domain: _files(folder, domain) for domain in (SOURCE_DOMAIN, *DOMAINS)}
    read = {domain: read_reviews(files[domain]) for domain in files}
    reviews = {domain: found for domain, (found, _) in read.items()}
    skipped = sum(count for _, count in read.values())
    domain_source = "the archive's unlabeled.review files, whole"
    if from_labelled := [domain for domain in DOMAINS if len(files[domain]) > 1]:
        domain_source = (
            f"labelled reviews of {', '.join(from_labelled)}, which have no unlabeled.review here"
        )
        if others := [domain for domain in DOMAINS if domain not in from_labelled]:
            domain_source += f"; unlabeled.review of {', '.join(others)}, whole"
    # Nobody has published a hash of the archive or of its files, and the number of reviews says
    # nothing about their text. So these reviews are never recognised, unlike those of
    # amazon_counts.
    return make_text_dataset(
        name=DatasetName("amazon", argument or None).key,
        source="multi-domain sentiment reviews, raw "
        f"text{f' ({skipped} unusable skipped)' if skipped else ''}",
        domain_source=domain_source,
        compare_with="Amazon Reviews",
        recognised=False,
        train=reviews[SOURCE_DOMAIN],
        domains=reviews,
        synonyms=Synonyms(wordnet_synonyms(options.folder), "nltk's WordNet"),
        options=options,
    )


def _files(folder: Path, domain: str) -> list[Path]:
    """Return the files from which the reviews of a domain are read.

    Raises DataMissing if one is missing.
    """
    unlabeled = _place(folder, domain) / "unlabeled.review"
    if domain != SOURCE_DOMAIN and unlabeled.is_file():
        return [unlabeled]
    return labelled_files(folder, domain)


def _place(folder: Path, domain: str) -> Path:
    """Return the folder of a domain."""
    place = folder / domain
    if domain == "kitchen" and not place.is_dir():
        place = folder / "kitchen_&_housewares"
    return place


def labelled_files(folder: Path, domain: str) -> list[Path]:
    """Return the files of a domain's labelled reviews. Raises DataMissing if one is missing."""
    place = _place(folder, domain)
    labelled = [place / "negative.review", place / "positive.review"]
    for path in labelled:
        if not path.is_file():
            wanted = ", ".join((SOURCE_DOMAIN, *DOMAINS))
            raise DataMissing(
                f"there is no {path}; {folder} must hold the folders {wanted}, as in {ADDRESS}"
            )
    return labelled


def read_reviews(files: Sequence[Path]) -> tuple[Reviews, int]:
    """Read the reviews in some files. Return them, and the number of reviews that were skipped
    because they lack a word or a rating.

    Raises ValueError for a file without a usable review.
    """
    texts = list[str]()
    labels = list[int]()
    skipped = 0
    for path in files:
        known = len(texts)
        for raw in path.read_bytes().split(b"<review>")[1:]:
            try:
                review = raw.decode()
            except UnicodeDecodeError:
                review = raw.decode("cp1252", errors="replace")  # Windows' Latin-1
            text = _field(review, "review_text")
            before, _, after = review.partition("<review_text>")
            outside = before + after.partition("</review_text>")[2]  # not the reviewer's words
            stars = re.match(r"[1-5](\.\d+)?$", _field(outside, "rating"))
            if words(text) and stars:
                texts.append(text)
                labels.append(int(float(stars[0]) > 3))
            else:
                skipped += 1
        if len(texts) == known:
            raise ValueError(
                f"{path}: found no review with text and rating; allowed is a .review file of the "
                "archive"
            )
    return Reviews(np.array(texts, dtype=object), torch.tensor(labels)), skipped


def _field(review: str, tag: str) -> str:
    """Return the text from a tag to its closing tag, or to the end of the review if the closing tag
    is missing. Return "" if the tag is missing.

    HTML's entities are resolved, and control characters become spaces.
    """
    inside = review.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0].partition("</review>")[0]
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", html.unescape(inside).replace("’", "'")).strip()


def wordnet_synonyms(data_folder: str) -> FindSynonyms:
    """Return a function that maps a word to its synonyms in alphabetical order. A stop word has
    none.

    The first call of the function opens WordNet, which takes seconds, or downloads it. If the
    features are already kept on the disk, the function is never called.
    """
    folder = Path(data_folder).expanduser().resolve() / "nltk_data"

    @cache
    def find_synonyms(word: str) -> tuple[str, ...]:
        reader, stop_words = _open(folder)
        synsets = [] if word in stop_words else reader.synsets(word)
        names = {name.replace("_", " ") for synset in synsets for name in synset.lemma_names()}
        return tuple(sorted({" ".join(words(name)) for name in names} - {word, ""}))

    return find_synonyms


@cache
def _open(folder: Path) -> tuple[Any, list[str]]:
    """Return WordNet's reader and the English stop words. They are read from one of nltk's data
    folders, or else downloaded to `folder`.
    """
    # Imported here, because it takes seconds.
    import nltk.data
    from nltk.corpus import stopwords, wordnet

    if str(folder) not in nltk.data.path:
        nltk.data.path.insert(0, str(folder))  # nltk opens nothing outside its own list of folders.
    for package, (known_hash, size) in NLTK_PACKAGES.items():
        try:
            nltk.data.find(f"corpora/{package}/")
        except LookupError:
            url = f"{NLTK_DATA}/packages/corpora/{package}.zip"
            fetch(f"nltk's {package}", [url], folder / "corpora", known_hash, size, package)
    return wordnet, stopwords.words("english")
