from __future__ import annotations

import asyncio
import gzip
import shutil
import ssl
import subprocess
import tracemalloc
import zlib
from pathlib import Path

import pytest

from catalog.errors import RoostError
from tasks.errors import LimitExceeded, UrlRefused, UrlUnreachable
from tasks.webhooks.connect import Opener, Resolve
from tasks.webhooks.guard import Guard
from tests.unit.tasks.webhooks.receivers import INSIDE, PUBLIC, Answer, Names, endless, receiving, says, stalls

NAME = "hooks.example.com"
GUARD = Guard.of(PUBLIC, http=True)
OK = says("200 OK\r\nContent-Type: Text/CSV; charset=utf-8", b"a,b\n")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def opener(resolve: Resolve | None = None, guard: Guard = GUARD, trust: ssl.SSLContext | None = None) -> Opener:
    return Opener(guard, resolve=resolve or Names([[PUBLIC]]), trust=trust)


async def refused(it: Opener, url: str) -> RoostError:
    with pytest.raises(RoostError) as by_fetch:
        await it.fetch(url, timeout_s=5.0, most_bytes=1000, param="items[0].document.url")
    with pytest.raises(RoostError) as by_post:
        await it.post(url, b"{}", {}, timeout_s=5.0, most_bytes=1000)
    assert type(by_fetch.value) is type(by_post.value)
    assert by_fetch.value.param == "items[0].document.url"
    return by_fetch.value


async def test_a_file_is_fetched_and_told_what_it_is() -> None:
    async with receiving(OK) as public:
        file = await opener().fetch(f"http://{NAME}:{public.port}/a?b=c", timeout_s=5.0, most_bytes=4)

    assert (file.data, file.media_type) == (b"a,b\n", "text/csv")
    head = public.requests[0].splitlines()
    assert head[0] == "GET /a?b=c HTTP/1.1"
    assert f"host: {NAME}:{public.port}" in head
    assert "accept-encoding: identity" in head


async def test_a_body_is_posted_with_its_headers_and_the_reply_is_told_whatever_it_is() -> None:
    async with receiving(says("503 Busy\r\nRetry-After: 7\r\nX-A: 1\r\nx-a: 2", b"come later")) as public:
        url = f"http://{NAME}:{public.port}/hook"
        whole = await opener().post(url, b'{"a":1}', {"Webhook-Id": "m"}, timeout_s=5.0, most_bytes=10)
        part = await opener().post(url, b'{"a":1}', {"Host": "elsewhere"}, timeout_s=5.0, most_bytes=4)

    assert (whole.status, whole.headers["retry-after"], whole.headers["x-a"]) == (503, "7", "1, 2")
    assert (whole.body, whole.cut, part.body, part.cut) == (b"come later", False, b"come", True)
    assert "webhook-id: m" in public.requests[0].splitlines()
    assert "content-length: 7" in public.requests[0].splitlines()
    assert "elsewhere" not in public.requests[1]


async def test_a_name_that_changes_after_the_look_gains_nothing() -> None:
    async with receiving(OK) as public, receiving(OK, INSIDE, public.port) as inside:
        names = Names([[PUBLIC], [INSIDE]])
        it = opener(names)
        url = f"http://{NAME}:{public.port}/"
        first = await it.fetch(url, timeout_s=5.0, most_bytes=1000)
        with pytest.raises(UrlRefused) as second:
            await it.fetch(url, timeout_s=5.0, most_bytes=1000)

    assert first.data
    assert names.asked == [NAME, NAME]
    assert (public.connections, inside.connections) == (1, 0)
    assert "loopback" in second.value.message
    assert INSIDE not in second.value.message


@pytest.mark.parametrize(
    "addresses",
    [
        [INSIDE],
        [PUBLIC, INSIDE],
        [INSIDE, PUBLIC],
        [PUBLIC, "10.0.0.1"],
        [PUBLIC, "169.254.169.254"],
        [PUBLIC, "::1"],
        [PUBLIC, "::ffff:127.0.0.1"],
        [PUBLIC, "64:ff9b::7f00:1"],
        [*[PUBLIC] * 20, "fd00::1"],
    ],
)
async def test_one_bad_address_of_a_name_is_enough(addresses: list[str]) -> None:
    async with receiving(OK) as public, receiving(OK, INSIDE, public.port) as inside:
        error = await refused(opener(Names([addresses])), f"http://{NAME}:{public.port}/")

    assert isinstance(error, UrlRefused)
    assert (public.connections, inside.connections) == (0, 0)


async def test_an_address_in_the_url_is_never_looked_up() -> None:
    async with receiving(OK) as public:
        names = Names([[INSIDE]])
        assert (await opener(names).fetch(f"http://{PUBLIC}:{public.port}/", timeout_s=5.0, most_bytes=9)).data
        with pytest.raises(UrlRefused):
            await opener(names).fetch(f"http://{INSIDE}:{public.port}/", timeout_s=5.0, most_bytes=9)

    assert names.asked == []


