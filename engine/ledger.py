"""The account of a device's bytes. Pure: no clock, no lock, no device.

The account holds what loaded models take, and lends the rest to batches for their activations. For each model a floor
of activation bytes stays free of weights, so that any model that is loaded can also run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Account:
    weights: int
    floor: int


class Ledger:
    """The bytes of one device in this process. Not locked: its owner is."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.lent = 0
        self._accounts: dict[str, _Account] = {}

    @property
    def weights(self) -> int:
        """Bytes of all models that are loaded or being loaded."""
        return sum(account.weights for account in self._accounts.values())

    @property
    def excess(self) -> int:
        """Bytes by which weights and the activation floor are over the budget; zero or less when they fit."""
        return self.weights + self._floor(0) - self.budget

    def fits_ever(self, weights: int, floor: int, beside: int = 0) -> bool:
        """Whether a model could be held if all others left but `beside` bytes that cannot."""
        return weights + floor + beside <= self.budget

    def room(self, floor: int) -> int:
        """Bytes free for the weights of a newcomer with this activation floor, once what is lent has come back."""
        return self.budget - self.weights - self._floor(floor)

    def hold(self, model: str, weights: int, floor: int) -> None:
        """Reserve a model's bytes, or correct them once they were measured."""
        self._accounts[model] = _Account(weights, floor)

    def free(self, model: str) -> None:
        """A model has gone."""
        self._accounts.pop(model, None)

    def held(self, model: str) -> int:
        """Bytes of a model's weights."""
        account = self._accounts.get(model)
        return account.weights if account else 0

    @property
    def lendable(self) -> int:
        """Bytes that a batch may take for its activations now."""
        return self.budget - self.weights - self.lent

    def lend(self, count: int) -> None:
        """A batch takes activation bytes; a negative count gives them back."""
        self.lent += count

    def _floor(self, floor: int) -> int:
        return max([floor, *(account.floor for account in self._accounts.values())])
