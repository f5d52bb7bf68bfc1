"""The in-band proof, message by message: who is accepted, who is refused and in which words."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila.net.handshake import ClientHandshake, Reason, ServerHandshake, Terms
from kafila.net.identity import Identity

TERMS = Terms(1, b"s" * 32, b"d" * 32)


def run(client: ClientHandshake, server: ServerHandshake) -> None:
    message: bytes | None = client.hello()
    while message is not None:
        message = client.receive(server.receive(message))


def test_a_pinned_client_is_accepted(identity: Callable[[str], Identity]) -> None:
    anna, bert = identity("anna"), identity("bert")
    client = ClientHandshake(anna, bert.key, TERMS)
    server = ServerHandshake(bert.key, TERMS, expected=anna.key)
    run(client, server)
    assert client.accepted
    assert server.accepted
    assert (client.peer_key, server.peer_key) == (bert.key, anna.key)


def test_any_client_is_accepted_where_none_is_expected(
    identity: Callable[[str], Identity],
) -> None:
    anna, bert = identity("anna"), identity("bert")
    server = ServerHandshake(bert.key, TERMS, expected=None)
    run(ClientHandshake(anna, bert.key, TERMS), server)
    assert server.accepted
    assert server.peer_key == anna.key


@pytest.mark.parametrize(
    ("terms", "reason", "at_server", "at_client"),
    [
        (replace(TERMS, protocol=2), Reason.PROTOCOL, "protocol 2 and", "protocol 1 and"),
        (replace(TERMS, session=b"x" * 32), Reason.SESSION, "78787878", "73737373"),
        (replace(TERMS, digest=b"y" * 32), Reason.PLAN, "another plan", "same plan file"),
    ],
)
def test_other_terms_are_refused(
    identity: Callable[[str], Identity],
    terms: Terms,
    reason: Reason,
    at_server: str,
    at_client: str,
) -> None:
    anna, bert = identity("anna"), identity("bert")
    client = ClientHandshake(anna, bert.key, terms)
    server = ServerHandshake(bert.key, TERMS, expected=anna.key)
    run(client, server)
    assert not client.accepted
    assert not server.accepted
    assert client.refusal is not None
    assert server.refusal is not None
    assert client.refusal.reason is server.refusal.reason is reason
    assert at_server in server.refusal.words("anna")
    assert at_client in client.refusal.words("bert")


def test_an_unpinned_client_is_refused(identity: Callable[[str], Identity]) -> None:
    anna, bert, carl = identity("anna"), identity("bert"), identity("carl")
    client = ClientHandshake(carl, bert.key, TERMS)
    server = ServerHandshake(bert.key, TERMS, expected=anna.key)
    run(client, server)
    assert server.refusal is not None
    assert client.refusal is not None
    assert f"has key {carl.key.hex()[:8]}" in server.refusal.words("anna")
    assert f"refuses this machine's key {carl.key.hex()[:8]}" in client.refusal.words("bert")


def test_a_stolen_key_without_its_secret_is_refused(
    identity: Callable[[str], Identity],
) -> None:
    anna, bert, carl = identity("anna"), identity("bert"), identity("carl")
    client = ClientHandshake(replace(carl, key=anna.key), bert.key, TERMS)
    server = ServerHandshake(bert.key, TERMS, expected=anna.key)
    run(client, server)
    assert server.refusal is not None
    assert client.refusal is not None
    assert not server.accepted
    assert "could not prove" in server.refusal.words("anna")
    assert "does not believe" in client.refusal.words("bert")


def test_a_proof_for_one_server_is_none_for_another(
    identity: Callable[[str], Identity],
) -> None:
    """A member in the middle that passes messages on gains nothing."""
    anna, bert, carl = identity("anna"), identity("bert"), identity("carl")
    client = ClientHandshake(anna, carl.key, TERMS)
    server = ServerHandshake(bert.key, TERMS, expected=anna.key)
    run(client, server)
    assert server.refusal is not None
    assert server.refusal.reason is Reason.SIGNATURE


def test_an_old_proof_is_worth_nothing(identity: Callable[[str], Identity]) -> None:
    anna, bert = identity("anna"), identity("bert")
    client = ClientHandshake(anna, bert.key, TERMS)
    first = ServerHandshake(bert.key, TERMS, expected=anna.key)
    proof = client.receive(first.receive(client.hello()))
    assert proof is not None
    second = ServerHandshake(bert.key, TERMS, expected=anna.key)
    second.receive(client.hello())
    second.receive(proof)
    assert second.refusal is not None
    assert not second.accepted


def test_messages_out_of_turn_are_errors(identity: Callable[[str], Identity]) -> None:
    anna, bert = identity("anna"), identity("bert")
    client = ClientHandshake(anna, bert.key, TERMS)
    server = ServerHandshake(bert.key, TERMS, expected=anna.key)
    with pytest.raises(ValueError, match="due"):
        server.receive(bytes([3]) + bytes(64))
    server.receive(client.hello())
    with pytest.raises(ValueError, match="due"):
        server.receive(client.hello())


@given(message=st.binary(max_size=120))
def test_garbage_is_refused_and_nothing_else(identity_of_anna: Identity, message: bytes) -> None:
    server = ServerHandshake(bytes(32), TERMS, expected=None)
    client = ClientHandshake(identity_of_anna, bytes(32), TERMS)
    for receive in (server.receive, client.receive):
        try:
            receive(message)
        except ValueError:
            continue
    assert not server.accepted


@pytest.fixture(scope="module")
def identity_of_anna(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return Identity.load_or_create(tmp_path_factory.mktemp("anna"))
