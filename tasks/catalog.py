"""The catalog of a process, as the settings say it."""

from __future__ import annotations

from catalog.hub import HubModels
from catalog.live import LiveCatalog
from catalog.places import FolderPlace, HubPlace, Place
from tasks.settings import Settings


def live_catalog(settings: Settings) -> LiveCatalog:
    """The models of the YAMLs, and those that are found by name where an operator allows it."""
    places: list[Place] = [FolderPlace(folder) for folder in settings.model_folder_paths]
    if settings.finds_hub_models:
        places.append(HubPlace())
    return LiveCatalog(
        settings.catalog_folders,
        trusted=settings.trusted,
        hub=HubModels(places, trusted=settings.trusted) if places else None,
    )
