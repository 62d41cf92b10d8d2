"""EDA on lists of words (Wei and Zou 2019; appendix "Text" of the paper), drawn first and applied second.

An augmented review is the review after one of four operations, each as likely as the others. With α the strength and
n = max(1, ⌊α·words⌋): synonym replacement replaces n words by a synonym, random insertion inserts a synonym of a word
of the review at a random place, n times, random swap swaps two words, n times, and random deletion drops every word
with probability α. A stop word has no synonyms, so it is neither replaced nor the origin of an insertion.
"""

import io
import os
import re
import shutil
import threading
import urllib.request
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from filelock import FileLock
from torch import Tensor

from cascadetta_lib.data.base import DataMissing

OPERATIONS = ("synonym replacement", "random insertion", "random swap", "random deletion")
WORD = r"\w+(?:'\w+)*"
"""What a word is, as a regular expression on lower-case text: `don't` is one. The vectorizer uses the same."""


def words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation."""
    return re.findall(WORD, text.lower())


class Synonyms(Protocol):
    """Where synonyms come from."""

    @property
    def description(self) -> str:
        """In words, for the dataset's source."""

    @property
    def identity(self) -> str:
        """Another text for other synonyms, part of the data's fingerprint."""

    def synonyms(self, word: str) -> tuple[str, ...]:
        """The synonyms of a word in a fixed order, without the word itself, none for a stop word; several words are
        separated by a space."""


class EdaDraw(NamedTuple):
    """What EDA does to one review of N words. Print it, apply it twice, test it."""

    operation: str  # one of OPERATIONS
    strength: float  # α
    word: Tensor  # float32 (N,) in [0, 1): orders the words for a replacement, decides on each for a deletion
    change: Tensor  # float32 (n, 3) in [0, 1): for each of n changes which word, which synonym or second word, where


def draw_eda(count: int, strength: float, generator: torch.Generator) -> EdaDraw:
    """Draw EDA for a review of `count` words. ValueError unless 0 ≤ strength ≤ 1."""
    if not 0 <= strength <= 1:
        raise ValueError(f"text_eda_strength = {strength!r}: allowed is 0 to 1, the share of the words that change")
    operation = OPERATIONS[int(torch.randint(len(OPERATIONS), (), generator=generator))]
    word = torch.rand(count, generator=generator)
    change = torch.rand(max(1, int(strength * count)), 3, generator=generator)
    return EdaDraw(operation, strength, word, change)


def apply_eda(review: list[str], draw: EdaDraw, synonyms: Synonyms) -> list[str]:
    """The review after `draw`, as a new list; the same words where there is nothing to change."""
    function = dict(zip(OPERATIONS, (_replace, _insert, _swap, _delete), strict=True))[draw.operation]
    return function(review, draw, synonyms) if review else []


def eda(review: list[str], strength: float, generator: torch.Generator, synonyms: Synonyms) -> list[str]:
    """Draw and apply."""
    return apply_eda(review, draw_eda(len(review), strength, generator), synonyms)


def _replace(review: list[str], draw: EdaDraw, synonyms: Synonyms) -> list[str]:
    """The first n words, in the drawn order, that have synonyms."""
    found = ((position, synonyms.synonyms(review[position])) for position in draw.word.argsort().tolist())
    replaceable = ((position, choices) for position, choices in found if choices)
    parts = [[word] for word in review]
    # zip asks `replaceable` second, so that no word is looked up after the last change.
    for (_, which, _), (position, choices) in zip(draw.change.tolist(), replaceable, strict=False):
        parts[position] = choices[int(which * len(choices))].split(" ")
    return [word for part in parts for word in part]


def _insert(review: list[str], draw: EdaDraw, synonyms: Synonyms) -> list[str]:
    options = [choices for choices in map(synonyms.synonyms, review) if choices]
    result = list(review)
    for origin, which, where in draw.change.tolist() if options else []:
        choices = options[int(origin * len(options))]
        place = int(where * (len(result) + 1))
        result[place:place] = choices[int(which * len(choices))].split(" ")
    return result


def _swap(review: list[str], draw: EdaDraw, synonyms: Synonyms) -> list[str]:
    result, count = list(review), len(review)
    for one, other, _ in draw.change.tolist() if count > 1 else []:
        first, second = int(one * count), int(other * (count - 1))
        second += second >= first  # two different places, each pair as likely
        result[first], result[second] = result[second], result[first]
    return result


def _delete(review: list[str], draw: EdaDraw, synonyms: Synonyms) -> list[str]:
    """Where every word would go, a random one stays: that of the largest number."""
    kept = [word for word, number in zip(review, draw.word.tolist(), strict=True) if number >= draw.strength]
    return kept or [review[int(draw.word.argmax())]]


# ---------------------------------------------------------------- synonyms


class DictionarySynonyms:
    """Synonyms from a dictionary; a word that is not in it is a stop word."""

    def __init__(self, dictionary: Mapping[str, tuple[str, ...]], description: str) -> None:
        self.description = description
        self.identity = repr(sorted(dictionary.items()))
        self._dictionary = dictionary

    def synonyms(self, word: str) -> tuple[str, ...]:
        return self._dictionary.get(word, ())


