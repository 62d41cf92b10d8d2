"""Reviews composed here, so that everything runs without a download. Synthetic, not the paper's data.

A review is a few sentences. One that gives an opinion takes its word from those that all four product domains share or,
with probability `shift`, from the domain's own: a model of book reviews has never met those of the other domains, and
some that it has met mean the opposite there (a simple book, a simple remote control). Opinions may be negated, may go
against the review's verdict, and some labels are wrong; the other sentences say nothing about the verdict.
"""

import torch

from cascadetta_lib.augment.text import DictionarySynonyms
from cascadetta_lib.data import TextOptions, dataset
from cascadetta_lib.data.text import DOMAINS, SOURCE_DOMAIN, Reviews, TextDataset, make_text_dataset

SOURCE_SIZE, TARGET_SIZE = 1200, 300
"""Reviews of the source and of each target domain."""
"""Share of the opinions that are given in the domain's own words."""
SENTENCES = (5, 10)
"""A review has as many as the first, or more, but fewer than the second."""
OPINION, NEGATION, AGREEMENT, LABEL_NOISE = 0.7, 0.1, 0.95, 0.05
"""Probabilities: that a sentence gives an opinion, that it does so by a negation, that the opinion agrees with the
verdict, and that the label is wrong."""

Groups = tuple[tuple[str, ...], ...]
"""Words; those of one group are synonyms."""

SHARED: tuple[Groups, Groups] = (
    (
        ("bad", "poor", "lousy"),
        ("terrible", "awful", "horrible"),
        ("disappointing", "underwhelming"),
        ("useless", "worthless"),
        ("annoying", "irritating"),
        ("mediocre", "inferior"),
    ),
    (
        ("great", "excellent", "superb"),
        ("good", "nice", "fine"),
        ("wonderful", "marvellous", "fantastic"),
        ("perfect", "flawless"),
        ("pleasing", "delightful"),
        ("impressive", "remarkable"),
    ),
)
"""Opinion words of every domain, negative and positive."""

OWN: dict[str, tuple[Groups, Groups]] = {
    "books": (
        (("boring", "dull", "tedious"), ("wordy", "rambling"), ("shallow",), ("confusing", "muddled"))
        + (("simple",), ("small",), ("light",), ("predictable",)),
        (("gripping", "absorbing"), ("insightful", "thoughtful"), ("moving", "touching"), ("witty", "clever"))
        + (("dark",), ("long",), ("heavy",), ("readable",)),
    ),
    "dvd": (
        (("overacted", "wooden"), ("grainy", "blurry"), ("boring", "dull"), ("cheesy", "corny"))
        + (("dark",), ("long",), ("cropped",), ("loud",)),
        (("hilarious", "funny"), ("gripping", "absorbing"), ("spectacular", "stunning"), ("restored", "remastered"))
        + (("light",), ("catchy",), ("suspenseful",), ("charming",)),
    ),
    "electronics": (
        (("defective", "faulty"), ("laggy", "sluggish"), ("noisy", "crackling"), ("flimsy", "fragile"))
        + (("heavy",), ("incompatible",), ("overheating",), ("dark",)),
        (("reliable", "dependable"), ("fast", "speedy"), ("crisp", "clear"), ("portable", "compact"))
        + (("simple",), ("small",), ("light",), ("loud",)),
    ),
    "kitchen": (
        (("rusty", "corroded"), ("leaky", "dripping"), ("flimsy", "fragile"), ("warped", "dented"))
        + (("loud",), ("small",), ("chipped",), ("sticky",)),
        (("sturdy", "solid"), ("sharp", "keen"), ("washable", "cleanable"), ("durable", "lasting"))
        + (("simple",), ("heavy",), ("nonstick",), ("predictable",)),
    ),
}
"""Opinion words of a domain, negative and positive. A word without synonyms may mean the opposite in another domain."""

