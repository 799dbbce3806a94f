"""Identification data and documents, encrypted; and the check that a database is opened with its own keys."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete, intersect, select, update

from lab_agent.queue.job_records import ServiceMessage
from lab_agent.shared.errors import CryptoError, WrongKeyError
from lab_agent.shared.ids import JobId, OrderKey, ReportKey
from lab_agent.store.crypto import Cipher
from lab_agent.store.row_mapping import insert_new, upsert_by
from lab_agent.store.search_tables import patient_digests
from lab_agent.store.session import Query, Session, Write
from lab_agent.store.tables import key_values
from lab_agent.store.vault_tables import documents, identities, reported_patients, service_messages

_KEY_CHECK = "encryption.key_check"
INDEX_KEY_NAME = "patient_index.key"
"""Under this key the key of the digests of patients is stored, encrypted."""
_INDEX_PURPOSE = "patient index"
KEPT_MESSAGES = 10
"""Attempts of a job of which the service's words are kept."""


def document_id(content: bytes) -> str:
    """Give the id of a document: the SHA-256 of its content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def verify_key(connection: Connection, cipher: Cipher) -> None:
    """Raise `WrongKeyError` where the database was written with other keys; a new one gets its check value. Commits."""
    insert_new(connection, key_values, {"key": _KEY_CHECK, "value": cipher.encrypt(_KEY_CHECK.encode()).decode("ascii")})
    check_key(connection, cipher)
    connection.commit()


def check_key(connection: Connection, cipher: Cipher) -> None:
    """Raise `WrongKeyError` where a database has a check value, and none of the keys is the one that it was encrypted with."""
    check = connection.scalar(select(key_values.c.value).where(key_values.c.key == _KEY_CHECK))
    if check is None:
        return
    try:
        cipher.decrypt(check.encode("ascii", "replace"))
    except CryptoError as exc:
        raise WrongKeyError(str(exc)) from exc


def store_key_check(connection: Connection, cipher: Cipher) -> None:
    """Encrypt the check value with the newest key: from now on that one must be set, and no older one."""
    connection.execute(
        update(key_values).where(key_values.c.key == _KEY_CHECK).values(value=cipher.encrypt(_KEY_CHECK.encode()).decode("ascii"))
    )


def digest_term(key: bytes, term: str) -> str:
    """Give the keyed digest by which a term of a patient is found: whoever has no key can neither read nor try it."""
    return hmac.new(key, term.encode(), hashlib.sha256).hexdigest()[:32]


def find_by_terms(
    connection: Connection, cipher: Cipher, terms: Collection[str], one_of: Collection[str] = ()
) -> Select[Any] | None:
    """Give the select of the keys of orders whose patient has all these terms, and one of the others, if there are any.

    None where no patient is known at all.
    """
    stored = connection.scalar(select(key_values.c.value).where(key_values.c.key == INDEX_KEY_NAME))
    wanted = [*((term,) for term in terms), *([one_of] if one_of else [])]
    if stored is None or not wanted:
        return None
    key = cipher.derive(_INDEX_PURPOSE).decrypt(stored.encode("ascii"))
    each = [
        select(patient_digests.c.order_key).where(patient_digests.c.digest.in_([digest_term(key, term) for term in terms_of_one]))
        for terms_of_one in wanted
    ]
    return intersect(*each) if len(each) > 1 else each[0]  # type: ignore[return-value]


def rotate_index_key(connection: Connection, cipher: Cipher) -> bool:
    """Encrypt the key of the digests with the newest of the store's keys; whether an older one had encrypted it."""
    stored = connection.scalar(select(key_values.c.value).where(key_values.c.key == INDEX_KEY_NAME).with_for_update())
    derived = cipher.derive(_INDEX_PURPOSE)
    if stored is None or derived.is_current(stored.encode("ascii")):
        return False
    sealed = derived.reencrypt(stored.encode("ascii")).decode("ascii")
    connection.execute(update(key_values).where(key_values.c.key == INDEX_KEY_NAME).values(value=sealed))
    return True


_INDEX_KEY = Query(select(key_values.c.value).where(key_values.c.key == INDEX_KEY_NAME))
_MAKE_INDEX_KEY = Write.insert(key_values, lambda start: start.on_conflict_do_nothing())
_FORGET_DIGESTS = Write.of(patient_digests, delete(patient_digests).where(patient_digests.c.order_key == bindparam("of")))
_ADD_DIGEST = Write.insert(patient_digests, lambda start: start.on_conflict_do_nothing())
_SAVE_IDENTITY = Write.insert(identities, upsert_by("order_key"))
_IDENTITY = Query(select(identities.c.ciphertext).where(identities.c.order_key == bindparam("of")))
_SAVE_PATIENT = Write.insert(reported_patients, upsert_by("report"))
_PATIENT = Query(select(reported_patients.c.ciphertext).where(reported_patients.c.report == bindparam("of")))
_SAVE_MESSAGE = Write.insert(service_messages, upsert_by("job_id"))
_MESSAGES = Query(
    select(service_messages.c.job_id, service_messages.c.kept_at, service_messages.c.ciphertext).where(
        service_messages.c.order_key == bindparam("of")
    )
)
_SAVE_DOCUMENT = Write.insert(documents, upsert_by("id"))
_DOCUMENT = Query(select(documents.c.ciphertext, documents.c.content_type).where(documents.c.id == bindparam("of")))


