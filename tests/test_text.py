"""Text: EDA, mSDA, WordNet and the datasets of reviews, on made-up files and on the real ones where
they are.
"""

import shutil
import sys
import tarfile
import types
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import real_data, seeded, written
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from cascadetta_lib.augment.text import OPERATIONS, WORD, eda, words
from cascadetta_lib.data import (
    DatasetName,
    amazon,
    amazon_counts,
    load_dataset,
    msda,
    reviews,
    synthetic_reviews,
)
from cascadetta_lib.data.amazon import read_reviews
from cascadetta_lib.data.base import DataMissing
from cascadetta_lib.data.reviews import (
    DOMAINS,
    SOURCE_DOMAIN,
    Reviews,
    Synonyms,
    TextDataset,
    TextOptions,
)

pytestmark = pytest.mark.usefixtures("offline")
DICTIONARY = {
    "good": ("fine", "very nice"),
    "book": ("volume",),
    "bad": ("poor",),
    "plot": ("story", "tale"),
}
SYNONYMS = Synonyms(lambda word: DICTIONARY.get(word, ()), "the tests")
REVIEW = "this good book has a bad plot but it is a good read and i would buy it".split()
DISTINCT = [f"w{index}" for index in range(1000)]


# EDA
# --------------------------------------------------------------------------------------------------


def changed(operation: str, review: list[str], strength: float, count: int = 20) -> list[list[str]]:
    """What the operation has made of the review, `count` times."""
    before = list(review)
    generator = seeded()
    results = []
    while len(results) < count:
        drawn, result = eda(review, strength, generator, SYNONYMS.find)
        if drawn == operation:
            results.append(result)
    assert review == before
    return results


def test_words() -> None:
    assert (
        words("I don't LIKE it -- 5 stars!") == ["i", "don't", "like", "it", "5", "stars"]
        and words("?!") == []
    )


@pytest.mark.parametrize("strength", [0.0, 0.05, 0.2, 1.0])
def test_synonym_replacement(strength: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DICTIONARY, "good", ("fine",))
    replaceable = sum(word in DICTIONARY for word in REVIEW)
    for result in changed("synonym replacement", REVIEW, strength):
        pairs = [(old, new) for old, new in zip(REVIEW, result, strict=True) if old != new]
        assert len(pairs) == min(max(1, int(strength * len(REVIEW))), replaceable)
        assert all(new in DICTIONARY[old] for old, new in pairs), "stop words stay"


@pytest.mark.parametrize("strength", [0.05, 0.3])
def test_random_insertion_and_swap(strength: float) -> None:
    allowed = {
        part for word in REVIEW for synonym in SYNONYMS.find(word) for part in synonym.split()
    }
    places = set()
    count = max(1, int(strength * len(REVIEW)))
    for result in changed("random insertion", REVIEW, strength, 50):
        added = Counter(result) - Counter(REVIEW)
        assert count <= added.total() <= 2 * count and set(added) <= allowed
        rest = iter(result)
        assert all(word in rest for word in REVIEW), "what was there keeps its order"
        places.add(
            next(
                (i for i, (a, b) in enumerate(zip(REVIEW, result, strict=False)) if a != b),
                len(REVIEW),
            )
        )
    assert len(places) > 5
    for result in changed("random swap", DISTINCT[:20], strength):
        moved = sum(old != new for old, new in zip(DISTINCT, result, strict=False))
        assert sorted(result) == sorted(DISTINCT[:20])
        assert moved <= 2 * int(strength * 20) and (strength > 0.05 or moved == 2)


def test_random_deletion() -> None:
    kept = [len(result) for result in changed("random deletion", DISTINCT, 0.2, 10)]
    assert sum(kept) / 10 == pytest.approx(800, abs=15)
    assert {result[0] for result in changed("random deletion", ["a", "b"], 1.0)} == {"a", "b"}


