from __future__ import annotations

from pathlib import Path

from catalog.loader import Catalog
from engine.adapters.fake import FakeOptions
from tests.bench.models import COLD_SECONDS, SLOW, cold_fakes, cold_minilms, write


def test_every_entry_is_a_valid_model(tmp_path: Path) -> None:
    write(tmp_path)
    catalog = Catalog.load([tmp_path])
    for name in (SLOW, *cold_minilms(), *(name for seconds in COLD_SECONDS for name in cold_fakes(seconds))):
        assert catalog.find(name).spec.id == name


def test_a_weightless_cold_model_declares_its_load_time(tmp_path: Path) -> None:
    write(tmp_path)
    choice = Catalog.load([tmp_path]).find(cold_fakes(3)[0])
    assert FakeOptions.model_validate(choice.load).load_seconds == 3
