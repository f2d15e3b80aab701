from __future__ import annotations

import os
from pathlib import Path

import fsspec
import pytest

from tasks.backfills.sources import SourceRefused, Sources, SourceUnreadable, allowed, roots_of
from tasks.errors import LimitExceeded

ROOTS = roots_of("/srv/in, s3://bucket/pub/, file:///srv/more,memory://root")


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("/srv/in", "/srv/in"),
        ("/srv/in/a/*.pdf", "/srv/in/a/*.pdf"),
        ("//srv//in/./a", "/srv/in/a"),
        ("file:///srv/in/a", "/srv/in/a"),
        ("/srv/more/a", "/srv/more/a"),
        ("s3://bucket/pub", "s3://bucket/pub"),
        ("S3://bucket/pub/**/x", "s3://bucket/pub/**/x"),
    ],
)
def test_what_is_inside_may_be_read(path: str, normal: str) -> None:
    assert allowed(path, ROOTS)[0] == normal


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/etc/passwd",
        "/srv/inner",
        "/srv/in*",
        "/srv/i?/a",
        "/srv/in/../x",
        "/srv/in/a/../b",
        "/srv/in/a/../../../etc",
        "../srv/in",
        "srv/in",
        "~/x",
        "/srv/in/\0",
        "/srv/in/a\nb",
        "\\srv\\in",
        "/srv/in\\..\\x",
        "s3://bucket",
        "s3://bucket/public",
        "s3://bucket/pub/../x",
        "s3://bucket/pub/%2e%2e/x",
        "s3://bucket/pub/%2E./x",
        "s3://bucket/pub%2f..%2fx",
        "s3://other/pub",
        "s3://key:secret@bucket/pub",
        "gs://bucket/pub",
        "s3:/bucket/pub",
        "zip://x::/srv/in/a.zip",
        "/srv/in/a.zip::x",
        "simplecache::s3://bucket/pub",
        "http://169.254.169.254/latest",
        "file://localhost/srv/in/x",
    ],
)
def test_what_is_outside_or_tricks_is_refused(path: str) -> None:
    with pytest.raises(SourceRefused):
        allowed(path, ROOTS)


def test_without_the_setting_nothing_may_be_read() -> None:
    with pytest.raises(SourceRefused, match="ROOST_BACKFILL_SOURCES"):
        Sources("").check("/srv/in")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "in"
    (found / "sub" / "deep").mkdir(parents=True)
    (found / ".hidden").mkdir()
    for name in ("b.txt", "a.pdf", "sub/c.pdf", "sub/deep/d.pdf", ".hidden/e.pdf", ".f.pdf"):
        (found / name).write_text(name, encoding="utf-8")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.pdf").write_text("secret", encoding="utf-8")
    return found


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ("", ["a.pdf", "b.txt", "sub/c.pdf", "sub/deep/d.pdf"]),
        ("/sub", ["c.pdf", "deep/d.pdf"]),
        ("/*.pdf", ["a.pdf"]),
        ("/**/*.pdf", ["a.pdf", "sub/c.pdf", "sub/deep/d.pdf"]),
        ("/sub/*/[cd].pdf", ["deep/d.pdf"]),
        ("/a.pdf", ["a.pdf"]),
        ("/*.docx", []),
    ],
)
def test_folders_globs_and_files_are_listed_in_order(root: Path, more: str, names: list[str]) -> None:
    assert [one.name for one in Sources(str(root)).find(f"{root}{more}")] == names


def test_names_that_are_not_utf_8_stay_apart(root: Path) -> None:
    folder = root / "sub"
    for name in (b"\xe8.txt", b"\xe9.txt"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text("x", encoding="utf-8")

    names = [one.name for one in Sources(str(root)).find(str(folder))]

    assert [name for name in names if name.endswith(".txt")] == ["\\xe8.txt", "\\xe9.txt"]


def test_what_goes_while_a_folder_is_listed_takes_nothing_else_with_it(root: Path) -> None:
    found = Sources(str(root)).find(str(root))

    first = next(found)
    (root / "b.txt").unlink()
    (root / "sub" / "deep").rename(root.parent / "gone")

    assert [first.name, *(one.name for one in found)] == ["a.pdf", "sub/c.pdf"]
    with pytest.raises(SourceUnreadable):
        list(Sources(str(root)).find(f"{root}/nowhere/*"))


def test_a_glob_that_is_none_is_refused_before_anybody_looks(root: Path) -> None:
    sources = Sources(str(root))
    with pytest.raises(SourceRefused, match="alone between slashes"):
        sources.check_glob(f"{root}/**.pdf")
    # The name of a file is no glob.
    sources.check(f"{root}/**.pdf")


def test_a_folder_that_is_a_link_is_not_followed_and_a_file_is_refused_when_it_is_read(root: Path) -> None:
    (root / "folder").symlink_to(root.parent / "outside")
    (root / "link.pdf").symlink_to(root.parent / "outside" / "secret.pdf")
    (root / "within.pdf").symlink_to(root / "a.pdf")
    sources = Sources(str(root))

    found = {one.name: one.path for one in sources.find(f"{root}/*")}

    assert set(found) == {"a.pdf", "b.txt", "link.pdf", "within.pdf"}
    assert sources.read(found["within.pdf"], 100) == b"a.pdf"
    with pytest.raises(SourceRefused):
        sources.read(found["link.pdf"], 100)
    with pytest.raises(SourceRefused):
        list(sources.find(f"{root}/folder"))
    with pytest.raises(SourceRefused):
        sources.read(f"{root}/folder/secret.pdf", 100)


def test_what_is_no_plain_file_is_not_waited_for(root: Path) -> None:
    os.mkfifo(root / "pipe")

    with pytest.raises(SourceRefused):
        Sources(str(root)).read(f"{root}/pipe", 100)


def test_a_file_that_is_too_large_or_gone_says_so(root: Path) -> None:
    sources = Sources(str(root))

    assert sources.read(f"{root}/a.pdf", 5) == b"a.pdf"
    with pytest.raises(LimitExceeded):
        sources.read(f"{root}/a.pdf", 4)
    with pytest.raises(SourceUnreadable):
        sources.read(f"{root}/gone.pdf", 4)
    with pytest.raises(SourceUnreadable):
        list(sources.find(f"{root}/nowhere"))


def test_a_fingerprint_changes_with_the_content(root: Path) -> None:
    sources = Sources(str(root))
    before = sources.look(f"{root}/a.pdf")
    assert sources.look(f"{root}/a.pdf") == before

    (root / "a.pdf").write_text("changed", encoding="utf-8")

    assert sources.look(f"{root}/a.pdf").fingerprint != before.fingerprint


def test_a_bucket_is_listed_and_read_as_a_folder() -> None:
    store = fsspec.filesystem("memory")
    for name in ("/root/x/a.pdf", "/root/x/sub/b.pdf", "/root/x/c.txt", "/other/d.pdf"):
        store.pipe(name, name.encode())
    sources = Sources("memory://root")

    found = list(sources.find("memory://root/x/**/*.pdf"))

    assert [one.name for one in found] == ["a.pdf", "sub/b.pdf"]
    assert sources.read(found[1].path, 100) == b"/root/x/sub/b.pdf"
    assert [one.size for one in sources.find("memory://root/x/c.txt")] == [13]
    with pytest.raises(SourceUnreadable):
        sources.read("memory://root/nothing", 100)
