"""Two members of a virtual network, each behind its row of NATs, and the rendezvous."""

from collections.abc import Sequence

from kafila.net.punching import ORDINARY, Punch
from tests.nats import Nat
from tests.virtual.member import Member
from tests.virtual.network import Host, Network, Realm
from tests.virtual.servers import Rendezvous, stun_server


class Pair:
    """anna, the client, and bert. `place` says where each stands; then `introduce` them."""

    def __init__(self, network: Network, anna: Realm, bert: Realm) -> None:
        self.network = network
        self.rendezvous = Rendezvous(network)
        stun_server(network)
        hosts = (inside(anna, 5, "anna"), inside(bert, 6, "bert"))
        self.anna = Member(hosts[0], client=True)
        self.bert = Member(hosts[1], client=False)
        self.anna.peer, self.bert.peer = self.bert, self.anna
        self.members = (self.anna, self.bert)

    def register(self) -> None:
        """Both are bound at the relay and know their addresses."""
        for member in self.members:
            member.register(self.rendezvous)
        self.network.run(30, lambda: all(each.registered for each in self.members))
        assert all(each.registered for each in self.members)

    def introduce(
        self,
        skew: float = 0.0,
        *,
        anna: Punch = ORDINARY,
        bert: Punch = ORDINARY,
        relay: bool = True,
    ) -> None:
        """Begin with the edge, bert `skew` seconds after anna (before her, if negative)."""
        places = self.anna.candidates(), self.bert.candidates()
        network = self.network
        network.after(max(-skew, 0), lambda: self.anna.begin(places[1], punch=anna, relay=relay))
        network.after(max(skew, 0), lambda: self.bert.begin(places[0], punch=bert, relay=relay))

    @property
    def direct(self) -> bool:
        """Whether both ends use a direct path that is well."""
        return self.anna.direct and self.bert.direct

    def until_direct(self, seconds: float) -> float | None:
        """Let time pass until both are direct; return how much, None if they were not."""
        passed = self.network.run(seconds, lambda: self.direct)
        return passed if self.direct else None


def inside(realm: Realm, number: int, name: str) -> Host:
    """A host in this realm, whatever it is."""
    if realm.nat is None:
        return Host(realm, f"203.0.113.{100 + number}", name)
    return Host(realm, f"192.168.1.{number}", name)


def behind(network: Network, nats: Sequence[Nat]) -> Realm:
    """The realm behind a row of NATs, the innermost first: a carrier's but for the last."""
    realm = network.internet
    for nat in reversed(nats[1:]):
        realm = realm.carrier(nat)
    return realm.home(nats[0]) if nats else realm
