"""Where models without a YAML are looked for: folders of the operator's, and the hub with its cache.

A place tells of a name which files there are and what the small ones say. Weights come later (`catalog.weights`).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from huggingface_hub import HfApi, ModelInfo, constants, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils.tqdm import disable_progress_bars

from catalog.errors import WeightsReason, WeightsUnavailable
from catalog.repository import FIRST_CONFIGS, MOST_CONFIG_BYTES, Repository, config_files
from catalog.weights import hub_failure

_LOCAL = "local-"
"""What the revision of a folder begins with: no commit of the hub does."""


@dataclass(frozen=True, slots=True)
class There:
    """A repository that was found, and where its files are, as a YAML's `source` says it."""

    repository: Repository
    source: Mapping[str, Any]


class Place(Protocol):
    """Somewhere that models are."""

    def look(self, name: str, revision: str | None, /) -> There | None:
        """The repository of that name; None if there is none. Raises CatalogError where that cannot be told."""


class FolderPlace:
    """Folders that an operator has put models into, as `org/name` or `org__name`.

    The revision of one is made from the names and sizes of its files and what its configs say.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def look(self, name: str, revision: str | None, /) -> There | None:
        """The folder of that name. Raises WeightsUnavailable if it is not what it was at the revision asked for."""
        for spelling in dict.fromkeys((name, name.replace("/", "__"))):
            folder = self._root / spelling
            if folder.is_dir() and any(folder.glob("*.json")):
                there = There(_of_folder(folder, None), {"path": str(folder)})
                if revision is None or revision == there.repository.revision:
                    return there
                if revision.startswith(_LOCAL):
                    message = f"The files of {name!r} are not those that the job was sent for; send it again."
                    raise WeightsUnavailable(message, param="model")
        return None


class HubPlace:
    """The hub, or the mirror that HF_ENDPOINT names; where it does not answer, the hub's cache on this machine.

    `patience_s` bounds the question; a hub that did not answer is left alone for `retry_s`.
    """

    def __init__(
        self,
        *,
        cache_dir: Path | None = None,
        endpoint: str | None = None,
        patience_s: float = 3.0,
        retry_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cache_dir = cache_dir
        self._endpoint = endpoint
        self._patience_s = patience_s
        self._retry_s = retry_s
        self._clock = clock
        self._silence: tuple[float, Exception | None] = (float("-inf"), None)

    def look(self, name: str, revision: str | None, /) -> There | None:
        """The repository of that name. Raises WeightsUnavailable for a gated one, and where the hub is out of reach."""
        if "/" not in name:
            return None
        until, why = self._silence
        if not constants.HF_HUB_OFFLINE and self._clock() >= until:
            try:
                return self._asked(name, revision)
            except Exception as error:
                if isinstance(error, RepositoryNotFoundError) and not isinstance(error, GatedRepoError):
                    return None
                failure = hub_failure(name, revision, error)
                if failure.reason is not WeightsReason.NETWORK:
                    raise failure from error
                # Why is kept, not the words: they name what one caller asked for.
                why = error.with_traceback(None)
                self._silence = (self._clock() + self._retry_s, why)
        there = self._cached(name, revision)
        if there is None and why is not None and not constants.HF_HUB_OFFLINE:
            said = hub_failure(name, revision, why)
            raise WeightsUnavailable(said.message, param="model", reason=said.reason)
        return there

    def _asked(self, name: str, revision: str | None) -> There:
        api = HfApi(endpoint=self._endpoint)
        info = api.model_info(name, revision=revision, timeout=self._patience_s, files_metadata=True)
        commit = info.sha or revision or constants.DEFAULT_REVISION
        files = {file.rfilename: file.size or 0 for file in info.siblings or ()}
        disable_progress_bars()
        configs = {file: _json(self._config(name, file, commit)) for file in config_files(files)}
        repository = Repository(commit, files, configs, _counted(info), _licence(info))
        return There(repository, {"hub": name, "revision": commit})

    def _config(self, name: str, file: str, commit: str) -> Path:
        return Path(hf_hub_download(name, file, revision=commit, cache_dir=self._cache_dir, endpoint=self._endpoint))

    def _cached(self, name: str, revision: str | None) -> There | None:
        """What the cache has of it; its weights may be missing there. Without a revision, what was fetched last."""
        for config in FIRST_CONFIGS:
            file = try_to_load_from_cache(name, config, cache_dir=self._cache_dir, revision=revision)
            if isinstance(file, str):
                return _of_snapshot(name, Path(file).parent)
        if revision is not None:
            return None
        cache = self._cache_dir or Path(constants.HF_HUB_CACHE)
        there = (cache / repo_folder_name(repo_id=name, repo_type="model") / "snapshots").glob("*")
        last = max(there, key=lambda folder: folder.stat().st_mtime, default=None)
        return None if last is None else _of_snapshot(name, last)


def _of_snapshot(name: str, folder: Path) -> There:
    return There(_of_folder(folder, folder.name), {"hub": name, "revision": folder.name})


def _of_folder(folder: Path, revision: str | None) -> Repository:
    """What a folder has, two levels deep."""
    files = {
        file.relative_to(folder).as_posix(): file.stat().st_size
        for pattern in ("*", "*/*")
        for file in sorted(folder.glob(pattern))
        if file.is_file()
    }
    configs = {name: _json(folder / name) for name in config_files(files)}
    if revision is None:
        said = json.dumps([sorted(files.items()), configs], sort_keys=True)
        revision = _LOCAL + hashlib.sha256(said.encode()).hexdigest()[:16]
    return Repository(revision, files, configs)


def _json(file: Path) -> Any:
    """What a config holds; an empty mapping for one that is no JSON."""
    try:
        if file.stat().st_size > MOST_CONFIG_BYTES:
            return {}
        return json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}


def _counted(info: ModelInfo) -> int:
    found = getattr(info.safetensors, "total", None)
    return found if isinstance(found, int) else 0


def _licence(info: ModelInfo) -> str:
    found = getattr(info.card_data, "license", None)
    return found if isinstance(found, str) else ""
