"""Easy data augmentation (EDA, Wei and Zou 2019) of lists of words, as in the appendix "Text" of
the paper.

Each augmented review has gone through one of four operations, all equally likely. Let α be the
strength and n = max(1, ⌊α · number of words⌋). Synonym replacement replaces n words by a synonym,
random insertion inserts a synonym of some word of the review at a random place, n times, random
swap exchanges two words, n times, and random deletion drops every word with probability α. Stop
words have no synonyms here, so the first two operations leave them alone.
"""

import re
from collections.abc import Callable

import torch

OPERATIONS = ("synonym replacement", "random insertion", "random swap", "random deletion")
WORD = r"\w+(?:'\w+)*"
"""The regular expression of a word in lower-case text; `don't` is one word. Features are counted
with it as well.
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
    """Draw an operation and apply it to a list of words; `strength` is α, between 0 and 1. Returns
    the operation and a new list, which is the same where nothing can be changed."""
    operation = OPERATIONS[int(torch.randint(len(OPERATIONS), (), generator=generator))]
    # One number for each word decides which words are replaced first or deleted. For each change,
    # there are three numbers in [0, 1) that choose a word, a synonym or a second word, and a place.
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
    if review and not kept:  # A random word stays where all of them would go.
        kept = [review[int(order.argmax())]]
    return operation, kept
