"""The base class of methods that keep examples of the stream, to learn from them again."""

from typing import Any, ClassVar

from torch import Tensor

from cascadetta_lib.methods.base import Method


class WithBank(Method):
    """A method with a memory of examples.

    bank: the examples, (bank_size, …), of which the first len(kept) count. Empty before the first
        example.
    kept: what the method knows of each example in the bank, in the same order.
    arrived: how many examples of the stream have come so far.

    Class attribute: `bank_size` is the largest number of examples in the bank.
    """

    bank_size: ClassVar[int] = 64
    bank: Tensor
    kept: list[Any]
    arrived: int

    def configure_model(self) -> None:
        super().configure_model()
        self.register_buffer("bank", next(self.model.parameters()).new_empty(0))

    @property
    def examples(self) -> Tensor:
        """The examples in the memory, (n, …)."""
        return self.bank[: len(self.kept)]

    def keep(self, example: Tensor, known: Any, place: int | None) -> None:
        """Put an example (…) at `place` of the bank, and what is `known` of it at the same place of
        `kept`.

        An example that is at this place already is replaced. place: None drops the new example.
        """
        if not len(self.bank):
            self.bank = example.new_empty(self.bank_size, *example.shape)
        if place is not None:
            self.kept[place : place + 1] = [known]
            self.bank[place] = example

    def reset(self) -> None:
        self.kept = []
        self.arrived = 0
        self.bank = self.bank.new_empty(0)
        super().reset()
