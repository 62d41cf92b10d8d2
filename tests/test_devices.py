"""Test without a GPU that everything works on another device than the CPU, and how often Python
waits for that device.

Torch's device `meta` has shapes and no numbers. A tensor that was left on the CPU by mistake causes
an error there, as on a GPU.
"""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_blobs, seeded
from test_methods import CASES, NETWORKS, made_up, make, network
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cascadetta_lib.augment import change_chosen, generator_for
from cascadetta_lib.augment.audio import augment, spectrogram_copies
from cascadetta_lib.augment.image import augmix, cotta_copies, crop_and_flip
from cascadetta_lib.data.base import Copies, Dataset, Modality, Split
from cascadetta_lib.data.corruptions import CORRUPTIONS, HELD_OUT_CORRUPTIONS, corrupt
from cascadetta_lib.data.reviews import DOMAINS, Reviews, Synonyms, TextOptions, make_text_dataset
from cascadetta_lib.data.streams import Domain, Order
from cascadetta_lib.data.utterances import SpeechOptions, make_speech_dataset
from cascadetta_lib.evaluation.evaluator import Evaluator
from cascadetta_lib.losses import rotate_randomly
from cascadetta_lib.methods import METHODS, Method
from cascadetta_lib.models import Cascade
from cascadetta_lib.models.remembered_statistics import remember
from cascadetta_lib.models.snapshot import keep_state
from cascadetta_lib.training import theorem
from cascadetta_lib.training.objectives import OBJECTIVES
from cascadetta_lib.training.pretrain import pretrain
from cascadetta_lib.training.settings import Training

BUDGET = {"cotta": (1, 0), "rotta": (1, 1), "petta": (1, 0), "note": (1, 0)}
"""How many results a step of a method reads from the device, and how many copies it makes from the
host. Methods that are not listed have 0 of each. CoTTA reads whether its anchor is sure. RoTTA
reads the classes and entropies of the examples for its memory, and copies their ages to the device
for its loss. PeTTA reads the same and copies nothing. NOTE reads the classes alone.
"""
CHECKED = {name for name in METHODS if METHODS[name].uses_auxiliary}
"""Methods that check in their first step whether θ_a can read z. The check reads one more result
from the device, or two if the logits of θ_a are not finite. A method that selects its rate makes
the check in each copy.
"""
EPOCH_READS = 3
"""How many results an epoch of pre-training reads: its losses, the held-out accuracy and, for an
objective with a self-supervised loss, diagnostics.
"""
COPIES: dict[Modality, Copies | str | None] = {
    "image": "image",
    "text": None,
    "speech": spectrogram_copies,
}
META = torch.device("meta")
UNIT = (0.0, 1.0)
TRAINABLE = [(name, "image") for name in OBJECTIVES]
TRAINABLE += [
    (name, modality)
    for name in ("erm", "meta", "both_cross_entropy")
    for modality in ("text", "speech")
]
"""Each objective, and each modality with each kind of randomisation."""


class Generator(torch.Generator):
    """Torch's generator, which also takes the device meta, on which nothing is drawn."""

    def __new__(cls, device: torch.device | str = "cpu") -> "Generator":
        made = super().__new__(cls)
        made.place = torch.device(device)
        return made

    device = property(lambda self: self.place)


class Waits(TorchDispatchMode):
    """Inside `with`, count how often Python would wait for a GPU: when it reads a result, and when
    it copies a tensor from the host.

    Every result is read as `answer`. Python would also wait for an operation whose shape depends on
    results, such as nonzero or a mask. On meta such an operation is an error.
    """

    def __init__(self, answer: float = 1.0) -> None:
        super().__init__()
        self.answer = answer
        self.reads = 0
        self.copies = 0
        self.functions = Functions(self)

    def __enter__(self) -> "Waits":
        self.functions.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.functions.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        aten = torch.ops.aten
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        on_meta = any(tensor.is_meta for tensor in tensors)
        target = kwargs.get("device")
        if on_meta and (func is aten._local_scalar_dense.default or target == torch.device("cpu")):
            self.reads += 1
            read = torch.full(
                args[0].shape, self.answer, dtype=kwargs.get("dtype") or args[0].dtype
            )
            return read if target else read.item()
        # A scalar of the CPU goes along with the call of most operations.
        whole = {
            aten._to_copy.default,
            aten.copy_.default,
            aten.index.Tensor,
            aten.index_put_.default,
            aten.where.self,
        }
        from_host = any(not tensor.is_meta and (tensor.ndim or func in whole) for tensor in tensors)
        self.copies += from_host and (on_meta or target == META)
        return func(*args, **kwargs)


