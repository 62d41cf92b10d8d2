"""Text: EDA, mSDA, and the datasets of reviews, on made-up files; on the real ones where they are."""

import io
import os
import shutil
import tarfile
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import dump_svmlight_file
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from cascadetta_lib.augment import text as augmentation
from cascadetta_lib.augment.text import (
    OPERATIONS,
    WORD,
    DictionarySynonyms,
    EdaDraw,
    WordNetSynonyms,
    apply_eda,
    draw_eda,
    eda,
    words,
)
from cascadetta_lib.data import TextOptions, amazon, load_dataset, msda, reviews
from cascadetta_lib.data import text as text_data
from cascadetta_lib.data.amazon import read_reviews
from cascadetta_lib.data.base import DataMissing
from cascadetta_lib.data.text import DOMAINS, SOURCE_DOMAIN, Reviews, TextDataset, make_text_dataset
from cascadetta_lib.methods import METHODS
from cascadetta_lib.models import MLPConfig
from cascadetta_lib.pretrain import build_model

SYNONYMS = DictionarySynonyms(
    {"good": ("fine", "very nice"), "book": ("volume",), "bad": ("poor",), "plot": ("story", "tale")}, "the tests"
)
REVIEW = "this good book has a bad plot but it is a good read and i would buy it".split()


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# EDA ----------------------------------------------------------------------------------------------------------------


def drawn(operation: str, review: list[str], strength: float, seed: int) -> EdaDraw:
    return draw_eda(len(review), strength, seeded(seed))._replace(operation=operation)


@pytest.mark.parametrize(("text", "expected"), [("I don't LIKE it -- 5 stars!", "i don't like it 5 stars"), ("?!", "")])
def test_words(text: str, expected: str) -> None:
    assert " ".join(words(text)) == expected


@pytest.mark.parametrize("strength", [0.0, 0.05, 0.2, 1.0])
def test_synonym_replacement(strength: float) -> None:
    single = DictionarySynonyms(
        {"good": ("fine",), "book": ("volume",), "bad": ("poor",), "plot": ("story", "tale")}, ""
    )
    replaceable = sum(bool(single.synonyms(word)) for word in REVIEW)
    for seed in range(30):
        result = apply_eda(REVIEW, drawn("synonym replacement", REVIEW, strength, seed), single)
        changed = [(old, new) for old, new in zip(REVIEW, result, strict=True) if old != new]
        assert len(changed) == min(max(1, int(strength * len(REVIEW))), replaceable)
        assert all(new in single.synonyms(old) for old, new in changed), "stop words stay"


def test_no_synonym_is_looked_up_after_the_last_change(monkeypatch: pytest.MonkeyPatch) -> None:
    review, looked_up = ["good"] * 40, []
    find = DictionarySynonyms.synonyms
    monkeypatch.setattr(DictionarySynonyms, "synonyms", lambda self, word: looked_up.append(word) or find(self, word))
    apply_eda(review, drawn("synonym replacement", review, 0.05, 0), SYNONYMS)
    assert len(looked_up) == 2, "0.05 of 40 words"


def test_a_synonym_of_several_words_becomes_words() -> None:
    results = {
        " ".join(apply_eda(["good"], drawn("synonym replacement", ["good"], 0.1, s), SYNONYMS)) for s in range(20)
    }
    assert results == {"fine", "very nice"}
    lengths = {
        len(apply_eda(["good"], drawn("synonym replacement", ["good"], 0.1, seed), SYNONYMS)) for seed in range(20)
    }
    assert lengths == {1, 2}


@pytest.mark.parametrize("strength", [0.05, 0.3])
def test_random_insertion(strength: float) -> None:
    allowed = {part for word in REVIEW for synonym in SYNONYMS.synonyms(word) for part in synonym.split()}
    places = set()
    for seed in range(50):
        result = apply_eda(REVIEW, drawn("random insertion", REVIEW, strength, seed), SYNONYMS)
        added = Counter(result) - Counter(REVIEW)
        count = max(1, int(strength * len(REVIEW)))
        assert count <= added.total() <= 2 * count and set(added) <= allowed
        rest = iter(result)
        assert all(word in rest for word in REVIEW), "what was there keeps its order"
        places.add(next((i for i, (a, b) in enumerate(zip(REVIEW, result, strict=False)) if a != b), len(REVIEW)))
    assert len(places) > 5