TOPICS: dict[str, Groups] = {
    "books": (("story", "tale", "plot"), ("author", "writer"), ("chapter",), ("hero", "character"), ("style", "prose")),
    "dvd": (("film", "movie"), ("cast", "acting"), ("picture", "image"), ("scene",), ("ending", "finale")),
    "electronics": (("battery",), ("screen", "display"), ("cable", "cord"), ("sound", "audio"), ("remote",)),
    "kitchen": (("pan", "skillet"), ("handle", "grip"), ("blade",), ("lid", "cover"), ("kettle", "pot")),
}
STATEMENTS = (
    "the {topic} is {opinion}",
    "i found the {topic} really {opinion}",
    "this is a {opinion} {topic}",
    "what a {opinion} {topic}",
    "my {person} says that the {topic} is very {opinion}",
)
NEGATIONS = (
    "the {topic} is not {opinion}",
    "i would not call the {topic} {opinion}",
    "it isn't a {opinion} {topic}",
)
FILLERS = (
    "i bought it for my {person}",
    "it arrived on a {day}",
    "my {person} has had one since {day}",
    "the {topic} came in a box",
    "we looked at the {topic} on {day}",
    "there is a {topic} in it",
    "i got this as a gift from my {person}",
)
PERSONS: Groups = (("wife", "spouse"), ("son", "boy"), ("father", "dad"), ("friend", "pal"), ("neighbour",))
DAYS: Groups = tuple((day,) for day in ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"))
VERBS: Groups = (("bought", "purchased"), ("got", "received"), ("arrived", "came"), ("found", "thought"))
ADVERBS: Groups = (("really", "truly"), ("very", "quite"))


@dataset("reviews", "text", real=False)
def load_reviews(argument: str, options: TextOptions) -> TextDataset:
    """1,200 reviews of books and 300 of each other domain; the same ones every time."""
    shift = options.synthetic_shift
    return make_text_dataset(
        name="reviews",
        source="reviews composed by data/reviews.py, synthetic, not the paper's data",
        domain_source=f"reviews composed by data/reviews.py (shift {shift})",
        official=False,
        compare_with="Amazon Reviews",  # only so that the machinery of the comparison runs
        train=compose(SOURCE_DOMAIN, SOURCE_SIZE, torch.Generator().manual_seed(0), shift=shift),
        domains={
            domain: compose(domain, TARGET_SIZE, torch.Generator().manual_seed(seed), shift=shift)
            for seed, domain in enumerate(DOMAINS, 1)
        },
        synonyms=DictionarySynonyms(synonym_dictionary(), "a dictionary of data/reviews.py"),
        options=options,
    )


def compose(domain: str, count: int, generator: torch.Generator, *, shift: float) -> Reviews:
    """`count` reviews of a domain, half of each verdict. ValueError unless 0 ≤ shift ≤ 1, the share of the opinions
    that are given in the domain's own words."""
    if not 0 <= shift <= 1:
        raise ValueError(f"text_synthetic_shift = {shift!r}: allowed is 0 to 1")
    verdicts = torch.arange(count) % 2
    wrong = torch.rand(count, generator=generator) < LABEL_NOISE
    lengths = torch.randint(*SENTENCES, (count,), generator=generator)
    texts = [
        ". ".join(_sentence(domain, verdict, shift, *numbers) for numbers in drawn) + "."
        for verdict, length in zip(verdicts.tolist(), lengths.tolist(), strict=True)
        for drawn in [torch.rand(length, 9, generator=generator).tolist()]
    ]
    return Reviews(texts, torch.where(wrong, 1 - verdicts, verdicts))


def synonym_dictionary() -> dict[str, tuple[str, ...]]:
    """Every word of a group of several to the others, in the alphabet's order; no stop word is among them."""
    families = [*SHARED, *TOPICS.values(), PERSONS, VERBS, ADVERBS, *(groups for own in OWN.values() for groups in own)]
    found: dict[str, set[str]] = {}
    for group in (group for groups in families for group in groups if len(group) > 1):
        for word in group:
            found.setdefault(word, set()).update(group)
    return {word: tuple(sorted(group - {word})) for word, group in found.items()}


def _sentence(
    domain: str,
    verdict: int,
    shift: float,
    kind: float,
    agreement: float,
    negation: float,
    origin: float,
    template: float,
    opinion: float,
    topic: float,
    person: float,
    day: float,
) -> str:
    """One sentence of a review; the numbers, in [0, 1), make the choices."""
    negated = negation < NEGATION
    polarity = verdict if agreement < AGREEMENT else 1 - verdict
    words = (OWN[domain] if origin < shift else SHARED)[1 - polarity if negated else polarity]
    templates = FILLERS if kind >= OPINION else NEGATIONS if negated else STATEMENTS
    return templates[int(template * len(templates))].format(
        opinion=_pick(words, opinion),
        topic=_pick(TOPICS[domain], topic),
        person=_pick(PERSONS, person),
        day=_pick(DAYS, day),
    )


def _pick(groups: Groups, number: float) -> str:
    """One word, each as likely."""
    words = [word for group in groups for word in group]
    return words[int(number * len(words))]
