"""Classes of addresses that are not the public internet, and the operator's exceptions. Pure.

The tables are IANA's registries of special addresses, and two of our own: what cloud hosts serve to their machines on
a public address, and forms of IPv6 that carry an IPv4 address to a translator. What Python's `ipaddress` calls global
changes between its versions, so it is asked nothing here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_V4 = tuple(
    (IPv4Network(network), why)
    for network, why in (
        ("0.0.0.0/32", "unspecified"),
        ("0.0.0.0/8", "reserved"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier (CGNAT)"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "for documentation"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("255.255.255.255/32", "broadcast"),
        ("240.0.0.0/4", "reserved"),
        # Public by number, and answered by the host of a virtual machine.
        ("168.63.129.16/32", "of a cloud's own host"),
    )
)

_MAPPED = IPv6Network("::ffff:0:0/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_V6_GLOBAL = IPv6Network("2000::/3")

_V6 = tuple(
    (IPv6Network(network), why)
    for network, why in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::/96", "IPv4 inside IPv6"),
        ("::ffff:0:0:0/96", "IPv4 inside IPv6"),
        ("64:ff9b:1::/48", "a local translator's"),
        ("100::/64", "for discarding"),
        ("2001::/32", "a tunnel's (Teredo)"),
        ("2001:2::/48", "for benchmarks"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "for documentation"),
        ("2002::/16", "a tunnel's (6to4)"),
        ("3ffe::/16", "reserved"),
        ("3fff::/20", "for documentation"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private (site-local)"),
        ("ff00::/8", "multicast"),
    )
)

_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
_NAME = re.compile(r"(?:\*\.)?(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*", re.IGNORECASE)
_NUMERIC = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)", re.IGNORECASE)


def address_refusal(address: Address) -> str | None:
    """Why this address is not the public internet, as "its address is …"; None if it is."""
    why = _class_of(address)
    return None if why is None else f"its address is {why}"


def _class_of(address: Address) -> str | None:
    if isinstance(address, IPv4Address):
        return next((why for network, why in _V4 if address in network), None)
    if address in _MAPPED or address in _NAT64:
        return _class_of(_last_four(address))
    why = next((why for network, why in _V6 if address in network), None)
    if why is None and address not in _V6_GLOBAL:
        return "reserved"
    if why is None and int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        return _class_of(_last_four(address))
    return why


def _last_four(address: IPv6Address) -> IPv4Address:
    return IPv4Address(int(address) & 0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Allowed:
    """What an operator lets through: hosts by name, all names below a domain, and networks."""

    hosts: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    def names(self, host: str) -> bool:
        """Whether the host is named, by itself or by a domain that it is below."""
        if host in self.hosts:
            return True
        labels = host.split(".")
        return any(".".join(labels[start:]) in self.domains for start in range(1, len(labels)))

    def holds(self, address: Address) -> bool:
        """Whether a network has this address, which may be written as IPv4 mapped into IPv6."""
        if isinstance(address, IPv6Address) and address in _MAPPED:
            return self.holds(_last_four(address))
        return any(address in network for network in self.networks)


def parse_allowed(value: str) -> Allowed:
    """The entries of an allow-list: `10.1.0.0/16,fd00:1::/64,hooks.lan,*.svc.cluster.local`.

    Raises ValueError that names the entry which is none.
    """
    hosts: set[str] = set()
    domains: set[str] = set()
    networks: list[Network] = []
    for entry in filter(None, (part.strip() for part in value.split(","))):
        if (network := _network(entry)) is not None:
            networks.append(network)
        elif _NAME.fullmatch(entry) and not _NUMERIC.fullmatch(entry.rpartition(".")[2]):
            name = entry.lower()
            (domains if name.startswith("*.") else hosts).add(name.removeprefix("*."))
        else:
            raise ValueError(
                f"has {entry[:60]!r}, which is no entry: give a host (hooks.lan), all below a domain (*.svc.lan), an "
                "address or a network (10.1.0.0/16), without scheme and port"
            )
    return Allowed(frozenset(hosts), frozenset(domains), tuple(networks))


def _network(entry: str) -> Network | None:
    if "%" in entry:  # a zone, which no address that is checked has
        return None
    try:
        return ip_network(entry)
    except ValueError:
        pass
    if "/" in entry:
        try:
            wider = ip_network(entry, strict=False)
        except ValueError:
            return None
        raise ValueError(f"has {entry[:60]!r}, which has bits beyond its prefix; give {wider}")
    return None