@pytest.mark.parametrize("strength", [0.05, 0.3])
def test_random_swap(strength: float) -> None:
    distinct = [f"w{index}" for index in range(20)]
    for seed in range(30):
        result = apply_eda(distinct, drawn("random swap", distinct, strength, seed), SYNONYMS)
        assert sorted(result) == sorted(distinct)
        changed = sum(old != new for old, new in zip(distinct, result, strict=True))
        assert changed <= 2 * int(strength * 20) and (strength > 0.05 or changed == 2)


def test_random_deletion() -> None:
    distinct = [f"w{index}" for index in range(1000)]
    kept = [len(apply_eda(distinct, drawn("random deletion", distinct, 0.2, seed), SYNONYMS)) for seed in range(10)]
    assert sum(kept) / 10 == pytest.approx(800, abs=15)
    last = {apply_eda(["a", "b"], drawn("random deletion", ["a", "b"], 1.0, seed), SYNONYMS)[0] for seed in range(20)}
    assert last == {"a", "b"}, "a random word stays"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_reviews_with_nothing_to_change(operation: str) -> None:
    for review in ([], ["the"], ["the", "the"]):
        for seed in range(5):
            result = apply_eda(review, drawn(operation, review, 0.05, seed), SYNONYMS)
            assert result == review or (operation == "random deletion" and result == ["the"])


def test_eda_comes_from_the_generator_alone() -> None:
    one, two = ([eda(REVIEW, 0.1, seeded(1), SYNONYMS) for _ in range(3)] for _ in range(2))
    assert one == two
    before = list(REVIEW)
    generator = seeded(2)
    results = [eda(REVIEW, 0.1, generator, SYNONYMS) for _ in range(50)]
    assert before == REVIEW and len({" ".join(result) for result in results}) > 25
    counts = Counter(draw_eda(5, 0.1, generator).operation for _ in range(400))
    assert set(counts) == set(OPERATIONS) and min(counts.values()) > 60
    draw = draw_eda(len(REVIEW), 0.1, generator)
    assert apply_eda(REVIEW, draw, SYNONYMS) == apply_eda(REVIEW, draw, SYNONYMS)


@pytest.mark.parametrize("strength", [-0.1, 1.1, float("nan")])
def test_strength_out_of_range(strength: float) -> None:
    with pytest.raises(ValueError, match="eda_strength .* allowed is 0 to 1"):
        draw_eda(5, strength, seeded())


# nltk's data --------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_nltk_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nowhere to find nltk's data, and no network."""
    import nltk.data

    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError("refused by the test")

    monkeypatch.delenv("NLTK_DATA", raising=False)
    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setattr(urllib.request, "urlopen", refuse)


def test_missing_nltk_data(no_nltk_data: None, tmp_path: Path) -> None:
    with pytest.raises(DataMissing) as caught:
        WordNetSynonyms(tmp_path).synonyms("good")
    for part in ("wordnet", "refused by the test", str(tmp_path / "nltk_data" / "corpora"), "NLTK_DATA", "https://"):
        assert part in str(caught.value)


def test_damaged_nltk_data(no_nltk_data: None, tmp_path: Path) -> None:
    for name in ("wordnet", "stopwords"):
        (tmp_path / "nltk_data" / "corpora" / name).mkdir(parents=True)
    with pytest.raises(DataMissing, match="cannot be read"):
        WordNetSynonyms(tmp_path).synonyms("good")


