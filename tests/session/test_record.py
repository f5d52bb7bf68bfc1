"""Signed records: what verifies and what does not."""

import json
from pathlib import Path

import pytest

from kafila import PROTOCOL
from kafila.errors import IdentityProblem
from kafila.messages import Malformed, OtherVersion
from kafila.net.identity import Identity
from kafila.session.record import Self, sign, verify

MINE = Self(b"s" * 32, b"d" * 32, (("192.0.2.1", 4711), ("2001:db8::1", 4711)), b"n" * 32)


@pytest.fixture
def anna(tmp_path: Path) -> Identity:
    return Identity.load_or_create(tmp_path / "anna")


def resigned(who: Identity, change: dict[str, object]) -> str:
    """Anna's record, changed, and properly signed by her."""
    record = json.loads(json.loads(sign(who, MINE))["record"]) | change
    text = json.dumps(record)
    signature = who.sign(b"kafila record\0" + text.encode()).hex()
    return json.dumps({"v": PROTOCOL, "record": text, "signature": signature})


def test_a_record_says_what_was_signed(anna: Identity) -> None:
    record = verify(sign(anna, MINE), anna.key)
    assert record.key == anna.key.hex()
    assert record.exchange_key == anna.exchange_key.hex()
    assert record.candidates == MINE.candidates
    assert (record.session, record.digest) == (MINE.session.hex(), MINE.digest.hex())
    assert record.nonce == MINE.nonce.hex()


def test_no_byte_of_it_may_change(anna: Identity) -> None:
    text = sign(anna, MINE)
    outer = json.loads(text)
    for at in range(0, len(outer["record"]), 7):
        letter = "0" if outer["record"][at] != "0" else "1"
        changed = outer["record"][:at] + letter + outer["record"][at + 1 :]
        with pytest.raises(IdentityProblem, match="signature"):
            verify(json.dumps(outer | {"record": changed}), anna.key)


def test_another_members_record_is_not_this_ones(anna: Identity, tmp_path: Path) -> None:
    bert = Identity.load_or_create(tmp_path / "bert")
    with pytest.raises(IdentityProblem, match="signature"):
        verify(sign(bert, MINE), anna.key)
    with pytest.raises(IdentityProblem, match="another key"):
        verify(resigned(anna, {"key": bert.key.hex()}), anna.key)


@pytest.mark.parametrize(
    "change",
    [
        {"candidates": [["example.org", 1]]},
        {"candidates": [["0.0.0.0", 1]]},
        {"candidates": [["224.0.0.1", 1]]},
        {"candidates": [["255.255.255.255", 1]]},
        {"candidates": [["fe80::1%\x1b[31m", 1]]},
        {"candidates": [["192.0.2.1", 0]]},
        {"candidates": [["192.0.2.1", 70000]]},
        {"candidates": [["192.0.2.1", 1]] * 100},
        {"certificate": "not base64!"},
        {"digest": "short"},
        {"nonce": "short"},
        {"more": 1},
    ],
)
def test_a_signed_record_is_read_strictly_all_the_same(
    anna: Identity, change: dict[str, object]
) -> None:
    with pytest.raises(Malformed):
        verify(resigned(anna, change), anna.key)


def test_another_version(anna: Identity) -> None:
    with pytest.raises(OtherVersion):
        verify(resigned(anna, {"v": PROTOCOL + 1}), anna.key)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "null", "[" * 5000, json.dumps({"v": PROTOCOL, "record": "", "signature": ""})],
)
def test_nonsense(anna: Identity, text: str) -> None:
    with pytest.raises(Malformed):
        verify(text, anna.key)