def test_a_synonym_of_several_words_becomes_words() -> None:
    assert {*map(tuple, changed("synonym replacement", ["good"], 0.1))} == {
        ("fine",),
        ("very", "nice"),
    }


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("review", [[], ["the"], ["the", "the"]])
def test_reviews_with_nothing_to_change(operation: str, review: list[str]) -> None:
    for result in changed(operation, review, 0.05):
        assert result == review or (operation == "random deletion" and result == ["the"])


def test_eda_comes_from_the_generator_alone() -> None:
    assert eda(REVIEW, 0.1, seeded(1), SYNONYMS.find) == eda(REVIEW, 0.1, seeded(1), SYNONYMS.find)
    generator = seeded(2)
    drawn = [eda(REVIEW, 0.1, generator, SYNONYMS.find) for _ in range(400)]
    assert len({" ".join(result) for _, result in drawn}) > 200
    counts = Counter(operation for operation, _ in drawn)
    assert set(counts) == set(OPERATIONS) and min(counts.values()) > 60


# mSDA
# --------------------------------------------------------------------------------------------------


def small_counts() -> torch.Tensor:
    base = torch.poisson(torch.rand(60, 2, generator=seeded(1)) * 3, generator=seeded(2))
    noise = torch.poisson(torch.full((60, 6), 0.4), generator=seeded(3))
    return base @ torch.randint(0, 2, (2, 6), generator=seeded(4)).float() + noise


def test_msda_layer_against_monte_carlo() -> None:
    """W restores best what 4,000 corruptions of every example have dropped."""
    x = small_counts().double()
    ones = torch.ones(len(x), 1, dtype=torch.float64)
    inputs = torch.zeros(7, 7, dtype=torch.float64)
    targets = torch.zeros(6, 7, dtype=torch.float64)
    generator = seeded(5)
    for _ in range(4000):
        corrupted = torch.cat([x * (torch.rand(x.shape, generator=generator) >= 0.3), ones], 1)
        inputs += corrupted.T @ corrupted
        targets += x.T @ corrupted
    expected = torch.linalg.solve(inputs, targets.T).T
    assert (msda.fit_msda(x.float(), layers=1, probability=0.3)[0] - expected).abs().max() < 0.02
    assert expected.abs().max() > 0.3, "the comparison means something"


def test_msda_layer_against_the_definition() -> None:
    x = small_counts().double()
    x[:, 3] = 0  # a feature that no example has
    extended = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], 1)
    moments = extended.T @ extended
    q = torch.tensor([0.7] * 6 + [1.0], dtype=torch.float64)
    Q = moments * q * q[:, None]
    Q.diagonal().copy_(moments.diagonal() * q + msda.RIDGE)
    expected = (moments * q)[:6] @ Q.inverse()
    weight = msda.fit_msda(x.float(), layers=1, probability=0.3)[0]
    assert weight.dtype == torch.float32 and weight.shape == (6, 7)
    torch.testing.assert_close(weight, expected.float(), atol=1e-5, rtol=1e-4)


def test_msda_stacks() -> None:
    x = small_counts()
    weights = msda.fit_msda(x, layers=2, probability=0.3)
    first = torch.tanh(torch.cat([x, torch.ones(len(x), 1)], 1) @ weights[0].T)
    second = torch.tanh(torch.cat([first, torch.ones(len(x), 1)], 1) @ weights[1].T)
    torch.testing.assert_close(msda.apply_msda(x, weights), [x, first, second])
    torch.testing.assert_close(
        weights[1], msda.fit_msda(first, layers=1, probability=0.3)[0], atol=1e-4, rtol=1e-4
    )


# The shared dataset
# -------------------------------------------------------------------------------------------------


def options(folder: Path, **changes: Any) -> TextOptions:
    return TextOptions(**{"folder": str(folder), "vocabulary_size": 50, "eda_copies": 3} | changes)


