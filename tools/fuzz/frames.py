"""What the two ends of a proven connection say: handshake, channels, the ring's frames."""

import numpy as np

from kafila.net.channels import Messages, frame, opening
from kafila.net.handshake import ClientHandshake, ServerHandshake, Terms
from kafila.net.inbox import Inbox
from kafila.serve import frames
from kafila.serve.frames import Checked, Decode, Failure, Loaded, Prefill, Ready, Release, Shape
from tools.fuzz.target import Reader, Target, parser
from tools.fuzz.world import ANNA, BERT, DIGEST, NONCE, SESSION

_TERMS = Terms(1, SESSION, DIGEST)
_HELLO, _PROOF = ClientHandshake(ANNA, BERT.key, _TERMS, NONCE).opening()
_ANSWERS = [
    answer
    for server in (
        ServerHandshake(BERT.key, _TERMS, ANNA.key),
        ServerHandshake(BERT.key, Terms(2, SESSION, DIGEST), ANNA.key),
        ServerHandshake(BERT.key, _TERMS, ANNA.key, NONCE),
    )
    for answer in [server.receive(_HELLO)]
    if answer is not None
]

_SHAPE = Shape(hidden=4, dtype=np.dtype(np.float32), groups=2, rows=4, context=40, chunk=8)
_FRAMES = [
    frames.encode(each)
    for each in (
        Prefill(1, 0, 1, 2, 3, True, (0, 1), np.zeros((3, 4), np.float32)),
        Decode(1, 7, (0, 2), (5, 6), np.zeros((2, 4), np.float32)),
        Release(1, 3),
        Loaded(2),
        Checked(2),
        Ready(),
        Failure(1, 5, "cannot go on"),
    )
]


def _edge_server() -> Reader:
    server = ServerHandshake(BERT.key, _TERMS, ANNA.key, NONCE)

    genuine = False

    def read(message: bytes) -> object:
        nonlocal genuine
        genuine = genuine or message == _PROOF
        server.receive(message)
        assert genuine or not server.accepted
        return None

    return read


def _server() -> Reader:
    server = ServerHandshake(BERT.key, _TERMS, None)

    def read(message: bytes) -> object:
        server.receive(message)
        assert not server.accepted
        return None

    return read


def _client() -> Reader:
    return ClientHandshake(ANNA, BERT.key, _TERMS).receive


def _inbox() -> Reader:
    """Streams of a peer; the first byte says which."""
    inbox = Inbox(8, 1000, lambda reader, channel, message: reader(channel, message))
    inbox.reader = lambda channel, message: None
    return lambda data: inbox.take(data[0] % 4 if data else 0, data[1:], False)


def _decode(message: bytes) -> object:
    for to_head in (False, True):
        for shape in (None, _SHAPE):
            try:
                frames.decode(message, members=5, shape=shape, to_head=to_head)
            except frames.FrameError:
                continue
    return None


TARGETS = (
    Target("handshake at an edge's server", (_HELLO, _PROOF), _edge_server),
    Target("handshake at a rendezvous", (_HELLO, _PROOF), _server),
    Target("handshake at a client", _ANSWERS, _client),
    Target(
        "messages of a stream",
        [frame(b"one") + frame(bytes(40))],
        lambda: Messages(100).feed,
        breaks=True,
    ),
    Target(
        "channels of a peer",
        [bytes([n]) + opening(n) + frame(b"one") + frame(bytes(40)) for n in range(4)],
        _inbox,
        breaks=True,
    ),
    parser("frames of a ring", _decode, *_FRAMES, errors=()),
)
