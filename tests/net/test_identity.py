"""Identities: made once, private, the same ever after."""

import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from hypothesis import given
from hypothesis import strategies as st

from kafila.errors import IdentityProblem
from kafila.net.certificate import key_of
from kafila.net.identity import Identity, verify


def test_is_made_once_and_private(tmp_path: Path) -> None:
    home = tmp_path / "deep" / "home"
    made = Identity.load_or_create(home)
    again = Identity.load_or_create(home)
    assert (again.key, again.exchange_key) == (made.key, made.exchange_key)
    assert again.certificate == made.certificate
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert sorted(file.name for file in home.iterdir()) == [
        "certificate.pem",
        "exchange.pem",
        "identity.pem",
    ]
    assert {stat.S_IMODE(file.stat().st_mode) for file in home.iterdir()} == {0o600}


def test_signs_and_agrees(identity: Callable[[str], Identity]) -> None:
    anna, bert = identity("anna"), identity("bert")
    assert anna.shared(bert.exchange_key) == bert.shared(anna.exchange_key)
    signature = anna.sign(b"words")
    assert verify(anna.key, signature, b"words")
    assert not verify(anna.key, signature, b"other words")
    assert not verify(bert.key, signature, b"words")
    assert not verify(b"too short", signature, b"words")


def test_certificate_holds_the_key_for_ever(identity: Callable[[str], Identity]) -> None:
    anna = identity("anna")
    certificate = x509.load_der_x509_certificate(anna.certificate)
    assert key_of(anna.certificate) == anna.key
    assert certificate.not_valid_before_utc.year == 1970
    assert certificate.not_valid_after_utc.year == 2100


@given(st.binary(max_size=600))
def test_garbage_is_no_certificate(garbage: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        key_of(garbage)


def test_a_certificate_of_an_unheard_of_kind_is_an_error_like_any_other(
    identity: Callable[[str], Identity],
) -> None:
    anna = identity("anna")
    before, algorithm, after = anna.certificate.rpartition(b"\x06\x03\x2b\x65\x70\x03\x21")
    unknown_key = before + b"\x06\x03\x00\x65\x70\x03\x21" + after
    unknown_version = anna.certificate.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x07", 1)
    assert algorithm
    for certificate in (unknown_key, unknown_version):
        assert certificate != anna.certificate
        with pytest.raises(ValueError, match="not a certificate of ours"):
            key_of(certificate)


def test_keys_open_to_others_are_refused(tmp_path: Path) -> None:
    Identity.load_or_create(tmp_path)
    (tmp_path / "identity.pem").chmod(0o644)
    with pytest.raises(IdentityProblem, match="chmod 600"):
        Identity.load_or_create(tmp_path)


@pytest.mark.parametrize("file", ["identity.pem", "exchange.pem"])
def test_a_broken_key_file_is_refused(tmp_path: Path, file: str) -> None:
    Identity.load_or_create(tmp_path)
    (tmp_path / file).write_bytes(b"not a key")
    with pytest.raises(IdentityProblem, match="does not hold the keys"):
        Identity.load_or_create(tmp_path)


def test_a_key_with_a_password_is_refused(tmp_path: Path) -> None:
    Identity.load_or_create(tmp_path)
    file = tmp_path / "identity.pem"
    key = load_pem_private_key(file.read_bytes(), password=None)
    locked = BestAvailableEncryption(b"secret")
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
    with pytest.raises(IdentityProblem, match="protected by a password"):
        Identity.load_or_create(tmp_path)


def test_a_lost_exchange_key_is_not_made_anew(tmp_path: Path) -> None:
    Identity.load_or_create(tmp_path)
    (tmp_path / "exchange.pem").unlink()
    with pytest.raises(IdentityProblem, match=r"restore it, or remove identity\.pem too"):
        Identity.load_or_create(tmp_path)
    assert not (tmp_path / "exchange.pem").exists()


def test_a_first_use_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    """The exchange key is made first."""
    made = Identity.load_or_create(tmp_path)
    (tmp_path / "identity.pem").unlink()
    again = Identity.load_or_create(tmp_path)
    assert again.exchange_key == made.exchange_key
    assert again.key != made.key


def test_several_processes_may_be_the_first(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: Identity.load_or_create(tmp_path), range(16)))
    assert len({(each.key, each.exchange_key) for each in made}) == 1


def test_a_home_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(IdentityProblem, match="--home"):
        Identity.load_or_create(tmp_path / "file")
