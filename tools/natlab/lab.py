"""A scene: hosts behind NATs, a rendezvous in the open, the internet between them.

Everything real but the distances: namespaces, the kernel's NATs, processes of the deployed program.
Knows what hosts and routers are, and nothing of members and plans.
"""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from kafila.processes import Processes
from tools.natlab import nat as nats
from tools.natlab.internet import InternetProcess
from tools.natlab.namespaces import Namespace, ip, prefix, remove_leftovers

RENDEZVOUS: Final = "rendezvous"
FIRST, SECOND = "198.51.100.1", "198.51.100.2"
"""Addresses of the rendezvous."""
PORT: Final = 4710
REPOSITORY: Final = Path(__file__).parents[2]
_READY_SECONDS: Final = 30.0
_NETLINK_NETFILTER: Final = 12
# Delete all entries of the kernel's connection tracking: nfnetlink subsystem 1, message 2, with
# NLM_F_REQUEST | NLM_F_ACK, for AF_INET.
_CONNTRACK_FLUSH: Final = (
    b"\x14\0\0\0" + b"\x02\x01" + b"\x05\0" + b"\x01\0\0\0" + b"\0\0\0\0" + b"\x02\0\0\0"
)


class Host:
    """A machine with one network device and one address (the rendezvous may have two)."""

    def __init__(self, name: str, namespace: Namespace, address: str) -> None:
        self.name = name
        self.namespace = namespace
        self.address = address

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Sockets made and processes started within are this host's."""
        with self.namespace.entered():
            yield

    def udp(self, port: int = 0, address: str = "0.0.0.0") -> socket.socket:
        """A UDP socket of this host; it gives up waiting after a quarter of a second."""
        with self.entered():
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.settimeout(0.25)
        made.bind((address, port))
        return made


class Router:
    """A NAT between `lan0` and `wan0`."""

    def __init__(self, name: str, namespace: Namespace, wan: str, lan: str) -> None:
        self.name = name
        self.namespace = namespace
        self.wan = wan
        self.lan = lan
        """The first three numbers of the addresses inside."""
        self.hosts = 0
        self._nat = nats.APDF

    @property
    def nat(self) -> nats.Nat:
        """What it does now."""
        return self._nat

    def become(self, nat: nats.Nat) -> None:
        """Behave so from now on; what was mapped is forgotten."""
        self._nat = nat
        with self.namespace.entered():
            subprocess.run(
                ["nft", "-f", "-"], input=nats.rules(nat, self.wan), text=True, check=True
            )
        for key in ("udp_timeout", "udp_timeout_stream"):
            self.namespace.set(f"net/netfilter/nf_conntrack_{key}", nat.lifetime)
        self._forget()

    def expire(self) -> None:
        """All mappings end now, as after their lifetime."""
        self.become(self._nat)

    def reboot(self) -> None:
        """All mappings end, and the next ones get other ports."""
        self.become(self._nat.reboot())

    def _forget(self) -> None:
        with self.namespace.entered():
            netfilter = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
        with netfilter:
            netfilter.send(_CONNTRACK_FLUSH)
            answer = netfilter.recv(4096)
        error = int.from_bytes(answer[16:20], sys.byteorder, signed=True)
        if error:
            raise OSError(-error, f"the mappings of {self.name} could not be deleted")


