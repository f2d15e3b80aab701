"""What documents become in a backfill, and what is told of those that fail."""

from __future__ import annotations

import asyncio
import io
import json
import secrets
import shutil
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from api.feeding.backfills import document
from api.feeding.backfills.reading import content_of
from api.feeding.services import LARGE_AT_ONCE
from tasks.db import Database
from tests.integration.api.backfilling import (
    CHUNK,
    ENCODE,
    PARSE,
    Consumer,
    Start,
    catalog,
    change,
    content,
    ended,
    folder,
    http,
    made,
    rows_of,
    settings,
    start,
    texts,
    upload,
)

__all__ = ["catalog", "folder", "http", "settings", "start"]


async def test_a_folder_becomes_a_row_for_each_document(
    http: httpx.AsyncClient, start: Start, consumer: Consumer, folder: Path
) -> None:
    names = texts(folder, 20)
    backfill = await made(http, [ENCODE], {"path": str(folder)})
    assert backfill["status"] == "validating"
    await start("one")

    backfill = await ended(http, backfill)

    assert backfill["status"] == "completed", backfill
    assert backfill["counts"] == {"total": 20, "completed": 20, "failed": 0, "skipped": 0}
    rows = await rows_of(http, backfill["output_file_id"])
    assert [row["document"] for row in rows] == names
    assert all(len(row["dense"]) == 4 and "id" not in row for row in rows)
    assert (backfill["rows"], backfill["report_file_id"]) == (20, None)
    assert {job.lane for job in consumer.taken} == {"bulk"}
    assert (await http.get("/v1/jobs")).json()["data"] == []


PAGES = "# Birds\n\nThe owl sleeps. The wren sings at dawn.\f## Nests\n\nA nest is made of moss. It is small."


async def test_a_chain_parses_cuts_and_encodes_into_a_table(
    http: httpx.AsyncClient, start: Start, consumer: Consumer, folder: Path
) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "birds.md").write_text(PAGES, encoding="utf-8")
    (folder / "b.md").write_text("One short text.", encoding="utf-8")
    (folder / "c.txt").write_text("not of the glob", encoding="utf-8")
    steps = [PARSE, CHUNK, ENCODE]
    backfill = await made(http, steps, {"path": f"{folder}/**/*.md"}, output={"format": "parquet"})
    await start("one")

    backfill = await ended(http, backfill)

    assert backfill["counts"] == {"total": 2, "completed": 2, "failed": 0, "skipped": 0}, backfill
    table = pq.read_table(io.BytesIO(await content(http, backfill["output_file_id"])))
    rows = table.to_pylist()
    assert table.column_names[:5] == ["document", "chunk", "page", "headings", "text"]
    assert backfill["rows"] == len(rows)
    assert [(row["document"], row["chunk"], row["page"], row["headings"], row["text"]) for row in rows[:3]] == [
        ("b.md", 0, None, [], "One short text."),
        ("sub/birds.md", 0, 1, ["Birds"], "The owl sleeps."),
        ("sub/birds.md", 1, 1, ["Birds"], "The wren sings at dawn."),
    ]
    assert rows[-1]["headings"] == ["Birds", "Nests"]
    assert all(len(row["dense"]) == 4 for row in rows)
    assert [job.verb for job in consumer.taken].count("extract") == 2


async def test_a_manifest_names_files_with_what_is_told_in_their_rows(
    http: httpx.AsyncClient, start: Start, consumer: Consumer, folder: Path
) -> None:
    (folder / "d.txt").write_text("on the server", encoding="utf-8")
    lines = [
        {"file": await upload(http, "a.txt", b"uploaded"), "id": "a", "metadata": {"shelf": 3}},
        {"path": str(folder / "d.txt"), "id": "d"},
    ]
    manifest = await upload(http, "manifest.jsonl", b"\n".join(json.dumps(line).encode() for line in lines))
    backfill = await made(http, [ENCODE], {"manifest": manifest})
    await start("one")

    backfill = await ended(http, backfill)

    rows = await rows_of(http, backfill["output_file_id"])
    assert [(row["document"], row.get("metadata")) for row in rows] == [("a", {"shelf": 3}), ("d", None)]


