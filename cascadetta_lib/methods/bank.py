"""Methods that keep examples of the stream, to learn from them again."""

from typing import Any, ClassVar

from torch import Tensor

from cascadetta_lib.methods.base import Method


class WithBank(Method):
    """A method with a memory of examples.

    bank: the examples, (bank_size, …). Empty before the first batch, which tells their shape.
    kept: what the method knows of each of them, in the order of the bank.
    arrived: how many examples came so far.

    Class attribute: `bank_size` is the most examples that it keeps.
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
        """Put an example (…) at `place` of the bank, replacing what is there; None: drop it."""
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
