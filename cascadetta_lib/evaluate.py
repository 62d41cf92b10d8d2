"""One loop: a method meets a stream. Online error E, average accuracy A (Eq. 1) and forward transfer F (Eq. 2).

For every t:  adapt and predict online on T_t (E), then measure the accuracy on T_t without updates, R(T_t | T_1:t);
at the end:   measure every domain, R(T_t | T_1:N) (A);
for F:        measure the source model on T_t, and a source model that was adapted to T_t alone, R(T_t | T_t).
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from cascadetta_lib.data.base import Dataset, Split
from cascadetta_lib.losses import describe
from cascadetta_lib.methods import Method
from cascadetta_lib.methods.memory import memories
from cascadetta_lib.models import Outputs
from cascadetta_lib.progress import progress
from cascadetta_lib.streams import Domain

Record = dict[str, Any]
Transfer = Literal["paper", "final", "release"]
ABOUT_PREDICTIONS = ("entropy_main", "entropy_auxiliary", "entropy_of_mean_auxiliary", "agreement")


class Evaluation(NamedTuple):
    """What a method did on a stream.

    batches: a row a batch: step (place in the stream, from 0), domain, severity, position (examples of the domain
        before the batch), count, errors, what `losses.describe` says (NaN without θ_a), seconds (a mean of the domain).
    accuracies: a row a measurement without update: step, domain, severity, kind, after, accuracy in [0, 1]. kind is
        `stream` for the model after T_1..T_after; with after = 0, `source` for the unadapted model in the method's
        BatchNorm mode, and `alone` for a source model that was adapted to this domain alone.
    """

    batches: pd.DataFrame
    accuracies: pd.DataFrame


class Evaluator:
    """Runs one method over one stream. `dataset` prepares the inputs; batches come in stored order, and the last,
    shorter one of a domain is kept or dropped."""

    def __init__(
        self,
        method: Method,
        dataset: Dataset,
        stream: Sequence[Domain],
        batch_size: int,
        last_batch: Literal["kept", "dropped"] = "kept",
    ) -> None:
        self.method, self.dataset, self.stream = method, dataset, list(stream)
        self.batch_size, self.last_batch = batch_size, last_batch
        self._held: dict[Domain, Split] = {}

    def run(self, *, transfer: bool = True) -> Evaluation:
        """E, A and F of the stream, from the source; the method is reset before and after.

        transfer: measure what F needs besides, if the method adapts.
        Raises ValueError where a domain has no whole batch and the last short one is dropped, and where the method
        predicts a logit that is not finite.
        """
        # A gradual stream meets most domains twice; each is held once.
        self._held = {domain: self.dataset.domain(*domain) for domain in dict.fromkeys(self.stream)}
        for domain, (_, y) in self._held.items():
            if self.last_batch == "dropped" and len(y) < self.batch_size:
                raise ValueError(f"{domain} has {len(y)} examples, no whole batch of {self.batch_size}")
        method, last = self.method, len(self.stream) - 1
        places = [{"step": step, "domain": name, "severity": level} for step, (name, level) in enumerate(self.stream)]
        batches: list[Record] = []
        accuracies: list[Record] = []

        def record(step: int, kind: str, after: int, accuracy: float) -> None:
            accuracies.append(places[step] | {"kind": kind, "after": after, "accuracy": accuracy})

        method.reset()
        known: dict[Domain, float] = {}
        for step, domain in enumerate(progress(self.stream, method.label, len(self.stream))):
            rows = self._pass(domain, method.step)
            batches += [places[step] | row for row in rows]
            if not method.adapts and not any(memories(method)):  # what nothing changes predicts it so at any time
                known[domain] = _accuracy(rows)
            for place in range(len(self.stream)) if step == last else [step]:
                other = self.stream[place]
                record(place, "stream", step + 1, known[other] if other in known else self.accuracy(other))
        if transfer and method.adapts:
            later = list(dict.fromkeys(self.stream[1:]))
            method.reset()
            source = {domain: self.accuracy(domain) for domain in later}
            alone = {}
            for domain in progress(later, f"{method.label}, each domain alone", len(later)):
                method.reset()
                self._pass(domain, method.step)
                alone[domain] = self.accuracy(domain)
            for step, domain in list(enumerate(self.stream))[1:]:
                record(step, "source", 0, source[domain])
                record(step, "alone", 0, alone[domain])
        method.reset()
        self._held = {}
        return Evaluation(pd.DataFrame(batches), pd.DataFrame(accuracies))

    def accuracy(self, domain: Domain) -> float:
        """Accuracy of the model as it is on a domain: no update, the method's own BatchNorm mode and batch size."""

        def predict(x: Tensor) -> Outputs:
            outputs = self.method.predict(x)
            self.method.remember()
            return outputs

        with self.method.measuring():
            return _accuracy(self._pass(domain, predict))

    def _pass(self, domain: Domain, predict: Callable[[Tensor], Outputs]) -> list[Record]:
        """Predict a domain, a record a batch. The results are read from the device once, after the last batch."""
        x, y = self._held[domain]
        end = len(y) if self.last_batch == "kept" else len(y) - self.batch_size + 1
        starts = range(0, end, self.batch_size)
        began = time.perf_counter()
        results = []
        for start in starts:
            labels = y[start : start + self.batch_size]
            outputs = predict(self.dataset.prepare(x[start : start + self.batch_size]))
            with torch.no_grad():
                z = outputs.main
                found = [(z.argmax(1) != labels).sum(), z.isfinite().all(), *describe(outputs).values()]
                results.append(torch.stack([value.float() for value in found]))
        values = torch.stack(results).tolist()
        seconds = (time.perf_counter() - began) / len(starts)
        records: list[Record] = []
        for start, (errors, finite, *about) in zip(starts, values, strict=True):
            if not finite:
                place = f"{domain}, batch {len(records) + 1} of {len(starts)}"
                raise ValueError(f"{self.method.label}: logits not finite on {place}; lower the learning rate")
            described = dict.fromkeys(ABOUT_PREDICTIONS, math.nan) | dict(zip(ABOUT_PREDICTIONS, about, strict=False))
            count = min(self.batch_size, len(y) - start)
            records.append(
                {"position": start, "count": count, "errors": int(errors)} | described | {"seconds": seconds}
            )
        return records


