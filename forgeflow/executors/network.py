"""Which addresses an HTTP call may reach."""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Network = IPv4Network | IPv6Network

_PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
_V4_COMPATIBLE = IPv6Network("::/96")
# :: and ::1 lie among the v4-compatible ones and are none.
_FIRST_V4_COMPATIBLE = 2


@dataclass(frozen=True, slots=True)
class Guard:
    """Refuses addresses by network; what is allowed wins.  Sources: `executor.http.deny_networks`, `allow_networks`.

    The lists of Python (`is_global`, `is_private`) are no help: multicast, NAT64, 6to4 and site-local addresses are
    global there, and what hides in a v4-mapped or v4-compatible address depends on the version.
    """

    denied: Sequence[tuple[str, Network]]
    allowed: Sequence[tuple[str, Network]]

    @classmethod
    def of(cls, deny: Iterable[str], allow: Iterable[str]) -> "Guard":
        return cls(_networks(deny), _networks(allow))

    def refused_by(self, address: str) -> str | None:
        """The word of `deny_networks` that has this address, as getaddrinfo gives it; None when it may be reached.

        What is no address is refused as well.
        """
        try:
            plain = _unwrapped(ipaddress.ip_address(address))
        except ValueError:
            return "no address"
        if _word(self.allowed, plain) is not None:
            return None
        return _word(self.denied, plain)


def _networks(words: Iterable[str]) -> list[tuple[str, Network]]:
    parts = ((word, _PRIVATE if word == "private" else (word,)) for word in words)
    return [(word, ipaddress.ip_network(each)) for word, networks in parts for each in networks]


def _word(networks: Sequence[tuple[str, Network]], address: IPv4Address | IPv6Address) -> str | None:
    return next((word for word, network in networks if address in network), None)


def _unwrapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address in a v4-mapped or v4-compatible one: the kernel connects to that."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped:
        return address.ipv4_mapped
    if address in _V4_COMPATIBLE and int(address) >= _FIRST_V4_COMPATIBLE:
        return IPv4Address(int(address))
    return address