async def test_a_named_insider_may_be_reached_wherever_it_is() -> None:
    async with receiving(OK, INSIDE) as inside:
        it = opener(Names([[INSIDE]]), Guard.of("files.lan", http=False))
        assert (await it.fetch(f"http://files.lan:{inside.port}/", timeout_s=5.0, most_bytes=9)).data
        with pytest.raises(UrlRefused):
            await it.fetch(f"http://{NAME}:{inside.port}/", timeout_s=5.0, most_bytes=9)


async def test_the_next_address_is_tried_where_one_takes_no_connection() -> None:
    async with receiving(OK) as public:
        it = opener(Names([["127.0.0.3", PUBLIC]]), Guard.of(f"{PUBLIC},127.0.0.3", http=True))
        assert (await it.fetch(f"http://{NAME}:{public.port}/", timeout_s=5.0, most_bytes=9)).data


async def test_where_one_family_leads_nowhere_the_other_is_soon_tried() -> None:
    async with receiving(OK) as public:
        it = opener(Names([[*["::1"] * 8, PUBLIC]]), Guard.of(f"{PUBLIC},::1", http=True))
        assert (await it.fetch(f"http://{NAME}:{public.port}/", timeout_s=5.0, most_bytes=9)).data


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(status: int) -> None:
    async with receiving(OK, INSIDE) as inside:
        to_the_inside = says(f"{status} Moved\r\nLocation: http://{INSIDE}:{inside.port}/secret")
        async with receiving(to_the_inside) as public:
            url = f"http://{NAME}:{public.port}/"
            with pytest.raises(UrlUnreachable, match="redirect") as caught:
                await opener().fetch(url, timeout_s=5.0, most_bytes=1000)
            reply = await opener().post(url, b"{}", {}, timeout_s=5.0, most_bytes=1000)

    assert str(status) in caught.value.message
    assert "secret" not in caught.value.message
    assert reply.status == status
    assert inside.connections == 0


@pytest.mark.parametrize(("status", "again"), [(401, False), (404, False), (206, False), (429, True), (503, True)])
async def test_another_status_than_200_is_told_and_nothing_of_the_body(status: int, again: bool) -> None:
    async with receiving(says(f"{status} Said\r\nX-Secret: inside", b"the inside's secret")) as public:
        with pytest.raises(UrlUnreachable) as caught:
            await opener().fetch(f"http://{NAME}:{public.port}/", timeout_s=5.0, most_bytes=1000)

    assert caught.value.message == f"'url' answers {status}, not 200."
    assert caught.value.retryable is again


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_slow_server_is_left_when_the_time_is_up(scheme: str) -> None:
    async with receiving(stalls) as public:
        with pytest.raises(UrlUnreachable, match=r"longer than 0\.2 s") as caught:
            await opener().fetch(f"{scheme}://{NAME}:{public.port}/", timeout_s=0.2, most_bytes=1000)

    assert caught.value.retryable


async def test_interim_responses_without_end_are_cut_off() -> None:
    async with receiving(endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n")) as public:
        error = await refused(opener(), f"http://{NAME}:{public.port}/")
        await asyncio.wait_for(public.left.wait(), 5.0)

    assert isinstance(error, UrlUnreachable)


async def test_a_slow_resolver_is_left_too() -> None:
    async def never(host: str) -> list[object]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(UrlUnreachable, match="longer than"):
        await opener(never).fetch(f"http://{NAME}/", timeout_s=0.1, most_bytes=1000)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4000000000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
async def test_a_body_without_end_is_cut_off(head: bytes) -> None:
    piece = b"8000\r\n" + b"x" * 0x8000 + b"\r\n" if b"chunked" in head else b"x" * 0x8000
    async with receiving(endless(head, piece)) as public:
        url = f"http://{NAME}:{public.port}/"
        reply = await opener().post(url, b"{}", {}, timeout_s=5.0, most_bytes=4096)
        await asyncio.wait_for(public.left.wait(), 5.0)
        with pytest.raises(LimitExceeded) as caught:
            await opener().fetch(url, timeout_s=5.0, most_bytes=2**20, param="items[0].audio.url")

    assert (len(reply.body), reply.cut) == (4096, True)
    assert caught.value.param == "items[0].audio.url"


async def test_headers_without_end_are_cut_off() -> None:
    async with receiving(endless(b"HTTP/1.1 200 OK\r\n", b"X-A: " + b"a" * 1000 + b"\r\n")) as public:
        error = await refused(opener(), f"http://{NAME}:{public.port}/")

    assert isinstance(error, UrlUnreachable)
    assert "HTTP/1.1" in error.message


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate"])
async def test_a_bomb_is_unpacked_no_further_than_the_limit(encoding: str) -> None:
    bomb = gzip.compress(bytes(50 * 2**20), 9) if "gzip" in encoding else zlib.compress(bytes(50 * 2**20), 9)
    async with receiving(says(f"200 OK\r\nContent-Encoding: {encoding}", bomb)) as public:
        tracemalloc.start()
        with pytest.raises(LimitExceeded):
            await opener().fetch(f"http://{NAME}:{public.port}/", timeout_s=5.0, most_bytes=2**20)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert peak < 8 * 2**20


async def test_packed_bytes_that_stand_for_nothing_are_cut_off() -> None:
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + packer.compress(b"x") + packer.flush(zlib.Z_SYNC_FLUSH)
    )
    async with receiving(endless(head, b"\x00\x00\x00\xff\xff" * 2000)) as public:
        with pytest.raises(LimitExceeded):
            await opener().fetch(f"http://{NAME}:{public.port}/", timeout_s=5.0, most_bytes=2**16)