def _pack_messages(messages: tuple[ServiceMessage, ...]) -> bytes:
    rows = [[each.at.isoformat(), each.attempt, each.answer, each.text] for each in messages]
    return json.dumps(rows, ensure_ascii=False).encode("utf-8", "replace")


def _unpack_messages(content: bytes) -> tuple[ServiceMessage, ...]:
    return tuple(
        ServiceMessage(at=datetime.fromisoformat(at), attempt=attempt, answer=answer, text=text)
        for at, attempt, answer, text in json.loads(content)
    )


class Vault:
    """Identification data and documents, encrypted at rest, apart from everything else. Reading raises `CryptoError`."""

    def __init__(self, session: Session, cipher: Cipher) -> None:
        self._session = session
        self._cipher = cipher

    def save_identity(self, order: OrderKey, identity: bytes, *, at: datetime) -> None:
        """Store or replace the identification data of an order."""
        values = {"order_key": order, "ciphertext": self._cipher.encrypt(identity), "kept_at": at}
        self._session.put(_SAVE_IDENTITY, order, values)
        self._session.remember((identities, order), identity)

    def index_patient(self, order: OrderKey, terms: Collection[str], *, is_first: bool = False) -> None:
        """Let the order be found by these terms of its patient (`KnownPatient.search_terms`), of which only digests are kept.

        They replace those of before; `is_first` says that there are none.
        """
        if not is_first:
            self._session.send(_FORGET_DIGESTS, {"of": order})
        if terms:
            key = self._patient_index_key()
            rows = [{"digest": digest_term(key, term), "order_key": order} for term in sorted(terms)]
            self._session.append(_ADD_DIGEST, rows)

    def _patient_index_key(self) -> bytes:
        """The key of the digests, which is random, and encrypted; the first who asks makes it."""
        sealer = self._cipher.derive(_INDEX_PURPOSE)
        stored = self._session.execute(_INDEX_KEY).scalar()
        if stored is None:
            sealed = sealer.encrypt(secrets.token_bytes(32)).decode("ascii")
            self._session.send(_MAKE_INDEX_KEY, {"key": INDEX_KEY_NAME, "value": sealed})
            stored = self._session.execute(_INDEX_KEY).scalar()
        return sealer.decrypt(str(stored).encode("ascii"))

    def identity(self, order: OrderKey) -> bytes | None:
        """The identification data of an order; None once it was purged."""
        written: bytes | None = self._session.known((identities, order))
        return written or self._read(_IDENTITY, order)

    def save_reported_patient(self, report: ReportKey, patient: bytes, *, at: datetime) -> None:
        """Store whose result a report is, as the laboratory system says. The report must be there: with it, this is deleted."""
        values = {"report": report, "ciphertext": self._cipher.encrypt(patient), "kept_at": at}
        self._session.put(_SAVE_PATIENT, report, values)

    def reported_patient(self, report: ReportKey) -> bytes | None:
        """Whose result it is; None where the laboratory system did not say, or once it was purged."""
        return self._read(_PATIENT, report)

    def save_service_message(self, job: JobId, order: OrderKey, said: ServiceMessage) -> None:
        """Add what a remote system said to an attempt at a job of an order; the last ten are kept."""
        kept = (*self.service_messages(order).get(job, ()), said)[-KEPT_MESSAGES:]
        sealed = self._cipher.encrypt(_pack_messages(kept))
        self._session.put(_SAVE_MESSAGE, job, {"job_id": job, "order_key": order, "ciphertext": sealed, "kept_at": said.at})

    def service_messages(self, order: OrderKey) -> Mapping[JobId, tuple[ServiceMessage, ...]]:
        """What was said to the last attempts at the jobs of an order, oldest first; purged with its identification data."""
        rows = self._session.execute(_MESSAGES, {"of": order})
        return {JobId(row.job_id): _unpack_messages(self._cipher.decrypt(row.ciphertext)) for row in rows}

    def save_document(self, content: bytes, content_type: str, *, at: datetime) -> str:
        """Store a document, or store it for longer; gives its id (the same content has the same id)."""
        key = document_id(content)
        values = {"id": key, "ciphertext": self._cipher.encrypt(content), "content_type": content_type, "kept_at": at}
        self._session.put(_SAVE_DOCUMENT, key, values)
        return key

    def document(self, document: str) -> tuple[bytes, str] | None:
        """A document and its content type; None once it was purged."""
        row = self._session.execute(_DOCUMENT, {"of": document}).one_or_none()
        return None if row is None else (self._cipher.decrypt(row.ciphertext), row.content_type)

    def seal(self, content: bytes) -> bytes:
        """Encrypt what is kept elsewhere, and not for long: no key rotation reaches it."""
        return self._cipher.encrypt(content)

    def unseal(self, sealed: bytes) -> bytes:
        """Give back what was sealed."""
        return self._cipher.decrypt(sealed)

    def _read(self, query: Query, key: str) -> bytes | None:
        ciphertext: bytes | None = self._session.execute(query, {"of": key}).scalar()
        return None if ciphertext is None else self._cipher.decrypt(ciphertext)