def test_a_download_arrives_whole(no_nltk_data: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nltk

    def download(package: str, download_dir: str, **options: Any) -> bool:
        (Path(download_dir) / "corpora" / package).mkdir(parents=True)
        (Path(download_dir) / "corpora" / package / "english").write_text("the\n")
        return works

    monkeypatch.setattr(urllib.request, "urlopen", lambda *arguments, **options: io.BytesIO())
    monkeypatch.setattr(nltk, "download", download)
    works = False
    with pytest.raises(DataMissing, match="nltk cannot download it"):
        augmentation._download("stopwords", tmp_path / "nltk_data")
    assert not list((tmp_path / "nltk_data" / "corpora").iterdir())
    works = True
    found = augmentation._download("stopwords", tmp_path / "nltk_data")
    assert found.join("english").open().read() == b"the\n"


# mSDA ---------------------------------------------------------------------------------------------------------------


def small_counts(count: int = 60, features: int = 6) -> torch.Tensor:
    base = torch.poisson(torch.rand(count, 2, generator=seeded(1)) * 3, generator=seeded(2))
    noise = torch.poisson(torch.full((count, features), 0.4), generator=seeded(3))
    return base @ torch.randint(0, 2, (2, features), generator=seeded(4)).float() + noise


def fit(x: torch.Tensor, **changes: Any) -> list[torch.Tensor]:
    return msda.fit_msda(x, **{"layers": 1, "probability": 0.3, "solver": "cholesky"} | changes)


def test_msda_layer_against_monte_carlo() -> None:
    """W restores best what 4,000 corruptions of every example have dropped."""
    x = small_counts().double()
    ones = torch.ones(len(x), 1, dtype=torch.float64)
    inputs, targets = torch.zeros(7, 7, dtype=torch.float64), torch.zeros(6, 7, dtype=torch.float64)
    generator = seeded(5)
    for _ in range(4000):
        corrupted = torch.cat([x * (torch.rand(x.shape, generator=generator) >= 0.3), ones], 1)
        inputs += corrupted.T @ corrupted
        targets += x.T @ corrupted
    expected = torch.linalg.solve(inputs, targets.T).T
    assert (fit(x.float())[0] - expected).abs().max() < 0.02
    assert expected.abs().max() > 0.3, "the comparison means something"


def test_msda_layer_against_the_definition() -> None:
    x = small_counts().double()
    extended = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], 1)
    moments, q = extended.T @ extended, torch.tensor([0.7] * 6 + [1.0], dtype=torch.float64)
    Q = moments * q * q[:, None]
    Q.diagonal().copy_(moments.diagonal() * q)
    expected = (moments * q)[:6] @ Q.inverse()
    weight = fit(x.float())[0]
    assert weight.dtype == torch.float32 and weight.shape == (6, 7)
    torch.testing.assert_close(weight, expected.float(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("chunk", [3, 2048])
def test_solvers_agree(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(msda, "CHUNK", chunk)
    x = small_counts(features=40)
    x[:, 7] = 0  # a feature that no example has
    one, two = (fit(x, layers=2, probability=0.5, solver=solver) for solver in msda.SOLVERS)
    for direct, iterated in zip(one, two, strict=True):
        torch.testing.assert_close(direct, iterated, atol=1e-4, rtol=1e-3)
    assert one[0][7].abs().max() < 1e-5


def test_msda_stacks() -> None:
    x = small_counts()
    weights = fit(x, layers=2)
    first = torch.tanh(torch.cat([x, torch.ones(len(x), 1)], 1) @ weights[0].T)
    torch.testing.assert_close(msda.apply_msda(x, weights[:1], output="last"), first)
    torch.testing.assert_close(weights[1], fit(first)[0], atol=1e-4, rtol=1e-4)
    everything = msda.apply_msda(x, weights, output="all")
    assert everything.shape == (60, 18)
    torch.testing.assert_close(everything[:, :12], torch.cat([x, first], 1))
    torch.testing.assert_close(everything[:, 12:], msda.apply_msda(x, weights, output="last"))


@pytest.mark.parametrize("bad", [{"layers": 0}, {"probability": 1.0}, {"probability": -0.1}, {"solver": "lu"}])
def test_bad_msda(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"text_msda_{next(iter(bad))} = .*allowed"):
        fit(small_counts(), **bad)
    with pytest.raises(ValueError, match="text_msda_output = 'first': allowed are last, all"):
        msda.apply_msda(small_counts(), [], output="first")


# The shared dataset -------------------------------------------------------------------------------------------------


def options(folder: Path, **changes: Any) -> TextOptions:
    return TextOptions(**{"folder": str(folder), "vocabulary_size": 50, "eda_copies": 3} | changes)


def small_dataset(folder: Path, **changes: Any) -> TextDataset:
    """40 reviews of the source and 12 of each target domain; review i of the source holds the word `only<i>` twice."""
    texts = [f"the book number{i % 7} is {'good' if i % 2 else 'bad'} only{i} only{i}" for i in range(40)]
    train = Reviews(texts, torch.arange(40) % 2)
    targets = {
        domain: Reviews(
            [f"a {domain} {'good' if i > 5 else 'bad'} plot {i}" for i in range(12)], (torch.arange(12) > 5).long()
        )
        for domain in DOMAINS
    }
    return make_text_dataset(
        name="small",
        source="made up by the tests",
        domain_source="made up",
        official=True,
        compare_with=None,
        train=train,
        domains=targets,
        synonyms=SYNONYMS,
        options=options(folder, **changes),
    )


def test_dataset_holds_rows(tmp_path: Path) -> None:
    data = small_dataset(tmp_path, features="counts")
    assert (data.modality, data.unit, data.classes, data.class_names) == (
        "text",
        "reviews",
        2,
        ("negative", "positive"),
    )
    assert data.train.x.dtype == torch.int64 and len(data.train.x) == 36 and len(data.held_out.x) == 4
    assert data.bank.shape == (36 * 4 + 4 + 3 * 12, data.input_features) and data.bank.dtype == torch.float32
    torch.testing.assert_close(data.prepare(data.train.x[3:5]), data.bank[3:5])
    assert data.domain_names == DOMAINS and data.domain_source == "made up" and data.official
    assert data.source == "made up by the tests, EDA with synonyms from the tests"
    everything = torch.cat([data.train.x, data.held_out.x, *(data.domain(domain, 1).x for domain in DOMAINS)])
    assert len(everything.unique()) == len(everything)


def test_features_are_the_training_texts_own(tmp_path: Path) -> None:
    """Held-out texts, EDA versions and target domains add no feature; the counts are scikit-learn's."""
    data = small_dataset(tmp_path, features="counts", vocabulary_size=1000)
    training = [data.text(index) for index in range(36)]
    vectorizer = CountVectorizer(ngram_range=(1, 2), token_pattern=WORD)
    expected = vectorizer.fit_transform(training).toarray()
    np.testing.assert_array_equal(data.prepare(data.train.x).numpy(), expected)
    target = data.domain("dvd", 1)
    names = vectorizer.get_feature_names_out().tolist()
    assert "dvd" not in names and (data.prepare(target.x)[:, names.index("good")] == target.y).all()
    fewer = small_dataset(tmp_path, features="counts", vocabulary_size=10)
    sums = expected.sum(0)
    assert sorted(fewer.prepare(fewer.train.x).sum(0).tolist()) == sorted(sums[np.argsort(-sums)[:10]].tolist())


def test_randomise_picks_a_version_of_the_same_review(tmp_path: Path) -> None:
    data = small_dataset(tmp_path, features="counts", vocabulary_size=1000, eda_strength=0.0)
    drawn = torch.stack([data.randomise(data.train.x, seeded(seed)) for seed in range(30)])
    assert (drawn >= 36).all() and (drawn < 36 * 4).all()
    assert all(len(column.unique()) == 3 for column in drawn.T), "every version has its turn"
    # A version differs by one changed word, or by one swap, from its review, and by far more from any other.
    distance = torch.cdist(data.prepare(drawn[0]), data.prepare(data.train.x), p=1)
    assert (distance.argmin(1) == data.train.x).all()
    torch.testing.assert_close(drawn[4], data.randomise(data.train.x, seeded(4)))
    torch.testing.assert_close(data.randomise(data.held_out.x, seeded()), data.held_out.x)
    assert data.weak_augment(data.train.x, seeded()) is data.train.x


def test_domains(tmp_path: Path) -> None:
    data = small_dataset(tmp_path, test_size=3)
    whole = small_dataset(tmp_path)
    assert not data.official and len(data.domain("kitchen", 1).x) == len(data.domain(SOURCE_DOMAIN, 1).x) == 3
    torch.testing.assert_close(data.domain("kitchen", 1).y, whole.domain("kitchen", 1).y[:3])
    assert set(whole.domain("dvd", 1).y[:6].tolist()) == {0, 1}, "the classes are mixed"
    torch.testing.assert_close(whole.domain(SOURCE_DOMAIN, 1).x, whole.held_out.x)
    assert data.fingerprint == whole.fingerprint
    with pytest.raises(ValueError, match="severity 2 of dvd.*allowed is 1"):
        data.domain("dvd", 2)
    with pytest.raises(ValueError, match="'dvds'.*did you mean 'dvd'"):
        data.domain("dvds", 1)


def test_texts_and_augmented_texts(tmp_path: Path) -> None:
    data = small_dataset(tmp_path)
    assert data.has_text and data.text(0).startswith("the book")
    shown = data.augmented_texts(0, 5, seeded())
    assert len(shown) == 5 and {operation for operation, _ in shown} <= set(OPERATIONS)
    assert shown == data.augmented_texts(0, 5, seeded())
    with pytest.raises(ValueError, match="review 36: allowed is 0 to 35"):
        data.text(36)


def test_there_are_no_augmented_copies_so_cotta_learns_from_its_teacher_on_the_text_itself(tmp_path: Path) -> None:
    data = small_dataset(tmp_path)
    x = data.prepare(data.train.x[:8])
    assert data.augmented_copies is None
    model = build_model(MLPConfig(inputs=data.input_features, hidden=(4,)), "meta", seed=0)
    method = METHODS["cotta"](model, copies=data.augmented_copies)
    method.anchor = None  # type: ignore[assignment]  # nothing depends on how sure it is, so it is not asked
    assert torch.equal(method.target(x).main, method.teacher(x).main)  # type: ignore[attr-defined, operator]


def test_features_are_fitted_on_the_training_text_alone(tmp_path: Path) -> None:
    """Other words in the targets, or in the held-out reviews, change neither the vocabulary nor mSDA."""
    data = small_dataset(tmp_path / "one", features="msda")
    rows = len(data.train.x)
    raw = small_dataset(tmp_path / "one", features="counts")
    weights = msda.fit_msda(raw.bank[:rows], layers=1, probability=0.5, solver="cholesky")
    torch.testing.assert_close(data.bank, msda.apply_msda(raw.bank, weights, output="last"))
    everything = msda.fit_msda(raw.bank, layers=1, probability=0.5, solver="cholesky")
    assert not torch.allclose(data.bank, msda.apply_msda(raw.bank, everything, output="last"), atol=1e-2)


def test_other_synonyms_are_other_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load("reviews", tmp_path)
    monkeypatch.setattr(reviews, "VERBS", (("bought", "acquired"),))
    other = load("reviews", tmp_path)
    assert first.fingerprint != other.fingerprint and not torch.equal(first.bank, other.bank)


def test_features_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = small_dataset(tmp_path / "one")
    elsewhere = small_dataset(tmp_path / "two")
    torch.testing.assert_close(first.bank, elsewhere.bank, atol=0, rtol=0)
    other = small_dataset(tmp_path / "one", msda_layers=2, msda_output="all")
    assert other.input_features == 3 * first.input_features
    monkeypatch.setattr(text_data, "_count", lambda *arguments: pytest.fail("the features were there"))
    torch.testing.assert_close(first.bank, small_dataset(tmp_path / "one").bank, atol=0, rtol=0)
    torch.testing.assert_close(other.bank, small_dataset(tmp_path / "one", msda_layers=2, msda_output="all").bank)


@pytest.mark.parametrize("bad", [{"eda_copies": 0}, {"vocabulary_size": 0}, {"eda_strength": 2.0}, {"msda_layers": 0}])
def test_bad_options(tmp_path: Path, bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))} .*: allowed is"):
        small_dataset(tmp_path, **bad)


# The embedded reviews -----------------------------------------------------------------------------------------------


def accuracies(data: TextDataset) -> dict[str, float]:
    model = LogisticRegression(max_iter=500).fit(data.prepare(data.train.x), data.train.y)
    return {name: model.score(data.prepare(split.x), split.y) for name, split in data.domains.items()}


def test_embedded_reviews_shift(tmp_path: Path) -> None:
    data = load_dataset("reviews", options(tmp_path, features="counts", vocabulary_size=1000, eda_copies=1))
    assert isinstance(data, TextDataset) and not data.official and "synthetic" in data.source
    assert len(data.train.x) + len(data.held_out.x) == 1200 and data.compare_with == "Amazon Reviews"
    found = accuracies(data)
    assert 0.8 < found[SOURCE_DOMAIN] < 0.95
    assert all(0.65 < found[domain] < min(0.85, found[SOURCE_DOMAIN]) for domain in DOMAINS), found


def test_the_size_of_the_shift_is_a_parameter() -> None:
    errors = []
    for shift in (0.0, 1.0):
        train = reviews.compose(SOURCE_DOMAIN, 600, seeded(0), shift=shift)
        test = reviews.compose("electronics", 600, seeded(1), shift=shift)
        vectorizer = CountVectorizer()
        model = LogisticRegression(max_iter=500).fit(vectorizer.fit_transform(train.texts), train.labels)
        errors.append(1 - model.score(vectorizer.transform(test.texts), test.labels))
    assert errors[0] < 0.2 and errors[1] > 0.4
    with pytest.raises(ValueError, match="text_synthetic_shift = 1.5: allowed is 0 to 1"):
        reviews.compose("dvd", 2, seeded(), shift=1.5)


def test_composed_reviews_are_the_same_every_time() -> None:
    one, two = (reviews.compose("kitchen", 30, seeded(3), shift=0.5) for _ in range(2))
    assert one.texts == two.texts and torch.equal(one.labels, two.labels)
    assert all(words(text) for text in one.texts) and set(one.labels.tolist()) == {0, 1}
    dictionary = reviews.synonym_dictionary()
    assert dictionary["great"] == ("excellent", "superb")
    assert not set(dictionary) & {"the", "not", "is", "i", "a", "it"}


# Raw reviews --------------------------------------------------------------------------------------------------------


def review(text: str, rating: str | None = "5.0", closing: str = "\n</review_text>\n</review>\n") -> bytes:
    stars = "" if rating is None else f"<rating>\n{rating}\n</rating>\n"
    return f"<review>\n<title>\na title\n</title>\n{stars}<review_text>\n{text}{closing}".encode()


def write_raw(folder: Path, per_file: int = 10, unlabeled: bool = False, kitchen: str = "kitchen_&_housewares") -> Path:
    for domain in (SOURCE_DOMAIN, "dvd", "electronics", kitchen):
        (folder / domain).mkdir(parents=True)
        for part, rating in (("positive", "4.0"), ("negative", "2.0")):
            content = b"".join(review(f"a {part} {domain} number {i}", rating) for i in range(per_file))
            (folder / domain / f"{part}.review").write_bytes(content)
        if unlabeled and domain != SOURCE_DOMAIN:
            content = b"".join(review(f"some {domain} {i}", f"{1 + i % 5}.0") for i in range(15))
            (folder / domain / "unlabeled.review").write_bytes(content)
    return folder


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive's address refuses, so that no test reaches beyond this machine."""
    refused = ("http://127.0.0.1:9/domain_sentiment_data.tar.gz",)
    monkeypatch.setattr(amazon, "ARCHIVE", replace(amazon.ARCHIVE, urls=refused))


@pytest.fixture
def own_synonyms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amazon, "WordNetSynonyms", lambda folder: SYNONYMS)