def small_dataset(folder: Path, synonyms: Synonyms = SYNONYMS, **changes: Any) -> TextDataset:
    """40 reviews of the source and 12 of each target domain; review i of the source holds the word
    `only<i>` twice.
    """
    texts = [
        f"the book number{i % 7} is {'good' if i % 2 else 'bad'} only{i} only{i}" for i in range(40)
    ]
    targets = {
        domain: np.array(
            [f"a {domain} {'good' if i > 5 else 'bad'} plot {i}" for i in range(12)], dtype=object
        )
        for domain in DOMAINS
    }
    return reviews.make_text_dataset(
        name="small",
        source="made up by the tests",
        domain_source="made up",
        recognised=True,
        compare_with=None,
        train=Reviews(np.array(texts, dtype=object), torch.arange(40) % 2),
        domains={
            domain: Reviews(texts, (torch.arange(12) > 5).long())
            for domain, texts in targets.items()
        },
        synonyms=synonyms,
        options=options(folder, **changes),
    )


def test_dataset_holds_rows(tmp_path: Path) -> None:
    data = small_dataset(tmp_path, msda_layers=0)
    assert (
        data.train.x.dtype == torch.int64 and len(data.train.x) == 36 and len(data.held_out.x) == 4
    )
    assert len(data.bank) == 36 * 4 + 4 + 3 * 12 and data.bank.dtype == torch.float32
    assert data.network_facts == {"classes": 2, "inputs": data.bank.shape[1]} and data.official
    torch.testing.assert_close(data.prepare(data.train.x[3:5]), data.bank[3:5])
    assert (
        data.vocabulary.standard == DOMAINS
        and data.source == "made up by the tests, EDA with synonyms from the tests"
    )
    everything = torch.cat(
        [data.train.x, data.held_out.x, *(data.domain(domain).x for domain in DOMAINS)]
    )
    assert len(everything.unique()) == len(everything)
    assert (
        data.augmented_copies is None and data.weak_augment(data.train.x, seeded()) is data.train.x
    )
    shown = data.augmented_texts(0, 5, seeded())
    assert data.texts[0].startswith("the book") and shown == data.augmented_texts(0, 5, seeded())
    assert len(shown) == 5 and {operation for operation, _ in shown} <= set(OPERATIONS)


def test_features_are_the_training_texts_own(tmp_path: Path) -> None:
    """Held-out texts, EDA versions and target domains add no feature; the counts are
    scikit-learn's.
    """
    data = small_dataset(tmp_path, msda_layers=0, vocabulary_size=1000)
    vectorizer = CountVectorizer(ngram_range=(1, 2), token_pattern=WORD)
    expected = vectorizer.fit_transform(data.texts).toarray()
    np.testing.assert_array_equal(data.prepare(data.train.x).numpy(), expected)
    target = data.domain("dvd")
    names = vectorizer.get_feature_names_out().tolist()
    assert "dvd" not in names and (data.prepare(target.x)[:, names.index("good")] == target.y).all()
    fewer = small_dataset(tmp_path, msda_layers=0, vocabulary_size=10)
    sums = expected.sum(0)
    assert sorted(fewer.prepare(fewer.train.x).sum(0).tolist()) == sorted(
        sums[np.argsort(-sums)[:10]].tolist()
    )


def test_randomise_picks_a_version_of_the_same_review(tmp_path: Path) -> None:
    data = small_dataset(tmp_path, msda_layers=0, vocabulary_size=1000, eda_strength=0.0)
    drawn = torch.stack([data.randomise(data.train.x, seeded(seed)) for seed in range(30)])
    assert (drawn >= 36).all() and (drawn < 36 * 4).all()
    assert all(len(column.unique()) == 3 for column in drawn.T), "every version has its turn"
    # A version differs by one changed word, or by one swap, from its review, and by far more from
    # any other.
    distance = torch.cdist(data.prepare(drawn[0]), data.prepare(data.train.x), p=1)
    assert (distance.argmin(1) == data.train.x).all()
    torch.testing.assert_close(drawn[4], data.randomise(data.train.x, seeded(4)))
    torch.testing.assert_close(data.randomise(data.held_out.x, seeded()), data.held_out.x)


