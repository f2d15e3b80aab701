"""A hub that does not answer is left alone for a while, and each caller hears of the model that it asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import constants

from catalog.errors import WeightsReason, WeightsUnavailable
from catalog.places import HubPlace


def test_each_caller_hears_of_its_own_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    place = HubPlace(cache_dir=tmp_path, endpoint="http://127.0.0.1:1", patience_s=1.0)
    for name in ("acme/first", "acme/second"):
        with pytest.raises(WeightsUnavailable) as caught:
            place.look(name, None)
        assert caught.value.reason is WeightsReason.NETWORK
        assert name in caught.value.message
    assert "acme/first" not in caught.value.message