class Functions(TorchFunctionMode):
    """Watch what `Waits` cannot see: tensors made of Python's numbers, and the generators."""

    def __init__(self, waits: Waits) -> None:
        super().__init__()
        self.waits = waits

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        generator = (kwargs or {}).get("generator")
        if func in (torch.tensor, torch.as_tensor, Tensor.new_tensor):
            self.waits.copies += result.is_meta
        if generator is not None:
            assert generator.device.type == result.device.type, (
                "a generator draws on its own device"
            )
        return result


@pytest.fixture(autouse=True)
def meta(small_updates: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace what torch has for a GPU but not for meta: generators and autocast."""
    monkeypatch.setattr(torch, "Generator", Generator)
    monkeypatch.setattr(torch, "autocast", lambda *args, **options: nullcontext())


def make_dataset(modality: Modality, folder: Path, device: str) -> Dataset:
    """A tiny dataset whose examples are on a device."""
    where: dict[str, Any] = {"folder": str(folder), "device": device}
    y = torch.arange(40) % 2
    if modality == "image":
        return make_blobs(folder, held_out_fraction=0.2, device=device)
    if modality == "speech":
        split = Split(torch.randint(-99, 99, (40, 16_000), generator=seeded()).to(torch.int16), y)
        return make_speech_dataset(
            train=split,
            held_out=split,
            test=split,
            noise=split.x[:2],
            name="noise",
            source="made up",
            class_names=("a", "b"),
            options=SpeechOptions(**where),
        )
    texts = [f"{('good book', 'bad dull plot')[index % 2]} {index}" for index in range(40)]
    reviews = Reviews(np.array(texts, dtype=object), y)
    return make_text_dataset(
        train=reviews,
        domains=dict.fromkeys(DOMAINS, reviews),
        name="two",
        source="made up",
        domain_source="made up",
        synonyms=Synonyms(lambda word: ("fine",), "the tests"),
        compare_with=None,
        options=TextOptions(vocabulary_size=4, msda_layers=0, **where),
    )


# ---------------------------------------------------------------- the counter itself


def test_what_is_counted_as_a_wait() -> None:
    x = torch.ones(3, 4, device=META)
    reads: list[Callable[[], object]] = [
        x.sum().item,
        x.tolist,
        x.cpu,
        lambda: bool(x.sum() > 0),
        lambda: int(x.sum()),
    ]
    copies: list[Callable[[], object]] = [
        lambda: torch.tensor([1.0], device=META),
        lambda: x.new_tensor(1),
        lambda: torch.tensor(1.0).to(META),
        lambda: x[torch.tensor([0, 1])],
        lambda: x.copy_(torch.ones(3, 4)),
    ]
    for number, read in enumerate(reads):
        with Waits() as waits:
            read()
        assert (waits.reads, waits.copies) == (1, 0), number
    for number, copy in enumerate(copies):
        with Waits() as waits:
            copy()
        assert (waits.reads, waits.copies) == (0, 1), number
    with Waits() as waits:
        torch.where(x > 0, x * torch.tensor(2.0), 1).masked_fill(x > 0, 0)[:, :2].mean().clone()
    assert (waits.reads, waits.copies) == (0, 0)
    for asked in (lambda: x.nonzero(), lambda: x[x > 0], lambda: x + torch.ones(3, 4)):
        with pytest.raises((NotImplementedError, RuntimeError)), Waits():
            asked()
    with pytest.raises(AssertionError, match="its own device"), Waits():
        torch.rand(3, generator=seeded(), device=META)


# ---------------------------------------------------------------- augmentations


def test_a_generator_of_another_device_is_seeded_by_the_cpus() -> None:
    first = seeded()
    again = seeded()
    assert generator_for(torch.ones(1), first) is first
    x = torch.ones(1, device=META)
    seeds = [generator_for(x, generator).initial_seed() for generator in (first, first, again)]
    assert seeds[0] == seeds[2] != seeds[1]
    assert generator_for(x, first).device == META


AUGMENTATIONS: dict[
    str, tuple[tuple[int, ...], torch.dtype, Callable[[Tensor, torch.Generator], Any]]
] = {
    "augmix": ((8, 3, 32, 32), torch.uint8, lambda x, generator: augmix(x, generator, severity=3)),
    "augmix_shared": (
        (8, 3, 32, 32),
        torch.uint8,
        lambda x, generator: augmix(x, generator, severity=3, shared=True),
    ),
    "crop_and_flip": ((8, 3, 32, 32), torch.uint8, crop_and_flip),
    "rotate": (
        (8, 3, 32, 32),
        torch.float32,
        lambda x, generator: torch.stack(rotate_randomly(x, generator)[:1]),
    ),
    "cotta": (
        (4, 3, 32, 32),
        torch.float32,
        lambda x, generator: torch.stack([*cotta_copies(x, 3, generator, UNIT)]),
    ),
    "speech": (
        (8, 16_000),
        torch.float32,
        lambda x, generator: augment(x, generator, probability=0.5),
    ),
    "masks": (
        (4, 1, 32, 32),
        torch.float32,
        lambda x, generator: torch.stack([*spectrogram_copies(x, 3, generator)]),
    ),
}


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_an_augmentation_waits_for_nothing(name: str) -> None:
    shape, dtype, augmentation = AUGMENTATIONS[name]
    expected = augmentation(torch.ones(shape, dtype=dtype), seeded())
    with Waits() as waits:
        result = augmentation(torch.ones(shape, dtype=dtype, device=META), seeded())
    assert (result.shape, result.dtype, result.device) == (expected.shape, expected.dtype, META)
    assert (waits.reads, waits.copies) == (0, 0)


@pytest.mark.parametrize("name", CORRUPTIONS + HELD_OUT_CORRUPTIONS)
def test_a_corruption_on_another_device(name: str) -> None:
    """The draws are made on the CPU, so that test images are the same on every device. A corruption
    may wait for the device, because its result is kept.
    """
    with Waits():
        result = corrupt(torch.zeros(4, 3, 32, 32, dtype=torch.uint8, device=META), name, 3)
    assert (result.shape, result.dtype, result.device) == ((4, 3, 32, 32), torch.uint8, META)


class Elsewhere(Tensor):
    """A tensor with numbers that says it is not the CPU's."""

    is_cpu = False


def test_what_is_chosen_is_the_same_where_all_is_computed() -> None:
    images = torch.randint(256, (12, 3, 32, 32), generator=seeded()).to(torch.uint8)
    waveforms = torch.randn(6, 16_000, generator=seeded())
    for augmentation, x in (
        (lambda x: augmix(x, seeded(1), severity=3), images),
        (lambda x: augment(x, seeded(1), probability=1.0), waveforms),
    ):
        assert torch.allclose(augmentation(x.as_subclass(Elsewhere)), augmentation(x), atol=1e-6)
    changed = torch.zeros(3, 2).as_subclass(Elsewhere)
    chosen = torch.tensor([True, False, True])
    change_chosen(changed, chosen, lambda x, other: x + other, torch.arange(3.0)[:, None])
    assert changed.tolist() == [[0, 0], [0, 0], [2, 2]]


# ---------------------------------------------------------------- methods


def on_meta(name: str, modality: Modality = "image", **options: Any) -> Method:
    """A method on a network that lies on the meta device."""
    model = network(METHODS[name].objective_on(modality), modality).to(META)
    return make(name, modality, model=model, **options)


@pytest.mark.parametrize(("order", "answer"), [("after", 0.0), ("before", 1.0)])
@pytest.mark.parametrize(("name", "modality"), CASES)
def test_a_step_of_a_method(name: str, modality: Modality, order: str, answer: float) -> None:
    x = made_up(modality).to(META)
    with Waits():
        method = on_meta(name, modality, copies=COPIES[modality], predict=order, source=x)
    for first in (True, False):
        with Waits(answer) as waits:
            logits = method(x)
        if first and name in CHECKED:
            copies = len(getattr(method, "values", [x]))
            waits.reads -= copies if answer else 2 * copies
        if first and hasattr(method, "value_range") and method.value_range.is_checked:
            waits.reads -= 2  # the least and the largest value of the first batch
        assert logits.device == META and logits.shape == (8, NETWORKS[modality][1]["classes"])
        asks_nothing = name == "cotta" and COPIES[modality] is None
        assert (waits.reads, waits.copies) == ((0, 0) if asks_nothing else BUDGET.get(name, (0, 0)))
    with Waits() as waits, keep_state(method):
        assert method.predict(x).main.device == META
        remember(method)
    method.reset()
    assert (waits.reads, waits.copies) == (0, 0)


def test_sar_takes_back_adams_steps_by_one_read() -> None:
    x = made_up("image").to(META)
    method = on_meta("sar", optimizer="adam")
    for _ in range(2):
        with Waits(0.0) as waits:
            method(x)
        assert (waits.reads, waits.copies) == (1, 0)


# ---------------------------------------------------------------- the evaluator and pre-training


@pytest.mark.parametrize(
    ("name", "order", "passes"), [("erm", None, 2), ("erm", "mixed", 1), ("cascade_plus", None, 8)]
)
def test_the_evaluator_waits_once_a_domain(
    name: str, order: Order | None, passes: int, tmp_path: Path
) -> None:
    """Cascade+ makes eight passes over a domain: one over each of the two domains online, one over
    the first domain right after it, and one over each domain at the end for A. For F, three passes
    over the second domain follow: by the source model, and by a model that adapts to this domain
    alone, while it adapts and afterwards.
    """
    stream = [Domain("fog", 5), Domain("contrast", 3)]
    for domain in stream:
        make_dataset("image", tmp_path, "cpu").domain(*domain)  # is made there, and kept
    dataset = make_dataset("image", tmp_path, "meta")
    evaluator = Evaluator(on_meta(name), dataset, stream, batch_size=11, order=order)
    with Waits() as waits:
        result = evaluator.run()
    held = 1 if order else 2
    checked = name in CHECKED
    assert len(result.batches) >= 4 and waits.reads == passes + held + checked, (
        "one for the results of each pass, one for the labels of each stretch, and one for the "
        "check whether θ_a can read z"
    )
    assert waits.copies == passes + held + len(stream), (
        "which examples a batch has, their order, the images"
    )


@pytest.mark.parametrize(("objective", "modality"), TRAINABLE)
def test_a_pre_training_waits_once_an_epoch(
    objective: str, modality: Modality, tmp_path: Path
) -> None:
    dataset = make_dataset(modality, tmp_path, "meta")
    dataset.prepare(dataset.train.x)  # puts the tables of speech on the device
    with Waits() as waits:
        how = Training(epochs=None, iterations=1, training_batch_size=8)
        model, _ = pretrain(dataset, NETWORKS[modality][0], objective, how, seed=0)
    assert all(parameter.device == META for parameter in model.parameters())
    order_and_network = 1 + len(model.state_dict())
    reads = EPOCH_READS if OBJECTIVES[objective].self_supervised else EPOCH_READS - 1
    assert (waits.reads, waits.copies) == (reads, order_and_network), "none of them in the step"


def test_the_theorem_is_checked_on_another_device(tmp_path: Path) -> None:
    small = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 4))
    model = Cascade(small, torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)).to(META)
    dataset = make_dataset("image", tmp_path, "meta")
    with Waits():
        found = theorem.check_theorem(model, dataset, Training(), seed=0, iterations=1)
    assert len(found) == 8
