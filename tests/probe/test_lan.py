"""Local networks, and the router that tells one home's from another's."""

from kafila.probe.lan import _router, local_networks
from kafila.probe.report import Nat

ROUTES = (
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    "wg0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0\n"
    "eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    "eth0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
)
HEAD = "IP address       HW type     Flags       HW address            Mask     Device\n"


def entry(mac: str, host: str = "192.168.1.1", device: str = "eth0") -> str:
    return f"{host}      0x1         0x2         {mac}     *        {device}\n"


def test_a_router_has_a_name_of_its_own() -> None:
    one = _router(ROUTES, HEAD + entry("aa:bb:cc:dd:ee:01", "192.168.1.7") + entry("52:54:00:0:1"))
    assert one is None
    first, again, other = (
        _router(ROUTES, HEAD + entry("02:00:00:00:00:09", device="eth1") + entry(mac))
        for mac in ("aa:bb:cc:dd:ee:01", "AA:BB:CC:DD:EE:01", "aa:bb:cc:dd:ee:02")
    )
    assert first is not None
    assert first == again != other
    assert first[0] == "eth0"
    assert len(first[1]) == 8


def test_none_is_named_where_none_is_known() -> None:
    for neighbours in ("", HEAD, HEAD + entry("00:00:00:00:00:00")):
        assert _router(ROUTES, neighbours) is None
    assert _router("", HEAD + entry("aa:bb:cc:dd:ee:01")) is None


def test_this_machines_networks_fit_a_report() -> None:
    found = local_networks()
    assert len(set(found)) == len(found)
    Nat(mapping="unknown", filtering="unknown", networks=found)