def test_domains(tmp_path: Path) -> None:
    data = small_dataset(tmp_path, test_size=3)
    whole = small_dataset(tmp_path)
    assert (
        not data.official
        and len(data.domain("kitchen").x) == len(data.domain(SOURCE_DOMAIN).x) == 3
    )
    torch.testing.assert_close(data.domain("kitchen").y, whole.domain("kitchen").y[:3])
    assert set(whole.domain("dvd").y[:6].tolist()) == {0, 1}, "the classes are mixed"
    orders = {tuple(whole.domain(name).y.tolist()) for name in DOMAINS}
    assert len(orders) == 3, (
        "in each domain in another way, though all files hold one class after the other"
    )
    torch.testing.assert_close(whole.domain(SOURCE_DOMAIN).x, whole.held_out.x)
    assert data.fingerprint == whole.fingerprint
    with pytest.raises(ValueError, match="no domain is named 'foo'; allowed are books, dvd, elec"):
        data.domain("foo")


def test_msda_is_fitted_on_the_training_text_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There are fewer reviews than in one chunk.
    monkeypatch.setattr(reviews, "CHUNK", 7)
    data = small_dataset(tmp_path)
    raw = small_dataset(tmp_path, msda_layers=0)
    mapped = []
    for rows in (len(raw.train.x), len(raw.bank)):
        weights = msda.fit_msda(raw.bank[:rows], layers=1, probability=0.5)
        mapped.append(torch.cat(msda.apply_msda(raw.bank, weights), 1))
    torch.testing.assert_close(data.bank, mapped[0])
    assert not torch.allclose(data.bank, mapped[1], atol=1e-2)


def test_features_are_kept(tmp_path: Path) -> None:
    first = small_dataset(tmp_path / "one")
    assert torch.equal(first.bank, small_dataset(tmp_path / "two").bank)
    other = small_dataset(tmp_path / "one", msda_layers=0)
    assert not torch.equal(other.bank, first.bank)
    different = small_dataset(tmp_path / "one", Synonyms(lambda word: ("other",), "other"))
    assert first.fingerprint != different.fingerprint and not torch.equal(
        first.bank, different.bank
    )
    before = written(tmp_path)
    assert torch.equal(first.bank, small_dataset(tmp_path / "one").bank)
    assert torch.equal(other.bank, small_dataset(tmp_path / "one", msda_layers=0).bank)
    assert written(tmp_path) == before, "they were not made again"


