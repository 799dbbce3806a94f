"""The audit in words: what was done, by which channel, and where what it was done to is shown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from urllib.parse import quote

from lab_agent.status.translation import gettext, marked
from lab_agent.store.audit_records import AuditAction, AuditChannel

ACTION_WORDS: Mapping[str, str] = {
    AuditAction.SIGNED_IN: marked("signed in"),
    AuditAction.SIGN_IN_REJECTED: marked("was not let in: wrong name or password"),
    AuditAction.SIGNED_OUT: marked("signed out"),
    AuditAction.RESULT_SHOWN: marked("looked at a result"),
    AuditAction.SERVICE_WORDS_SHOWN: marked("looked at what the exchange service said"),
    AuditAction.RAW_MESSAGE_SHOWN: marked("looked at a refused message as it came in"),
    AuditAction.SENDER_NAME_SHOWN: marked("looked at the sender's name of a refused message"),
    AuditAction.ORDER_REJECTED: marked("rejected an order"),
    AuditAction.ORDER_RELEASED: marked("released a held order"),
    AuditAction.ORDER_REASSESSED: marked("had an order assessed again"),
    AuditAction.LINE_REJECTED: marked("rejected a line of an order"),
    AuditAction.LINE_ACCEPTED: marked("accepted a line of an order"),
    AuditAction.JOB_RETRIED: marked("retried a job"),
    AuditAction.JOB_DISMISSED: marked("dismissed a job"),
    AuditAction.JOB_MARKED_DONE: marked("marked a job as done"),
    AuditAction.RULE_RELEASED: marked("let a rule reject orders again"),
    AuditAction.RESULT_MATCHED: marked("matched a result to an order"),
    AuditAction.RESULT_RELEASED: marked("released a result"),
    AuditAction.RESULT_DISMISSED: marked("dismissed a result"),
    AuditAction.RESULT_UPLOADED_AGAIN: marked("had a result uploaded again"),
    AuditAction.REFUSED_REPLAYED: marked("replayed a refused message"),
    AuditAction.REFUSED_DISMISSED: marked("dismissed a refused message"),
    AuditAction.SETTINGS_CHANGED: marked("started with changed settings"),
    AuditAction.CATALOGUE_ACTIVATED: marked("activated a catalogue"),
    AuditAction.NOTICE_ANNOUNCED: marked("stopped or delayed a test"),
    AuditAction.NOTICES_LIFTED: marked("lifted the notices of a test"),
    AuditAction.CATALOGUE_EXPORTED: marked("exported the catalogue"),
    AuditAction.SUPPORT_BUNDLE_WRITTEN: marked("wrote a support bundle"),
    AuditAction.AUDIT_BROKEN: marked("noticed that the audit had been altered"),
    AuditAction.AUDIT_EXPORTED: marked("exported the audit"),
    AuditAction.AUDIT_NOTES_SHOWN: marked("looked at notes in the audit"),
    AuditAction.BACKUP_MADE: marked("made a backup"),
    AuditAction.BACKUP_RESTORED: marked("restored a backup"),
    AuditAction.RESTORE_RELEASED: marked("released the agent after a restore"),
    AuditAction.KEYS_ROTATED: marked("rotated the encryption keys"),
    AuditAction.DATA_PURGED: marked("deleted data whose time was over"),
    AuditAction.AUDIT_PURGED: marked("deleted records of the audit whose time was over"),
    AuditAction.DATABASE_COMPACTED: marked("compacted the database"),
    AuditAction.DATABASE_COPIED: marked("copied the database to this one"),
    AuditAction.PATIENT_SEARCHED: marked("searched for a patient"),
    AuditAction.PATIENT_ERASED: marked("erased a patient's data"),
    AuditAction.ORDER_ERASED: marked("erased an order's data"),
    AuditAction.RESULT_ERASED: marked("erased a result's data"),
    AuditAction.REFUSED_ERASED: marked("erased a refused message's data"),
    AuditAction.USER_ADDED: marked("added a user"),
    AuditAction.USER_REMOVED: marked("removed a user"),
    AuditAction.USER_PASSWORD_CHANGED: marked("set a user's password"),
    AuditAction.USER_ROLE_CHANGED: marked("changed a user's role"),
    AuditAction.USER_REVEAL_CHANGED: marked("gave or took the right to reveal patients"),
    AuditAction.SESSION_ENDED: marked("ended a session"),
    AuditAction.PATIENT_SHOWN: marked("looked at whose order it is"),
    AuditAction.DOCUMENT_SHOWN: marked("looked at a document of a result"),
    AuditAction.ORDERS_EXPORTED: marked("exported the list of orders"),
    AuditAction.SIGN_IN_REFRESHED: marked("refreshed the sign-in at the exchange service"),
    AuditAction.SIGN_IN_FORGOTTEN: marked("deleted the sign-in at the exchange service"),
    AuditAction.ADAPTER_PAUSED: marked("paused a laboratory system"),
    AuditAction.ADAPTER_RESUMED: marked("resumed a laboratory system"),
    AuditAction.API_TOKEN_CREATED: marked("created an access token of the API"),
    AuditAction.API_TOKEN_REVOKED: marked("revoked access tokens of the API"),
}
"""What was done, as it goes on after a name."""
CHANNEL_WORDS: Mapping[str, str] = {
    AuditChannel.PAGE: marked("status page"),
    AuditChannel.COMMAND: marked("command line"),
    AuditChannel.AGENT: marked("lab-agent itself"),
    AuditChannel.API: marked("lab-api itself"),
}
_OF_OTHER_THINGS = frozenset(
    {
        AuditAction.RULE_RELEASED,
        AuditAction.NOTICE_ANNOUNCED,
        AuditAction.NOTICES_LIFTED,
        AuditAction.ADAPTER_PAUSED,
        AuditAction.ADAPTER_RESUMED,
        AuditAction.API_TOKEN_CREATED,
        AuditAction.API_TOKEN_REVOKED,
    }
)
"""Actions on a rule, a test, a laboratory system or a token, whose names may look like one of our keys."""
_PAGES = {"R": "/orders/", "P": "/results/", "M": "/refused/"}
_KEY = re.compile(r"([RPM][0-9A-Z]{1,15})(?:/\d{1,3})?")
"""A key of an order, a result or a refused message, or the number of a result's document."""


def action_words(action: str) -> str:
    """What was done, in the language of the request; the code of an action that this version does not know."""
    return gettext(ACTION_WORDS[action]) if action in ACTION_WORDS else action


def channel_words(channel: str) -> str:
    """The way by which it was done, in the language of the request."""
    return gettext(CHANNEL_WORDS[channel]) if channel in CHANNEL_WORDS else channel


def subject_page(action: str, subject: str) -> str | None:
    """The address of what it was done to, where that has a page."""
    found = _KEY.fullmatch(subject)
    if found is None or action in _OF_OTHER_THINGS:
        return None
    return _PAGES[subject[0]] + quote(found[1], safe="")


def read_details(details: str) -> tuple[tuple[str, str], ...]:
    """The details as codes with their values; what cannot be read stays as it is, under no code."""
    try:
        found = json.loads(details)
    except ValueError:
        return (("", details),)
    if not isinstance(found, dict):
        return (("", details),)
    return tuple((name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)) for name, value in found.items())
