"""The pure cores of a rendezvous: its memory, its relay, its reflection."""

from kafila.net import reflecting, relaying
from kafila.net.carrier import Carrier
from kafila.rendezvous.reflection import Reflection
from kafila.rendezvous.registry import Registry
from kafila.rendezvous.relay import Relay
from tools.fuzz.messages import REQUESTS
from tools.fuzz.target import Reader, Target
from tools.fuzz.world import ADDRESS, ANNA, BERT, SESSION

_WALL = 1.8e9


class _Nowhere:
    """A carrier that carries nothing."""

    def send(self, *_: object, **__: object) -> None:
        pass

    send_all = send


_CARRIER: Carrier = _Nowhere()


def _registry() -> Reader:
    """Three clients, the first byte says who speaks; now and then one comes anew."""
    registry = Registry(b"r" * 32, Relay(bytes(32), wall=lambda: _WALL))
    keys = ANNA.key, BERT.key, bytes(32)
    now, numbers = 0.0, list(range(3))
    for number, key in enumerate(keys):
        registry.connected(number, key, "192.0.2.7", now)

    def read(data: bytes) -> object:
        nonlocal now
        now += 0.5
        who = data[0] % 3 if data else 0
        actions = registry.received(numbers[who], data[1:], now)
        registry.tick(now)
        if data[:1] >= b"\xf0":
            registry.disconnected(numbers[who], now, "gone")
            numbers[who] = max(numbers) + 1
            registry.connected(numbers[who], keys[who], "192.0.2.7", now)
        return actions

    return read


def _relay_with_flow() -> tuple[Relay, list[bytes]]:
    """A relay with one flow that is bound at one end, and all that was said to it."""
    relay = Relay(bytes(32), wall=lambda: _WALL, random=lambda size: bytes(size))
    said = []
    for own, other in ((ANNA.key, BERT.key), (BERT.key, ANNA.key)):
        grant = relay.grant(SESSION, own, other)
        bind = relaying.Bind(grant.flow, grant.side, b"transact").encode()
        challenge = relaying.decode_binding(relay.binding(bind, _CARRIER, ADDRESS, 1.0) or b"")
        assert isinstance(challenge, relaying.Challenge)
        answer = relaying.answer(grant, b"transact", challenge.cookie).encode()
        said += [bind, answer, relaying.frame_head(grant.flow) + bytes(40)]
    relay.binding(said[1], _CARRIER, ADDRESS, 1.0)
    return relay, said


def _relay() -> Reader:
    relay, _ = _relay_with_flow()

    def read(data: bytes) -> object:
        """The last byte says where it comes from."""
        host = "192.0.2.7" if data[-1:] < b"\x80" else f"198.51.100.{data[-1]}"
        relay.tick(2.0)
        relay.forward(data, (host, 4711), 2.0)
        answer = relay.binding(data, _CARRIER, (host, 4711), 2.0)
        assert answer is None or len(answer) <= len(data)
        return answer

    return read


def _reflection() -> Reader:
    reflection = Reflection()
    reflection.port = 4712

    def read(data: bytes) -> object:
        answers = reflection.asked(data, ADDRESS, 1.0)
        assert sum(len(answer) for _, answer in answers) <= len(data)
        return answers

    return read


TARGETS = (
    Target(
        "a rendezvous' memory",
        [bytes([n]) + each for n, each in enumerate((*REQUESTS, *REQUESTS))],
        _registry,
        (),
    ),
    Target("a relay", _relay_with_flow()[1], _relay),
    Target(
        "a rendezvous' reflection",
        [reflecting.Ask(b"c" * 16, b"transact", frozenset({0, 1})).encode()],
        _reflection,
    ),
)
