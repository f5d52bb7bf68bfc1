"""Addresses as people write them: HOST or HOST:PORT. Must not know sockets."""

import ipaddress

from kafila.defaults import RENDEZVOUS_PORT
from kafila.errors import UsageProblem

Address = tuple[str, int]
"""A host (name, IPv4 number, or IPv6 number without brackets) and a port."""


def parse_address(text: str, *, any_port: bool = False, port: int = RENDEZVOUS_PORT) -> Address:
    """Read an address; the port is `port` where none is written, a rendezvous' usual one.

    An IPv6 number stands in brackets. With `any_port`, for an address to listen on, port 0 is good
    too. Raises UsageProblem.
    """
    text = text.strip()
    host, written = _ipv6(text) or _named(text)
    if written and not (written.isascii() and written.isdigit()):
        raise _wrong(text)
    number = int(written[:6]) if written else port
    if not (0 if any_port else 1) <= number < 65536:
        raise UsageProblem(f"{written[:12]} is not a port; ports are 1 to 65535")
    return host, number


def format_address(address: Address) -> str:
    """Write an address so that `parse_address` reads it."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _ipv6(text: str) -> tuple[str, str] | None:
    """Split an IPv6 number in brackets from its port, if any; None: it is something else."""
    if not text.startswith("["):
        if _is_ipv6(text):  # ::1:4710 is one too, though its writer may have meant a port
            raise UsageProblem(
                f"{text[:60]!r} is an IPv6 address without brackets; write it as in "
                "[2001:db8::1]:4710"
            )
        return None
    host, closed, rest = text[1:].partition("]")
    if not closed or (rest and rest[0] != ":") or rest == ":" or not _is_ipv6(host):
        raise _wrong(text)
    number = ipaddress.IPv6Address(host)
    if number.is_link_local or number.scope_id is not None:
        raise UsageProblem(
            f"{text[:60]!r} is a link-local address, which means something on one cable only; "
            "write a global IPv6 address, an IPv4 address or a host name"
        )
    return str(number.ipv4_mapped or number), rest[1:]


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _named(text: str) -> tuple[str, str]:
    """Split a host name or IPv4 number from its port, if any."""
    host, colon, port = text.partition(":")
    # A resolver takes a number alone for an address too; who writes one means a port.
    wrong = "[" in host or (colon and not port) or (host.isascii() and host.isdigit())
    try:
        host.encode("idna")  # what a resolver does first; it refuses empty and over-long labels
    except UnicodeError:
        wrong = True
    if wrong or not host or any(each.isspace() or not each.isprintable() for each in host):
        raise _wrong(text)
    return host, port


def _wrong(text: str) -> UsageProblem:
    return UsageProblem(
        f"{text[:60]!r} is not an address; write HOST or HOST:PORT, as in example.org:4710 or "
        "[2001:db8::1]:4710"
    )