def load(name: str, folder: Path, **changes: Any) -> TextDataset:
    data = load_dataset(name, options(folder, **changes))
    assert isinstance(data, TextDataset)
    return data


@pytest.mark.parametrize("kitchen", ["kitchen", "kitchen_&_housewares"])
def test_labelled_reviews(tmp_path: Path, own_synonyms: None, kitchen: str) -> None:
    write_raw(tmp_path / "sorted_data_acl", kitchen=kitchen)
    data = load("amazon", tmp_path)
    assert data.name == "amazon" and not data.official and data.compare_with == "Amazon Reviews"
    assert len(data.train.x) == 18 and len(data.domain("kitchen", 1).x) == 20
    assert data.domain_source.startswith(
        "labelled reviews of dvd, electronics, kitchen (the archive's unlabeled.review"
    )
    for index in range(18):
        assert ("positive" in data.text(index)) == bool(data.train.y[index])


def test_unlabeled_reviews_are_the_test_sets(
    tmp_path: Path, own_synonyms: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_raw(tmp_path / "mine", unlabeled=True)
    data = load(f"amazon:{folder}", tmp_path)
    assert data.name == "amazon:mine" and len(data.domain("dvd", 1).x) == 15
    assert int(data.domain("dvd", 1).y.sum()) == 6, "4 and 5 stars of 5"
    assert data.domain_source == "the archive's unlabeled.review files, whole" and not data.official
    monkeypatch.setattr(amazon, "TRAIN_SIZE", 20)
    monkeypatch.setattr(amazon, "TEST_SIZES", dict.fromkeys(DOMAINS, 15))
    assert load(f"amazon:{folder}", tmp_path).official
    assert not load(f"amazon:{folder}", tmp_path, test_size=5).official
    (folder / "dvd" / "unlabeled.review").unlink()
    part = load(f"amazon:{folder}", tmp_path)
    assert not part.official and part.domain_source.startswith("labelled reviews of dvd (")


def test_a_file_that_is_not_xml(tmp_path: Path) -> None:
    path = tmp_path / "unlabeled.review"
    path.write_bytes(
        review("salt & pepper &quot;shaker&quot; &#60;3 it&#8217;s", "5.0")
        + review("utf caf\u00e9", "3.0")
        + review("latin caf@ \x93quoted\x94 \x1a end", "1.0").replace(b"@", b"\xe9").replace(b"\xc2", b"")
        + review("no closing tag", "4.0", closing="\n</review>\n")
        + review("nothing closed", "2.0", closing="\n")
        + review(" \n ", "5.0")
        + review("?!", "5.0")
        + review("no rating", None)
        + review("strange rating", "many")
        + b"<review>\n<rating>\n5.0\n</rating>\n<tit"
    )
    found = read_reviews(path, None)
    assert [" ".join(words(text)) for text in found.texts] == [
        "salt pepper shaker 3 it's", "utf café", "latin café quoted end", "no closing tag", "nothing closed",
    ]  # fmt: skip
    assert found.labels == [1, 0, 0, 1, 0] and (found.empty, found.unrated) == (3, 2)
    assert read_reviews(path, 1).labels == [1, 0, 0, 1, 0, 1, 1], "the file's name where the rating is absent"


def test_skipped_reviews_are_counted_in_the_source(tmp_path: Path, own_synonyms: None) -> None:
    folder = write_raw(tmp_path / "sorted_data_acl", unlabeled=True)
    with (folder / "books" / "positive.review").open("ab") as file:
        file.write(review(""))
    with (folder / "dvd" / "unlabeled.review").open("ab") as file:
        file.write(review("unrated", None) + review("", None))
    data = load("amazon", tmp_path)
    assert "(2 empty and 1 without a rating skipped)" in data.source and len(data.domain("dvd", 1).x) == 15


def test_missing_raw_data(tmp_path: Path, own_synonyms: None) -> None:
    with pytest.raises(DataMissing) as caught:
        load("amazon", tmp_path)
    for part in ("http://127.0.0.1:9", "domain_sentiment_data.tar.gz", "first download", str(tmp_path), "data_folder"):
        assert part in str(caught.value)
    folder = write_raw(tmp_path / "sorted_data_acl")
    (folder / "dvd" / "negative.review").unlink()
    with pytest.raises(DataMissing, match="there is no .*negative.review"):
        load("amazon", tmp_path)
    shutil.rmtree(folder / "dvd")
    with pytest.raises(DataMissing, match="lacks the folder dvd; it must hold books, dvd, electronics, kitchen"):
        load(f"amazon:{folder}", tmp_path)
    (folder / "books" / "negative.review").write_text("nothing of use")
    with pytest.raises(ValueError, match="books/negative.review: found no review"):
        load("amazon", tmp_path)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The archive's file, served by this machine."""
    (tmp_path / "served").mkdir()
    path = tmp_path / "served" / amazon.ARCHIVE.file
    with tarfile.open(path, "w:gz") as tar:
        tar.add(write_raw(tmp_path / "raw"), "sorted_data_acl")

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(path.parent)))
    address = f"http://127.0.0.1:{server.server_address[1]}/{path.name}"
    monkeypatch.setattr(amazon, "ARCHIVE", replace(amazon.ARCHIVE, urls=(address,)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield path
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_hash_is_pinned_at_the_first_download(served: Path, tmp_path: Path, own_synonyms: None) -> None:
    folder = tmp_path / "data"
    assert len(load("amazon", folder).train.x) == 18
    assert (folder / f"{served.name}.sha256").read_text().endswith(f"  {served.name}\n")
    shutil.rmtree(folder / "sorted_data_acl")
    (folder / served.name).unlink()
    load("amazon", folder)
    shutil.rmtree(folder / "sorted_data_acl")
    (folder / served.name).unlink()
    served.write_bytes(served.read_bytes() + b"altered")
    with pytest.raises(DataMissing, match="is not what domain_sentiment_data.tar.gz.sha256 has recorded"):
        load("amazon", folder)


def test_an_archive_that_is_cut_off(served: Path, tmp_path: Path, own_synonyms: None) -> None:
    served.write_bytes(served.read_bytes()[:-500])
    with pytest.raises(DataMissing, match="cannot be unpacked"):
        load("amazon", tmp_path / "data")
    assert not (tmp_path / "data" / "sorted_data_acl").exists()


# Counts -------------------------------------------------------------------------------------------------------------


def write_counts(folder: Path, name: str, rows: int = 20, features: int = 5000, labels: Any = (-1, 1)) -> Path:
    """Rows whose label shows in the first two features; the last feature is in use."""
    (folder / "amazon_svmlight").mkdir(exist_ok=True, parents=True)
    x = np.random.default_rng(rows).poisson(0.01, (rows, features))
    x[np.arange(rows), np.arange(rows) % 2] += 3
    x[0, -1] = 1
    path = folder / "amazon_svmlight" / f"{name}.svmlight"
    dump_svmlight_file(x, np.resize(np.array(labels), rows), str(path))
    return path


@pytest.fixture
def counts_folder(tmp_path: Path) -> Path:
    for name in ("books_train", *(f"{domain}_test" for domain in DOMAINS)):
        write_counts(tmp_path, name, rows=40 if name == "books_train" else 20)
    return tmp_path


def test_counts(counts_folder: Path) -> None:
    data = load("amazon_svmlight", counts_folder, vocabulary_size=5000)
    assert data.input_features == 5000 and not data.official and data.source.endswith("without EDA")
    assert len(data.train.x) == 36 and data.options.features == "counts" and not data.has_text
    for split in (data.train, data.held_out, *(data.domain(domain, 1) for domain in DOMAINS)):
        x = data.prepare(split.x)
        assert ((x[:, 1] > x[:, 0]).long() == split.y).all() and (x == x.round()).all()
    torch.testing.assert_close(data.randomise(data.train.x, seeded()), data.train.x)
    with pytest.raises(ValueError, match="amazon_svmlight holds counts"):
        data.text(0)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        ({"features": 4000}, "found 4000 features; allowed is 5000"),
        ({"features": 5001}, "found 5001 features; allowed is 5000"),
        ({"labels": (0, 1)}, "found label 0; allowed is −1 and \\+1"),
        ("1 0:2 3:1\n0:5 4999:2\n", "cannot be read"),
        ("1 0:2 3:1\n-1 0:5 4999:", "cannot be read"),
        ("", "allowed is"),
        ("1 0:-2 4999:1\n", "found the count -2; allowed is 0 and more"),
    ],
)
def test_bad_counts(counts_folder: Path, write: dict[str, Any] | str, message: str) -> None:
    if isinstance(write, str):
        (counts_folder / "amazon_svmlight" / "dvd_test.svmlight").write_text(write)
    else:
        write_counts(counts_folder, "dvd_test", **write)
    with pytest.raises(ValueError, match=f"dvd_test.svmlight: .*{message}"):
        load("amazon_svmlight", counts_folder, vocabulary_size=5000)


