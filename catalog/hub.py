"""Models that no YAML names: found in the operator's folders or on the hub by their name, and kept under a revision.

A name becomes `org/name@revision`, which means the same files to every process that reads it; a job carries that. Only
config files are read to find out what a model is (`catalog.resolve`). A name that leads nowhere is not looked for again
for a minute.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass

from catalog.errors import CatalogError, UnservedModel, WeightsReason, WeightsUnavailable
from catalog.loader import DEFAULT, Choice, not_allowed
from catalog.places import Place
from catalog.resolve import Refusal, resolve

log = logging.getLogger(__name__)

NAME = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?(?:@[A-Za-z0-9][A-Za-z0-9._-]{0,79})?"
)
"""A repository, perhaps at a revision. No part of it can leave a folder."""

_MOST = 4096
"""So many names are remembered; callers choose them."""


@dataclass(frozen=True, slots=True)
class _Found:
    choice: Choice | None
    error: CatalogError | None
    until: float


class HubModels:
    """Finds models by name in `places`, the first that has it. Thread-safe.

    `trusted` names those that may have what they need. Several threads that want one name look for it once.
    """

    def __init__(
        self,
        places: Collection[Place],
        *,
        trusted: Collection[str] = (),
        remember_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places = tuple(places)
        self._trusted = frozenset(trusted)
        self._remember_s = remember_s
        self._clock = clock
        self._lock = threading.Lock()
        self._looking: dict[str, threading.Lock] = {}
        self._found: OrderedDict[str, _Found] = OrderedDict()

    def may_know(self, name: str) -> bool:
        """Whether it is worth looking for this name: it is one of a repository, and not remembered."""
        return NAME.fullmatch(name) is not None and self._remembered(name) is None

    def known(self, name: str) -> Choice | None:
        """What was found of a name before; None where nobody has looked for it lately.

        Raises what looking for it ended in.
        """
        found = self._remembered(name)
        if found is None:
            return None
        if found.error is not None:
            raise found.error.with_traceback(None)
        return found.choice

    @property
    def searches(self) -> int:
        """How many names are being looked for now."""
        return len(self._looking)

    def find(self, name: str) -> None:
        """Look for a name, unless it is remembered. May wait for the hub; `known` tells what came of it."""
        with self._lock:
            lock = self._looking.setdefault(name, threading.Lock())
        try:
            with lock:
                if self.may_know(name):
                    self._remember(name, self._look(name))
        finally:
            with self._lock:
                self._looking.pop(name, None)

    def _look(self, name: str) -> _Found:
        model, _, revision = name.partition("@")
        until = self._clock() + self._remember_s
        failure: CatalogError | None = None
        for place in self._places:
            try:
                choice = self._choice(place, model, revision or None)
            except CatalogError as error:
                failure = failure or error
                continue
            except OSError as error:
                said = f"The files of {model!r} cannot be read here: {error.strerror or type(error).__name__}."
                failure = failure or WeightsUnavailable(said, param="model", reason=WeightsReason.UNKNOWN)
                continue
            except Exception as error:
                # What is there is other people's, and so is the hub's client: whoever asks has to get an answer.
                log.exception("looking for %r failed", model)
                said = f"What there is of {model!r} cannot be understood: {type(error).__name__}."
                failure = failure or WeightsUnavailable(said, param="model", reason=WeightsReason.UNKNOWN)
                continue
            if choice is not None:
                # Of a revision nothing can change; what a name without one means, is asked again.
                known = _Found(choice, None, float("inf"))
                self._remember(choice.key, known)
                return known if name == choice.key else _Found(choice, None, until)
        return _Found(None, failure, until)

    def _choice(self, place: Place, name: str, revision: str | None) -> Choice | None:
        there = place.look(name, revision)
        if there is None:
            return None
        spec = resolve(name, there.repository, there.source)
        if isinstance(spec, Refusal):
            raise UnservedModel(f"Model {name!r} {spec.reason}.", param="model")
        if spec.source.needs and name not in self._trusted:
            raise not_allowed(spec)
        key = f"{name}@{there.repository.revision}"
        return Choice(spec, DEFAULT, key, dict(spec.load), dict(spec.run))

    def _remembered(self, name: str) -> _Found | None:
        with self._lock:
            found = self._found.get(name)
            return found if found is not None and self._clock() < found.until else None

    def _remember(self, name: str, found: _Found) -> None:
        with self._lock:
            self._found[name] = found
            self._found.move_to_end(name)
            while len(self._found) > _MOST:
                self._found.popitem(last=False)


def is_pinned(name: str) -> bool:
    """Whether this is the key of a model that no YAML names."""
    return "@" in name
