"""One loop: a method meets a stream. Online error E, average accuracy A (Eq. 1) and forward transfer F (Eq. 2).

For every t:  adapt and predict online on T_t (E), then measure the accuracy on T_t without updates, R(T_t | T_1:t);
at the end:   measure every domain, R(T_t | T_1:N) (A);
for F:        from the source, adapt to T_t alone and measure it in the same way, R(T_t | T_t).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from cascadetta_lib.data.base import Dataset, Split
from cascadetta_lib.methods import Method
from cascadetta_lib.models import Outputs
from cascadetta_lib.pretrain import entropy
from cascadetta_lib.progress import progress
from cascadetta_lib.streams import Domain


class Evaluation(NamedTuple):
    """What a method did on a stream.

    batches: a row a batch: step (place in the stream, from 0), domain, severity, position (examples seen of the domain
        before the batch), count, errors, entropy_main, entropy_auxiliary (nats; NaN without θ_a), seconds.
    accuracies: a row a measurement without update: step, domain, severity, after (how many domains were seen; 0 for the
        unadapted model, −1 for a source model that was adapted to this domain alone), accuracy in [0, 1].
    """

    batches: pd.DataFrame
    accuracies: pd.DataFrame


def split_batches(x: Tensor, batch_size: int, last_batch: Literal["kept", "dropped"]) -> Iterator[slice]:
    """Slices of `batch_size`; the last, shorter one is kept or dropped."""
    for start in range(0, len(x), batch_size):
        if last_batch == "kept" or start + batch_size <= len(x):
            yield slice(start, min(start + batch_size, len(x)))


class Evaluator:
    """Runs one method over one stream. `dataset` prepares the inputs; batches come in stored order."""

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

    def run(self, *, matrix: bool = False, unadapted: bool = False) -> Evaluation:
        """E, A and F of the stream, from the source; the method is reset before and after.

        matrix: measure every domain after every domain, R(T_i | T_1:j), instead of what E, A and F need alone.
        unadapted: measure every domain before the first update as well (after = 0).
        Raises ValueError where a domain has no whole batch and the last short one is dropped.
        """
        # A gradual stream meets most domains twice; each is held once.
        held = {domain: self.dataset.domain(*domain) for domain in dict.fromkeys(self.stream)}
        domains = [held[domain] for domain in self.stream]
        last = len(domains) - 1
        for domain, (_, y) in zip(self.stream, domains, strict=True):
            if self.last_batch == "dropped" and len(y) < self.batch_size:
                raise ValueError(f"{domain} has {len(y)} examples, no whole batch of {self.batch_size}")
        self.method.reset()
        batches: list[dict[str, object]] = []
        accuracies: list[dict[str, object]] = []

        def measured(step: int, after: int) -> None:
            accuracy = self.accuracy(domains[step])
            name, severity = self.stream[step]
            accuracies.append(
                {"step": step, "domain": name, "severity": severity, "after": after, "accuracy": accuracy}
            )

        for step in range(len(domains)) if unadapted else []:
            measured(step, 0)
        for step in progress(range(len(domains)), self.method.label, len(domains)):
            batches += [self._describe(step) | record for record in self.adapt(domains[step])]
            for other in range(len(domains)) if matrix or step == last else [step]:
                measured(other, step + 1)
        if self.method.adapts:
            for step in progress(range(1, len(domains)), f"{self.method.label}, each domain alone", last):
                self.method.reset()
                self.adapt(domains[step])
                measured(step, -1)
        self.method.reset()
        return Evaluation(pd.DataFrame(batches), pd.DataFrame(accuracies))

    def _describe(self, step: int) -> dict[str, object]:
        return {"step": step, "domain": self.stream[step].name, "severity": self.stream[step].severity}

    def _predictions(
        self, domain: Split, predict: Callable[[Tensor], Outputs]
    ) -> Iterator[tuple[slice, Outputs, Tensor, float]]:
        for batch in split_batches(domain.x, self.batch_size, self.last_batch):
            x, y = domain.take(batch)
            started = time.perf_counter()
            outputs = predict(self.dataset.prepare(x))
            if x.is_cuda:
                torch.cuda.synchronize()
            yield batch, outputs, y, time.perf_counter() - started

    def adapt(self, domain: Split) -> list[dict[str, object]]:
        """Adapt to a domain batch by batch and record each batch's online prediction."""
        records: list[dict[str, object]] = []
        for batch, outputs, y, seconds in self._predictions(domain, self.method.step):
            auxiliary = float("nan") if outputs.auxiliary is None else entropy(outputs.auxiliary).mean().item()
            records.append(
                {
                    "position": batch.start,
                    "count": len(y),
                    "errors": int((outputs.main.argmax(1) != y).sum()),
                    "entropy_main": entropy(outputs.main).mean().item(),
                    "entropy_auxiliary": auxiliary,
                    "seconds": seconds,
                }
            )
        return records

    def accuracy(self, domain: Split) -> float:
        """Accuracy of the model as it is on a domain: no update, the method's own BatchNorm mode and batch size."""
        correct = total = 0
        for _, outputs, y, _ in self._predictions(domain, self.method.predict):
            correct += int((outputs.main.argmax(1) == y).sum())
            total += len(y)
        return correct / total


def online_errors(batches: pd.DataFrame) -> pd.Series:
    """Online error of each domain in the stream's order, in [0, 1]; indexed by (step, domain, severity)."""
    sums = batches.groupby(["step", "domain", "severity"], sort=True)[["errors", "count"]].sum()
    return sums["errors"] / sums["count"]


def mean_online_error(batches: pd.DataFrame) -> float:
    """E: the mean over domains of the online error, in [0, 1]."""
    return float(online_errors(batches).mean())


def average_accuracy(accuracies: pd.DataFrame) -> float:
    """A (Eq. 1): mean accuracy of the final model over the domains of the stream, in [0, 1]."""
    final = accuracies[accuracies["after"] == accuracies["after"].max()]
    return float(final["accuracy"].mean())


def forward_transfer(accuracies: pd.DataFrame, definition: Literal["paper", "release"] = "paper") -> float | None:
    """F in [−1, 1], or None for a method that never updates.

    paper (Eq. 2): over t = 2..N, R(T_t | T_1:t) less the accuracy of a source model adapted to T_t alone.
    release: the final model's accuracy in the place of R(T_t | T_1:t); what its second model adapts belongs to other
    tensors than it predicts with, so there `accuracies` must hold the unadapted model's (after = 0).
    """
    table = accuracies.pivot(index="step", columns="after", values="accuracy")
    alone = {"paper": -1, "release": 0}[definition]
    if -1 not in table:
        return None
    if alone not in table:
        raise ValueError("F as in the release needs the unadapted model's accuracies; evaluate with unadapted=True")
    later = table.index[table.index > 0]
    if len(later) == 0:
        return None
    final = max(table.columns)
    reached = [table.loc[step, step + 1 if definition == "paper" else final] for step in later]
    return float((pd.Series(reached, index=later) - table.loc[later, alone]).mean())
