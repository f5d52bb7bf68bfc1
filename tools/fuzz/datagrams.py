"""Our own datagrams and STUN, as anybody can send them to any member or rendezvous."""

from collections.abc import Callable

from kafila.net import reflecting, relaying
from kafila.net.certificate import key_of
from kafila.net.checks import Check, CheckType, authentic
from kafila.net.datagram import (
    CertificateAnswer,
    CertificateQuery,
    binding_answer,
    binding_mapped,
    binding_request,
    decode_certificate,
    family,
)
from kafila.net.quic import destination
from kafila.net.relay import Binding
from kafila.net.tunnel import Frames
from tools.fuzz.target import Target, parser
from tools.fuzz.world import ADDRESS, ANNA, BERT, GRANT, initial

_KEY = bytes(range(32))
_CHECKS = [
    Check(kind, True, 1, b"edge-nam", b"transact", b"plandige", size).encode(_KEY)
    for kind, size in ((CheckType.PING, 60), (CheckType.PONG, 1200), (CheckType.READY, 0))
]
_CALL = Check(
    CheckType.CALL,
    False,
    1,
    b"edge-nam",
    b"transact",
    b"plandige",
    candidates=(ADDRESS, ("2001:db8::1", 4711)),
).encode(_KEY)

_BINDINGS = [
    relaying.Bind(GRANT.flow, 0, b"transact").encode(),
    relaying.Challenge(GRANT.flow, 0, b"transact", b"c" * 16).encode(),
    relaying.answer(GRANT, b"transact", b"c" * 16).encode(),
    relaying.Bound(GRANT.flow, 0, b"transact", b"bootboot", relaying.State.ALONE, ADDRESS).encode(),
]
_REQUEST = binding_request(b"t" * 12)
_RESPONSE = binding_answer(_REQUEST, ADDRESS) or b""
_RESPONSE6 = binding_answer(_REQUEST, ("2001:db8::1", 4711)) or b""
_REFLECTIONS = [
    reflecting.Ask(b"c" * 16, b"transact", frozenset({0, 1})).encode(),
    reflecting.Answer(b"transact", 1, ADDRESS).encode(),
    reflecting.Knock(b"tokentok").encode(),
]
_CERTIFICATES = [
    CertificateQuery(b"transact").encode(),
    CertificateAnswer(b"transact", ANNA.certificate).encode(),
]


def _check(datagram: bytes) -> bool:
    check = Check.decode(datagram)
    again = Check.decode(check.encode(_KEY))
    assert again == check
    return authentic(datagram, _KEY)


def _binding() -> Callable[[bytes], object]:
    """A member's end that awaits the relay's next word."""
    binding = Binding(GRANT, 0.0, random=lambda size: b"transact"[:size])
    clock = iter(range(1, 1 << 20))
    binding.poll(0.0)

    def read(datagram: bytes) -> object:
        now = float(next(clock))
        binding.poll(now)
        return binding.receive(datagram, now)

    return read


TARGETS = (
    parser("first byte", family, b"", *_CHECKS, *_BINDINGS),
    parser("path check", _check, *_CHECKS, _CALL),
    parser("certificate datagram", decode_certificate, *_CERTIFICATES),
    parser("certificate", key_of, ANNA.certificate, BERT.certificate),
    parser("STUN request", lambda datagram: binding_answer(datagram, ADDRESS), _REQUEST, _RESPONSE),
    parser("STUN answer", binding_mapped, _RESPONSE, _RESPONSE6, _REQUEST),
    parser("reflection", reflecting.decode, *_REFLECTIONS),
    parser("relay binding", relaying.decode_binding, *_BINDINGS),
    parser("relay frame", relaying.named_flow, relaying.frame_head(GRANT.flow) + b"x", *_BINDINGS),
    Target("relay's answers to a member", _BINDINGS, _binding),
    Target(
        "tunnel framing",
        [len(each).to_bytes(2) + each for each in (*_CHECKS, *_BINDINGS)],
        lambda: Frames().feed,
        breaks=True,
    ),
    parser("QUIC destination", destination, initial()),
)
