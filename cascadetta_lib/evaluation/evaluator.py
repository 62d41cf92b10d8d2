"""One loop: a method meets a stream. What is recorded gives E, A and F (metrics.py).

For E:  adapt to each domain T_t and predict it, online.
For A:  at the end, measure every domain without updates, R(T_t | T_1:N).
For F:  measure T_t without updates, by three models: one that has just passed it, R(T_t | T_1:t);
        the source model; and a source model that adapted to T_t alone, R(T_t | T_t).

Everything is measured on the very batches of the stream, since methods take statistics from their
batch. streams.draw_order says in which order the examples come.

On a `correlated` stream E, A and F have the same definitions; its batches only hold few labels. A
`mixed` stream is one pass over all domains together, in mixed batches. Its E is the mean over
domains of the online error on each one's examples, and its A is the mean of the final model's
accuracy on them. F is not defined there, because no domain comes after another.

With `reset_each` a method begins each domain from the source. A is then the mean accuracy of the
models that adapted to one domain each, on that domain, and there is no F.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from cascadetta_lib.data.base import Dataset
from cascadetta_lib.data.streams import MIXED, Domain, Order, draw_order, shuffle_examples
from cascadetta_lib.evaluation.alarm import LEAST, Alarm, OnAlarm, classes_predicted
from cascadetta_lib.evaluation.distance import Distance
from cascadetta_lib.losses import describe
from cascadetta_lib.methods import Method
from cascadetta_lib.methods.refusals import MASK_AFTER, values_per_channel
from cascadetta_lib.models import Outputs
from cascadetta_lib.models.remembered_statistics import keep_statistics
from cascadetta_lib.progress import progress

Record = dict[str, Any]
ABOUT_PREDICTIONS = ("entropy_main", "entropy_auxiliary", "entropy_of_mean_auxiliary", "agreement")


class Evaluation(NamedTuple):
    """The record of a method on a stream.

    batches: a row per batch; of a mixed stream, a row per domain in a batch. Its columns:

    step: the domain's place in the stream, from 0.
    domain, severity.
    position: how many examples of the domain (or of the whole mixed stream) came before the batch.
    count, errors.
    classes_predicted: how many classes the examples are predicted as.
    alarm_level: the level of `alarm.Alarm` after the batch. The alarm rings below alarm.LEAST.
    what `losses.describe` says of the batch (NaN without θ_a).
    moved_normalization, moved_others: how far the adapted parameters are from the source after the
        batch; see distance.Moved.
    seconds: the mean time of a batch in this stretch; on a mixed stream, the row's share of it by
        count.

    accuracies: a row per measurement without update. Its columns:

    step, domain, severity.
    kind: which model was measured. `stream`: the model after T_1..T_after. `source`: the unadapted
        model in the method's BatchNorm mode. `alone`: a source model that adapted to this domain
        alone.
    after: how many domains the model of kind `stream` had passed; 0 for the other kinds.
    accuracy: in [0, 1].
    """

    batches: pd.DataFrame
    accuracies: pd.DataFrame


Stretch = tuple[Domain, ...]
"""What a method passes without a break: one domain, or all domains of a mixed stream."""


class Examples(NamedTuple):
    """The examples of a stretch, as stored.

    x: (N, ...). y: their labels, (N,).
    order: (N,), the indices of the examples, in the order in which they come.
    domains: (N,), in that order: for each example, its domain's place in the stretch.
    """

    x: Tensor
    y: Tensor
    order: Tensor
    domains: np.ndarray


@dataclass
class Evaluator:
    """Run one method over one stream, which is taken as it is.

    `dataset` prepares the inputs. Batches come in an order that `seed` and δ draw (see
    streams.draw_order). The last batch of a domain, or of a mixed stream, may be shorter.

    order_seed: draws the order of the examples in place of `seed`, so that runs of different seeds
    can see one order. The examples of a domain are then shuffled on every stream (see
    streams.shuffle_examples).
    reset_each: whether the method goes back to the source before each domain.
    on_alarm: what follows a batch at which the alarm rings. `reset`: the method goes back to the
        source, and the alarm begins again. `stop`: the method only predicts from then on. None:
        nothing. With either, every batch waits for the device. F's models that adapt to one domain
        alone have no alarm.
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
    _held: dict[Stretch, Examples] = field(init=False, default_factory=dict)
    _alarm: Alarm = field(init=False, default_factory=Alarm)
    _stopped: bool = field(init=False, default=False)
    _distance: Distance = field(init=False)

    def run(self, *, transfer: bool = True) -> Evaluation:
        """Return the records of batches and accuracies, from which metrics.py works out E, A and F.

        The method is reset before and after.

        transfer: also measure what F needs, if the method adapts and the domains have an order.

        Raises ValueError where the last batch of a domain is too small for the network, before it
        starts; and where the logits of a prediction, or those of θ_a, are NaN, +∞, or −∞ for every
        class.
        """
        method = self.method
        is_mixed = self.order in MIXED
        transfer = transfer and method.adapts and not is_mixed and not self.reset_each
        stretches: list[Stretch] = [(domain,) for domain in self.stream]
        if is_mixed:
            stretches = [tuple(self.stream)]
        self._hold(stretches)
        self._require_last_batch()
        places = [
            {"step": step, "domain": name, "severity": level}
            for step, (name, level) in enumerate(self.stream)
        ]
        batches: list[Record] = []
        accuracies: list[Record] = []

        def record(first: int, kind: str, after: int, measured: Mapping[int, float]) -> None:
            for place, accuracy in measured.items():
                accuracies.append(
                    places[first + place] | {"kind": kind, "after": after, "accuracy": accuracy}
                )

        method.reset()
        self._alarm.reset()
        self._stopped = False
        self._distance = Distance(method)
        final: dict[Stretch, Mapping[int, float]] = {}
        for step, stretch in enumerate(progress(stretches, method.label, len(stretches))):
            if self.reset_each:
                method.reset()
            rows = self._pass(stretch, self._step, alarmed=True)
            batches += [places[step + place] | row for place, row in rows]
            if not method.has_state:  # The stream's own predictions are the final model's.
                final[stretch] = _accuracies(rows)
            elif self.reset_each:
                final[stretch] = self.accuracies(stretch)
            if transfer and step + 1 < len(stretches):
                record(step, "stream", step + 1, self.accuracies(stretch))
        for step, stretch in enumerate(stretches):
            if stretch not in final:
                final[stretch] = self.accuracies(stretch)
            record(step, "stream", len(self.stream), final[stretch])
        if transfer:
            later = list(dict.fromkeys(stretches[1:]))
            method.reset()
            source = {stretch: self.accuracies(stretch) for stretch in later}
            alone = {}
            for stretch in progress(later, f"{method.label}, each domain alone", len(later)):
                method.reset()
                self._pass(stretch, method.step)
                alone[stretch] = self.accuracies(stretch)
            for step, stretch in list(enumerate(stretches))[1:]:
                record(step, "source", 0, source[stretch])
                record(step, "alone", 0, alone[stretch])
        method.reset()
        self._held = {}
        return Evaluation(pd.DataFrame(batches), pd.DataFrame(accuracies))

    def _hold(self, stretches: Sequence[Stretch]) -> None:
        """Read the examples and draw their order, once per domain, though a gradual stream meets it
        twice.
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
            if self.order is None and self.order_seed is not None:
                order = shuffle_examples(len(y), self.order_seed)
            else:
                labels = y.cpu().numpy()
                order = draw_order(self.order, labels, self.dirichlet_delta, generator)
            domains = np.repeat(np.arange(len(splits)), [len(split.y) for split in splits])[order]
            self._held[stretch] = Examples(x, y, torch.from_numpy(order).to(y.device), domains)

    def _require_last_batch(self) -> None:
        """Raise ValueError if a BatchNorm cannot normalise a last batch of a single example."""
        for held in self._held.values():
            if len(held.y) % self.batch_size == 1:
                with values_per_channel(self.method.label, 1):
                    self.method.predict(self.dataset.prepare(held.x[:1]))
                return

    def _step(self, x: Tensor) -> Outputs:
        """Adapt to a batch and predict it, or predict it alone after an alarm has stopped it."""
        return self._predict(x) if self._stopped else self.method.step(x)

    def _predict(self, x: Tensor) -> Outputs:
        outputs = self.method.predict(x)
        self.method.remember()
        return outputs

    def _answer(self, level: Tensor) -> None:
        """Do what is asked for where the alarm rings at this level."""
        if self.on_alarm is None or self._stopped or level.item() >= LEAST:
            return
        if self.on_alarm == "stop":
            self._stopped = True
            return
        self.method.reset()
        self._alarm.reset()

    def accuracies(self, stretch: Stretch) -> dict[int, float]:
        """Return the accuracy of the model as it is, per domain of a stretch, by the domain's
        place.

        Nothing is updated. BatchNorm has the method's own mode, and the batches are the stream's.
        """

        with keep_statistics(self.method):
            return _accuracies(self._pass(stretch, self._predict))

    def _pass(
        self, stretch: Stretch, predict: Callable[[Tensor], Outputs], *, alarmed: bool = False
    ) -> list[tuple[int, Record]]:
        """Predict a stretch. Return a record per batch and domain in it, with the domain's place.

        The results are read from the device once, after the last batch. alarmed: whether the alarm
        takes in these batches.
        """
        x, y, order, domains = self._held[stretch]
        starts = range(0, len(y), self.batch_size)
        # Per batch the places in it, sorted by domain. All are copied to the device at once.
        grouped = np.concatenate(
            [domains[start : start + self.batch_size].argsort(kind="stable") for start in starts]
        )
        groups = torch.from_numpy(grouped).to(y.device)
        began = time.perf_counter()
        names: list[str] = []
        results = []
        found = []
        for start in starts:
            now = order[start : start + self.batch_size]
            here = domains[start : start + self.batch_size]
            z, a = predict(self.dataset.prepare(x[now]))
            with torch.no_grad():
                # A network may mask classes by −∞, but never all of them.
                finite = z.amax(1).isfinite().all()
                readable = finite if a is None else a.amax(1).isfinite().all()
                wrong = z.argmax(1) != y[now]
                moved = self._distance()
                level = self._alarm(z) if alarmed else z.new_full((), math.nan)
                places, counts = np.unique(here, return_counts=True)
                insides = groups[start : start + self.batch_size].split(counts.tolist())
                for place, inside in zip(places, insides, strict=True):
                    part = Outputs(z[inside], None if a is None else a[inside])
                    measured = {
                        "errors": wrong[inside].sum(),
                        "finite": finite,
                        "readable": readable,
                        "moved_normalization": moved.normalization,
                        "moved_others": moved.others,
                        "alarm_level": level,
                        "classes_predicted": classes_predicted(part.main),
                    }
                    measured |= describe(part)
                    names = list(measured)
                    results.append(torch.stack([value.float() for value in measured.values()]))
                    found.append((int(place), start, len(inside), len(inside) / len(here)))
            if alarmed:
                self._answer(level)
        read = torch.stack(results).tolist()
        seconds = (time.perf_counter() - began) / len(starts)
        records: list[tuple[int, Record]] = []
        for (place, start, count, share), values in zip(found, read, strict=True):
            measures = dict(zip(names, values, strict=True))
            if not (measures["finite"] and measures["readable"]):
                name = stretch[0] if len(stretch) == 1 else "the mixed stream"
                where = f"{name}, batch {start // self.batch_size + 1} of {len(starts)}"
                which = "logits"
                cause = "lower the learning rate" if self.method.adapts else "look at the network"
                if measures["finite"]:
                    which = "auxiliary logits"
                    cause = MASK_AFTER
                raise ValueError(f"{self.method.label}: {which} not finite on {where}; {cause}")
            record: Record = {"position": start, "count": count, "errors": int(measures["errors"])}
            record |= {name: measures.get(name, math.nan) for name in ABOUT_PREDICTIONS}
            record["classes_predicted"] = int(measures["classes_predicted"])
            for name in ("alarm_level", "moved_normalization", "moved_others"):
                record[name] = measures[name]
            record["seconds"] = share * seconds
            records.append((place, record))
        return records


def _accuracies(records: Sequence[tuple[int, Record]]) -> dict[int, float]:
    """Return the accuracy per domain, by its place in the stretch."""
    counts = Counter[int]()
    errors = Counter[int]()
    for place, record in records:
        counts[place] += record["count"]
        errors[place] += record["errors"]
    return {place: (count - errors[place]) / count for place, count in sorted(counts.items())}


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
) -> Evaluation:
    """Run a method over a stream once; see `Evaluator` for the options, and metrics.py for E, A and
    F of the result.
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
    )
    return evaluator.run(transfer=transfer)
