"""Keys, seals, tokens and passwords."""

from __future__ import annotations

import pytest

from lab_agent.crypto import Cipher, Passwords, hash_token, new_key, new_token, token_matches
from lab_agent.errors import CryptoError


def test_what_is_sealed_can_be_read_again_and_looks_like_nothing():
    cipher = Cipher(new_key())
    sealed = cipher.encrypt("Иванова".encode())
    assert "Иванова".encode() not in sealed
    assert cipher.decrypt(sealed) == "Иванова".encode()
    assert cipher.encrypt(b"same") != cipher.encrypt(b"same")


def test_a_new_key_in_front_of_an_old_one():
    old, new = new_key(), new_key()
    sealed = Cipher(old).encrypt(b"x")
    both = Cipher(new, old)
    assert both.decrypt(sealed) == b"x"
    assert Cipher(new).decrypt(both.encrypt(b"y")) == b"y"
    assert Cipher(new).decrypt(both.reencrypt(sealed)) == b"x"


def test_a_wrong_key_and_an_altered_content():
    sealed = Cipher(new_key()).encrypt(b"x")
    for act in (Cipher(new_key()).decrypt, Cipher(new_key()).reencrypt):
        with pytest.raises(CryptoError, match="a key that is not among those set"):
            act(sealed)
    with pytest.raises(CryptoError):
        Cipher(new_key()).decrypt(b"")


@pytest.mark.parametrize("keys", [(), ("",), ("short",), ("ы" * 44,), (new_key(), "x" * 44 + "!")])
def test_keys_that_are_none(keys):
    with pytest.raises(CryptoError, match="key"):
        Cipher(*keys)


def test_a_key_may_come_from_a_file_with_a_line_end():
    key = new_key()
    assert Cipher(key).decrypt(Cipher(key + "\n").encrypt(b"x")) == b"x"


def test_tokens_are_kept_as_hashes():
    token = new_token()
    assert len(token) >= 43
    assert token_matches(token, hash_token(token))
    assert not token_matches(new_token(), hash_token(token))
    assert not token_matches(token, "")
    assert not token_matches(token, "ю")
    assert token not in hash_token(token)


def test_passwords():
    passwords = Passwords(time_cost=1, memory_cost=64, parallelism=1)
    hashed = passwords.hash("correct horse battery")
    assert hashed.startswith("$argon2id$")
    assert passwords.verify("correct horse battery", hashed)
    for password, what in (("wrong", hashed), ("wrong", None), ("x", "not a hash"), ("x", "")):
        assert not passwords.verify(password, what)
    assert not passwords.needs_rehash(hashed)
    assert Passwords(time_cost=2, memory_cost=64, parallelism=1).needs_rehash(hashed)
