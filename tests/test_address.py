"""Addresses as people write them, on command lines and in files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kafila.address import Address, format_address, parse_address
from kafila.defaults import RENDEZVOUS_PORT
from kafila.errors import UsageProblem
from kafila.probe.report import Session


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("example.org", ("example.org", RENDEZVOUS_PORT)),
        ("example.org:1234", ("example.org", 1234)),
        (" 127.0.0.1:1\n", ("127.0.0.1", 1)),
        ("[::1]", ("::1", RENDEZVOUS_PORT)),
        ("[2001:DB8:0:0::7]:99", ("2001:db8::7", 99)),
        ("[::ffff:192.0.2.1]:99", ("192.0.2.1", 99)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":1",
        "a:",
        "a:0",
        "a:65536",
        "127.0.0.1:99999",
        "a:b",
        "a:1:2",
        "[::x]:1",
        "[example.org]:1",
        "[::1]:",
        "[::1]1",
        "[::1]:0",
        "[::1]:65536",
        "[::1",
        "[::1]:1:2",
        "a b",
        "a\tb",
        "\x1b[31m:1",
        "[]",
        "a..b",
        "x" * 70,
        "4710",
        "4710:4710",
    ],
)
def test_wrong_addresses(text: str) -> None:
    with pytest.raises(UsageProblem) as problem:
        parse_address(text)
    assert str(problem.value).isprintable()


@pytest.mark.parametrize("text", ["::1", "::1:4710", "2001:db8::1", "fe80::1%\x1b"])
def test_an_ipv6_number_needs_brackets(text: str) -> None:
    """Without them nobody can tell where the port begins."""
    with pytest.raises(UsageProblem, match="without brackets") as problem:
        parse_address(text, any_port=True)
    assert str(problem.value).isprintable()


@pytest.mark.parametrize("text", ["[fe80::1]:1", "[fe80::1%eth0]:1", "[2001:db8::1%\x1b]:1"])
def test_link_local_addresses_are_refused(text: str) -> None:
    with pytest.raises(UsageProblem, match="link-local") as problem:
        parse_address(text)
    assert str(problem.value).isprintable()


def test_any_port_to_listen_on() -> None:
    assert parse_address("0.0.0.0:0", any_port=True) == ("0.0.0.0", 0)
    assert parse_address("[::]:0", any_port=True) == ("::", 0)


@given(st.sampled_from(["example.org", "192.0.2.7", "2001:db8::7"]), st.integers(1, 65535))
def test_what_is_written_is_read(host: str, port: int) -> None:
    assert parse_address(format_address((host, port))) == (host, port)


@given(st.text(max_size=40))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        host, port = parse_address(text)
    except UsageProblem:
        return
    assert host.isprintable()
    assert 0 < port < 65536


@pytest.mark.parametrize("rendezvous", ["127.0.0.1:99999", "127.0.0.1:0", "a..b:1"])
def test_a_file_names_no_rendezvous_that_cannot_be(rendezvous: str) -> None:
    with pytest.raises(ValidationError, match="is not a"):
        Session(rendezvous=rendezvous, rendezvous_key="0" * 64)
    assert Session(rendezvous="[::1]:4710", rendezvous_key="0" * 64).rendezvous == "[::1]:4710"
    assert Session(rendezvous="a:4710", rendezvous_key="0" * 64).rendezvous == "a:4710"