async def test_a_body_in_pieces_of_a_byte_leaves_others_their_turns() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with receiving(endless(head, b"1\r\nx\r\n" * 2000)) as public:
        task = asyncio.create_task(others())
        before = turns
        await opener().post(f"http://{NAME}:{public.port}/", b"{}", {}, timeout_s=5.0, most_bytes=16_000)
        task.cancel()
    assert turns - before > 200


@pytest.mark.parametrize(
    ("encoding", "body", "comes"),
    [
        ("gzip", gzip.compress(b"text"), b"text"),
        ("GZip", gzip.compress(b"x" * 100_000), b"x" * 100_000),
        ("gzip", gzip.compress(b"one, ") + gzip.compress(b"and another"), b"one, and another"),
        ("gzip", gzip.compress(b"text") + bytes(50_000), b"text"),
        ("gzip", gzip.compress(b"text") + b"no gzip", None),
        ("identity", b"text", b"text"),
        ("gzip", gzip.compress(b"x" * 100_000)[:-9], None),
        ("gzip", b"no gzip", None),
        ("gzip", b"", None),
        ("br", b"text", None),
        ("gzip, gzip", gzip.compress(gzip.compress(b"text")), None),
    ],
)
async def test_what_comes_packed_is_unpacked_or_told(encoding: str, body: bytes, comes: bytes | None) -> None:
    async with receiving(says(f"200 OK\r\nContent-Encoding: {encoding}", body)) as public:
        fetch = opener().fetch(f"http://{NAME}:{public.port}/", timeout_s=5.0, most_bytes=100_000)
        if comes is None:
            with pytest.raises(UrlUnreachable):
                await fetch
        else:
            assert (await fetch).data == comes


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (says("200 OK\r\nContent-Length: 9", b"text", length=False), "no whole answer"),
        (endless(b"SSH-2.0-OpenSSH_9.9\r\n", b"\0" * 1000), "no whole answer"),
        (says("200 OK\r\nContent-Length: x", length=False), "no whole answer"),
    ],
)
async def test_what_is_no_answer_is_told_without_its_words(answer: Answer, said: str) -> None:
    async with receiving(answer) as public:
        error = await refused(opener(), f"http://{NAME}:{public.port}/")

    assert isinstance(error, UrlUnreachable)
    assert said in error.message
    assert "SSH" not in error.message


async def test_nobody_there_is_told() -> None:
    async with receiving(OK) as gone:
        pass
    no_one: list[str] = []
    for addresses, said in (([PUBLIC], "no connection"), (no_one, "leads nowhere")):
        error = await refused(opener(Names([addresses])), f"http://{NAME}:{gone.port}/")
        assert isinstance(error, UrlUnreachable)
        assert error.retryable
        assert said in error.message


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving(OK) as public, receiving(OK, INSIDE) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://{INSIDE}:{proxy.port}")
        await opener().fetch(f"http://{NAME}:{public.port}/", timeout_s=5.0, most_bytes=1000)

    assert (public.connections, proxy.connections) == (1, 0)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of `NAME` with its key, that vouches for itself."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl for a certificate")
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        (
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "1", "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"),
            *("-keyout", folder / "key.pem", "-out", folder / "public.pem"),
        ),
        check=True,
        capture_output=True,
    )
    return folder


async def test_the_certificate_is_that_of_the_name_and_not_of_the_address(certificate: Path) -> None:
    served: list[str | None] = []
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate / "public.pem", certificate / "key.pem")
    server.sni_callback = lambda _socket, name, _context: served.append(name)
    trust = ssl.create_default_context(cafile=certificate / "public.pem")
    it = opener(guard=Guard.of(PUBLIC, http=False), trust=trust)
    async with receiving(OK, trust=server) as public:
        file = await it.fetch(f"https://{NAME}:{public.port}/", timeout_s=5.0, most_bytes=1000)
        for other in ("other.example.com", PUBLIC):
            error = await refused(it, f"https://{other}:{public.port}/")
            assert isinstance(error, UrlUnreachable)
            assert "certificate" in error.message
        with pytest.raises(UrlUnreachable, match="certificate"):
            await opener(guard=Guard.of(PUBLIC, http=False)).fetch(
                f"https://{NAME}:{public.port}/", timeout_s=5.0, most_bytes=1000
            )
        plain = await refused(opener(), f"http://{NAME}:{public.port}/")
        assert isinstance(plain, UrlUnreachable)
        assert f"host: {NAME}:{public.port}" in public.requests[0].splitlines()
    async with receiving(OK, reads=False) as public:
        error = await refused(it, f"https://{NAME}:{public.port}/")
        assert "no TLS" in error.message

    assert file.data == b"a,b\n"
    assert served[0] == NAME