class Lab:
    """One scene. As a context manager it leaves no process, device or namespace behind.

    `delay` is seconds one way between any two sites; `folder` takes the processes' logs.
    """

    def __init__(self, folder: Path, *, delay: float = 0.0) -> None:
        remove_leftovers()
        self._prefix = prefix()
        self._ending = ExitStack()
        self._routers = 0
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.internet = InternetProcess()
        self.processes = Processes(folder)
        self.everywhere(delay=delay)

    def __enter__(self) -> "Lab":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End everything."""
        try:
            self.processes.stop()
        finally:
            self.internet.close()  # first, as it reads devices that go with their namespaces
            self._ending.close()

    # --- what the scene consists of ----------------------------------------------------------

    def public(self, name: str, *addresses: str) -> Host:
        """A host in the open internet."""
        namespace = self._namespace(name)
        self._attach(name, namespace, addresses)
        return Host(name, namespace, addresses[0])

    def router(
        self, name: str, nat: nats.Nat, *, behind: "Router | None" = None, carrier: bool = False
    ) -> Router:
        """A NAT at the internet, or behind another one. Homes all use the same addresses inside,
        as homes do; a carrier uses those of RFC 6598."""
        namespace = self._namespace(name)
        self._routers += 1
        namespace.ip("link", "add", "lan0", "type", "bridge")
        lan = f"100.64.{self._routers}" if carrier else "192.168.1"
        namespace.ip("address", "add", f"{lan}.1/24", "dev", "lan0")
        namespace.ip("link", "set", "lan0", "up")
        namespace.set("net/ipv4/ip_forward", 1)
        if behind:
            wan = self._plug(behind, name, namespace, "wan0")
        else:
            wan = f"203.0.113.{self._routers}"
            self._attach(name, namespace, [wan])
        router = Router(name, namespace, wan, lan)
        router.become(nat)
        return router

    def host(self, name: str, router: Router) -> Host:
        """A host behind a router."""
        namespace = self._namespace(name)
        return Host(name, namespace, self._plug(router, name, namespace, "eth0"))

    def rendezvous(self) -> Host:
        """The host of the rendezvous, which has two addresses."""
        return self.public(RENDEZVOUS, FIRST, SECOND)

    # --- what happens in it ------------------------------------------------------------------

    def everywhere(self, **conditions: Any) -> None:
        """Change the conditions of all links, but where a link has its own; see internet.Link."""
        self.internet.everywhere(**conditions)

    def link(self, a: str, b: str, **conditions: Any) -> None:
        """Give the link between two sites (routers at the internet, public hosts) conditions of
        its own."""
        self.internet.link(a, b, **conditions)

    def start(self, host: Host, who: str, *words: str) -> "subprocess.Popen[str]":
        """Start `python WORDS` on a host, under the name `who`."""
        with host.entered():
            return self.processes.start(
                who, *words, environment={"PYTHONPATH": str(REPOSITORY), "JAX_PLATFORMS": "cpu"}
            )

    def start_servers(self, host: Host) -> str:
        """Start a rendezvous on its first address, and on the second what serves as the STUN
        server of somebody else; returns the rendezvous' address."""
        self._serve(host, "stun", SECOND)
        return self.start_rendezvous(host)

    def start_rendezvous(self, host: Host) -> str:
        """Start the rendezvous; returns its address."""
        return self._serve(host, RENDEZVOUS, FIRST, "--stun", f"{SECOND}:{PORT}")

    def _serve(self, host: Host, who: str, address: str, *words: str) -> str:
        options = ("--listen", f"{address}:{PORT}", "--home", who)
        self.start(host, who, "-m", "kafila", "rendezvous", *options, *words)
        return self.processes.line(who, _READY_SECONDS).split()[1]

    # --- inside ------------------------------------------------------------------------------

    def _namespace(self, name: str) -> Namespace:
        namespace = Namespace(self._prefix + name)
        self._ending.callback(namespace.remove)
        return namespace

    def _attach(self, name: str, namespace: Namespace, addresses: Sequence[str]) -> None:
        """Connect a namespace to the internet by `wan0`."""
        device = self.internet.attach(name, addresses)
        ip("link", "set", device, "netns", namespace.name, "name", "wan0")
        for address in addresses:
            namespace.ip("address", "add", f"{address}/32", "dev", "wan0")
        namespace.ip("link", "set", "wan0", "up")
        namespace.ip("route", "add", "default", "dev", "wan0", "src", addresses[0])

    def _plug(self, router: Router, name: str, namespace: Namespace, device: str) -> str:
        """Connect a namespace to a router's inside; returns its address there."""
        router.hosts += 1
        address = f"{router.lan}.{router.hosts + 1}"
        port = f"port{router.hosts}"
        peer = ("peer", "name", port, "netns", router.namespace.name)
        namespace.ip("link", "add", device, "type", "veth", *peer)
        router.namespace.ip("link", "set", port, "master", "lan0", "up")
        namespace.ip("address", "add", f"{address}/24", "dev", device)
        namespace.ip("link", "set", device, "up")
        namespace.ip("route", "add", "default", "via", f"{router.lan}.1")
        return address