def test_features_by_synonyms_of_a_cell_are_kept_by_what_the_cell_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell's module has no file, and neither has a built-in method, such as a dictionary's."""
    cell = types.ModuleType("cell")
    monkeypatch.setitem(sys.modules, "cell", cell)
    finders: list[Any] = []
    for other in ("bad", "book"):
        exec(f"def find(word):\n    return ({other!r},)", vars(cell))
        finders.append(vars(cell)["find"])
    known = dict.fromkeys(words(" ".join(small_dataset(tmp_path).texts)), ())
    finders += [(known | {"good": (other,)}).__getitem__ for other in ("bad", "book")]
    banks = []
    for find in finders:
        banks.append(small_dataset(tmp_path, Synonyms(find, "the cell")).bank)
        before = written(tmp_path)
        small_dataset(tmp_path, Synonyms(find, "the cell"))
        assert written(tmp_path) == before, "they were not made again"
    assert not torch.equal(banks[0], banks[1]) and not torch.equal(banks[2], banks[3])


# The composed reviews
# -----------------------------------------------------------------------------------------------


def load(name: str, folder: Path, **changes: Any) -> TextDataset:
    data = load_dataset(name, options(folder, **changes))
    assert isinstance(data, TextDataset)
    return data


def accuracies(data: TextDataset) -> dict[str, float]:
    model = LogisticRegression(max_iter=500).fit(data.prepare(data.train.x), data.train.y)
    return {
        name: model.score(data.prepare(split.x), split.y) for name, split in data.domains.items()
    }


def test_composed_reviews_shift(tmp_path: Path) -> None:
    data = load("reviews", tmp_path, msda_layers=0, vocabulary_size=1000, eda_copies=1)
    assert (
        not data.official and "synthetic" in data.source and data.compare_with == "Amazon Reviews"
    )
    assert len(data.train.x) + len(data.held_out.x) == 1200
    assert any(data.texts[0] != text for _, text in data.augmented_texts(0, 8, seeded()))
    found = accuracies(data)
    assert 0.85 < found[SOURCE_DOMAIN] < 0.97
    assert all(0.6 < found[domain] < min(0.85, found[SOURCE_DOMAIN]) for domain in DOMAINS), found


def test_the_size_of_the_shift_is_a_parameter() -> None:
    errors = []
    for shift in (0.0, 1.0):
        train = synthetic_reviews.compose(SOURCE_DOMAIN, 600, 0, shift=shift)
        test, again = (
            synthetic_reviews.compose("electronics", 600, 1, shift=shift) for _ in range(2)
        )
        assert test.texts.tolist() == again.texts.tolist() and test.labels.bincount().tolist() == [
            300,
            300,
        ]
        vectorizer = CountVectorizer()
        model = LogisticRegression(max_iter=500).fit(
            vectorizer.fit_transform(train.texts), train.labels
        )
        errors.append(1 - model.score(vectorizer.transform(test.texts), test.labels))
    assert errors[0] < 0.2 and errors[1] > 0.4


# Raw reviews
# --------------------------------------------------------------------------------------------------


def review(
    text: str, rating: str | None = "5.0", closing: str = "\n</review_text>\n</review>\n"
) -> bytes:
    stars = "" if rating is None else f"<rating>\n{rating}\n</rating>\n"
    return f"<review>\n<title>\na title\n</title>\n{stars}<review_text>\n{text}{closing}".encode()


def write_raw(folder: Path, unlabeled: bool = False, kitchen: str = "kitchen_&_housewares") -> Path:
    for domain in (SOURCE_DOMAIN, "dvd", "electronics", kitchen):
        (folder / domain).mkdir(parents=True)
        for part, rating in (("positive", "4.0"), ("negative", "2.0")):
            content = b"".join(review(f"a {part} {domain} number {i}", rating) for i in range(10))
            (folder / domain / f"{part}.review").write_bytes(content)
        if unlabeled and domain != SOURCE_DOMAIN:
            content = b"".join(review(f"some {domain} {i}", f"{1 + i % 5}.0") for i in range(15))
            (folder / domain / "unlabeled.review").write_bytes(content)
    return folder


@pytest.fixture
def own_synonyms(monkeypatch: pytest.MonkeyPatch) -> None:
    # WordNet need not be there.
    monkeypatch.setattr(amazon, "wordnet_synonyms", lambda folder: SYNONYMS.find)


@pytest.mark.parametrize("kitchen", ["kitchen", "kitchen_&_housewares"])
def test_labelled_reviews(tmp_path: Path, own_synonyms: None, kitchen: str) -> None:
    write_raw(tmp_path / "sorted_data_acl", kitchen=kitchen)
    data = load("amazon", tmp_path)
    assert data.name == "amazon" and not data.official and data.compare_with == "Amazon Reviews"
    assert len(data.train.x) == 18 and len(data.domain("kitchen").x) == 20
    assert data.domain_source.startswith(
        "labelled reviews of dvd, electronics, kitchen, which have no unlabeled"
    )
    for index in range(18):
        assert ("positive" in data.texts[index]) == bool(data.train.y[index])


def test_of_each_domain_it_is_told_which_reviews_are_tested(
    tmp_path: Path, own_synonyms: None
) -> None:
    place = write_raw(tmp_path / "sorted_data_acl", unlabeled=True)
    (place / "dvd" / "unlabeled.review").unlink()
    assert load("amazon", tmp_path).domain_source == (
        "labelled reviews of dvd, which have no unlabeled.review here; "
        "unlabeled.review of electronics, kitchen, whole"
    )


def test_unlabeled_reviews_are_the_test_sets(tmp_path: Path, own_synonyms: None) -> None:
    name = f"amazon:{write_raw(tmp_path / 'mine', unlabeled=True)}"
    data = load(name, tmp_path)
    assert data.name == DatasetName.parse(name).key and len(data.domain("dvd").x) == 15
    assert int(data.domain("dvd").y.sum()) == 6, "4 and 5 stars of 5"
    assert data.domain_source == "the archive's unlabeled.review files, whole" and not data.official
    (tmp_path / "mine" / "dvd" / "unlabeled.review").unlink()
    part = load(name, tmp_path)
    assert not part.official and part.domain_source.startswith("labelled reviews of dvd,")
    with (tmp_path / "mine" / "books" / "positive.review").open("ab") as file:
        file.write(review("") + b"<review>")
    assert "(2 unusable skipped)" in load(name, tmp_path).source


@pytest.mark.parametrize("own_last", [True, False])
def test_a_rating_that_a_reviewer_writes_about_is_not_the_reviews(
    tmp_path: Path, own_last: bool
) -> None:
    own = "<rating>\n5.0\n</rating>\n"
    text = "<review_text>\nothers gave <rating>1.0</rating> for it\n</review_text>\n"
    content = text + own if own_last else own + text
    (tmp_path / "one.review").write_text(f"<review>\n{content}</review>\n")
    found, skipped = read_reviews([tmp_path / "one.review"])
    assert found.labels.tolist() == [1] and skipped == 0


def test_a_file_that_is_not_xml(tmp_path: Path) -> None:
    path = tmp_path / "unlabeled.review"
    path.write_bytes(
        review("salt & pepper &quot;shaker&quot; &#60;3 it&#8217;s", "5.0")
        + review("utf caf\u00e9", "3.0")
        + review("latin caf@ \x93quoted\x94 \x1a end", "1.0")
        .replace(b"@", b"\xe9")
        .replace(b"\xc2", b"")
        + review("no closing tag", "4.0", closing="\n</review>\n")
        + review("nothing closed", "2.0", closing="\n")
        + review(" \n ", "5.0")
        + review("?!", "5.0")
        + review("no rating", None)
        + review("strange rating", "many")
        + b"<review>\n<rating>\n5.0\n</rating>\n<tit"
    )
    found, skipped = amazon.read_reviews([path])
    assert [" ".join(words(text)) for text in found.texts] == [
        "salt pepper shaker 3 it's",
        "utf café",
        "latin café quoted end",
        "no closing tag",
        "nothing closed",
    ]
    assert found.labels.tolist() == [1, 0, 0, 1, 0] and skipped == 5


def test_missing_raw_data(tmp_path: Path, own_synonyms: None) -> None:
    with pytest.raises(DataMissing, match=f"{amazon.ADDRESS}.*data_folder"):
        load("amazon", tmp_path)
    folder = write_raw(tmp_path / "sorted_data_acl")
    (folder / "dvd" / "negative.review").unlink()
    missing = (
        r"there is no .*dvd/negative.review; .* must hold the folders books, dvd, "
        r"electronics, kitchen"
    )
    for name in ("amazon", f"amazon:{folder}"):
        with pytest.raises(DataMissing, match=missing):
            load(name, tmp_path)
    (folder / "books" / "negative.review").write_text("nothing of use")
    (folder / "dvd" / "negative.review").touch()
    with pytest.raises(ValueError, match="books/negative.review: found no review"):
        load("amazon", tmp_path)


def test_a_packed_archive_is_unpacked_and_its_hash_recorded(
    tmp_path: Path, own_synonyms: None
) -> None:
    packed = tmp_path / "data" / "domain_sentiment_data.tar.gz"
    packed.parent.mkdir()
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(write_raw(tmp_path / "raw"), "sorted_data_acl")
    assert len(load("amazon", packed.parent).train.x) == 18
    shutil.rmtree(packed.parent / "sorted_data_acl")
    packed.write_bytes(packed.read_bytes() + b"altered")
    with pytest.raises(DataMissing, match="another hash"):
        load("amazon", packed.parent)


def test_missing_nltk_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("nltk.data.path", [])
    with pytest.raises(
        DataMissing, match=rf"nltk's wordnet is missing.*md5:b3f3.*{tmp_path}/nltk_data/corpora"
    ):
        amazon.wordnet_synonyms(str(tmp_path))("good")


# The real reviews
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A data folder of the test's own, with links to the real reviews and to WordNet."""
    for name in ("sorted_data_acl", "nltk_data"):
        (tmp_path / name).symlink_to(real_data(name))
    return tmp_path