async def test_a_manifest_with_faults_fails_with_their_lines(http: httpx.AsyncClient, start: Start) -> None:
    file = b"file-" + b"0" * 32
    lines = [
        *(b'{"file": "%s", "id": "a"}' % file, b"{", b'{"file": "%s", "pth": 1}' % file, b'{"path": "/etc/passwd"}'),
        b'{"file": "%s", "id": "a"}' % file,
    ]
    manifest = await upload(http, "manifest.jsonl", b"\n".join(lines))
    backfill = await made(http, [ENCODE], {"manifest": manifest})
    await start("one")

    backfill = await ended(http, backfill)

    assert (backfill["status"], backfill["output_file_id"]) == ("failed", None)
    assert [(one["code"], one["line"]) for one in backfill["errors"]] == [
        ("invalid_json_line", 2),
        ("invalid_request", 3),
        ("source_refused", 4),
        ("duplicate_document", 5),
    ]
    assert "did you mean 'path'" in backfill["errors"][1]["message"]


async def test_what_a_version_before_took_in_and_this_one_refuses_ends_with_why(
    http: httpx.AsyncClient, start: Start, database: Database
) -> None:
    backfill = await made(http, [ENCODE], {"files": [{"file": "file-" + "0" * 32}]})
    change = """UPDATE backfills SET plan = jsonb_set(plan, '{source,files,0,file}', '"/srv/a"')"""
    database.run(lambda conn: conn.exec_driver_sql(change).close())
    await start("one")

    backfill = await ended(http, backfill)

    assert backfill["status"] == "failed"
    assert [(one["code"], one["param"]) for one in backfill["errors"]] == [("invalid_request", "source.files[0].file")]


async def test_one_bad_document_fails_alone_and_a_resume_does_it_again_and_nothing_else(
    http: httpx.AsyncClient, start: Start, consumer: Consumer, folder: Path, tmp_path: Path
) -> None:
    names = texts(folder, 6)
    (folder / "bad.txt").write_bytes(b"\xff\xfe\xff")
    (folder / "outside.txt").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text("not for backfills", encoding="utf-8")
    backfill = await made(http, [CHUNK, ENCODE], {"path": str(folder)})
    await start("one")

    backfill = await ended(http, backfill)

    assert (backfill["status"], backfill["counts"]["failed"], backfill["counts"]["completed"]) == ("completed", 2, 6)
    report = await rows_of(http, backfill["report_file_id"])
    assert [(one["document"], one["step"], one["code"]) for one in report] == [
        ("bad.txt", "chunk", "unreadable_text"),
        ("outside.txt", "chunk", "source_refused"),
    ]
    found = await http.get(f"/v1/backfills/{backfill['id']}/documents", params={"state": "failed", "limit": 1})
    assert (found.json()["data"][0]["error"]["code"], found.json()["has_more"]) == ("unreadable_text", True)

    done = len(consumer.taken)
    (folder / "bad.txt").write_text("now it is a text", encoding="utf-8")
    (folder / "outside.txt").unlink()
    (folder / "outside.txt").write_text("a file of its own", encoding="utf-8")
    backfill = await ended(http, await change(http, backfill, "resume"))

    assert (backfill["counts"]["failed"], backfill["counts"]["completed"]) == (0, 8)
    assert len(consumer.taken) == done + 2
    rows = await rows_of(http, backfill["output_file_id"])
    assert sorted({row["document"] for row in rows}) == sorted([*names, "bad.txt", "outside.txt"])
    assert backfill["report_file_id"] is None
    again = await http.post(f"/v1/backfills/{backfill['id']}/resume")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "backfill_ended")


