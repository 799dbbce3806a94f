"""Keys, seals, tokens and passwords."""

from __future__ import annotations

import pytest
from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError

from lab_agent.shared.errors import CryptoError
from lab_agent.store.crypto import Cipher, Passwords, hash_token, new_key, new_token, token_matches


def test_encrypted_content_round_trips_and_is_opaque():
    key = new_key()
    cipher = Cipher(key)
    sealed = cipher.encrypt("Иванова".encode())
    assert "Иванова".encode() not in sealed
    assert Cipher(f"{key}\n").decrypt(sealed) == "Иванова".encode(), "a file of the key may end with a line end"
    assert cipher.encrypt(b"same") != cipher.encrypt(b"same")
    for act in (Cipher(new_key()).decrypt, Cipher(new_key()).reencrypt):
        with pytest.raises(CryptoError, match="a key that is not among those set"):
            act(sealed)
    with pytest.raises(CryptoError):
        cipher.decrypt(b"")


def test_new_key_before_old_key_decrypts_both():
    old, new = new_key(), new_key()
    sealed = Cipher(old).encrypt(b"x")
    both = Cipher(new, old)
    assert both.decrypt(sealed) == b"x"
    assert Cipher(new).decrypt(both.encrypt(b"y")) == b"y"
    assert Cipher(new).decrypt(both.reencrypt(sealed)) == b"x"


@pytest.mark.parametrize("keys", [(), ("",), ("short",), ("ы" * 44,), (new_key(), "x" * 44 + "!")])
def test_invalid_keys_are_rejected(keys):
    with pytest.raises(CryptoError, match="key"):
        Cipher(*keys)


def test_tokens_are_stored_as_hashes():
    token = new_token()
    assert len(token) >= 43
    assert token_matches(token, hash_token(token))
    assert not token_matches(new_token(), hash_token(token))
    assert not token_matches(token, "")
    assert not token_matches(token, "ю")
    assert token not in hash_token(token)


def test_password_hash_verifies():
    passwords = Passwords(time_cost=1, memory_cost=64, parallelism=1)
    hashed = passwords.hash("correct horse battery")
    assert hashed.startswith("$argon2id$")
    assert passwords.verify("correct horse battery", hashed)
    for password, what in (("wrong", hashed), ("wrong", None), ("x", "not a hash"), ("x", "")):
        assert not passwords.verify(password, what)
    assert not passwords.needs_rehash(hashed)
    assert Passwords(time_cost=2, memory_cost=64, parallelism=1).needs_rehash(hashed)


def test_unknown_user_costs_one_full_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is hashed before somebody signs in; then nobody's hash costs what a user's does, and no password fits it."""
    monkeypatch.setattr(PasswordHasher, "hash", None)
    passwords = Passwords(time_cost=2, memory_cost=64, parallelism=1)
    compared = []
    verify = PasswordHasher.verify

    def record(hasher: PasswordHasher, hashed: str, password: str) -> None:
        try:
            verify(hasher, hashed, password)
        except VerifyMismatchError:
            compared.append(hashed)
            raise

    monkeypatch.setattr(PasswordHasher, "verify", record)
    assert not passwords.verify("a password", None)
    assert [passwords.needs_rehash(each) for each in compared] == [False]