def test_missing_counts(counts_folder: Path) -> None:
    (counts_folder / "amazon_svmlight" / "kitchen_test.svmlight").unlink()
    with pytest.raises(DataMissing, match="there is no .*kitchen_test.svmlight; the folder .* must hold"):
        load("amazon_svmlight", counts_folder, vocabulary_size=5000)
    with pytest.raises(ValueError, match="text_vocabulary_size = 4000: .* allowed is 5000"):
        load("amazon_svmlight", counts_folder, vocabulary_size=4000)


# The real reviews ---------------------------------------------------------------------------------------------------


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A data folder of the test's own, with links to the real reviews and to WordNet."""
    source = Path(os.environ.get("CASCADETTA_DATA", "~/.cache/cascadetta-real")).expanduser()
    for name in ("sorted_data_acl", "amazon_svmlight", "nltk_data"):
        if not (source / name).is_dir():
            pytest.skip(f"no {name} in {source}; unpack ../shared/data and set CASCADETTA_DATA")
        (tmp_path / name).symlink_to(source / name)
    return tmp_path


def test_real_reviews_are_all_read(real: Path) -> None:
    for domain in ("books", "dvd", "electronics", "kitchen_&_housewares"):
        for part, label in amazon.LABELLED.items():
            found = read_reviews(real / "sorted_data_acl" / domain / f"{part}.review", None)
            assert len(found.texts) + found.empty + found.unrated == 1000
            assert (found.empty, found.unrated) == (0, 0) and set(found.labels) == {label}


