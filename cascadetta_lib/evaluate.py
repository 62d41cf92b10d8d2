"""One loop: a method meets a stream. Online error E, average accuracy A (Eq. 1) and forward transfer F (Eq. 2).

For every t:  adapt and predict online on T_t (E), then measure the accuracy on T_t without updates, R(T_t | T_1:t);
at the end:   measure every domain, R(T_t | T_1:N) (A);
for F:        from the source, adapt to T_t alone and measure it in the same way, R(T_t | T_t).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, cast

import pandas as pd
import torch
from torch import Tensor, nn

from cascadetta_lib.data.base import Dataset, Split
from cascadetta_lib.methods import Method
from cascadetta_lib.models import Outputs, first_linear
from cascadetta_lib.pretrain import auxiliary_diagnostics, entropy
from cascadetta_lib.progress import progress
from cascadetta_lib.streams import Domain

Transfer = Literal["paper", "release", "none"]
"""Which forward transfer F is measured, if any; see `forward_transfer`."""


class Evaluation(NamedTuple):
    """What a method did on a stream.

    batches: a row a batch: step (place in the stream, from 0), domain, severity, position (examples seen of the domain
        before the batch), count, errors, entropy_main, seconds (see Evaluator); and with θ_a, else NaN:
        entropy_auxiliary, entropy_of_mean_auxiliary (that of the batch's mean softmax(a); 0 where all get one class)
        and agreement (the share with argmax a = argmax z). Entropies in nats.
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


class _KeepingLinear(nn.Linear):
    """A linear layer that keeps its outputs of some batches, and computes them anew where the batch, or a weight, is
    another tensor than it was or has been written to since."""

    kept: dict[int, list[Any]]
    """By the identity of a batch that somebody holds: nothing yet, or what its output was computed from, and that."""

    def forward(self, x: Tensor) -> Tensor:
        kept, tensors = self.kept.get(id(x)), (x, self.weight, self.bias)
        if kept is None or (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)):
            return super().forward(x)
        origin = [(id(tensor), tensor._version) for tensor in tensors]
        if not kept or kept[0] != origin:
            # The tensors are held as well, so that their identities stay theirs.
            kept[:] = origin, super().forward(x), tensors
        return cast(Tensor, kept[1].clone())


