"""The loop that runs a method over a stream. Its records give E, A and F (metrics.py).

Let R(T | S) be the accuracy on domain T, without updates, after adapting to the domains S.

For E:  adapt to each domain T_t and predict it, online.
For A:  at the end, measure R(T_t | T_1:N) for every domain.
For F:  measure R(T_t | T_1:t) right after each domain, and R(T_t | T_t) by a source model that
        adapted to T_t alone. The unadapted source model is measured on T_t as well.

Every measurement uses the stream's batches, because methods take statistics from the batch.
`order_of_examples` (streams.py) says in which order the examples come.

On a `correlated` stream each batch holds few labels; E, A and F have the same definitions. A
`mixed` stream is one pass over the examples of all domains, shuffled together. Its E is the online
error per domain, averaged over domains. Its A is the final model's accuracy per domain, averaged
over domains. F is not defined there, because no domain comes after another.

With `reset_each` a method begins each domain from the source. For A, each domain is then measured
by the model that adapted to it alone, and there is no F.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from cascadetta_lib.allowed import require_choice, require_seed, require_whole
from cascadetta_lib.data.base import Dataset
from cascadetta_lib.data.streams import MIXED, Domain, Order, order_of_examples, require_order
from cascadetta_lib.evaluation.alarm import Alarm, OnAlarm, classes_predicted, rings
from cascadetta_lib.evaluation.distance import Distance
from cascadetta_lib.evaluation.source_agreement import SourceAgreement
from cascadetta_lib.losses import describe
from cascadetta_lib.methods import Method
from cascadetta_lib.methods.refusals import MASKING_REMEDY, values_per_channel
from cascadetta_lib.models import Outputs
from cascadetta_lib.models.remembered_statistics import remember, statistics_of
from cascadetta_lib.models.snapshot import keep_state
from cascadetta_lib.progress import progress

Record = dict[str, Any]
Accuracies = dict[int, float]
"""The accuracy on each domain of a part of a stream (`Stretch`, below). The keys are the places of
the domains in this part, from 0.
"""
ABOUT_PREDICTIONS = ("entropy_main", "entropy_auxiliary", "entropy_of_mean_auxiliary", "agreement")


class Evaluation(NamedTuple):
    """The record of a method on a stream.

    batches: a row per batch; on a mixed stream, a row per domain in each batch. Its columns:

    step: the domain's place in the stream, from 0.
    domain, severity: the domain's name and severity.
    position: how many examples of the domain (or of the whole mixed stream) came before the batch.
    count: the number of examples in the row.
    errors: how many of these are predicted wrongly.
    classes_predicted: the number of different classes that are predicted.
    alarm_level: the level of the alarm after the batch (alarm.py).
    source_agreement: the share of the examples for which the source model predicts the same class
        as the method (source_agreement.py). The column is there only if the evaluator is asked for
        it.
    the columns of `losses.describe` (without θ_a all but entropy_main are NaN).
    moved_normalization, moved_others: how far the adapted parameters are from the source after the
        batch (distance.Moved).
    seconds: the time per batch, averaged over the batches of the domain. On a mixed stream it is
        averaged over all batches, and divided among the rows of a batch by their counts.

    accuracies: a row per measurement without update. Its columns:

    step, domain, severity: as above, of the measured domain.
    kind: which model was measured. `stream`: the model that ran along the stream. `source`: the
        unadapted model in the method's BatchNorm mode. `alone`: a source model that adapted to this
        domain alone.
    after: for `stream`, how many of the stream's N domains the model had passed when it was
        measured. The rows with N give A. With `reset_each` all rows have N, although each model has
        passed only its own domain. For the other kinds it is 0.
    accuracy: in [0, 1].
    """

    batches: pd.DataFrame
    accuracies: pd.DataFrame


Stretch = tuple[Domain, ...]
"""A part of a stream that a method passes without a measurement in between: one domain, or all
domains of a mixed stream. A domain's *number* is its place in the stretch, from 0.
"""


class Examples(NamedTuple):
    """The examples of a stretch, as stored.

    x: the examples, (N, …). y: their labels, (N,).
    order: the order in which the examples come, (N,), as indices into x and y.
    domains: the number of each example's domain, (N,), in that order.
    """

    x: Tensor
    y: Tensor
    order: Tensor
    domains: np.ndarray


class Batch(NamedTuple):
    """A batch of a stretch.

    start: how many examples of the stretch came before it.
    examples: indices into the stretch's x and y, (B,).
    domains: the numbers of the domains in it, ascending.
    inside: per domain in it, the positions of the domain's examples in the batch.
    """

    start: int
    examples: Tensor
    domains: list[int]
    inside: Sequence[Tensor]


@dataclass
class Evaluator:
    """Run one method over a list of domains, one after the other or all mixed.

    Without an `order`, examples come as stored. On mixed and correlated streams `seed` draws their
    order, and `dirichlet_delta` says how strongly labels are correlated
    (streams.order_of_examples). The last batch of a domain, or of a mixed stream, may be shorter.

    dataset: has the examples of the domains, and prepares the inputs.
    order: an order in streams.Order. None means one domain after the other.
    order_seed: if given, it takes the place of `seed`. Without an `order`, it also shuffles the
        examples within each domain, which otherwise come as stored. So runs of several seeds can
        see one order. The domains come in the order of `stream` in any case.
    reset_each: whether the method goes back to the source before each domain.
    on_alarm: what to do after a batch at which the alarm rings. `reset`: reset the method to the
        source, and start the alarm anew. `stop`: only predict from then on. None: nothing. With
        `reset` and `stop` every batch waits for the device, until the method has stopped. The alarm
        is off while a model adapts to one domain alone, for F.
    source_agreement: whether to record the agreement with the source along the stream. This takes
        one more forward pass per batch, which `seconds` includes, and changes nothing else.

    Raises ValueError for a value that is not allowed.
    """

    method: Method
    dataset: Dataset
    stream: Sequence[Domain]
    batch_size: int
    order: Order | None = None
    dirichlet_delta: float | None = None
    seed: int = 0
    order_seed: int | None = None
    reset_each: bool = False
    on_alarm: OnAlarm | None = None
    source_agreement: bool = False
    _held: dict[Stretch, Examples] = field(init=False, default_factory=dict)
    _alarm: Alarm = field(init=False, default_factory=Alarm)
    _stopped: bool = field(init=False, default=False)
    _distance: Distance = field(init=False)
    _with_source: SourceAgreement | None = field(init=False, default=None)
    _batches: list[Record] = field(init=False, default_factory=list)
    _accuracy_rows: list[Record] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        require_whole("batch_size", self.batch_size, least=1)
        if not self.stream:
            raise ValueError(f"stream = {self.stream!r}; allowed is at least one domain")
        require_order(self.order, self.dirichlet_delta)
        require_seed("seed", self.seed)
        if self.order_seed is not None:
            require_whole("order_seed", self.order_seed)
        if self.on_alarm is not None:
            require_choice("on_alarm", self.on_alarm, get_args(OnAlarm))

    def run(self, *, transfer: bool = True) -> Evaluation:
        """Return the records of batches and accuracies, from which metrics.py computes E, A and F.

        The method is reset before and after.

        transfer: whether to measure what F needs. It is not measured if the method does not adapt
        or is reset at each domain, or if the stream is mixed.

        Raises ValueError before the start if a last batch is too small for the network. Raises
        ValueError on the way if an example's logits (z or a) hold NaN or +∞, or −∞ for every class.
        """
        is_mixed = self.order in MIXED
        transfer = transfer and self.method.adapts and not is_mixed and not self.reset_each
        stretches: list[Stretch] = [(domain,) for domain in self.stream]
        if is_mixed:
            stretches = [tuple(self.stream)]
        self._hold(stretches)
        self._require_last_batch()
        self._reset()
        self._distance = Distance(self.method)
        self._with_source = SourceAgreement(self.method) if self.source_agreement else None
        self._batches = []
        self._accuracy_rows = []
        final = self._run_online(stretches, transfer)
        for step, stretch in enumerate(stretches):
            if stretch not in final:
                final[stretch] = self.measure(stretch)
            self._add_accuracy_rows(step, "stream", len(self.stream), final[stretch])
        if transfer:
            self._measure_for_transfer(stretches)
        self.method.reset()
        self._held = {}
        return Evaluation(pd.DataFrame(self._batches), pd.DataFrame(self._accuracy_rows))

    def _reset(self) -> None:
        """Begin from the source. The method learns again if the alarm had stopped it, and the alarm
        starts anew.
        """
        self.method.reset()
        self._alarm.reset()
        self._stopped = False

    def _run_online(
        self, stretches: Sequence[Stretch], transfer: bool
    ) -> dict[Stretch, Accuracies]:
        """Adapt to the stream and predict it. For F, also measure each domain right after it.

        Return the accuracies for A that need no further pass. If the method never changes, or
        `reset_each` is set, these are the accuracies on all domains. Otherwise there are none.
        """
        method = self.method
        changes = method.adapts or method.has_state or any(statistics_of(method))
        final: dict[Stretch, Accuracies] = {}
        for step, stretch in enumerate(progress(stretches, method.label, len(stretches))):
            if self.reset_each:
                self._reset()
            records = self._pass(stretch, self._step, along_stream=True)
            self._batches += [
                self._about_domain(step + number) | record for number, record in records
            ]
            if not changes:
                # The model never changes, so its online predictions are the final model's.
                final[stretch] = _accuracy_by_domain(records)
            elif self.reset_each:
                final[stretch] = self.measure(stretch)
            if transfer and step + 1 < len(stretches):
                self._add_accuracy_rows(step, "stream", step + 1, self.measure(stretch))
        return final

    def _measure_for_transfer(self, stretches: Sequence[Stretch]) -> None:
        """Measure every domain except the first by two models: the source model, and a source model
        that adapted to that domain alone.
        """
        method = self.method
        later = list(dict.fromkeys(stretches[1:]))
        method.reset()
        source = {stretch: self.measure(stretch) for stretch in later}
        alone: dict[Stretch, Accuracies] = {}
        for stretch in progress(later, f"{method.label}, each domain alone", len(later)):
            method.reset()
            self._pass(stretch, method.step)
            alone[stretch] = self.measure(stretch)
        for step, stretch in list(enumerate(stretches))[1:]:
            self._add_accuracy_rows(step, "source", 0, source[stretch])
            self._add_accuracy_rows(step, "alone", 0, alone[stretch])

    def _about_domain(self, step: int) -> Record:
        name, severity = self.stream[step]
        return {"step": step, "domain": name, "severity": severity}

    def _add_accuracy_rows(self, first: int, kind: str, after: int, measured: Accuracies) -> None:
        """Add a row of `Evaluation.accuracies` per domain of a stretch. The stretch begins at step
        `first`.
        """
        for number, accuracy in measured.items():
            row = {"kind": kind, "after": after, "accuracy": accuracy}
            self._accuracy_rows.append(self._about_domain(first + number) | row)

    def _hold(self, stretches: Sequence[Stretch]) -> None:
        """Read the examples of each stretch and draw their order. A stretch that comes again, as on
        a gradual stream, is read and drawn once.
        """
        self._held = {}
        seed = self.seed if self.order_seed is None else self.order_seed
        generator = np.random.default_rng(seed)
        for stretch in dict.fromkeys(stretches):
            splits = [self.dataset.domain(*domain) for domain in stretch]
            x, y = splits[0]
            if len(splits) > 1:
                x = torch.cat([split.x for split in splits])
                y = torch.cat([split.y for split in splits])
            labels = y.cpu().numpy()
            order = order_of_examples(
                self.order, labels, self.dirichlet_delta, generator, self.order_seed
            )
            sizes = [len(split.y) for split in splits]
            domains = np.repeat(np.arange(len(splits)), sizes)[order]
            self._held[stretch] = Examples(x, y, torch.from_numpy(order).to(y.device), domains)

    def _require_last_batch(self) -> None:
        """Raise ValueError if a last batch has a single example and a BatchNorm cannot normalise
        it.
        """
        for held in self._held.values():
            if (len(held.y) - 1) % self.batch_size == 0:
                with values_per_channel(self.method.label, 1):
                    self.method.predict(self.dataset.prepare(held.x[:1]))
                return

    def _step(self, x: Tensor) -> Outputs:
        """Adapt to a batch and predict it. If the alarm has stopped the method, only predict."""
        return self._predict(x) if self._stopped else self.method.step(x)

    def _predict(self, x: Tensor) -> Outputs:
        outputs = self.method.predict(x)
        remember(self.method)
        return outputs

    def _apply_on_alarm(self, level: Tensor) -> None:
        """Apply `on_alarm` if the alarm rings at this level."""
        if self.on_alarm is None or self._stopped or not rings(level):
            return
        if self.on_alarm == "stop":
            self._stopped = True
            return
        self.method.reset()
        self._alarm.reset()

    def measure(self, stretch: Stretch) -> Accuracies:
        """Return the accuracy of the model as it is, on each domain of a stretch, by the domain's
        number.

        No parameter is updated. BatchNorm keeps the method's mode, and the batches are the
        stream's. Remembered statistics change from batch to batch. At the end they are restored,
        with all other buffers and plain attributes of the network and of the method's teacher.
        `run` calls this while it holds the examples.
        """
        with keep_state(self.method):
            return _accuracy_by_domain(self._pass(stretch, self._predict))

    def _batches_of(self, held: Examples) -> list[Batch]:
        """Return the batches of a stretch."""
        size = self.batch_size
        starts = range(0, len(held.y), size)
        by_domain = [held.domains[start : start + size].argsort(kind="stable") for start in starts]
        # Copy the positions of all batches to the device at once.
        positions = torch.from_numpy(np.concatenate(by_domain)).to(held.y.device)
        batches = []
        for start in starts:
            stop = start + size
            numbers, counts = np.unique(held.domains[start:stop], return_counts=True)
            inside = positions[start:stop].split(counts.tolist())
            batches.append(Batch(start, held.order[start:stop], numbers.tolist(), inside))
        return batches

    def _pass(
        self, stretch: Stretch, predict: Callable[[Tensor], Outputs], *, along_stream: bool = False
    ) -> list[tuple[int, Record]]:
        """Predict the batches of a stretch. Return a pair per batch and domain in it: the domain's
        number, and its record.

        The results are read from the device once, after the last batch.

        along_stream: whether these are the stream's own batches. If so, the alarm is measured and
            acted on, and the agreement with the source is recorded.
        """
        held = self._held[stretch]
        batches = self._batches_of(held)
        began = time.perf_counter()
        found: list[dict[str, Tensor]] = []
        for batch in batches:
            x = self.dataset.prepare(held.x[batch.examples])
            outputs = predict(x)
            with torch.no_grad():
                z = outputs.main
                level = self._alarm(z) if along_stream else z.new_full((), math.nan)
                agrees = self._with_source(x, z) if along_stream and self._with_source else None
                found += self._measures(batch, outputs, held.y[batch.examples], level, agrees)
            if along_stream:
                self._apply_on_alarm(level)
        names = list(found[0])
        rows = [torch.stack([value.float() for value in measured.values()]) for measured in found]
        read = torch.stack(rows).tolist()
        seconds = (time.perf_counter() - began) / len(batches)
        # One row per batch and domain in it, in the order of `found`.
        places = [
            (batch_number, batch, domain_number, len(inside))
            for batch_number, batch in enumerate(batches, 1)
            for domain_number, inside in zip(batch.domains, batch.inside, strict=True)
        ]
        records: list[tuple[int, Record]] = []
        for (batch_number, batch, domain_number, count), row in zip(places, read, strict=True):
            measures = dict(zip(names, row, strict=True))
            self._require_finite(measures, stretch, f"{batch_number} of {len(batches)}")
            share = count / len(batch.examples)
            records.append((domain_number, _record(measures, batch.start, count, share * seconds)))
        return records

    def _measures(
        self, batch: Batch, outputs: Outputs, y: Tensor, level: Tensor, agrees: Tensor | None
    ) -> list[dict[str, Tensor]]:
        """Return what is measured of a batch, per domain in it: scalars on the device.

        agrees: per example, (B,), whether the source model predicts the same class as the method.
            None if this is not recorded.
        """
        z, a = outputs
        # A network may mask classes by −∞, but never all of them.
        finite = z.amax(1).isfinite().all()
        readable = finite if a is None else a.amax(1).isfinite().all()
        masked = z.isneginf().any()
        wrong = z.argmax(1) != y
        moved = self._distance()
        found = []
        for inside in batch.inside:
            part = Outputs(z[inside], None if a is None else a[inside])
            measured = {
                "errors": wrong[inside].sum(),
                "finite": finite,
                "readable": readable,
                "masked": masked,
                "moved_normalization": moved.normalization,
                "moved_others": moved.others,
                "alarm_level": level,
                "classes_predicted": classes_predicted(part.main),
            }
            if agrees is not None:
                measured["agreeing"] = agrees[inside].sum()
            found.append(measured | describe(part))
        return found

    def _require_finite(self, measures: Mapping[str, float], stretch: Stretch, batch: str) -> None:
        """Raise ValueError if the logits of a batch are not finite. A class masked by −∞ is
        allowed.
        """
        if measures["finite"] and measures["readable"]:
            return
        where = stretch[0] if len(stretch) == 1 else "the mixed stream"
        which = "logits"
        cause = "lower the learning rate"
        if not self.method.adapts:
            cause = "the network's own forward pass gives NaN or infinity; check its weights"
        if measures["finite"]:  # z is finite, so a is not.
            which = "auxiliary logits"
            if measures["masked"]:
                cause = MASKING_REMEDY
        raise ValueError(
            f"{self.method.label}: {which} not finite on {where}, batch {batch}; {cause}"
        )


def _record(measures: Mapping[str, float], position: int, count: int, seconds: float) -> Record:
    """Return a row of `Evaluation.batches`, without the domain."""
    record: Record = {"position": position, "count": count, "errors": int(measures["errors"])}
    record |= {name: measures.get(name, math.nan) for name in ABOUT_PREDICTIONS}
    record["classes_predicted"] = int(measures["classes_predicted"])
    for name in ("alarm_level", "moved_normalization", "moved_others"):
        record[name] = measures[name]
    if "agreeing" in measures:
        record["source_agreement"] = measures["agreeing"] / count
    record["seconds"] = seconds
    return record


def _accuracy_by_domain(records: Sequence[tuple[int, Record]]) -> Accuracies:
    """Return the accuracy on each domain, by the domain's number."""
    counts = Counter[int]()
    errors = Counter[int]()
    for number, record in records:
        counts[number] += record["count"]
        errors[number] += record["errors"]
    return {number: (count - errors[number]) / count for number, count in sorted(counts.items())}


def evaluate(
    method: Method,
    dataset: Dataset,
    stream: Sequence[Domain],
    batch_size: int,
    *,
    order: Order | None = None,
    dirichlet_delta: float | None = None,
    seed: int = 0,
    order_seed: int | None = None,
    transfer: bool = True,
    reset_each: bool = False,
    on_alarm: OnAlarm | None = None,
    source_agreement: bool = False,
) -> Evaluation:
    """Run a method over a stream once.

    `Evaluator` describes the options. metrics.py computes E, A and F from the result.
    """
    evaluator = Evaluator(
        method,
        dataset,
        stream,
        batch_size,
        order,
        dirichlet_delta,
        seed,
        order_seed,
        reset_each=reset_each,
        on_alarm=on_alarm,
        source_agreement=source_agreement,
    )
    return evaluator.run(transfer=transfer)
