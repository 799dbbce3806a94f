"""The audit: who did what, when, to what; in codes, without patient data, each record chained to the one before it.

An event is a line of an order's own story, in words, and goes with the order. A record of the audit is about a person or a
command: it stays for years, is never changed, and a gap, a change or a missing end shows (`store/audit_verification.py`).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from lab_agent.shared.ids import OrderKey

GENESIS_HASH = ""
"""What the first record has in the place of the hash of the record before it."""
_MAX_NAME = 200

AuditValue = int | str | tuple[str, ...]


class AuditChannel(StrEnum):
    """The way by which something was done."""

    PAGE = "page"  # an account, on the status page
    COMMAND = "command"  # a user of the operating system, at the command line
    AGENT = "agent"  # lab-agent itself
    API = "api"  # lab-api itself


class AuditAction(StrEnum):
    """What was done."""

    SIGNED_IN = "signed_in"
    SIGN_IN_REJECTED = "sign_in_rejected"
    SIGNED_OUT = "signed_out"
    RESULT_SHOWN = "result_shown"
    SERVICE_WORDS_SHOWN = "service_words_shown"
    RAW_MESSAGE_SHOWN = "raw_message_shown"
    SENDER_NAME_SHOWN = "sender_name_shown"
    ORDER_REJECTED = "order_rejected"
    ORDER_RELEASED = "order_released"
    ORDER_REASSESSED = "order_reassessed"
    LINE_REJECTED = "line_rejected"
    LINE_ACCEPTED = "line_accepted"
    JOB_RETRIED = "job_retried"
    JOB_DISMISSED = "job_dismissed"
    JOB_MARKED_DONE = "job_marked_done"
    RULE_RELEASED = "rule_released"
    RESULT_MATCHED = "result_matched"
    RESULT_RELEASED = "result_released"
    RESULT_DISMISSED = "result_dismissed"
    RESULT_UPLOADED_AGAIN = "result_uploaded_again"
    REFUSED_REPLAYED = "refused_replayed"
    REFUSED_DISMISSED = "refused_dismissed"
    SETTINGS_CHANGED = "settings_changed"
    CATALOGUE_ACTIVATED = "catalogue_activated"
    NOTICE_ANNOUNCED = "notice_announced"
    NOTICES_LIFTED = "notices_lifted"
    CATALOGUE_EXPORTED = "catalogue_exported"
    SUPPORT_BUNDLE_WRITTEN = "support_bundle_written"
    AUDIT_BROKEN = "audit_broken"
    AUDIT_EXPORTED = "audit_exported"
    AUDIT_NOTES_SHOWN = "audit_notes_shown"
    BACKUP_MADE = "backup_made"
    BACKUP_RESTORED = "backup_restored"
    RESTORE_RELEASED = "restore_released"
    KEYS_ROTATED = "keys_rotated"
    DATA_PURGED = "data_purged"
    AUDIT_PURGED = "audit_purged"
    DATABASE_COMPACTED = "database_compacted"
    DATABASE_COPIED = "database_copied"
    PATIENT_SEARCHED = "patient_searched"
    PATIENT_ERASED = "patient_erased"
    ORDER_ERASED = "order_erased"
    RESULT_ERASED = "result_erased"
    REFUSED_ERASED = "refused_erased"
    USER_ADDED = "user_added"
    USER_REMOVED = "user_removed"
    USER_PASSWORD_CHANGED = "user_password_changed"  # noqa: S105 - the name of an action
    USER_ROLE_CHANGED = "user_role_changed"
    USER_REVEAL_CHANGED = "user_reveal_changed"
    SESSION_ENDED = "session_ended"
    PATIENT_SHOWN = "patient_shown"
    DOCUMENT_SHOWN = "document_shown"
    ORDERS_EXPORTED = "orders_exported"
    SIGN_IN_REFRESHED = "sign_in_refreshed"
    SIGN_IN_FORGOTTEN = "sign_in_forgotten"
    ADAPTER_PAUSED = "adapter_paused"
    ADAPTER_RESUMED = "adapter_resumed"
    API_TOKEN_CREATED = "api_token_created"  # noqa: S105 - the name of an action
    API_TOKEN_REVOKED = "api_token_revoked"  # noqa: S105 - the name of an action


@dataclass(frozen=True, slots=True)
class AuditOrigin:
    """Who runs a process: by which channel it acts, and the user of the operating system with the host, `user@host`.

    `person` is who does what it records; empty for a program that acts by itself.
    """

    channel: AuditChannel
    user: str
    person: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """What is to be recorded.

    `subject` is a key, a number, a name of a user, a rule or a test: never what may name a patient. `details` are codes, names of
    settings and numbers. `by` is the account, or the name that a person gave at the command line. `note` is what the person wrote
    about it: kept encrypted beside the record (with `order`, so that it can be erased), while the record has its digest alone.
    `address` is where a person without a session called from.
    """

    at: datetime
    action: AuditAction
    subject: str = ""
    by: str | None = None
    details: Mapping[str, AuditValue] = field(default_factory=dict)
    note: str | None = None
    order: OrderKey | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """A record of the audit as it is stored: `action` and `channel` are texts, as a damaged one may hold anything."""

    number: int
    at: datetime
    action: str
    channel: str
    actor: str
    origin: str
    subject: str
    details: str
    note_digest: str | None
    hash: str

    def canonical(self) -> bytes:
        """Give the bytes that the hash covers, beside the hash before."""
        values = {
            "number": self.number,
            "at": self.at.astimezone(UTC).isoformat(timespec="microseconds"),
            "action": self.action,
            "channel": self.channel,
            "actor": self.actor,
            "origin": self.origin,
            "subject": self.subject,
            "details": self.details,
            "note_digest": self.note_digest,
        }
        return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHead:
    """Where the chain ends, and where it begins: what is before the anchor was purged. `number` 0: nothing was ever recorded."""

    number: int = 0
    hash: str = GENESIS_HASH
    anchor_number: int = 0
    anchor_hash: str = GENESIS_HASH


@dataclass(frozen=True, slots=True)
class AuditChain:
    """The chain's arithmetic, with its key (32 bytes): nobody without the key makes a hash that fits."""

    key: bytes

    def link(self, previous: str, record: AuditRecord) -> str:
        """Give the hash of a record that comes after the one with the hash `previous`."""
        return self._digest("record", previous.encode() + b"\n" + record.canonical())

    def seal(self, head: AuditHead) -> str:
        """Give the code that shows who changes the head without the key."""
        return self._digest("head", f"{head.number} {head.hash} {head.anchor_number} {head.anchor_hash}".encode())

    def digest_note(self, number: int, note: str) -> str:
        """Give the digest of a record's note; equal notes of different records have different ones."""
        return self._digest("note", f"{number}\n{note}".encode())

    def digest_setting(self, value: str) -> str:
        """Give the digest of a setting's value, which says nothing of it without the key."""
        return self._digest("setting", value.encode())

    def _digest(self, purpose: str, content: bytes) -> str:
        return hmac.new(self.key, purpose.encode() + b"\n" + content, hashlib.sha256).hexdigest()


def pack_details(details: Mapping[str, AuditValue]) -> str:
    """Give details as the canonical text that is stored and hashed."""
    return json.dumps(dict(details), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def short_name(text: str) -> str:
    """Give a name on one line, of a bounded length."""
    return " ".join(text.split())[:_MAX_NAME]
