"""What one tenant may: the settings say it, unless its own row does. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from catalog.errors import suggestion
from tasks.errors import InvalidRequest
from tasks.settings import Settings


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """0 is no limit; `burst` is how many jobs may come at once beyond the rate."""

    requests_per_s: float = 0.0
    burst: int = 50
    open_jobs: int = 0
    items_per_day: int = 0
    tokens_per_day: int = 0

    @property
    def any(self) -> bool:
        """Whether there is anything to look at."""
        return bool(self.requests_per_s or self.open_jobs or self.items_per_day or self.tokens_per_day)


NAMES = tuple(field.name for field in fields(TenantLimits))


def limits_of(settings: Settings, own: Mapping[str, Any]) -> TenantLimits:
    """Those of a tenant whose row says `own`."""
    general = {name: getattr(settings, f"tenant_{name}") for name in NAMES}
    return TenantLimits(**{**general, **{name: value for name, value in parsed(own).items() if name in NAMES}})


def parsed(own: Mapping[str, Any]) -> Mapping[str, float]:
    """What a tenant's row may say. Raises InvalidRequest for an unknown name, or a value that is no such limit."""
    for name, value in own.items():
        if name not in NAMES:
            raise InvalidRequest(f"{name[:100]!r} is no limit{suggestion(name, NAMES)}", param=name[:100])
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
            raise InvalidRequest(f"{name!r} must be a number, 0 or more.", param=name)
        if name != "requests_per_s" and value != int(value):
            raise InvalidRequest(f"{name!r} must be a whole number.", param=name)
        if name == "burst" and value < 1:
            raise InvalidRequest("'burst' must be at least 1.", param=name)
    return {name: value if name == "requests_per_s" else int(value) for name, value in own.items()}
