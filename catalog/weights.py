"""Where a model's files are on this machine, and fetching them from the hub when they are not here yet.

Tried in this order: the spec's folder, the hub's cache, the hub, an installed package (found, never imported). What is
fetched are safetensors, configs and tokenizer files, or the GGUF files of llama.cpp's family; pickles and code only for
a model whose source needs them, which the catalog gives out only where an operator trusts it. What was found is
remembered for the life of the process, and a hub out of reach is not asked again for a minute, so that an offline
machine falls back at once.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils.tqdm import disable_progress_bars

from catalog.errors import WeightsReason, WeightsUnavailable
from catalog.modelfolder import find_tokenizer, missing_gguf, missing_tokenizer, missing_weights
from catalog.schema import PackageWeights, Source, Spec

TOKENIZER_FILES = (
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "router_config.json",
    "sentence_*_config.json",
    "special_tokens_map.json",
    "tokenizer*.json",
    "*/tokenizer*.json",
)
WEIGHT_FILES = ("*.json", "*.txt", "*.model", "*.jinja", "*.safetensors", "artifact.metadata")
PICKLED_FILES = ("pytorch_model*.bin", "*/pytorch_model*.bin", "*_linear.pt")
CODE_FILES = ("*.py",)
GGUF_FILES = ("*.json", "*.gguf")
_GGUF_FAMILY = "llama_cpp"
_NEVER = ("onnx/*", "openvino/*", "coreml/*", "*/.*", ".*", "consolidated*", "original/*")

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)
_GRAVEST_FIRST = (
    WeightsReason.GATED,
    WeightsReason.NETWORK,
    WeightsReason.UNKNOWN,
    WeightsReason.CORRUPT,
    WeightsReason.NOT_FOUND,
)


@dataclass(frozen=True, slots=True)
class _Wanted:
    files: tuple[str, ...]
    missing: Callable[[Path], str | None]


_WEIGHTS = _Wanted(WEIGHT_FILES, missing_weights)
_PICKLED = _Wanted((*WEIGHT_FILES, *PICKLED_FILES), partial(missing_weights, pickle=True))
_CODE = _Wanted((*WEIGHT_FILES, *CODE_FILES), missing_weights)
_PICKLED_CODE = _Wanted((*WEIGHT_FILES, *PICKLED_FILES, *CODE_FILES), partial(missing_weights, pickle=True))
_GGUF = _Wanted(GGUF_FILES, missing_gguf)
_TOKENIZER = _Wanted(TOKENIZER_FILES, missing_tokenizer)


class Locator:
    """Finds model files. One serves a process; tests make their own with a cache folder and a hub of theirs.

    With `progress` the client shows on stderr how far a download is. `patience_s` bounds the one question that finds
    out whether the hub answers. Thread-safe: several threads that want one model fetch it once.
    """

    def __init__(
        self,
        *,
        cache_dir: Path | None = None,
        endpoint: str | None = None,
        progress: bool = False,
        patience_s: float = 3.0,
        retry_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cache_dir = cache_dir
        self._endpoint = endpoint
        self._progress = progress
        self._patience_s = patience_s
        self._retry_s = retry_s
        self._clock = clock
        self._lock = threading.Lock()
        self._locks: dict[tuple[_Wanted, Source], threading.Lock] = {}
        self._found: dict[tuple[_Wanted, Source], Path] = {}
        self._unreachable = (float("-inf"), "")

    def locate(self, spec: Spec) -> Path | None:
        """The folder with the model's weights, configs and tokenizer; None for a model that has no source.

        May download. Raises WeightsUnavailable with what was tried and what to do.
        """
        return self._folder(spec, _wanted(spec))

    def locate_here(self, spec: Spec) -> Path | None:
        """As `locate`, from what is on this machine already: nothing is downloaded, nothing waits for a download.

        Raises WeightsUnavailable where it is not all here.
        """
        source = spec.source
        if source.path is None and source.hub is None and source.package is None:
            return None
        wanted = _wanted(spec)
        found = self._found.get((wanted, source))
        return found if found and not wanted.missing(found) else self._search(spec, wanted, fetch=False)

    def tokenizer_file(self, spec: Spec) -> Path | None:
        """The model's `tokenizer.json`, fetched without weights; None for a model that has no source.

        Raises WeightsUnavailable, also where the model has none (a slow tokenizer only).
        """
        folder = self._folder(spec, _TOKENIZER)
        return find_tokenizer(folder) if folder else None

    def _folder(self, spec: Spec, wanted: _Wanted) -> Path | None:
        source = spec.source
        if source.path is None and source.hub is None and source.package is None:
            return None
        key = (wanted, source)
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            found = self._found.get(key)
            if found is None or wanted.missing(found):
                found = self._found[key] = self._search(spec, wanted)
            return found

    def _search(self, spec: Spec, wanted: _Wanted, *, fetch: bool = True) -> Path:
        failures: list[WeightsUnavailable] = []
        for way in self._ways(spec.source, wanted, fetch=fetch):
            try:
                folder = way()
            except WeightsUnavailable as error:
                failures.append(error)
                continue
            lacking = wanted.missing(folder)
            if lacking is None:
                return folder
            failures.append(WeightsUnavailable(f"{folder} {lacking}.", reason=WeightsReason.CORRUPT))
        reason = next(r for r in _GRAVEST_FIRST if any(f.reason is r for f in failures))
        tried = " ".join(dict.fromkeys(failure.message for failure in failures))
        raise WeightsUnavailable(f"The files of {spec.id!r} cannot be had. {tried}", reason=reason, param="model")

    def _ways(self, source: Source, wanted: _Wanted, *, fetch: bool) -> Iterator[Callable[[], Path]]:
        path, hub, package = source.path, source.hub, source.package
        if path is not None:
            yield lambda: _of_path(Path(path))
        if hub is not None:
            yield lambda: self._cached(hub, source.revision, wanted)
            if fetch:
                yield lambda: self._fetched(hub, source.revision, wanted)
        if package is not None:
            yield lambda: _of_package(package)

    def _cached(self, hub: str, revision: str | None, wanted: _Wanted) -> Path:
        try:
            return self._snapshot(hub, revision, wanted, local_files_only=True)
        except HFValidationError as error:
            raise hub_failure(hub, revision, error) from error
        except OSError as error:
            at = f" at revision {revision}" if revision else ""
            message = f"The hub's cache has no complete copy of {hub}{at}."
            raise WeightsUnavailable(message, reason=WeightsReason.NOT_FOUND) from error

    def _fetched(self, hub: str, revision: str | None, wanted: _Wanted) -> Path:
        if constants.HF_HUB_OFFLINE:
            message = "HF_HUB_OFFLINE is set, so the hub was not asked: unset it, or fetch the model once while online."
            raise WeightsUnavailable(message, reason=WeightsReason.NETWORK)
        until, why = self._unreachable
        if self._clock() < until:
            raise _unreachable(hub, why)
        try:
            # snapshot_download itself may wait without bound; this question does not.
            HfApi(endpoint=self._endpoint).model_info(hub, revision=revision, timeout=self._patience_s)
            return self._snapshot(hub, revision, wanted, local_files_only=False)
        except Exception as error:
            # Whatever the client raises, the files did not come; its own message is for people at a prompt.
            failure = hub_failure(hub, revision, error)
            if failure.reason is WeightsReason.NETWORK:
                self._unreachable = (self._clock() + self._retry_s, type(error).__name__)
            raise failure from error

    def _snapshot(self, hub: str, revision: str | None, wanted: _Wanted, *, local_files_only: bool) -> Path:
        if not self._progress:
            disable_progress_bars()
        folder = snapshot_download(
            hub,
            revision=revision,
            cache_dir=self._cache_dir,
            endpoint=self._endpoint,
            allow_patterns=list(wanted.files),
            ignore_patterns=list(_NEVER),
            local_files_only=local_files_only,
        )
        return Path(folder)


def _wanted(spec: Spec) -> _Wanted:
    """The files that a model is loaded from."""
    if spec.family == _GGUF_FAMILY:
        return _GGUF
    pickle, code = "pickle" in spec.source.needs, "code" in spec.source.needs
    if pickle:
        return _PICKLED_CODE if code else _PICKLED
    return _CODE if code else _WEIGHTS


def _of_path(folder: Path) -> Path:
    if not folder.is_dir():
        message = f"{folder} (source.path) is not a folder: mend the path or put the files there."
        raise WeightsUnavailable(message, reason=WeightsReason.NOT_FOUND)
    return folder


def _of_package(package: PackageWeights) -> Path:
    """The package's folder. Only the top name is looked up, since finding a dotted one imports its parent."""
    top, *rest = package.name.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        spec = None
    roots = [Path(place).joinpath(*rest).resolve() for place in (spec and spec.submodule_search_locations) or ()]
    for root in roots:
        folder = (root / package.path).resolve()
        if folder.is_dir() and folder.is_relative_to(root):
            return folder
    if roots:
        message = f"The package {package.name!r} has no folder {package.path!r}: install another version of it."
    else:
        message = f"The package {package.name!r} that carries them is not installed: install it beside the worker."
    raise WeightsUnavailable(message, reason=WeightsReason.NOT_FOUND)


