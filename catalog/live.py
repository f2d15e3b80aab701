"""The catalog of a running process: files that change are read again, and models without a YAML are found by name.

A file that is no good keeps what it said before, and is told as a problem. What a caller has found stays as it was:
`Choice` and `Spec` are frozen, and a job in hand runs on what it began with.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from catalog.errors import AmbiguousModel, InvalidSpec, UnknownModel, WeightsReason, WeightsUnavailable
from catalog.hub import HubModels, is_pinned
from catalog.loader import BUILT_IN, Catalog, Choice, model_files, read_folder
from catalog.schema import Spec
from catalog.specfile import read_spec

log = logging.getLogger(__name__)

Signature = tuple[int, int, int]
"""Of a file: when it was written, its size, and which file it is."""


@dataclass(frozen=True, slots=True)
class Change:
    """The keys that differ between a catalog and the one before it."""

    added: frozenset[str]
    removed: frozenset[str]
    changed: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True, slots=True)
class _Read:
    """What a file said: `spec` is the last that was good, `problem` what is wrong with the file as it is now."""

    signature: Signature
    spec: Spec | None
    problem: InvalidSpec | None


class LiveCatalog:
    """A catalog that follows its files. Thread-safe; looking a name up takes no lock.

    `hub` finds models that no file names; None finds none. A later folder replaces a model of the same id.
    """

    def __init__(
        self,
        folders: Sequence[Path] = (),
        *,
        built_in: Path = BUILT_IN,
        trusted: Collection[str] = (),
        hub: HubModels | None = None,
    ) -> None:
        self._folders = (built_in, *folders)
        self._trusted = frozenset(trusted)
        self._hub = hub
        self._files: dict[Path, _Read] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._listing: dict[Path, Signature] = {}
        self._listing = self._look()
        self._current = self._read()

    @classmethod
    def fixed(cls, catalog: Catalog) -> LiveCatalog:
        """One that follows no files."""
        live = cls.__new__(cls)
        live._folders, live._hub = (), None
        live._lock, live._stopped, live._thread = threading.Lock(), threading.Event(), None
        live._listing, live._files = {}, {}
        live._current = catalog
        return live

    @property
    def specs(self) -> tuple[Spec, ...]:
        """The models of the files, by id."""
        return self._current.specs

    @property
    def problems(self) -> tuple[InvalidSpec, ...]:
        """What is wrong with files as they are now."""
        return self._current.problems

    @property
    def keys(self) -> tuple[str, ...]:
        """Every name of the files that may be used, in its one spelling."""
        return self._current.keys

    @property
    def finds_more(self) -> bool:
        """Whether there are models besides those of `keys`."""
        return self._hub is not None

    def find(self, name: str) -> Choice:
        """The model of a name, from the files or of what was found before. Asks nobody and takes no time.

        Raises UnknownModel, ModelNotAllowed, or what finding it ended in.
        """
        return self._known(name, self._current.find)

    def look_up(self, name: str) -> Choice:
        """As `find`, allowed or not: for telling of a model, not for using it."""
        return self._known(name, self._current.look_up)

    def allows(self, spec: Spec) -> bool:
        """Whether a model may have what it needs."""
        return self._current.allows(spec)

    def must_ask(self, name: str) -> bool:
        """Whether `ask` would have to look for this name in folders or on the hub."""
        if self._hub is None or not self._hub.may_know(name):
            return False
        try:
            self._current.look_up(name)
        except AmbiguousModel:
            return False
        except UnknownModel:
            return True
        return False

    def ask(self, name: str) -> Choice:
        """As `find`, and looks for a name that nobody knows yet: may wait for the hub. Raises CatalogError."""
        if self._hub is not None and self.must_ask(name):
            self._hub.find(name)
        return self.find(name)

    def refresh(self) -> Change:
        """Read the files again that have changed since they were read. What is new is there when this returns."""
        with self._lock:
            listing = self._look()
            if listing == self._listing:
                return Change(frozenset(), frozenset(), frozenset())
            before, told = self._current, {problem.message for problem in self._current.problems}
            self._listing = listing
            self._current = self._read()
            for problem in self._current.problems:
                if problem.message not in told:
                    log.warning("a model's file is no good, so what it said before stays: %s", problem.message)
            return difference(before, self._current)

    def watch(self, every_s: float, changed: Callable[[Change], None]) -> None:
        """Look at the files every so often, from a thread of its own, and tell what has changed."""
        self._thread = threading.Thread(target=self._follow, args=(every_s, changed), name="catalog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _known(self, name: str, look: Callable[[str], Choice]) -> Choice:
        try:
            return look(name)
        except UnknownModel as error:
            if self._hub is None or isinstance(error, AmbiguousModel):
                raise
            try:
                found = self._hub.known(name)
            except WeightsUnavailable as failure:
                if failure.reason is not WeightsReason.NETWORK or is_pinned(name):
                    raise
                raise error.adding(failure.message) from failure
            if found is None:
                raise
            return found

    def _follow(self, every_s: float, changed: Callable[[Change], None]) -> None:
        while not self._stopped.wait(every_s):
            try:
                change = self.refresh()
                if change:
                    log.info("the catalog has changed: %s", _told(change))
                    changed(change)
            except Exception:
                log.exception("looking at the catalog's files failed; what was read before stays")

    def _look(self) -> dict[Path, Signature]:
        """The files of all folders; a folder that is gone has none.

        One that cannot be read is listed itself, with the files that it had.
        """
        found: dict[Path, Signature] = {}
        for folder in self._folders:
            try:
                files = model_files(folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                found[folder] = (0, 0, error.errno or 0)
                found |= {file: signature for file, signature in self._listing.items() if file.parent == folder}
                continue
            found |= {file: _signature(file) for file in files}
        return found

    def _read(self) -> Catalog:
        specs: dict[str, Spec] = {}
        problems: list[InvalidSpec] = []
        for folder in self._folders:
            found, bad = read_folder(folder, self._spec)
            if folder in self._listing:
                kept = (read.spec for file, read in self._files.items() if file.parent == folder)
                found = {spec.id: spec for spec in kept if spec is not None}
            specs.update(found)
            problems += bad
        self._files = {file: read for file, read in self._files.items() if file in self._listing}
        problems += [read.problem for read in self._files.values() if read.problem is not None]
        return Catalog(specs.values(), problems, trusted=self._trusted)

    def _spec(self, file: Path) -> Spec | None:
        signature, before = self._listing.get(file, (0, 0, 0)), self._files.get(file)
        if before is None or before.signature != signature:
            try:
                self._files[file] = _Read(signature, read_spec(file), None)
            except InvalidSpec as error:
                self._files[file] = _Read(signature, before.spec if before else None, error)
        return self._files[file].spec


def _signature(file: Path) -> Signature:
    """Of a file that cannot be looked at, why: reading it will tell."""
    try:
        stat = file.stat()
    except OSError as error:
        return (0, 0, error.errno or 0)
    return (stat.st_mtime_ns, stat.st_size, stat.st_ino)


def difference(before: Catalog, after: Catalog) -> Change:
    """What is in one catalog and not in the other, and what differs in both."""
    old = {key: before.find(key) for key in before.keys}
    new = {key: after.find(key) for key in after.keys}
    return Change(
        added=frozenset(new.keys() - old.keys()),
        removed=frozenset(old.keys() - new.keys()),
        changed=frozenset(key for key in new.keys() & old.keys() if new[key] != old[key]),
    )


def _told(change: Change) -> str:
    parts = ((name, sorted(getattr(change, name))) for name in ("added", "removed", "changed"))
    return "; ".join(f"{name} {', '.join(keys[:5])}{' …' if len(keys) > 5 else ''}" for name, keys in parts if keys)