def _accuracy(records: list[Record]) -> float:
    count = sum(record["count"] for record in records)
    return (count - sum(record["errors"] for record in records)) / count


def online_errors(batches: pd.DataFrame) -> pd.Series:
    """Online error of each domain in the stream's order, in [0, 1]; indexed by (step, domain, severity)."""
    sums = batches.groupby(["step", "domain", "severity"])[["errors", "count"]].sum()
    return sums["errors"] / sums["count"]


def mean_online_error(batches: pd.DataFrame) -> float:
    """E: the mean over domains of the online error, in [0, 1]."""
    return float(online_errors(batches).mean())


def average_accuracy(accuracies: pd.DataFrame) -> float:
    """A (Eq. 1): mean accuracy of the final model over the domains of the stream, in [0, 1]."""
    return float(accuracies.loc[accuracies["after"] == accuracies["after"].max(), "accuracy"].mean())


def forward_transfer(accuracies: pd.DataFrame, definition: Transfer = "paper") -> float | None:
    """F in [−1, 1], or None where it was not measured. Each definition is a mean over the domains t = 2..N.

    paper (Eq. 2): R(T_t | T_1:t) − R(T_t | T_t), where the second is that of a source model adapted to T_t alone.
    final: R(T_t | T_1:N) − R(T_t | T_t), which the published tables fit better.
    release: R(T_t | T_1:N) less the accuracy of the unadapted model, because the optimiser of the release's second
        model owns other tensors than it predicts with.
    """
    later = accuracies[accuracies["step"] > 0].set_index("step")
    compared = later[later["kind"] == ("source" if definition == "release" else "alone")]
    if compared.empty:
        return None
    stream = later[later["kind"] == "stream"]
    after = stream.index + 1 if definition == "paper" else stream["after"].max()
    return float((stream.loc[stream["after"] == after, "accuracy"] - compared["accuracy"]).mean())
