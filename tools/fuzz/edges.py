"""The state machine of an edge, with a peer that holds the edge's key and says what it likes."""

from ipaddress import ip_address

from kafila.defaults import MAX_PATHS
from kafila.net.checks import Check, CheckType
from kafila.net.paths import PathChecks
from kafila.net.punching import Punch
from kafila.net.routes import Send
from kafila.net.search import Gather, GatherMany
from tools.fuzz.target import Reader, Target
from tools.fuzz.world import ADDRESS, DIGEST

_KEY, _EDGE, _PLAN = bytes(range(32)), b"edge-nam", DIGEST[:8]
_RELAY = ("198.51.100.9", 4710)
_PLACES = (ADDRESS, ("203.0.113.5", 5000), ("192.168.1.7", 5000), ("2001:db8::1", 4711))


def _said(kind: CheckType, number: int = 1, size: int = 0) -> bytes:
    places = _PLACES if kind is CheckType.CALL else ()
    check = Check(kind, True, 1, _EDGE, number.to_bytes(8), _PLAN, size, places)
    return check.encode(_KEY)


_CHECKS = [
    _said(CheckType.PING, 7, 60),
    _said(CheckType.PING, 8, 1200),
    _said(CheckType.PONG, 1, 1200),
    _said(CheckType.PONG, 2, 47),
    _said(CheckType.READY),
    _said(CheckType.READY, 2),
    _said(CheckType.CALL),
    _said(CheckType.CALL, 2),
]


def _peer() -> Reader:
    numbers = iter(range(1, 1 << 30))
    checks = PathChecks(
        key=_KEY,
        edge=_EDGE,
        client=False,
        protocol=1,
        plan=_PLAN,
        now=0.0,
        sockets={4: "udp", 6: "udp6"},
        own=[("192.168.1.2", 4000)],
        candidates=_PLACES,
        relay=("relay", _RELAY),
        punch=Punch(birthday=True, dependent=True, peer_filtered=True),
        random=lambda size: next(numbers).to_bytes(size),
    )
    now = 0.0

    def read(datagram: bytes) -> None:
        """Any check, but with the right tag; the number of bytes says over which path."""
        nonlocal now
        now += 0.2
        genuine = Check.decode(datagram).encode(_KEY)
        ways = (("relay", _RELAY), *(("udp", place) for place in _PLACES[:3]))
        actions = checks.poll(now)
        actions += (
            checks.receive(genuine, Check.decode(genuine), *ways[len(datagram) % 4], now) or []
        )
        for action in actions:
            match action:
                case Send(address=(host, port)):
                    place = ip_address(host)
                    assert not place.is_multicast
                    assert not place.is_loopback
                    assert not place.is_unspecified
                    assert 0 < port < 1 << 16
                case Gather(round=number):
                    checks.gathered(number, f"fresh {number}", [("203.0.113.77", 4000)], now)
                case GatherMany(round=number, number=many):
                    checks.gathered_many(number, [f"{number} {each}" for each in range(many)], now)
        checks.busy(now)
        assert len([path for path in checks.paths if path.alive]) <= MAX_PATHS

    return read


TARGETS = (Target("checks of a peer", _CHECKS, _peer),)