def test_wordnet(real: Path) -> None:
    find = amazon.wordnet_synonyms(str(real))
    assert "volume" in find("book") and "book" not in find("book")
    assert find("film") == tuple(sorted(set(find("film")))) and "motion picture" in find("film")
    assert find("the") == find("not") == find("qwertyuiop") == find("don't") == ()


def test_real_reviews(real: Path) -> None:
    data = load("amazon", real, vocabulary_size=5000, eda_copies=1, msda_layers=0, test_size=300)
    assert "skipped" not in data.source and data.bank.shape[1] == 5000
    assert len(data.train.x) == 1800
    assert len(data.held_out.x) == 195, "5 of 200 are trained on, word by word"
    trained_on = {tuple(row) for row in data.bank[data.train.x, :5000].tolist()}
    held_out = {tuple(row) for row in data.bank[data.held_out.x, :5000].tolist()}
    assert not trained_on & held_out
    different = (
        data.prepare(data.train.x) != data.prepare(data.randomise(data.train.x, seeded()))
    ).any(1)
    assert different.float().mean() > 0.7, "the others' changes are outside the vocabulary"
    assert data.train.y.bincount().min() > 850


# Counts
# --------------------------------------------------------------------------------------------------


def write_counts(folder: Path, **changes: str) -> None:
    """Six reviews a file. Review i of each has i + 1 times the feature 4999, and only the first
    file has the feature 0.
    """
    folder.mkdir(parents=True)
    for domain, name in amazon_counts.FILES.items():
        first = "0:2 " if domain == SOURCE_DOMAIN else ""
        lines = [f"{1 if i % 2 else -1} {first}4999:{i + 1}" for i in range(6)]
        (folder / name).write_text("\n".join(lines) + "\n" + changes.get(domain, ""))


