"""NATs as nftables rule sets: mapping and filtering (RFC 4787) in any combination, and quirks.

Text only; nothing here runs a command. A rule set holds for one router whose devices are `wan0`
(outside) and `lan0` (inside).
"""

from dataclasses import dataclass, replace
from string import Template
from typing import Final, Literal

from kafila.plan.values import Behaviour

Kind = Literal["EI", "AD", "APD"]
_WORDS: Final[dict[Kind, Behaviour]] = {
    "EI": "endpoint-independent",
    "AD": "address-dependent",
    "APD": "address-and-port-dependent",
}


@dataclass(frozen=True)
class Nat:
    """What a NAT does to UDP; TCP passes by plain masquerading."""

    mapping: Kind
    filtering: Kind
    inbound_drop: bool = True
    """Drops unasked packets to itself, as firewalls do; without, a packet of the peer that comes
    first makes the kernel give the outgoing flow another port."""
    hairpin: bool = False
    """Inside hosts reach each other at their outside addresses; needs EI filtering."""
    udp_blocked: bool = False
    lifetime: int = 120
    """Seconds without a packet after which a mapping is forgotten."""
    seed: int = 0
    """0: endpoint-independent mapping keeps the inside port, otherwise it is drawn from this."""

    @property
    def behaviour(self) -> tuple[Behaviour, Behaviour]:
        """Mapping and filtering in full words."""
        return _WORDS[self.mapping], _WORDS[self.filtering]

    @property
    def label(self) -> str:
        """Its short name in tables: EIM+APDF, with its quirks."""
        quirks = {
            "no inbound drop": not self.inbound_drop,
            "hairpin": self.hairpin,
            "UDP blocked": self.udp_blocked,
        }
        words = [f"{self.mapping}M+{self.filtering}F", *(key for key in quirks if quirks[key])]
        return ", ".join(words)

    def reboot(self) -> "Nat":
        """The same NAT after a restart: it hands out other ports."""
        return replace(self, seed=self.seed + 1)


EIF: Final = Nat("EI", "EI")
ADF: Final = Nat("EI", "AD")
APDF: Final = Nat("EI", "APD")
ADM: Final = Nat("AD", "APD")
APDM: Final = Nat("APD", "APD")
BEHAVIOURS: Final = (EIF, ADF, APDF, ADM, APDM)
"""The five that are common; all others predict like one of them."""

# One closing brace a line: nft 1.0.6 wants it so. The port that a flow got outside is read where
# the kernel has already translated the packet (after `srcnat`), so that any mapping can be
# combined with any filtering. A reply to a flow from outside has the inside end in its reply tuple.
_RULES: Final = Template("""\
flush ruleset
table ip nat {
  map inside {
    type inet_service : ipv4_addr . inet_service
    flags dynamic,timeout
    timeout ${lifetime}s
    size 65536
  }
  set sent {
    type inet_service . ipv4_addr
    flags dynamic,timeout
    timeout ${lifetime}s
    size 65536
  }
  chain prerouting {
    type nat hook prerouting priority dstnat; policy accept;
    $inbound
  }
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    oifname "wan0" meta l4proto udp snat ip to $wan$port
    oifname "wan0" snat ip to $wan
    $hairpin
  }
  chain mapped {
    type filter hook postrouting priority 300; policy accept;
    oifname != "wan0" accept
    meta l4proto != udp accept
    update @sent { udp sport . ip daddr }
    ct direction original update @inside { udp sport : $original }
    ct direction reply update @inside { udp sport : $reply }
  }
}
table ip firewall {
  chain input {
    type filter hook input priority filter; policy accept;
    $input
  }
  chain forward {
    type filter hook forward priority filter; policy accept;
    $forward
  }
}
""")
_HASH: Final = ": jhash {of} mod 20000 seed {seed:#x} offset 30000"
_INBOUND: Final[dict[Kind, str]] = {
    "EI": 'iifname "wan0" meta l4proto udp dnat ip to udp dport map @inside',
    "AD": 'iifname "wan0" meta l4proto udp udp dport . ip saddr @sent '
    "dnat ip to udp dport map @inside",
    "APD": "",  # what the kernel's own connection tracking lets in
}


def rules(nat: Nat, wan: str) -> str:
    """The rule set of a router with outside address `wan`, for `nft -f`."""
    inbound = [_INBOUND[nat.filtering]]
    hairpin = ""
    if nat.hairpin:
        inbound.append(f'iifname "lan0" ip daddr {wan} dnat ip to udp dport map @inside')
        hairpin = f'oifname "lan0" ct status dnat meta l4proto udp snat ip to {wan}{_port(nat)}'
    return _RULES.substitute(
        wan=wan,
        port=_port(nat),
        lifetime=nat.lifetime,
        original="ct original ip saddr . ct original proto-src",
        reply="ct reply ip saddr . ct reply proto-src",
        inbound="\n    ".join(inbound),
        hairpin=hairpin,
        input='iifname "wan0" meta l4proto udp ct state new drop' if nat.inbound_drop else "",
        forward="meta l4proto udp udp dport != 53 drop" if nat.udp_blocked else "",
    )


def _port(nat: Nat) -> str:
    """Which outside port a new flow gets, as nft says it."""
    seed = 0xABCD + nat.seed
    if nat.mapping == "APD":
        return " fully-random"
    if nat.mapping == "AD":
        return _HASH.format(of="ip saddr . udp sport . ip daddr", seed=seed)
    return _HASH.format(of="ip saddr . udp sport", seed=seed) if nat.seed else ""
