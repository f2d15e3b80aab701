"""Which URLs of callers are opened: none that leads to the inside. Pure.

A URL is refused by its own text (`Guard.check`), and each address that its name resolves to is checked again when a
connection is made (`tasks.webhooks.connect`), for a name says nothing about where it leads. Refused are whole classes
of addresses, not known bad ones. An allow-list of the operator lets named hosts and networks of the inside through.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import quote

import idna

from tasks.errors import UrlRefused
from tasks.webhooks.addresses import Address, Allowed, address_refusal, parse_allowed

MAX_URL_CHARS = 2048

_PARTS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?]*)(?P<target>.*)", re.DOTALL)
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>.*))?", re.DOTALL)
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_QUAD = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}")
_PORTS = {"https": 443, "http": 80}

_INSIDE = frozenset(
    {"localhost", "localdomain", "local", "internal", "intranet", "private", "lan", "home", "corp", "svc", "consul"}
    | {"onion", "test", "invalid", "example", "arpa"}
)
"""Last parts of names that no public host has, whatever a resolver of ours would say."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that may be tried. `address` is that of a host written as one; a name is resolved when it is opened.

    `host` is in lower case and ASCII, without brackets and without a dot at its end. `target` is path and query.
    """

    scheme: str
    host: str
    port: int
    target: str
    address: Address | None = None

    @property
    def authority(self) -> str:
        """The value of `Host`."""
        host = f"[{self.host}]" if isinstance(self.address, IPv6Address) else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL in the one spelling that is opened."""
        return f"{self.scheme}://{self.authority}{self.target}"


@dataclass(frozen=True, slots=True)
class Guard:
    """What may be reached: the outside by https, and what `allowed` names, by http too. `http`: the outside as well.

    `settings` begins the names of the two settings that say so.
    """

    allowed: Allowed = field(default_factory=Allowed)
    http: bool = False
    settings: str = ""

    @classmethod
    def of(cls, allow: str, *, http: bool, settings: str = "") -> Guard:
        """The guard of two settings: a list of what is allowed, and whether http is. Raises ValueError."""
        return cls(parse_allowed(allow), http, settings)

    def check(self, url: str, param: str = "url") -> Target:
        """The URL, if its text leads nowhere that is refused. Nothing is resolved. Raises UrlRefused, naming `param`.

        Messages say nothing of the URL itself, which may hold a secret.
        """
        try:
            return self._checked(url)
        except _Refused as error:
            raise UrlRefused(f"{param!r} {error}.", param=param) from None

    def inside(self, why: str) -> str:
        """What a URL must be that leads to the inside, and who can let it through."""
        return f"must be a URL that leads to a public host: {why}{self._asking('ALLOW')}"

    def _asking(self, setting: str) -> str:
        return f"; whoever runs this server can allow it with {self.settings}_{setting}" if self.settings else ""

    def refusal(self, host: str, address: Address) -> str | None:
        """Why this address of a host is not connected to: the class that it is of; None if it may be."""
        if self.allowed.names(host) or self.allowed.holds(address):
            return None
        return address_refusal(address)

    def first_refusal(self, host: str, addresses: Iterable[Address]) -> str | None:
        """Why a host with these addresses is refused: one of them is enough."""
        return next((why for address in addresses if (why := self.refusal(host, address)) is not None), None)

    def _checked(self, url: str) -> Target:
        if len(url) > MAX_URL_CHARS:
            raise _Refused(f"is a URL of {len(url)} characters; at most {MAX_URL_CHARS} are taken")
        if "\\" in url or not url.isprintable() or any(map(str.isspace, url)):
            raise _Refused("must be a URL without spaces, backslashes, control or invisible characters")
        match = _PARTS.fullmatch(url)
        scheme = match["scheme"].lower() if match else ""
        if match is None or scheme not in _PORTS:
            raise _Refused(f"must be a URL that starts with {'http:// or ' if self.http else ''}https://")
        if "#" in url:
            raise _Refused("must be a URL without a fragment; leave out '#' and what follows")
        host, port = _split(match["authority"])
        address = _literal(host)
        name = str(address) if address is not None else _name(host)
        inside = self.allowed.names(name) or (address is not None and self.allowed.holds(address))
        if not inside:
            why = address_refusal(address) if address is not None else _name_refusal(name)
            if why is not None:
                raise _Refused(self.inside(why))
        if scheme == "http" and not (inside or self.http):
            raise _Refused(f"must be a URL that starts with https://{self._asking('HTTP')}")
        return Target(scheme, name, _PORTS[scheme] if port is None else port, _target(match["target"]), address)


class _Refused(Exception):
    """What a URL must be, to go on after the name of its field."""


def _split(authority: str) -> tuple[str, int | None]:
    """Host and port. Whatever two readers of URLs may understand in two ways is refused."""
    if "@" in authority:
        raise _Refused("must be a URL without a user and a password")
    if "%" in authority:
        raise _Refused("must be a URL whose host has no '%'")
    match = _AUTHORITY.fullmatch(authority)
    if match is None or not match["host"]:
        raise _Refused("must be a URL with a host")
    if match["port"] is None:
        return match["host"], None
    if not _PORT.fullmatch(match["port"]) or int(match["port"]) > 65535:
        raise _Refused("must be a URL with a port from 1 to 65535, or none")
    return match["host"], int(match["port"])


def _literal(host: str) -> Address | None:
    """The address of a host that is written as one: four plain numbers, or IPv6 in brackets. None: it is a name."""
    if host.startswith("["):
        try:
            return IPv6Address(host[1:-1])
        except ValueError:
            raise _Refused("must be a URL with a valid IPv6 address in the brackets") from None
    if _QUAD.fullmatch(host):
        try:
            return IPv4Address(host)
        except ValueError:
            raise _Refused(_FOUR) from None
    return None


_FOUR = "must be a URL whose host is a name, or an address of four plain numbers from 0 to 255"


def _name(host: str) -> str:
    """A host's name as it is resolved and sent. Numbers in any other spelling than plain ones are no name."""
    if not host.isascii():
        try:
            host = idna.encode(host, uts46=True).decode()
        except (idna.IDNAError, UnicodeError):
            raise _Refused("must be a URL with a valid host name") from None
    host = host.lower().removesuffix(".")
    labels = host.split(".")
    if len(host) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise _Refused("must be a URL with a valid host name")
    if _NUMBER.fullmatch(labels[-1]):
        raise _Refused(_FOUR)
    return host


def _name_refusal(name: str) -> str | None:
    """Why a name is refused before anybody asks a resolver."""
    labels = name.split(".")
    if any(".".join(labels[start:]) in _INSIDE for start in range(len(labels))):
        return "names that end so belong to the inside"
    if len(labels) == 1:
        return "give the host's full name, with its domain"
    return None


def _target(given: str) -> str:
    """Path and query as they are sent: ASCII, beginning with a slash."""
    if not given.startswith("/"):
        given = "/" + given
    return given if given.isascii() else quote(given, safe="!$&'()*+,-./:;=?@_~%[]|^`{}\"<>")


def as_address(text: str) -> Address:
    """An address as a resolver gives it, which may have a zone. Raises ValueError."""
    return ip_address(text.partition("%")[0])