PACKAGES = {"wordnet": "corpora/wordnet", "stopwords": "corpora/stopwords"}
"""Name of nltk's package to the place of its files in a folder of nltk's data."""
PACKAGE_PAGES = "https://raw.githubusercontent.com/nltk/nltk_data/gh-pages/packages"
PROBE_SECONDS = 10


class WordNetSynonyms:
    """Synonyms from nltk's WordNet, for words that are not on nltk's list of English stop words.

    folder: the data folder. nltk's data is looked for in its `nltk_data`, in the folders that NLTK_DATA names and in
    nltk's own places, and downloaded into the first where it is in none; DataMissing, at the first question, where that
    fails. Nothing is opened before the first question. Several threads may ask: WordNet's reader moves about in its
    open files, so one asks it at a time, and a process that was forked opens files of its own.
    """

    description = identity = "nltk's WordNet"  # opening it to ask for its version takes seconds

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder).expanduser() / "nltk_data"
        self._lock = threading.Lock()
        self._known: dict[str, tuple[str, ...]] = {}
        self._process: int | None = None
        self._reader: Any = None
        self._stop_words: frozenset[str] = frozenset()

    def synonyms(self, word: str) -> tuple[str, ...]:
        found = self._known.get(word)
        if found is None:
            with self._lock:
                found = self._known[word] = self._look_up(word)
        return found

    def _look_up(self, word: str) -> tuple[str, ...]:
        if self._process != os.getpid():
            self._reader, self._stop_words = _open(self._folder)
            self._process = os.getpid()
        if word in self._stop_words:
            return ()
        names = {name for synset in self._reader.synsets(word) for name in synset.lemma_names()}
        return tuple(sorted({" ".join(words(name.replace("_", " "))) for name in names} - {word, ""}))


def _open(folder: Path) -> tuple[Any, frozenset[str]]:
    """WordNet's reader and the stop words. DataMissing where nltk's data cannot be had or cannot be read."""
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    class EnglishWordNet(WordNetCorpusReader):
        """Without the map to WordNets of other languages, which takes as long as all the rest of opening it."""

        def map_wn(self, version: str = "wordnet") -> None:
            return None

    try:
        places = {package: _find(package, folder) or _download(package, folder) for package in PACKAGES}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is no WordNet of other languages
            reader = EnglishWordNet(places["wordnet"], None)
        list_of_words = places["stopwords"].join("english").open().read().decode()
    except (OSError, LookupError, ValueError, zipfile.BadZipFile) as error:
        # nltk refuses folders that others may write to by an OSError.
        raise DataMissing(f"nltk's data cannot be read: {error}. {_advice(folder)}") from None
    return reader, frozenset(list_of_words.split())


def _find(package: str, folder: Path) -> Any:
    """nltk's pointer to the files of a package, unpacked or in their .zip file; None where they are not."""
    import nltk.data

    for root in _roots(folder):
        # nltk opens nothing outside its own list of places, so that a place that is used must join it.
        if (Path(root) / "corpora").is_dir() and root not in nltk.data.path:
            nltk.data.path.append(root)
    for resource in (PACKAGES[package], f"{PACKAGES[package]}.zip/{package}/"):
        try:
            return nltk.data.find(resource, _roots(folder))
        except LookupError:
            pass
    return None


def _roots(folder: Path) -> list[str]:
    """Where nltk's data may be, the first the first to be looked at."""
    import nltk.data

    named = [place for place in os.environ.get("NLTK_DATA", "").split(os.pathsep) if place]
    return list(dict.fromkeys([str(folder.resolve()), *named, *nltk.data.path]))


def _download(package: str, folder: Path) -> Any:
    """Let nltk download a package into `folder`, which gets it only when it is whole."""
    import nltk
    import nltk.data

    try:
        # nltk itself may wait for minutes where there is no network.
        urllib.request.urlopen(nltk.downloader.Downloader.DEFAULT_URL, timeout=PROBE_SECONDS).close()
    except OSError as error:
        raise _missing(package, folder, f"no network ({getattr(error, 'reason', error)})") from None
    (folder / "corpora").mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        found = _find(package, folder)  # another job may have downloaded it while this one waited
        temporary = folder / ".downloading"
        if found is None:
            try:
                fault = io.StringIO()
                if not nltk.download(package, download_dir=str(temporary), quiet=True, print_error_to=fault):
                    raise _missing(package, folder, f"nltk cannot download it ({fault.getvalue().strip()})")
                for path in (temporary / "corpora").iterdir():
                    os.replace(path, folder / "corpora" / path.name)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
            found = _find(package, folder)
    if found is None:
        raise _missing(package, folder, "nltk's download does not hold it")
    return found


def _missing(package: str, folder: Path, reason: str) -> DataMissing:
    return DataMissing(f"nltk's package {package} is missing: {reason}. {_advice(folder)}")


def _advice(folder: Path) -> str:
    addresses = " and ".join(f"{PACKAGE_PAGES}/{place}.zip" for place in PACKAGES.values())
    return (
        f"Put {addresses} (nltk's index has their hashes) into the folder {folder / 'corpora'}, or name the folder of "
        "nltk's data in the environment variable NLTK_DATA; the dataset 'reviews' needs none."
    )
