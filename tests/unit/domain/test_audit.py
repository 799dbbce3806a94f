"""The arithmetic of the audit's chain. Its hashes are stored for years: the bytes that they cover never change."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from lab_agent.store.audit_records import AuditChain, AuditHead, AuditRecord, pack_details, short_name

CHAIN = AuditChain(b"k" * 32)
RECORD = AuditRecord(
    number=7,
    at=datetime(2026, 1, 2, 6, 4, tzinfo=timezone(timedelta(hours=3))),
    action="signed_in",
    channel="page",
    actor="Änna",
    origin="root@host",
    subject="anna",
    details='{"a":1}',
    note_digest=None,
    hash="",
)


def digest(content: bytes) -> str:
    return hmac.new(b"k" * 32, content, hashlib.sha256).hexdigest()


def test_hash_covers_these_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    expected = (
        '{"action":"signed_in","actor":"Änna","at":"2026-01-02T03:04:00.000000+00:00","channel":"page",'
        '"details":"{\\"a\\":1}","note_digest":null,"number":7,"origin":"root@host","subject":"anna"}'
    )
    assert RECORD.canonical() == expected.encode()
    monkeypatch.undo()
    time.tzset()
    assert json.loads(replace(RECORD, note_digest="d").canonical())["note_digest"] == "d"


def test_each_digest_is_of_its_own_kind() -> None:
    """A link depends on the record before, a seal covers both ends."""
    assert CHAIN.link("before", RECORD) == digest(b"record\nbefore\n" + RECORD.canonical())
    assert CHAIN.seal(AuditHead()) == digest(b"head\n0  0 ")
    assert CHAIN.seal(AuditHead(number=9, hash="h", anchor_number=3, anchor_hash="a")) == digest(b"head\n9 h 3 a")
    assert CHAIN.digest_note(7, "why") == digest(b"note\n7\nwhy")
    assert CHAIN.digest_setting("why") == digest(b"setting\nwhy")


def test_details_and_names_have_one_text() -> None:
    assert pack_details({}) == "{}"
    assert pack_details({"b": ("x", "y"), "a": 1, "c": "ё"}) == '{"a":1,"b":["x","y"],"c":"ё"}'
    assert short_name(" Anna \n Maria ") == "Anna Maria"
    assert len(short_name("x" * 300)) == 200
