"""Write docs/streams.md: the streams that have a name.

    python -m study.tools.streams_table

The names and their meanings come from data/streams.py.
"""

from pathlib import Path

from cascadetta_lib.data.streams import STREAMS
from cascadetta_lib.files import write_text_atomically

PAGE = Path(__file__).resolve().parents[2] / "docs" / "streams.md"
TEXT = """# Streams

Written from the names in `data/streams.py` by `python -m study.tools.streams_table`.

`image_stream`, `text_stream` and `speech_stream` take one of these names, or a list of domains \
such as `[fog, 'snow:3']`.

| stream | what comes |
|---|---|
{rows}

README and RESULTS call some streams by other words. All are of the profile `released`.

| word there | settings |
|---|---|
| short | `image_stream=instantaneous image_test_size=992`, the profile's own |
| whole | `image_stream=instantaneous image_dataset=cifar10 image_test_size=null` |
| long | `image_stream=instantaneous image_test_size=9920`: the 992 images ten times |
| gradual | `image_stream=gradual image_test_size=1984`: the 992 images twice |
| correlated labels | `image_stream=correlated` |
| mixed, with correlated labels | `image_stream=mixed_correlated` |
| slowly changing, with correlated labels | `image_stream=gradual_correlated` |

`image_recurring_visits` is the number of rounds of the recurring stream. `image_dirichlet_delta` \
says how long the runs of a label are. `image_order_seed` draws the order of the domains and of \
the examples.

`image_walk_steps` is the number of steps of the walk from one corruption to the next; with 20, \
each step is a quarter of a severity, as in CCC. `image_test_size` is the number of images at each \
step, in CCC 1,000, 2,000 or 5,000. Parameters between two severities are interpolated linearly, \
as in CCC. The walk differs from CCC: there one severity changes at a time, along the path on \
which the accuracy of a ResNet-50 is nearest to a target, and each step has random images. Here \
the sum of both severities is 5, the difficulty varies, and each step has the same images \
([`data/walks.py`](../cascadetta_lib/data/walks.py)).

A stream holds all of its domains in memory, with two exceptions: generated domains of more than \
256 MiB, and the target domains of `folder:`. On a CPU they are read from the disk batch by batch, \
unless the stream is mixed.

With `image_on_alarm=reset` a method goes back to the source where it predicts few classes, and \
with `image_on_alarm=stop` it learns nothing more from there on. The alarm sees only \
predictions, no labels ([`evaluation/alarm.py`](../cascadetta_lib/evaluation/alarm.py)).

With `image_source_agreement=true` each batch also records the share of its examples for which the \
method names the class that the source model names. The source model is the network before it \
adapted, normalised as the method normalises. For RoTTA and PeTTA (which predict by a teacher), \
MEMO (image by image), and LAME, T3A, ROID and CMF (which change the logits) the share may be \
below 1 before the first update. It takes one more forward pass per batch \
([`evaluation/source_agreement.py`](../cascadetta_lib/evaluation/source_agreement.py)).
"""


def page() -> str:
    """Return docs/streams.md as a whole."""
    rows = [f"| `{name}` | {meaning} |" for name, meaning in STREAMS.items()]
    return TEXT.format(rows="\n".join(rows))


def main() -> None:
    """Write docs/streams.md."""
    write_text_atomically(PAGE, page())


if __name__ == "__main__":
    main()
