"""Addresses as people write them: HOST or HOST:PORT. Must not know sockets."""

import ipaddress

from kafila.defaults import RENDEZVOUS_PORT
from kafila.errors import UsageProblem

Address = tuple[str, int]
"""A host (name or IPv4 number) and a port."""


def parse_address(text: str, *, any_port: bool = False) -> Address:
    """Read an address; the port defaults to a rendezvous' usual one.

    With `any_port`, for an address to listen on, port 0 is good too. Raises UsageProblem.
    """
    text = text.strip()
    if _is_ipv6(text):
        raise UsageProblem(
            f"{text[:60]!r} is an IPv6 address, and IPv6 is not supported yet; "
            "write a host name or an IPv4 address"
        )
    host, colon, port = text.partition(":")
    wrong = ":" in port or (colon != "" and port == "") or "[" in host
    try:
        host.encode("idna")  # what a resolver does first; it refuses empty and over-long labels
    except UnicodeError:
        wrong = True
    blank = any(letter.isspace() or not letter.isprintable() for letter in host)
    if wrong or not host or blank or (port and not (port.isascii() and port.isdigit())):
        raise UsageProblem(f"{text[:60]!r} is not an address; write HOST or HOST:PORT")
    number = int(port[:6]) if port else RENDEZVOUS_PORT
    if not (0 if any_port else 1) <= number < 65536:
        raise UsageProblem(f"{port[:12]} is not a port; ports are 1 to 65535")
    return host, number


def format_address(address: Address) -> str:
    """Write an address so that `parse_address` reads it."""
    host, port = address
    return f"{host}:{port}"


def _is_ipv6(text: str) -> bool:
    """Whether an IPv6 address is meant, in brackets with or without a port, or bare."""
    host = text[1:].partition("]")[0] if text.startswith("[") else text
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True
