"""Every NAT of the lab does from outside what its name says."""

import socket
import time
from collections.abc import Callable

import pytest

from kafila.address import Address
from tests.natlab.prober import PORTS, Outside, received
from tools.natlab import nat as nats
from tools.natlab.lab import FIRST, Lab
from tools.natlab.namespaces import Namespace, prefix, remove_leftovers

pytestmark = pytest.mark.netns

MakeLab = Callable[..., Lab]
ORDER = ("EI", "AD", "APD")
ANYTHING = [nats.Nat(m, f) for m in ORDER for f in ORDER]  # type: ignore[arg-type]


def test_mapping_and_filtering_in_every_combination(lab: MakeLab) -> None:
    scene = lab()
    outside = Outside(scene.rendezvous())
    router = scene.router("router", nats.APDF)
    host = scene.host("host", router)
    for nat in (*ANYTHING, nats.Nat("EI", "APD", inbound_drop=False), nats.APDF.reboot()):
        router.become(nat)
        assert (outside.mapping(host), outside.filtering(host)) == (nat.mapping, nat.filtering)
    outside.close()


@pytest.mark.parametrize("carrier", [nats.EIF, nats.Nat("APD", "EI"), nats.Nat("EI", "AD")])
def test_two_nats_in_a_row_are_as_strict_as_the_stricter_of_both(
    lab: MakeLab, carrier: nats.Nat
) -> None:
    scene = lab()
    outside = Outside(scene.rendezvous())
    above = scene.router("carrier", carrier, carrier=True)
    home = scene.router("home", nats.EIF, behind=above)
    host = scene.host("host", home)
    for nat in (nats.EIF, nats.APDF, nats.Nat("AD", "EI")):
        home.become(nat)
        assert outside.mapping(host) == max(nat.mapping, carrier.mapping, key=ORDER.index)
        assert outside.filtering(host) == max(nat.filtering, carrier.filtering, key=ORDER.index)
    outside.close()


def test_blocked_udp_lets_tcp_pass(lab: MakeLab) -> None:
    scene = lab()
    server = scene.rendezvous()
    router = scene.router("router", nats.Nat("EI", "APD", udp_blocked=True))
    host = scene.host("host", router)
    with server.udp(PORTS[0]) as there, host.udp() as here:
        here.sendto(b"out", (FIRST, PORTS[0]))
        assert received(there) is None
    with server.entered():
        listener = socket.create_server((FIRST, PORTS[0]))
    with host.entered():
        client = socket.create_connection((FIRST, PORTS[0]), timeout=5)
    with listener, client, listener.accept()[0] as accepted:
        sent = bytes(range(256)) * 1024
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        assert b"".join(iter(lambda: accepted.recv(65536), b"")) == sent


def test_a_rebooted_nat_forgets_and_gives_other_ports(lab: MakeLab) -> None:
    scene = lab()
    outside = Outside(scene.rendezvous())
    router = scene.router("router", nats.APDF)
    host = scene.host("host", router)
    there = (FIRST, PORTS[0])
    with host.udp() as inside:
        before = outside.seen(inside, there)
        assert before
        router.expire()
        outside.sockets[there].sendto(b"in", before)
        assert received(inside) is None
        assert outside.seen(inside, there) == before  # as it keeps the inside port
        router.reboot()
        assert outside.seen(inside, there) != before
    outside.close()


def test_a_mapping_ends_after_its_lifetime_without_a_packet(lab: MakeLab) -> None:
    scene = lab()
    outside = Outside(scene.rendezvous())
    for name, filtering in (("kernel", "APD"), ("map", "EI")):
        router = scene.router(name, nats.Nat("EI", filtering, lifetime=1))  # type: ignore[arg-type]
        host = scene.host(f"host-{name}", router)
        there = (FIRST, PORTS[0])
        with host.udp() as inside:
            source = outside.seen(inside, there)
            assert source
            outside.sockets[there].sendto(b"in", source)
            assert received(inside) == there
            time.sleep(2.1)  # the kernel looks once a second
            outside.sockets[there].sendto(b"in", source)
            assert received(inside) is None
    outside.close()


@pytest.mark.parametrize("hairpin", [True, False])
def test_hairpin_between_two_homes_of_one_carrier(lab: MakeLab, hairpin: bool) -> None:
    scene = lab()
    outside = Outside(scene.rendezvous())
    carrier = scene.router("carrier", nats.Nat("EI", "EI", hairpin=hairpin), carrier=True)
    hosts = [
        scene.host(f"host-{name}", scene.router(name, nats.EIF, behind=carrier)) for name in "ab"
    ]
    with hosts[0].udp() as a, hosts[1].udp() as b:
        seen_a, seen_b = (outside.seen(each, (FIRST, PORTS[0])) for each in (a, b))
        assert seen_a
        assert seen_b
        a.sendto(b"over", seen_b)
        assert received(b) == (seen_a if hairpin else None)
    outside.close()


def _punch(scene: Lab, nat: nats.Nat, first: int) -> tuple[Address | None, Address | None]:
    """Both sides behind such a NAT send to where the rendezvous saw the other: what they get."""
    outside = Outside(scene.rendezvous())
    hosts = [scene.host(f"host-{name}", scene.router(name, nat)) for name in "ab"]
    with hosts[0].udp() as a, hosts[1].udp() as b:
        seen_a, seen_b = (outside.seen(each, (FIRST, PORTS[0])) for each in (a, b))
        assert seen_a
        assert seen_b
        for _ in range(first):
            a.sendto(b"first", seen_b)
        assert received(b) is None
        b.sendto(b"second", seen_a)
        got_a = received(a)
        a.sendto(b"third", seen_b)
        got_b = received(b)
    outside.close()
    return got_a, got_b


def test_without_inbound_drop_a_packet_that_comes_too_early_spoils_the_hole(lab: MakeLab) -> None:
    assert None not in _punch(lab(), nats.APDF, 1)
    assert _punch(lab(), nats.Nat("EI", "APD", inbound_drop=False), 1) == (None, None)


def test_what_a_killed_run_left_is_removed_and_what_lives_is_kept(lab: MakeLab) -> None:
    scene = lab()
    scene.rendezvous()
    gone = Namespace(f"kafila-{2**22 + 1}-1-gone")  # no process can have this number
    kept = Namespace(f"{prefix()}kept")
    try:
        assert gone.name in remove_leftovers()
        kept.ip("link", "show", "lo")
        assert kept.name not in remove_leftovers()
    finally:
        gone.remove()
        kept.remove()