def test_wordnet(real: Path) -> None:
    wordnet = WordNetSynonyms(real)
    asked = ["book", "the", "not", "qwertyuiop", "superb", "film", "don't"] * 20
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(asked, pool.map(wordnet.synonyms, asked), strict=True))
    assert "volume" in found["book"] and "book" not in found["book"]
    assert found["film"] == tuple(sorted(set(found["film"]))) and "motion picture" in found["film"]
    assert found["the"] == found["not"] == found["qwertyuiop"] == found["don't"] == ()
    assert wordnet._reader.map30 is None, "the map to WordNets of other languages takes as long as the rest"


def test_real_reviews(real: Path) -> None:
    data = load("amazon", real, vocabulary_size=5000, eda_copies=1, features="counts", test_size=300)
    assert data.input_features == 5000 and len(data.train.x) == 1800 and len(data.held_out.x) == 200
    changed = (data.prepare(data.train.x) != data.prepare(data.randomise(data.train.x, seeded()))).any(1)
    assert changed.float().mean() > 0.7, "the others' changes are outside the vocabulary"
    assert data.train.y.bincount().min() > 850


def test_real_counts(real: Path) -> None:
    data = load("amazon_svmlight", real, vocabulary_size=5000, test_size=300)
    assert data.input_features == 5000 and len(data.train.x) == 1800
    found = accuracies(data)
    assert all(accuracy > 0.65 for accuracy in found.values()), found
