"""How the profiles load, and what they say when they cannot."""

from __future__ import annotations

import psutil
import pytest

from engine.errors import LoadFailed, LoadReason
from tests.adapters.docling import files
from tests.adapters.docling.conftest import data_of, new_adapter, reader
from tests.small import folder


def test_doclings_own_layout_model_reads_a_page_with_random_weights() -> None:
    adapter = new_adapter(layout="heron", tables="none", artifacts=str(folder("docling_layout")))
    adapter.load()
    try:
        data = data_of(reader(adapter)(files.pdf([files.LINES])))
        pids = adapter.pids
    finally:
        adapter.unload()
    assert all(line in data["text"] for line in files.LINES)
    assert pids
    assert not any(map(psutil.pid_exists, pids))


def test_models_that_are_not_there_fail_the_load_with_the_reason(tmp_path: object) -> None:
    adapter = new_adapter(layout="heron", tables="none", artifacts=str(tmp_path))
    with pytest.raises(LoadFailed) as failed:
        adapter.load()
    assert failed.value.reason in (LoadReason.NOT_FOUND, LoadReason.NETWORK)
    assert adapter.pids == []


def test_a_profile_without_a_layout_has_no_tables_to_look_for() -> None:
    with pytest.raises(ValueError, match="finds no tables"):
        new_adapter(layout="none", tables="slanet")
