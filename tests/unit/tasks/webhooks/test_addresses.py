from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from hypothesis import example, given
from hypothesis import strategies as st

from tasks.webhooks.addresses import address_refusal

INSIDE = st.one_of(
    [
        st.ip_addresses(network=network)
        for network in ("10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.168.0.0/16", "100.64.0.0/10", "0.0.0.0/8")
    ]
)
"""Addresses of networks that matter, which none of a few thousand random ones would hit."""

CARRIERS = (
    "::ffff:0:0",  # mapped
    "::",  # compatible
    "::ffff:0:0:0",  # translated (SIIT)
    "64:ff9b::",
    "64:ff9b:1::",
    "2606:4700::5efe:0:0",  # ISATAP
)


@given(st.ip_addresses(v=4) | INSIDE)
@example(IPv4Address("192.0.0.9"))
def test_what_passes_of_ipv4_is_global_and_nothing_special(address: IPv4Address) -> None:
    special = (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
    )
    if address_refusal(address) is None:
        assert address.is_global
        assert not special
    else:
        assert special or not address.is_global or address in _OURS


_OURS = {IPv4Address("168.63.129.16"), *(IPv4Address(int(IPv4Address("192.88.99.0")) + n) for n in range(256))}
_OURS |= {IPv4Address(int(IPv4Address("192.0.0.0")) + n) for n in range(256)}


@given(st.ip_addresses(v=6) | st.ip_addresses(network="2000::/3") | st.ip_addresses(network="::/8"))
@example(IPv6Address("fec0::1"))
@example(IPv6Address("2001::1"))
def test_what_passes_of_ipv6_is_global_and_nothing_special(address: IPv6Address) -> None:
    carried = address.ipv4_mapped
    if address_refusal(address) is None and carried is None:
        assert address.is_global
        assert not address.is_private
        assert not address.is_multicast
        assert not address.is_link_local
        assert not address.is_site_local
        assert not address.is_loopback
        assert not address.is_unspecified
        assert address.sixtofour is None
        assert address.teredo is None


@given(INSIDE, st.sampled_from(CARRIERS))
def test_an_address_of_the_inside_is_refused_in_every_form_that_carries_it(inside: IPv4Address, carrier: str) -> None:
    assert address_refusal(IPv6Address(int(IPv6Address(carrier)) | int(inside)))


@given(INSIDE)
def test_tunnels_are_refused_whatever_they_carry(inside: IPv4Address) -> None:
    sixtofour = IPv6Address(0x2002 << 112 | int(inside) << 80 | 1)
    teredo = IPv6Address(0x2001 << 112 | int(inside) << 64 | (int(inside) ^ 0xFFFFFFFF))

    assert sixtofour.sixtofour == inside
    assert teredo.teredo == (inside, inside)
    assert address_refusal(sixtofour)
    assert address_refusal(teredo)


@given(st.ip_addresses(v=4) | INSIDE, st.sampled_from(["::ffff:0:0", "64:ff9b::"]))
def test_what_is_mapped_or_translated_is_judged_by_what_it_carries(address: IPv4Address, carrier: str) -> None:
    assert address_refusal(IPv6Address(int(IPv6Address(carrier)) | int(address))) == address_refusal(address)
