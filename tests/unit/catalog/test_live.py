"""A catalog that follows its files while the process runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.errors import InvalidSpec, ModelNotAllowed, UnknownModel
from catalog.live import Change, LiveCatalog
from catalog.loader import Catalog

MODEL = "id: org/{name}\nfamily: fake\ntasks: {{encode: {{dims: {dims}}}}}\nparameters: 0\nmax_length: 16\n"
NEEDY = MODEL + "source: {{needs: [pickle]}}\n"
NOTHING = frozenset[str]()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "built_in").mkdir()
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


@pytest.fixture
def live(folder: Path) -> LiveCatalog:
    write(folder, "a", 8)
    return LiveCatalog([folder], built_in=folder.parent / "built_in")


def write(folder: Path, name: str, dims: int | str, text: str = MODEL) -> None:
    """Put a definition in its place at once, as an editor does."""
    draft = folder / f".{name}"
    draft.write_text(text.format(name=name, dims=dims))
    draft.replace(folder / f"{name}.yaml")


def dims(live: LiveCatalog, name: str) -> int:
    facts = live.find(f"org/{name}").spec.tasks.encode
    assert facts is not None
    return facts.dims


def test_a_model_that_is_added_changed_and_removed_is_so_without_a_restart(live: LiveCatalog, folder: Path) -> None:
    before = live.find("org/a")
    write(folder, "a", 9)
    write(folder, "b", 3)
    assert live.refresh() == Change(frozenset({"org/b"}), NOTHING, frozenset({"org/a"}))
    assert (dims(live, "a"), dims(live, "b")) == (9, 3)
    (folder / "a.yaml").unlink()
    assert live.refresh() == Change(NOTHING, frozenset({"org/a"}), NOTHING)
    with pytest.raises(UnknownModel):
        live.find("org/a")
    assert before.spec.tasks.encode is not None
    assert before.spec.tasks.encode.dims == 8, "who has it keeps it as it was"


def test_files_that_are_as_they_were_are_not_read_again(live: LiveCatalog, folder: Path) -> None:
    choice = live.find("org/a")
    write(folder, "b", 3)
    live.refresh()
    assert live.find("org/a").spec is choice.spec
    assert not live.refresh()


def test_a_bad_file_keeps_what_it_said_before_and_is_told_until_it_is_mended(
    live: LiveCatalog, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(folder, "a", "many")
    assert not live.refresh()
    assert dims(live, "a") == 8
    assert [problem.param for problem in live.problems] == ["tasks.encode.dims"]
    assert "what it said before stays" in caplog.text
    write(folder, "a", 9)
    assert live.refresh().changed == {"org/a"}
    assert (dims(live, "a"), live.problems) == (9, ())


def test_a_file_that_was_never_good_is_a_problem_and_no_model(live: LiveCatalog, folder: Path) -> None:
    write(folder, "c", "many")
    live.refresh()
    assert len(live.problems) == 1
    assert live.keys == ("org/a",)


def test_a_folder_that_goes_away_takes_its_models_along_and_no_more(live: LiveCatalog, folder: Path) -> None:
    (folder / "a.yaml").unlink()
    folder.rmdir()
    assert live.refresh().removed == {"org/a"}
    folder.mkdir()
    write(folder, "a", 8)
    assert live.refresh().added == {"org/a"}


def test_a_link_to_nowhere_is_a_problem_and_the_files_beside_it_are_followed(live: LiveCatalog, folder: Path) -> None:
    (folder / "A.yaml").symlink_to(folder / "nowhere")
    write(folder, "b", 3)
    assert live.refresh().added == {"org/b"}
    assert ["A.yaml: the file cannot be read" in problem.message for problem in live.problems] == [True]
    write(folder, "a", "many")
    live.refresh()
    (folder / "A.yaml").unlink()
    assert not live.refresh()
    assert (dims(live, "a"), dims(live, "b")) == (8, 3), "a bad edit keeps what was good before"


def test_a_link_that_leads_somewhere_again_is_read(live: LiveCatalog, folder: Path) -> None:
    (folder / "a.yaml").rename(folder / "away")
    (folder / "a.yaml").symlink_to(folder / "away")
    live.refresh()
    (folder / "away").rename(folder / "elsewhere")
    assert not live.refresh()
    assert (dims(live, "a"), len(live.problems)) == (8, 1)
    (folder / "elsewhere").rename(folder / "away")
    live.refresh()
    assert (dims(live, "a"), live.problems) == (8, ())


def test_a_folder_that_cannot_be_read_is_a_problem_and_keeps_its_models(
    live: LiveCatalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Path.iterdir

    def shut(self: Path) -> Iterator[Path]:
        if self == folder:
            raise PermissionError(13, "Permission denied")
        return listed(self)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", shut)
        assert not live.refresh()
        assert ["Permission denied" in problem.message for problem in live.problems] == [True]
        assert dims(live, "a") == 8
    write(folder, "a", "many")
    assert not live.refresh()
    assert (dims(live, "a"), len(live.problems)) == (8, 1)


def test_changes_are_told_from_a_thread_until_it_is_closed(live: LiveCatalog, folder: Path) -> None:
    told: list[Change] = []
    heard = threading.Event()

    def hear(change: Change) -> None:
        told.append(change)
        heard.set()

    live.watch(0.01, hear)
    write(folder, "b", 3)
    assert heard.wait(10)
    live.close()
    assert [change.added for change in told] == [{"org/b"}]


def test_a_listener_that_fails_does_not_end_the_watch(live: LiveCatalog, folder: Path) -> None:
    told = threading.Semaphore(0)

    def hear(change: Change) -> None:
        told.release()
        raise ValueError("no")

    live.watch(0.01, hear)
    for name in ("b", "c"):
        write(folder, name, 3)
        assert told.acquire(timeout=10)
    live.close()


def test_a_model_gets_what_it_needs_only_where_it_is_trusted(folder: Path) -> None:
    write(folder, "n", 8, NEEDY)
    built_in = folder.parent / "built_in"
    wary = LiveCatalog([folder], built_in=built_in)
    with pytest.raises(ModelNotAllowed, match=r"pickle.*puts org/n into ROOST_TRUST"):
        wary.find("org/n")
    assert (wary.keys, wary.look_up("org/n").spec.id) == ((), "org/n")
    trusting = LiveCatalog([folder], built_in=built_in, trusted=["org/n"])
    assert (trusting.keys, trusting.find("n").key) == (("org/n",), "org/n")


def test_one_that_follows_no_files_never_changes() -> None:
    live = LiveCatalog.fixed(Catalog([], [InvalidSpec("x")]))
    assert not live.refresh()
    assert [problem.message for problem in live.problems] == ["x"]
    assert (live.finds_more, live.must_ask("org/a")) == (False, False)
