"""Streams and the domains that they may name."""

from collections.abc import Sequence

import pytest

from cascadetta_lib.streams import Domain, Vocabulary, make_stream

IMAGES = Vocabulary(("fog", "snow"), ("spatter",), (1, 2, 3, 4, 5))
SPEECH = Vocabulary(("pitch", "noise"), ("clean",), (1,))


def test_instantaneous_and_gradual() -> None:
    assert make_stream("instantaneous", IMAGES, 4) == [("fog", 4), ("snow", 4)]
    gradual = make_stream("gradual", IMAGES, 5)
    assert [domain.severity for domain in gradual] == [1, 2, 3, 4, 5, 4, 3, 2, 1] * 2
    assert [domain.name for domain in gradual] == ["fog"] * 9 + ["snow"] * 9
    assert make_stream("instantaneous", SPEECH, 5) == [("pitch", 1), ("noise", 1)]


def test_a_list_of_ones_own() -> None:
    assert make_stream(["snow:2", "spatter", "fog"], IMAGES, 4) == [("snow", 2), ("spatter", 4), ("fog", 4)]
    assert make_stream(("clean", "noise"), SPEECH) == [("clean", 1), ("noise", 1)]
    assert str(Domain("fog", 3)) == "fog:3"


@pytest.mark.parametrize(
    ("stream", "vocabulary", "severity", "message"),
    [
        (["frog"], IMAGES, 5, "did you mean 'fog'"),
        (["fog:6"], IMAGES, 5, "severity is one of 1, 2, 3, 4, 5"),
        (["fog:"], IMAGES, 5, "severity"),
        (["fog"], IMAGES, 0, "severity"),
        ([], IMAGES, 5, "empty"),
        ("gradul", IMAGES, 5, "did you mean 'gradual'"),
        ("gradual", SPEECH, 1, "allowed are instantaneous"),
        (["pitch:2"], SPEECH, 1, "only the corruptions of images have a severity"),
    ],
)
def test_streams_that_are_refused(
    stream: str | Sequence[str], vocabulary: Vocabulary, severity: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_stream(stream, vocabulary, severity)