def load_counts(folder: Path, **changes: Any) -> TextDataset:
    return load("amazon_counts", folder, **{"vocabulary_size": 5000, "msda_layers": 0} | changes)


def test_counts_keep_the_columns_of_their_files(tmp_path: Path) -> None:
    write_counts(tmp_path / "amazon_svmlight")
    data = load_counts(tmp_path)
    assert not data.recognised and "of unknown origin" in data.source
    assert data.bank.shape[1] == 5000 and len(data.train.y) + len(data.held_out.y) == 6
    for split, first in ((data.train, 2), *((data.domain(name), 0) for name in DOMAINS)):
        features = data.prepare(split.x)
        assert (features[:, 0] == first).all(), "no file is shifted"
        assert torch.equal(split.y, (features[:, 4999].long() - 1) % 2)
    assert torch.equal(data.randomise(data.train.x, seeded()), data.train.x)
    assert data.augmented_texts(0, 2, seeded()) == [("no EDA", "2 of 5,000 features")] * 2


def test_real_counts(tmp_path: Path) -> None:
    (tmp_path / "amazon_svmlight").symlink_to(real_data("amazon_svmlight"))
    data = load_counts(tmp_path)
    assert data.official and [len(data.domain(name).y) for name in DOMAINS] == [3586, 5681, 5945]
    trained_on = {row.tobytes() for row in data.bank[data.train.x].numpy()}
    held_out = {row.tobytes() for row in data.bank[data.held_out.x].numpy()}
    assert len(data.train.y) == 1800 and not trained_on & held_out
    assert not load_counts(tmp_path, test_size=50).official