class Evaluator:
    """Runs one method over one stream. `dataset` prepares the inputs; batches come in stored order.

    Every batch is predicted five times or so. A linear layer that the network begins with and no update moves (text:
    all methods but CoTTA) is computed once for E and A and once for F, and the seconds of other steps do not hold it.
    """

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
        self._prepared: dict[tuple[int, int], tuple[Tensor, int]] = {}
        self._layer: _KeepingLinear | None = None

    def run(self, *, matrix: bool = False, transfer: Transfer = "paper") -> Evaluation:
        """E, A and F of the stream, from the source; the method is reset before and after.

        matrix: measure every domain after every domain, R(T_i | T_1:j), instead of what E, A and F need alone.
        transfer: what F needs besides: `paper` a source model adapted to each domain alone (after = −1), `release` the
        model before the first update (after = 0), `none` nothing, for there is no F.
        Raises ValueError where a domain has no whole batch and the last short one is dropped.
        """
        with self._first_layer_once():
            return self._run(matrix, transfer)

    def _run(self, matrix: bool, transfer: Transfer) -> Evaluation:
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
        # A model that nothing changes predicts a domain as it did before.
        unchanging = not self.method.adapts and not self.method.memory
        known: dict[int, float] = {}

        def measured(step: int, after: int, accuracy: float | None = None) -> None:
            if accuracy is None:
                accuracy = known[step] if step in known else self.accuracy(domains[step])
            name, severity = self.stream[step]
            accuracies.append(
                {"step": step, "domain": name, "severity": severity, "after": after, "accuracy": accuracy}
            )

        for step in range(len(domains)) if self.method.adapts and transfer == "release" else []:
            measured(step, 0)
        for step in progress(range(len(domains)), self.method.label, len(domains)):
            records = self.adapt(domains[step])
            batches += [self._describe(step) | record for record in records]
            if unchanging:
                total = sum(record["count"] for record in records)
                known[step] = (total - sum(record["errors"] for record in records)) / total
            for other in range(len(domains)) if matrix or step == last else [step]:
                measured(other, step + 1)
        if self.method.adapts and transfer == "paper":
            # Every source model is the same, so a domain that a gradual stream meets twice is adapted to alone once.
            alone: dict[Domain, float] = {}
            for step in progress(range(1, len(domains)), f"{self.method.label}, each domain alone", last):
                domain = self.stream[step]
                if domain not in alone:
                    self.method.reset()
                    self.adapt(held[domain])
                    alone[domain] = self.accuracy(held[domain])
                measured(step, -1, alone[domain])
        self.method.reset()
        return Evaluation(pd.DataFrame(batches), pd.DataFrame(accuracies))

    @contextmanager
    def _first_layer_once(self) -> Iterator[None]:
        """Inside, every batch is prepared once and kept, and so is what a first linear layer makes of it."""
        layer = first_linear(self.method.model)
        if layer is None or {*layer.parameters()} & {*self.method.adapted_parameters()}:
            yield
            return
        layer.__class__ = _KeepingLinear
        assert isinstance(layer, _KeepingLinear)
        layer.kept = {}
        self._prepared, self._layer = {}, layer
        try:
            yield
        finally:
            self._prepared, self._layer = {}, None
            del layer.kept
            layer.__class__ = nn.Linear  # type: ignore[assignment]

    def _prepare(self, domain: Split, x: Tensor, start: int) -> Tensor:
        """The network's input of a batch in stored form, which begins at `start` of its domain."""
        if self._layer is None:
            return self.dataset.prepare(x)
        prepared, version = self._prepared.get((id(domain.x), start), (None, 0))
        if prepared is None or prepared._version != version:
            prepared = self.dataset.prepare(x)
            self._prepared[id(domain.x), start] = prepared, prepared._version
            self._layer.kept[id(prepared)] = []
        return prepared

    def _describe(self, step: int) -> dict[str, object]:
        return {"step": step, "domain": self.stream[step].name, "severity": self.stream[step].severity}

    def _predictions(
        self, domain: Split, predict: Callable[[Tensor], Outputs]
    ) -> Iterator[tuple[slice, Outputs, Tensor, float]]:
        for batch in split_batches(domain.x, self.batch_size, self.last_batch):
            x, y = domain.take(batch)
            started = time.perf_counter()
            outputs = predict(self._prepare(domain, x, batch.start))
            if x.is_cuda:
                torch.cuda.synchronize()
            yield batch, outputs, y, time.perf_counter() - started

    def adapt(self, domain: Split) -> list[dict[str, Any]]:
        """Adapt to a domain batch by batch and record each batch's online prediction."""
        records: list[dict[str, Any]] = []
        for batch, outputs, y, seconds in self._predictions(domain, self.method.step):
            records.append(
                {
                    "position": batch.start,
                    "count": len(y),
                    "errors": int((outputs.main.argmax(1) != y).sum()),
                    "entropy_main": entropy(outputs.main).mean().item(),
                    "seconds": seconds,
                }
                | auxiliary_diagnostics(outputs)
            )
        return records

    def accuracy(self, domain: Split) -> float:
        """Accuracy of the model as it is on a domain: no update, the method's own BatchNorm mode and batch size."""
        correct = total = 0
        with self.method.measuring():
            for _, outputs, y, _ in self._predictions(domain, self.method.predict):
                self.method.remember()
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


def forward_transfer(accuracies: pd.DataFrame, definition: Transfer = "paper") -> float | None:
    """F in [−1, 1], or None where it was not measured: for a method that never updates, or with transfer="none".

    paper (Eq. 2): over t = 2..N, R(T_t | T_1:t) less the accuracy of a source model adapted to T_t alone.
    release: over the same, the final model's accuracy less that of the unadapted model, because the optimiser of the
    release's second model owns other tensors than it predicts with.
    """
    table = accuracies.pivot(index="step", columns="after", values="accuracy")
    reference = {"paper": -1, "release": 0, "none": None}[definition]
    later = table.index[table.index > 0]
    if reference not in table or len(later) == 0:
        return None
    final = max(table.columns)
    reached = [table.loc[step, step + 1 if definition == "paper" else final] for step in later]
    return float((pd.Series(reached, index=later) - table.loc[later, reference]).mean())
