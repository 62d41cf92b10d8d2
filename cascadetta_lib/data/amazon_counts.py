"""Amazon reviews as counts of 5,000 unigrams and bigrams, as the paper's field shares them.

`amazon_counts` reads books_train, dvd_test, electronics_test and kitchen_test.svmlight in
amazon_svmlight/ of the data folder. The files are in svmlight's format, with the labels −1 and +1.
Their columns are numbered from 0 to 4,999 and are taken as numbered, so they mean the same in all
files.

There are no words, so there is no EDA either: domain randomisation returns each review as it is.
"""

from pathlib import Path

import numpy as np
import torch

from cascadetta_lib.data import dataset
from cascadetta_lib.data.base import DataMissing, Dataset
from cascadetta_lib.data.reviews import (
    DOMAINS,
    SOURCE_DOMAIN,
    Counts,
    TextOptions,
    make_counts_dataset,
)
from cascadetta_lib.files import contents_hash

FOLDER = "amazon_svmlight"
FEATURES = 5000
FILES = {
    domain: f"{domain}_{'train' if domain == SOURCE_DOMAIN else 'test'}.svmlight"
    for domain in (SOURCE_DOMAIN, *DOMAINS)
}
KNOWN = "dba84673855d8f3414b9a52139f3ff98a4d45f01bffb405fac1a6a117d1a1a1c"
"""The `contents_hash` of the four known files. They hold 2,000, 3,586, 5,681 and 5,945 reviews, as
in the paper.
"""


@dataset("amazon_counts", "text")
def load_amazon_counts(argument: str, options: TextOptions) -> Dataset:
    """Load the counts.

    Raises DataMissing if a file is missing. Raises ValueError if `read_counts` refuses a file, or
    if options.vocabulary_size is not 5,000.
    """
    if options.vocabulary_size != FEATURES:
        raise ValueError(
            f"vocabulary_size = {options.vocabulary_size}: allowed is {FEATURES} for amazon_counts"
        )
    folder = Path(options.folder).expanduser() / FOLDER
    paths = {domain: folder / name for domain, name in FILES.items()}
    absent = [path.name for path in paths.values() if not path.is_file()]
    if absent:
        raise DataMissing(
            f"amazon_counts: {folder} lacks {', '.join(absent)}, svmlight files of {FEATURES:,} "
            "counts; the parameter data_folder names another data folder"
        )
    read = {domain: read_counts(path) for domain, path in paths.items()}
    recognised = contents_hash(folder, paths.values()) == KNOWN
    told = "recognised by their hash" if recognised else "of unknown origin"
    return make_counts_dataset(
        name="amazon_counts",
        source=f"counts of 5,000 unigrams and bigrams, {told}, without EDA",
        domain_source=f"the _test.svmlight files of {', '.join(DOMAINS)}",
        compare_with="Amazon Reviews",
        recognised=recognised,
        train=read[SOURCE_DOMAIN],
        domains={domain: read[domain] for domain in DOMAINS},
        options=options,
    )


def read_counts(path: Path) -> Counts:
    """Return the counts, float32 CSR (N, 5000), and the labels, int64 (N,), of one file.

    Raises ValueError if the file is malformed, if its labels are not −1 and +1, or if a count is
    negative or not finite.
    """
    # Imported here, because it takes seconds.
    from sklearn.datasets import load_svmlight_file

    try:
        counts, labels = load_svmlight_file(
            str(path), n_features=FEATURES, dtype=np.float32, zero_based=True
        )
    except ValueError as error:
        raise ValueError(
            f"{path} cannot be read ({error}); allowed are lines of a label, −1 or +1, and "
            f"COLUMN:COUNT with columns 0..{FEATURES - 1}"
        ) from None
    found = set(np.unique(labels).tolist())
    if found != {-1.0, 1.0}:
        raise ValueError(f"{path}: found the labels {sorted(found)}; allowed are −1 and +1, both")
    if not np.isfinite(counts.data).all() or (counts.data < 0).any():
        raise ValueError(f"{path}: found a count below 0 or not finite; allowed are numbers from 0")
    return Counts(counts, torch.from_numpy((labels > 0).astype(np.int64)))
