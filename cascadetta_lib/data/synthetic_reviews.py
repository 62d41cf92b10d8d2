"""Composed reviews, so that everything runs without a download. They are synthetic and not the
paper's data.

A review is a few sentences. Some sentences give an opinion, in a word that all four product domains
share or, with probability `shift`, in one of the domain's own words. A model of book reviews has
never met most of the other domains' own words. Some of the words that it has met mean the opposite
there (a simple book, a simple remote control). Some opinions go against the review's verdict, which
is its label. The other sentences say nothing about the verdict.
"""

import numpy as np
import torch

from cascadetta_lib.data import dataset
from cascadetta_lib.data.base import Dataset
from cascadetta_lib.data.reviews import (
    DOMAINS,
    SOURCE_DOMAIN,
    Reviews,
    Synonyms,
    TextOptions,
    make_text_dataset,
)

# number of reviews of the source, and of each target domain
SOURCE_SIZE = 1200
TARGET_SIZE = 300
# probability that a sentence gives an opinion, and that the opinion agrees with the verdict
OPINION = 0.7
AGREEMENT = 0.8
OPINIONS = {
    (
        "any",
        0,
    ): "bad poor lousy terrible awful disappointing underwhelming useless worthless annoying "
    "irritating",
    (
        "any",
        1,
    ): "great excellent superb good nice fine wonderful fantastic perfect pleasing delightful",
    (
        "books",
        0,
    ): "boring dull wordy rambling shallow confusing muddled simple small light predictable",
    (
        "books",
        1,
    ): "gripping absorbing insightful moving touching witty clever dark long heavy readable",
    ("dvd", 0): "overacted wooden grainy blurry boring dull cheesy corny dark long cropped loud",
    ("dvd", 1): "hilarious gripping absorbing spectacular stunning restored light catchy charming",
    (
        "electronics",
        0,
    ): "defective faulty laggy noisy crackling flimsy heavy incompatible overheating dark",
    ("electronics", 1): "reliable fast speedy crisp clear portable compact simple small light loud",
    ("kitchen", 0): "rusty leaky dripping flimsy fragile warped dented loud small chipped sticky",
    ("kitchen", 1): "sturdy solid sharp washable durable lasting simple heavy nonstick predictable",
}
"""Words of opinions by domain and verdict (0 negative, 1 positive). EDA takes the words of "any"
with the same verdict as synonyms of each other.
"""
TOPICS = {
    "books": ["story", "plot", "author", "chapter", "hero", "style"],
    "dvd": ["film", "cast", "picture", "scene", "ending"],
    "electronics": ["battery", "screen", "cable", "sound", "remote"],
    "kitchen": ["pan", "handle", "blade", "lid", "kettle"],
}
STATEMENTS = (
    "the {} is {}",
    "i found the {} really {}",
    "my friend says that the {} is very {}",
    "what a {1} {0}",
)
FILLERS = (
    "i bought it for the {}",
    "the {} came in a box",
    "there is a {} in it",
    "it arrived with the {} on monday",
)


@dataset("reviews", "text", real=False)
def load_reviews(argument: str, options: TextOptions) -> Dataset:
    """Compose 1,200 reviews of books and 300 of each other domain. For one
    `options.synthetic_shift` the reviews are the same every time.
    """
    shift = options.synthetic_shift
    groups = [OPINIONS["any", verdict].split() for verdict in range(2)]
    synonyms = {word: tuple(sorted({*group} - {word})) for group in groups for word in group}
    return make_text_dataset(
        name="reviews",
        source="reviews composed by data/synthetic_reviews.py, synthetic, not the paper's data",
        domain_source=f"reviews composed by data/synthetic_reviews.py (shift {shift})",
        # With this name the verdicts go through the claims on Amazon Reviews. As `real` is False,
        # each is `not tested`.
        compare_with="Amazon Reviews",
        train=compose(SOURCE_DOMAIN, SOURCE_SIZE, 0, shift=shift),
        domains={
            name: compose(name, TARGET_SIZE, seed, shift=shift)
            for seed, name in enumerate(DOMAINS, 1)
        },
        synonyms=Synonyms(lambda word: synonyms.get(word, ()), "its own lists of words"),
        options=options,
    )


def compose(domain: str, count: int, seed: int, *, shift: float) -> Reviews:
    """Compose `count` reviews of a domain, half of each verdict.

    shift: the share of opinions in the domain's own words.
    """
    random = np.random.default_rng(seed)

    def sentence(verdict: int) -> str:
        topic = random.choice(TOPICS[domain])
        if random.random() >= OPINION:
            return random.choice(FILLERS).format(topic)
        polarity = verdict if random.random() < AGREEMENT else 1 - verdict
        opinions = OPINIONS[domain if random.random() < shift else "any", polarity].split()
        return random.choice(STATEMENTS).format(topic, random.choice(opinions))

    labels = torch.arange(count) % 2
    texts = [
        ". ".join(sentence(verdict) for _ in range(random.integers(5, 10)))
        for verdict in labels.tolist()
    ]
    return Reviews(np.array(texts, dtype=object), labels)
