"""The classifier of a host in a virtual network: its sockets and timers, and a verdict."""

from kafila.plan.values import Nat as Found
from kafila.probe.nat import Classifier, Servers, Socket, Verdict
from tests.virtual.network import Host
from tests.virtual.network import Socket as Bound
from tests.virtual.servers import RENDEZVOUS, STUN, Rendezvous


def classify(host: Host, rendezvous: Rendezvous, *, stun: bool = True) -> Verdict:
    """Ask the rendezvous at both ports, and another server."""
    network = host.network
    sockets: dict[Socket, Bound] = {}
    for each in Socket:
        sockets[each] = host.open(
            lambda data, source, each=each: received(each, data, source)  # type: ignore[misc]
        )
    second = RENDEZVOUS[0], RENDEZVOUS[1] + 1
    cookie = rendezvous.reflection.offer(_outside(host), network.now).cookie
    servers = Servers(bytes.fromhex(cookie), RENDEZVOUS, second, (STUN,) if stun else ())
    classifier = Classifier(
        servers, [sockets[Socket.MAPPING].address], network.now, network.random.randbytes
    )
    wake = 0

    def received(socket: Socket, datagram: bytes, source: tuple[str, int]) -> None:
        classifier.received(socket, datagram, source, network.now)
        poll()

    def poll(number: int | None = None) -> None:
        nonlocal wake
        if classifier.ended or number not in (None, wake):
            return
        for send in classifier.poll(network.now):
            sockets[send.socket].send(send.datagram, send.address, send.ttl)
        wake += 1
        due, mine = classifier.due(network.now), wake
        network.at(max(due, network.now + 0.001), lambda: poll(mine))

    poll()
    network.run(10, lambda: classifier.ended)
    assert classifier.ended
    for bound in sockets.values():
        bound.close()
    return classifier.verdict()


def found(verdict: Verdict) -> Found:
    """What a plan would say."""
    public = verdict.public[0] if verdict.public else None
    return Found(verdict.mapping, verdict.filtering, blocked=verdict.silent, public=public)


def _outside(host: Host) -> str:
    """The address that the control connection comes from."""
    nats = host.nats
    return nats[-1].public if nats else host.address