def hub_failure(hub: str, revision: str | None, error: Exception) -> WeightsUnavailable:
    """What an error of the hub's client means, and what to do."""
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else 0
    reason = WeightsReason.NOT_FOUND
    if isinstance(error, GatedRepoError):
        reason = WeightsReason.GATED
        message = f"{hub} is gated: accept its terms on its page on the hub, then `hf auth login` or set HF_TOKEN."
    elif isinstance(error, RevisionNotFoundError):
        message = f"The hub's {hub} has no revision {revision!r}: check source.revision in the model's YAML."
    elif isinstance(error, RepositoryNotFoundError | HFValidationError):
        message = f"The hub has no {hub}, or it is private: check source.hub in the model's YAML, or log in."
    elif status in (401, 403):
        reason = WeightsReason.GATED
        message = f"The hub refused {hub} ({status}): log in again with `hf auth login`, or renew HF_TOKEN."
    elif isinstance(error, OSError) and error.errno in _DISK:
        reason = WeightsReason.UNKNOWN
        message = f"{hub} cannot be stored: {error.strerror}; make room, or set HF_HOME to another folder."
    else:
        return _unreachable(hub, f"{type(error).__name__} {status or ''}".strip())
    return WeightsUnavailable(message, reason=reason)


def _unreachable(hub: str, why: str) -> WeightsUnavailable:
    message = (
        f"The hub cannot be reached for {hub} ({why}): connect this machine, set HF_ENDPOINT to a mirror, or put the "
        "files in a folder and name it as source.path in a YAML of your own."
    )
    return WeightsUnavailable(message, reason=WeightsReason.NETWORK)


_process = Locator()
locate = _process.locate
locate_here = _process.locate_here
tokenizer_file = _process.tokenizer_file