async def test_a_document_at_which_the_service_fails_fails_alone(
    http: httpx.AsyncClient, start: Start, consumer: Consumer, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = texts(folder, 3)

    def edit(_: int, row: dict[str, Any]) -> dict[str, Any]:
        odd = {"text": "x", "document": {"body": {"children": 3}}}
        return row | {"data": odd} if row["data"]["text"] == "text number 1" else row

    consumer.edit = edit
    await start("one")

    backfill = await ended(http, await made(http, [PARSE, CHUNK], {"path": str(folder)}))

    (failure,) = await rows_of(http, backfill["report_file_id"])
    assert (backfill["status"], backfill["counts"]["completed"]) == ("completed", 2)
    assert (failure["document"], failure["step"], failure["code"]) == (names[1], "chunk", "internal")
    assert "could not be worked through" in caplog.text


async def test_a_second_run_of_the_name_does_what_has_changed_and_gives_all_rows(
    http: httpx.AsyncClient, start: Start, consumer: Consumer, folder: Path
) -> None:
    names = texts(folder, 5)
    await start("one")
    first = await ended(http, await made(http, [ENCODE], {"path": str(folder)}, name="nightly"))
    (folder / names[2]).write_text("something else", encoding="utf-8")
    (folder / "new.txt").write_text("a new one", encoding="utf-8")

    second = await ended(http, await made(http, [ENCODE], {"path": str(folder)}, name="nightly"))
    other = [{**ENCODE, "options": {"normalize": False}}]
    third = await ended(http, await made(http, other, {"path": str(folder)}, name="nightly"))

    assert second["counts"] == {"total": 6, "completed": 2, "failed": 0, "skipped": 4}
    assert third["counts"]["skipped"] == 0
    assert len(consumer.taken) == 5 + 2 + 6
    before, after = [await rows_of(http, one["output_file_id"]) for one in (first, second)]
    assert [row["document"] for row in after] == [*names, "new.txt"]
    assert [row == old for row, old in zip(after, before, strict=False)] == [True, True, False, True, True]
    listed = await http.get("/v1/backfills", params={"name": "nightly", "limit": 2})
    assert [one["id"] for one in listed.json()["data"]] == [third["id"], second["id"]]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
async def test_a_backfill_whose_rows_are_gone_fails_and_says_so(
    http: httpx.AsyncClient, start: Start, consumer: Consumer, folder: Path, tmp_path: Path, form: str
) -> None:
    texts(folder, 2)
    await start("one")
    fields = {"name": "nightly", "output": {"format": form}}
    await ended(http, await made(http, [ENCODE], {"path": str(folder)}, **fields))
    shutil.rmtree(tmp_path / "blobs" / "backfills")

    second = await ended(http, await made(http, [ENCODE], {"path": str(folder)}, **fields))
    third = await ended(http, await made(http, [ENCODE], {"path": str(folder)}, skip_unchanged=False, **fields))

    assert (second["status"], second["counts"]["skipped"], second["output_file_id"]) == ("failed", 2, None)
    assert [one["code"] for one in second["errors"]] == ["rows_missing"]
    assert (third["status"], third["rows"]) == ("completed", 2)


async def test_a_name_that_is_too_long_to_be_kept_is_told_by_its_line(
    http: httpx.AsyncClient, start: Start, folder: Path
) -> None:
    long = f"{folder}/{secrets.token_urlsafe(6000)}"
    await start("one")

    backfill = await ended(
        http, await made(http, [ENCODE], {"files": [{"path": long}, {"path": long, "id": "é" * 512}]})
    )

    assert [(one["code"], one["line"]) for one in backfill["errors"]] == [("name_too_long", 1)]


async def test_no_more_than_a_few_large_uploads_are_read_at_once(
    http: httpx.AsyncClient, start: Start, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = content_of
    now: set[int] = set()
    most = 0

    async def counted(it: Any, sources: Any, backfill: Any, one: Any) -> bytes:
        nonlocal most
        now.add(one.number)
        most = max(most, len(now))
        try:
            await asyncio.sleep(0.05)
            return await read(it, sources, backfill, one)
        finally:
            now.discard(one.number)

    monkeypatch.setattr(document, "content_of", counted)
    monkeypatch.setattr(document, "LARGE", 10)
    files = [{"file": await upload(http, f"{n}.txt", b"more than ten bytes"), "id": str(n)} for n in range(8)]
    await start("one")

    backfill = await ended(http, await made(http, [ENCODE], {"files": files}))

    assert (backfill["counts"]["completed"], most) == (8, LARGE_AT_ONCE)
