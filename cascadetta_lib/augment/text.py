"""Easy data augmentation (EDA, Wei and Zou 2019) of lists of words, as in the appendix "Text" of
the paper.

Each review goes through one of four operations, all equally likely. Let α be the strength and n =
max(1, ⌊α · number of words⌋).

- synonym replacement: replace n words by a synonym each.
- random insertion: insert a synonym of some word of the review at a random place, n times.
- random swap: exchange two words, n times.
- random deletion: drop every word with probability α.

A word without synonyms is not replaced, and gives no synonym to insert. Stop words have no synonyms
here.
"""

import re
from collections.abc import Callable

import torch

OPERATIONS = ("synonym replacement", "random insertion", "random swap", "random deletion")
WORD = r"\w+(?:'\w+)*"
"""The regular expression of a word in lower-case text; `don't` is one word. data/reviews.py
counts the same words.
"""

FindSynonyms = Callable[[str], tuple[str, ...]]
"""Maps a word to its synonyms, each of one or more words, in a fixed order and without the word
itself.
"""


def words(text: str) -> list[str]:
    """Split a text into its words, in lower case and without punctuation."""
    return re.findall(WORD, text.lower())


def eda(
    review: list[str], strength: float, generator: torch.Generator, find_synonyms: FindSynonyms
) -> tuple[str, list[str]]:
    """Draw an operation and apply it to a review, a list of words.

    strength: α, between 0 and 1. Returns the operation's name and a new list of words. The list
    equals `review` if nothing can be changed.
    """
    operation = OPERATIONS[int(torch.randint(len(OPERATIONS), (), generator=generator))]
    # A number per word decides which words are replaced first, or deleted. Three numbers in [0, 1)
    # per change choose a word, a synonym or a second word, and a place.
    order = torch.rand(len(review), generator=generator)
    changes = torch.rand(max(1, int(strength * len(review))), 3, generator=generator).tolist()
    result = list(review)

    if operation == "synonym replacement":
        parts = [[word] for word in review]
        replaceable = [
            position for position in order.argsort().tolist() if find_synonyms(review[position])
        ]
        for position, (_, which, _) in zip(replaceable, changes, strict=False):
            synonyms = find_synonyms(review[position])
            parts[position] = synonyms[int(which * len(synonyms))].split()
        return operation, [word for part in parts for word in part]

    if operation == "random insertion":
        options = [synonyms for synonyms in map(find_synonyms, review) if synonyms]
        for origin, which, where in changes if options else []:
            synonyms = options[int(origin * len(options))]
            place = int(where * (len(result) + 1))
            result[place:place] = synonyms[int(which * len(synonyms))].split()
        return operation, result

    if operation == "random swap":
        for one, other, _ in changes if len(review) > 1 else []:
            first = int(one * len(review))
            second = int(other * (len(review) - 1))
            second += second >= first  # The two places differ, and every pair is equally likely.
            result[first], result[second] = result[second], result[first]
        return operation, result

    kept = [word for word, number in zip(review, order.tolist(), strict=True) if number >= strength]
    if review and not kept:  # If all words would go, a random one stays.
        kept = [review[int(order.argmax())]]
    return operation, kept
