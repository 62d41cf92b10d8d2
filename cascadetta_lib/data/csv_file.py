"""Your own texts in a table: `csv:FILE`, with the columns text, label and domain.

Other columns are ignored. The domain of the first row is the source. The other domains are the
targets, in the order in which they first appear. A label is any word or number. The labels of the
source are the classes, sorted by number if all are whole numbers, else by the alphabet. The file is
UTF-8, with a comma between columns.

EDA takes synonyms from nltk's WordNet (a download of 11 MB). WordNet is English, so words of other
languages have no synonyms.
"""

import csv
import io
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from cascadetta_lib.augment.text import words
from cascadetta_lib.data import DatasetName, dataset
from cascadetta_lib.data.amazon import wordnet_synonyms
from cascadetta_lib.data.base import DataMissing, Dataset, repeats, sorted_classes
from cascadetta_lib.data.reviews import (
    Reviews,
    Synonyms,
    TextDataset,
    TextOptions,
    make_text_dataset,
)
from cascadetta_lib.data.streams import Vocabulary

COLUMNS = ("text", "label", "domain")


class Row(NamedTuple):
    """One text with its label and its domain."""

    text: str
    label: str
    domain: str


def vocabulary(argument: str) -> Vocabulary:
    """Return the domains that a stream over the file may name.

    If the file cannot be read, return the usual domains of texts. `load_csv` then raises the error.
    """
    try:
        source, *targets = domains_of(read_rows(Path(argument).expanduser()))
    except (DataMissing, ValueError):
        return TextDataset.vocabulary
    return Vocabulary(tuple(targets), (source,), (1,))


@dataset("csv", "text", folder="must", own=True, vocabulary=vocabulary)
def load_csv(argument: str, options: TextOptions) -> Dataset:
    """Load the table in the file `argument`.

    Raises DataMissing if there is no such file. Raises ValueError if `read_rows` refuses the file,
    if there are fewer than two domains, if the source has fewer than two labels, or two labels
    that differ only in capital letters, or if a target has a label that the source has not.
    """
    path = Path(argument).expanduser()
    rows = read_rows(path)
    domains = domains_of(rows)
    source, *targets = domains
    if not targets:
        raise ValueError(
            f"{path}: found 1 domain, {source!r}; allowed are 2 or more, the first the source"
        )
    class_names = tuple(sorted_classes(row.label for row in rows if row.domain == source))
    if len(class_names) < 2:
        raise ValueError(
            f"{path}: found the label {class_names[0]!r} alone in the source {source!r}; allowed "
            "are 2 labels or more"
        )
    written: dict[str, str] = {}
    for label in class_names:
        other = written.setdefault(label.casefold(), label)
        if other != label:
            raise ValueError(
                f"{path}: found the labels {other!r} and {label!r}, which differ only in capital "
                "letters; allowed is one way to write a label"
            )
    unknown = [row for row in rows if row.label not in class_names]
    if unknown:
        raise ValueError(
            f"{path}: found the label {unknown[0].label!r} in {unknown[0].domain!r}; allowed are "
            f"those of the source {source!r}: {', '.join(class_names)}"
        )
    labels = {name: label for label, name in enumerate(class_names)}
    read = {}
    for domain in domains:
        own = [row for row in rows if row.domain == domain]
        texts = np.array([row.text for row in own], dtype=object)
        read[domain] = Reviews(texts, torch.tensor([labels[row.label] for row in own]))
    known = [row.text for row in rows if row.domain == source]
    again = repeats(known, [row.text for row in rows if row.domain != source], "texts")
    return make_text_dataset(
        name=DatasetName("csv", argument).key,
        source=f"the user's texts in {path.name}" + again,
        domain_source=f"the rows of {', '.join(targets)} in {path.name}",
        compare_with=None,
        train=read[source],
        domains=read,
        source_name=source,
        target_names=targets,
        class_names=class_names,
        synonyms=Synonyms(wordnet_synonyms(options.folder), "nltk's WordNet"),
        options=options,
    )


def domains_of(rows: tuple[Row, ...]) -> list[str]:
    """Return the domains in the order in which they first appear."""
    return list(dict.fromkeys(row.domain for row in rows))


def read_rows(path: Path) -> tuple[Row, ...]:
    """Read the rows of a table.

    Raises DataMissing if there is no file `path`. Raises ValueError if the file is no UTF-8 table
    or has no rows, if a column is missing or there twice, if a row has more cells than columns, if
    a label or domain is empty, if a domain has a colon, or if a text has no word.
    """
    if not path.is_file():
        raise DataMissing(
            f"there is no {path}; it must be a table with the columns text, label, domain"
        )
    return _parse(str(path), path.read_bytes())


@lru_cache(maxsize=4)
def _parse(path: str, content: bytes) -> tuple[Row, ...]:
    """Return the rows of `content`. Its bytes are part of the cache's key, so a changed file is
    read again.
    """
    rows = []
    with io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline="") as file:
        try:
            reader = csv.DictReader(file)
            lacking = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if lacking:
                raise ValueError(
                    f"{path}: found the columns {', '.join(reader.fieldnames or ()) or 'none'}, "
                    f"without {lacking[0]!r}; allowed are text, label and domain"
                )
            for name in COLUMNS:
                if list(reader.fieldnames or ()).count(name) > 1:
                    raise ValueError(
                        f"{path}: found the column {name!r} twice; allowed is one column of a name"
                    )
            for cells in reader:
                row = Row(*((cells[name] or "").strip() for name in COLUMNS))
                place = f"{path}, line {reader.line_num}"
                if None in cells:  # DictReader's key for surplus cells
                    raise ValueError(
                        f"{place}: found more cells than columns; allowed is a text with a comma "
                        'in quotes, as "fine, thanks"'
                    )
                if not row.label or not row.domain:
                    raise ValueError(f"{place}: found an empty cell; allowed is a label and domain")
                if ":" in row.domain:
                    raise ValueError(
                        f"{place}: found the domain {row.domain!r}; allowed is a name without ':'"
                    )
                if not words(row.text):
                    raise ValueError(f"{place}: found a text without a word; allowed is 1 or more")
                rows.append(row)
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is no table in UTF-8: {error}") from None
    if not rows:
        raise ValueError(f"{path}: found no rows; allowed are 1 or more per domain")
    return tuple(rows)
