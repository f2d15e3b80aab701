"""What a device's bytes are given to, in this process. No clock, no lock: its owner has both.

The books hold what models take, and lend the rest to batches for their activations. For each model a floor of
activation bytes stays free of weights, so that any model that is loaded can also run.

Whatever this process may hold is agreed with the device's account first, which others share. That costs a little, so
the share covers the most that batches have taken at once until `refresh` gives back what they no longer need, and a
batch within it asks nobody.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from engine.account import Account, Share
from engine.memory import Memory
from engine.shares import foreign, together


@dataclass(slots=True)
class _Entry:
    """One model. Its weights are `taken` once the account covers them, and `loaded` once they are where they belong."""

    weights: int
    floor: int
    taken: bool
    loaded: bool
    leaving: bool = False
    lent: int = 0


class Ledger:
    """The bytes of one device in this process, or of host memory, which has no account. The only caller of the account.

    `phantom` is for a device that takes no memory: all that is held stays free by its own word. `short` is what the
    device lacks, by its last word, of what this process was given and has not taken: somebody else has grown into it.
    """

    def __init__(self, budget: int, account: Account | None = None, *, phantom: bool = False) -> None:
        self.budget = budget
        self.lent = 0
        self._account = account
        self._phantom = phantom
        self._entries: dict[str, _Entry] = {}
        self._said = Share()
        self._reserve = 0
        self._spare = 0
        self.short = 0
        self.refresh()

    @property
    def weights(self) -> int:
        """Bytes of all models that are there, that are leaving, and for which room was promised."""
        return sum(entry.weights for entry in self._entries.values())

    @property
    def excess(self) -> int:
        """Bytes by which the weights that stay and the floor are over the budget; zero or less when they fit."""
        return self._staying + self._floor(0) - self.budget

    @property
    def ceiling(self) -> int:
        """The most that this process may hold as things stand: its budget, or what others leave of the device."""
        if self._account is None:
            return self.budget
        return min(self.budget, self._said.held + self._spare)

    @property
    def lendable(self) -> int:
        """Bytes that a batch may take for its activations now, by the account's last word."""
        return self.ceiling - self.weights - self.lent

    def fits_ever(self, weights: int, floor: int, beside: int = 0) -> bool:
        """Whether a model could be held if all others left but `beside` bytes that cannot."""
        return weights + floor + beside <= self.budget

    def room(self, floor: int, but: Collection[str] = ()) -> int:
        """Bytes free for the weights of a newcomer with this activation floor, once what leaves or is lent is back.

        The floors of the models in `but` are left out, as if these had none.
        """
        return self.ceiling - self._staying - self._floor(floor, but)

    def reach(self) -> int:
        """The most that this process could hold if all other processes of ours held nothing."""
        return self.budget if self._account is None else min(self.budget, self.ceiling + self._account.others().held)

    def reserve(self, model: str, weights: int, floor: int) -> None:
        """Promise a newcomer its room, which others may not have given up yet."""
        self._entries[model] = _Entry(weights, floor, taken=False, loaded=False)

    def take(self, model: str) -> bool:
        """Take what was promised. False, and the promise stands, if it is not free, or the account does not give it."""
        entry = self._entries[model]
        entry.taken = True
        if self._taken + self._kept <= self.budget and self._agree(self._kept):
            return True
        entry.taken = False
        return False

    def given_up(self, model: str) -> bool:
        """Whether all that this model's room was promised of has been given up."""
        mine = self._entries[model].weights
        return sum(e.weights for e in self._entries.values() if e.taken) + mine + self._floor(0) <= self.budget

    @property
    def repaid(self) -> bool:
        """Whether batches leave the weights their room, or nothing is lent that could come back."""
        return not self.lent or self.weights + self.lent <= self.ceiling

    @property
    def out_of_reach(self) -> bool:
        """Whether the weights have no room even with all that is lent given back: others have taken it meanwhile."""
        return self._staying + self._floor(0) > self.ceiling

    def hold(self, model: str, weights: int, floor: int) -> None:
        """Note what a model takes, as measured, whether it fits or not."""
        before = self._entries.get(model)
        self._entries[model] = _Entry(weights, floor, taken=True, loaded=True, lent=before.lent if before else 0)
        self._agree(self._kept, force=True)

    def leave(self, model: str) -> None:
        """The model is about to go: its room may be promised to others."""
        entry = self._entries.get(model)
        if entry is not None:
            entry.leaving = True

    def free(self, model: str) -> None:
        """A model has gone."""
        entry = self._entries.pop(model, None)
        if entry is not None:
            # Until the device is asked again, so that nobody else goes for the same bytes.
            self.short = max(0, self.short - entry.weights)
            self._agree(self._kept, force=True)

    def held(self, model: str) -> int:
        """Bytes of a model's weights."""
        entry = self._entries.get(model)
        return entry.weights if entry else 0

    def lent_to(self, model: str) -> int:
        """Activation bytes that this model's batches have."""
        entry = self._entries.get(model)
        return entry.lent if entry else 0

    def lend(self, count: int, model: str = "") -> None:
        """A batch takes activation bytes, whether the account has them or not; a negative count gives them back."""
        self._lend(count, model)
        if self.lent > self._reserve:
            self._agree(self.lent, force=True)

    def try_lend(self, count: int, model: str = "") -> bool:
        """A batch takes activation bytes; False, and nothing is lent, if budget or account do not give them."""
        if self._taken + self.lent + count > self.budget:
            self._spare = 0 if self._account is None else self._account.room()
            return False
        if self.lent + count > self._reserve and not self._agree(self.lent + count):
            return False
        self._lend(count, model)
        return True

    def refresh(self) -> None:
        """Hear the account anew, and give back what batches have not needed lately. Call it about once a second."""
        if self._account is not None:
            self._agree(self._kept, force=True)
            self._spare = self._account.room()
            self.short = self._account.short(0 if self._phantom else self.lent)

    def want(self, count: int) -> None:
        """Tell other workers that so many bytes are waited for, which they hold; 0 ends that."""
        if self._account is not None:
            self._account.want(count)

    def pressed(self, gives: int) -> bool:
        """Whether another worker waits for what this one holds, of which it could give up so many bytes."""
        return self._account is not None and self._account.pressed(gives)

    def others(self) -> Share:
        """What other processes of ours hold on the device."""
        return Share() if self._account is None else self._account.others()

    def foreign(self, memory: Memory) -> int:
        """Bytes used on the device that are nobody's of ours.

        This process's own beyond its models (batches that run, on a CPU Python and its libraries) are not among them.
        Of other workers only what is on their account is known.
        """
        beyond = max(0, memory.ours - (self._said.held - self._said.pending))
        return max(0, foreign(memory, together((self._said, self.others()))) - beyond)

    def tell_foreign(self) -> str:
        """Who else is on the device, for a message."""
        return "" if self._account is None else self._account.tell_foreign()

    def close(self) -> None:
        """Leave the account; what is done from here on asks nobody."""
        if self._account is not None:
            self._account.close()
            self._account = None

    @property
    def _kept(self) -> int:
        """What batches have, or the largest floor if that is more. A floor that was promised comes with its weights."""
        return max([self.lent, *(entry.floor for entry in self._entries.values() if entry.taken)])

    @property
    def _taken(self) -> int:
        return sum(entry.weights for entry in self._entries.values() if entry.taken)

    @property
    def _staying(self) -> int:
        return sum(entry.weights for entry in self._entries.values() if not entry.leaving)

    def _lend(self, count: int, model: str) -> None:
        self.lent += count
        entry = self._entries.get(model)
        if entry is not None:
            entry.lent += count

    def _floor(self, floor: int, but: Collection[str] = ()) -> int:
        return max([floor, *(entry.floor for model, entry in self._entries.items() if model not in but)])

    def _agree(self, reserve: int, *, force: bool = False) -> bool:
        """Set this process's share to the weights taken and `reserve` for batches; False if it is refused."""
        if self._account is None:
            self._reserve = reserve
            return True
        taken = [entry for entry in self._entries.values() if entry.taken]
        held = reserve + sum(entry.weights for entry in taken)
        pending = held if self._phantom else reserve + sum(entry.weights for entry in taken if not entry.loaded)
        share = Share(held, pending)
        if share == self._said and reserve == self._reserve:
            return True
        if not self._account.hold(share, force=force):
            self._spare = self._account.room()
            return False
        self._spare = max(0, self._spare - (held - self._said.held))
        self._said, self._reserve = share, reserve
        return True
