"""The in-band proof, message by message: who is accepted, who is refused and in which words."""

import os
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila.net.handshake import ClientHandshake, Reason, ServerHandshake, Terms
from kafila.net.identity import Identity

TERMS = Terms(1, b"s" * 32, b"d" * 32)


Make = Callable[[str], Identity]


def run(client: ClientHandshake, server: ServerHandshake) -> list[int]:
    """Bring the messages to each other; return the kinds of the server's."""
    said = []
    messages = client.opening()
    while messages:
        answer = server.receive(messages.pop(0))
        if answer is not None:
            said.append(answer[0])
            reply = client.receive(answer)
            messages += [] if reply is None else [reply]
        if server.refusal is not None:
            break
    return said


def test_a_pinned_client_is_accepted(identity: Make) -> None:
    anna, bert = identity("anna"), identity("bert")
    client = ClientHandshake(anna, bert.key, TERMS)
    server = ServerHandshake(bert.key, TERMS, expected=anna.key)
    run(client, server)
    assert client.accepted
    assert server.accepted
    assert (client.peer_key, server.peer_key) == (bert.key, anna.key)


def test_any_client_is_accepted_where_none_is_expected(
    identity: Make,
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
    identity: Make,
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


def test_an_unpinned_client_is_refused(identity: Make) -> None:
    anna, bert, carl = identity("anna"), identity("bert"), identity("carl")
    client = ClientHandshake(carl, bert.key, TERMS)
    server = ServerHandshake(bert.key, TERMS, expected=anna.key)
    run(client, server)
    assert server.refusal is not None
    assert client.refusal is not None
    assert f"has key {carl.key.hex()[:8]}" in server.refusal.words("anna")
    assert f"refuses this machine's key {carl.key.hex()[:8]}" in client.refusal.words("bert")


def test_a_stolen_key_without_its_secret_is_refused(
    identity: Make,
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
    identity: Make,
) -> None:
    """A member in the middle that passes messages on gains nothing."""
    anna, bert, carl = identity("anna"), identity("bert"), identity("carl")
    client = ClientHandshake(anna, carl.key, TERMS)
    server = ServerHandshake(bert.key, TERMS, expected=anna.key)
    run(client, server)
    assert server.refusal is not None
    assert server.refusal.reason is Reason.SIGNATURE


def test_an_old_proof_is_worth_nothing(identity: Make) -> None:
    anna, bert = identity("anna"), identity("bert")
    client = ClientHandshake(anna, bert.key, TERMS)
    first = ServerHandshake(bert.key, TERMS, expected=anna.key)
    [hello] = client.opening()
    proof = client.receive(first.receive(hello) or b"")
    assert proof is not None
    second = ServerHandshake(bert.key, TERMS, expected=anna.key)
    second.receive(hello)
    second.receive(proof)
    assert second.refusal is not None
    assert not second.accepted


def test_messages_out_of_turn_are_errors(identity: Make) -> None:
    anna, bert = identity("anna"), identity("bert")
    client = ClientHandshake(anna, bert.key, TERMS)
    server = ServerHandshake(bert.key, TERMS, expected=anna.key)
    with pytest.raises(ValueError, match="due"):
        server.receive(bytes([3]) + bytes(64))
    [hello] = client.opening()
    challenge = server.receive(hello)
    assert challenge is not None
    with pytest.raises(ValueError, match="due"):
        server.receive(hello)
    client.receive(challenge)
    with pytest.raises(ValueError, match="due"):
        client.receive(challenge)


# --- with a nonce known beforehand ---------------------------------------------------------------

ACCEPT, CHALLENGE, REFUSE = 4, 2, 5


def test_a_known_nonce_saves_a_round_trip(identity: Make) -> None:
    anna, bert, nonce = identity("anna"), identity("bert"), os.urandom(32)
    client = ClientHandshake(anna, bert.key, TERMS, nonce)
    server = ServerHandshake(bert.key, TERMS, anna.key, nonce)
    assert len(client.opening()) == 2
    assert run(client, server) == [ACCEPT]
    assert client.accepted
    assert server.accepted


def test_an_old_nonce_costs_a_round_trip_only(identity: Make) -> None:
    """The server was started anew, and the client still has its old record."""
    anna, bert = identity("anna"), identity("bert")
    client = ClientHandshake(anna, bert.key, TERMS, os.urandom(32))
    server = ServerHandshake(bert.key, TERMS, anna.key, os.urandom(32))
    assert run(client, server) == [CHALLENGE, ACCEPT]
    assert client.accepted
    assert server.accepted


@pytest.mark.parametrize("other", [{"protocol": 2}, {"session": bytes(32)}, {"digest": bytes(32)}])
def test_other_terms_are_refused_in_one_round_trip(
    identity: Make, other: dict[str, int | bytes]
) -> None:
    anna, bert, nonce = identity("anna"), identity("bert"), os.urandom(32)
    client = ClientHandshake(anna, bert.key, replace(TERMS, **other), nonce)  # type: ignore[arg-type]
    server = ServerHandshake(bert.key, TERMS, anna.key, nonce)
    assert run(client, server) == [REFUSE]
    assert client.refusal is not None
    assert not server.accepted


def test_a_proof_for_a_known_nonce_is_none_for_another_process_or_server_or_client(
    identity: Make,
) -> None:
    """Even with the nonce of the one it was made for: a hostile rendezvous can arrange that."""
    anna, bert, carl, nonce = identity("anna"), identity("bert"), identity("carl"), os.urandom(32)
    flight = ClientHandshake(anna, bert.key, TERMS, nonce).opening()
    restarted = ServerHandshake(bert.key, TERMS, anna.key, os.urandom(32))
    elsewhere = ServerHandshake(carl.key, TERMS, anna.key, nonce)
    other_plan = ServerHandshake(bert.key, replace(TERMS, digest=bytes(32)), anna.key, nonce)
    other_client = ServerHandshake(bert.key, TERMS, carl.key, nonce)
    for server in (restarted, elsewhere):
        assert server.receive(flight[0]) is None
        answer = server.receive(flight[1])
        assert answer is not None
        assert answer[0] == CHALLENGE
        answer = server.receive(flight[1])  # a replay is no answer to the challenge
        assert answer is not None
        assert answer[0] == REFUSE
        assert not server.accepted
    for server in (other_plan, other_client):
        answer = server.receive(flight[0])
        assert answer is not None
        assert answer[0] == REFUSE
        assert not server.accepted


def test_a_reflected_proof_proves_nothing(identity: Make) -> None:
    """Bert has anna's flight and plays it back to her, as her client; the nonces are alike."""
    anna, bert, nonce = identity("anna"), identity("bert"), os.urandom(32)
    flight = ClientHandshake(anna, bert.key, TERMS, nonce).opening()
    at_anna = ServerHandshake(anna.key, TERMS, bert.key, nonce)
    answer = at_anna.receive(flight[0])
    assert answer is not None
    assert answer[0] == REFUSE
    anyone = ServerHandshake(anna.key, TERMS, None, nonce)
    anyone.receive(flight[0])
    anyone.receive(flight[1])
    anyone.receive(flight[1])
    assert not anyone.accepted


def test_a_nonce_of_another_length_is_an_error(identity: Make) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        ClientHandshake(identity("anna"), bytes(32), TERMS, bytes(31))


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
