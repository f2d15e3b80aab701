from __future__ import annotations

import asyncio
import socket
import threading
from ipaddress import ip_address
from typing import Any

import pytest

from tasks.webhooks.resolver import Resolver


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Slow:
    """A resolver of the system that answers when it is let."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.answers: dict[bytes, threading.Event] = {}
        self.begun = threading.Event()

    def __call__(self, host: bytes, port: None, **_: Any) -> list[Any]:
        self.asked.append(host)
        self.begun.set()
        if host in self.answers:
            self.answers[host].wait(10.0)
        if host == b"none.example.com":
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [
            (socket.AF_INET, 1, 6, "", ("192.0.2.1", 0)),
            (socket.AF_INET6, 1, 6, "", ("fe80::1%eth0", 0, 0, 2)),
        ] * 2


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    found = Slow()
    monkeypatch.setattr(socket, "getaddrinfo", found)
    return found


async def test_all_addresses_are_told_once_and_without_zones(slow: Slow) -> None:
    assert await Resolver()("a.example.com") == [ip_address("192.0.2.1"), ip_address("fe80::1")]
    with pytest.raises(OSError, match="no such name"):
        await Resolver()("none.example.com")


async def test_the_systems_resolver_is_asked() -> None:
    assert set(await Resolver()("localhost")) <= {ip_address("127.0.0.1"), ip_address("::1")}


async def test_one_look_is_for_all_who_ask_meanwhile_and_holds_nobody_else_up(slow: Slow) -> None:
    slow.answers[b"slow.example.com"] = threading.Event()
    resolve = Resolver()
    waiting = [asyncio.create_task(resolve("slow.example.com")) for _ in range(20)]
    await asyncio.to_thread(slow.begun.wait, 5.0)

    assert await resolve("quick.example.com")
    waiting.pop().cancel()
    slow.answers[b"slow.example.com"].set()
    assert all(await asyncio.gather(*waiting))
    assert slow.asked.count(b"slow.example.com") == 1
    assert await resolve("slow.example.com")
    assert slow.asked.count(b"slow.example.com") == 2


async def test_a_look_for_which_there_is_no_thread_fails_alone(monkeypatch: pytest.MonkeyPatch, slow: Slow) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    resolve = Resolver(most=1)
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", start)
        with pytest.raises(OSError, match="thread"):
            await resolve("a.example.com")
    assert await asyncio.wait_for(resolve("a.example.com"), 5.0)


async def test_so_many_are_looked_up_at_once_whoever_gave_up(slow: Slow) -> None:
    slow.answers[b"slow.example.com"] = threading.Event()
    resolve = Resolver(most=1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(resolve("slow.example.com"), 0.05)
    waiting = asyncio.create_task(resolve("quick.example.com"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.05)
    assert slow.asked == [b"slow.example.com"]

    slow.answers[b"slow.example.com"].set()
    assert await waiting
