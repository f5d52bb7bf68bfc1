"""The rendezvous' part of classification: who is answered, from where, and how often."""

from pathlib import Path

import pytest

from kafila import defaults as d
from kafila.net.reflecting import Answer, Ask, Knock, decode
from kafila.rendezvous.reflection import Reflection
from tests.rendezvous.lan import Lan

SOURCE = ("203.0.113.9", 5000)


def ask(reflection: Reflection, host: str = SOURCE[0], now: float = 0.0) -> bytes:
    cookie = bytes.fromhex(reflection.offer(host, now).cookie)
    return Ask(cookie, b"12345678", frozenset((0, 1))).encode()


def test_each_port_that_was_asked_says_what_was_seen() -> None:
    reflection = Reflection()
    answers = reflection.asked(ask(reflection), SOURCE, 0.0)
    assert [(port, decode(data)) for port, data in answers] == [
        (port, Answer(b"12345678", port, SOURCE)) for port in (0, 1)
    ]


def test_a_cookie_is_good_for_its_address_and_its_time() -> None:
    reflection = Reflection()
    datagram = ask(reflection)
    assert reflection.asked(datagram, (SOURCE[0], 6000), 0.0)  # another socket behind the NAT
    assert reflection.asked(datagram, SOURCE, d.COOKIE_SECONDS)
    assert not reflection.asked(datagram, SOURCE, 2 * d.COOKIE_SECONDS)
    assert not reflection.asked(datagram, ("203.0.113.10", 5000), 0.0)
    assert not reflection.asked(ask(Reflection()), SOURCE, 0.0)


def test_how_often_is_bounded() -> None:
    reflection = Reflection()
    datagram = ask(reflection)
    answered = sum(bool(reflection.asked(datagram, SOURCE, 0.0)) for _ in range(1000))
    assert answered == d.ASKS_BURST
    assert reflection.asked(datagram, SOURCE, 1.0)


def test_what_is_no_ask() -> None:
    with pytest.raises(ValueError, match="only asks"):
        Reflection().asked(Knock(b"12345678").encode(), SOURCE, 0.0)


async def test_a_client_in_any_role_gets_what_it_needs(tmp_path: Path) -> None:
    async with Lan(tmp_path) as lan:
        client = await lan.client("anna")
        first = await client.reflector()
        assert first.port is not None
        assert first.port != lan.rendezvous.address[1]
        await client.open_session(2)
        assert (await client.reflector()).cookie == first.cookie
