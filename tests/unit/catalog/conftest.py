from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """A hub on loopback that speaks the routes the real client calls. `refuse` sets a status and error code."""

    def __init__(self, address: str) -> None:
        self.endpoint = address
        self.repos: dict[str, dict[str, bytes]] = {}
        self.refuse: tuple[int, str] | None = None
        self.refuse_files: tuple[int, str] | None = None
        self.asked: list[str] = []
        self.sent: list[str] = []
        self.silent = threading.Event()
        self.released = threading.Event()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    state = Hub(f"http://127.0.0.1:{server.server_address[1]}")
    server.RequestHandlerClass = _handler(state)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield state
    state.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's own name
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append(path)
            if hub.silent.is_set():
                hub.released.wait(20)
                return
            if path.startswith("/api/models/"):
                self._api(path.removeprefix("/api/models/"))
            else:
                self._file(path)

        def _api(self, path: str) -> None:
            repo, _, rest = path.partition("/revision/") if "/revision/" in path else path.partition("/tree/")
            if hub.refuse:
                return self._answer(hub.refuse[0], b"{}", {"X-Error-Code": hub.refuse[1]})
            files = hub.repos.get(repo)
            if files is None:
                return self._answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            if rest not in ("", "main", COMMIT):
                return self._answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            if "/tree/" in path:
                listing = [{"type": "file", "path": n, "size": len(d), "oid": _oid(d)} for n, d in files.items()]
                return self._answer(200, json.dumps(listing).encode())
            info = {"id": repo, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
            return self._answer(200, json.dumps(info).encode())

        def _file(self, path: str) -> None:
            repo, _, rest = path.lstrip("/").partition("/resolve/")
            name = rest.partition("/")[2]
            if hub.refuse_files:
                return self._answer(hub.refuse_files[0], b"", {"X-Error-Code": hub.refuse_files[1]})
            data = hub.repos[repo][name]
            if self.command == "GET":
                hub.sent.append(name)
            return self._answer(200, data, {"ETag": f'"{_oid(data)}"', "X-Repo-Commit": COMMIT})

        def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    return Handler


def _oid(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
