"""Stores resources as compressed bytes with a search index in SQLite, so that 100,000 orders fit in memory.

A transaction stores a whole bundle or nothing. All calls are synchronous and run on the event loop's thread, which makes each
atomic without locks; one takes some tens of microseconds. Resources resemble each other, so a shared dictionary compresses each
to a third or a quarter.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab_sandbox.access_rights import AccessRights
from lab_sandbox.references import Ref
from lab_sandbox.search_index import Term

_META_SAMPLE = (
    '"meta":{"versionId":"1","lastUpdated":"2024-01-01T00:00:00.000000Z","security":[{"system":"http://127.0.0.1:8480/security/owner",'
    '"code":"3f0c0d0e-5a5e-4b53-9c8e-1c7a40d6c001"},{"system":"http://127.0.0.1:8480/security/read",'
    '"code":"8b9e7a52-0f64-4c1f-a6a5-52d3f2b7a002"},{"system":"http://127.0.0.1:8480/security/updatebody",'
    '"code":"8b9e7a52-0f64-4c1f-a6a5-52d3f2b7a002"}]}'
)
_DICTIONARY: Final = (
    '{"resourceType":"QuestionnaireResponse","status":"completed","item":[{"linkId":"","text":"","answer":[{"valueCoding":{"code":"",'
    '"system":""}},{"valueInteger":1}]}]{"resourceType":"Patient","name":[{"family":"","given":["","-"]}],"telecom":[{"system":"phone",'
    '"value":"+","use":"mobile"}],"gender":"female","birthDate":"1980-01-01"}{"resourceType":"Observation","status":"final",'
    '"code":{"coding":[{"system":"http://loinc.org","code":"718-7"}]},"valueQuantity":{"value":1.20,"unit":"g/L",'
    '"system":"http://unitsofmeasure.org","code":"g/L"},"referenceRange":[{"low":{"value":1},"high":{"value":2}}]'
    '{"resourceType":"DiagnosticReport","identifier":[{"system":"","value":""}],"status":"final","effectiveDateTime":"2024-01-01T08:00:00+00:00",'
    '"issued":"2024-01-01T08:00:00+00:00","result":[{"reference":"observation/"}],"presentedForm":[{"contentType":"application/pdf","url":"fhir/Binary/"}]'
    '{"resourceType":"Specimen","type":{"coding":[{"system":"http://127.0.0.1:8480/terminology/specimen-type","code":"1"}]},'
    '"collection":{"collectedDateTime":"2024-01-01T08:00:00+00:00","method":{"coding":[{"system":"http://127.0.0.1:8480/terminology/'
    'treatment_protocol","code":""}]}},"container":[{"identifier":[{"system":"http://codes.lab.example/labels","value":"1000000001"}],'
    '"type":{"coding":[{"system":"http://127.0.0.1:8480/terminology/specimen_type","code":""}]},"specimenQuantity":{"value":3}}],'
    '"extension":[{"url":"http://127.0.0.1:8480/extra/supportingInfo","valueString":""}]{"resourceType":"ProcedureRequest",'
    '"identifier":[{"system":"","value":""}],"requisition":{"system":"","value":""},"supportingInfo":[{"identifier":{"system":'
    '"http://codes.lab.example/contract","value":"C-100"}}],"status":"active","code":{"coding":[{"system":"http://127.0.0.1:8480/'
    'terminology/nomenclature","code":""}],"text":""},"subject":{"reference":"patient/"},"occurrenceDateTime":"2024-01-01T08:00:00+00:00",'
    '"specimen":[{"reference":"specimen/"}],"note":[{"text":""}]{"resourceType":"Task","status":"requested","intent":"order",'
    '"code":{"coding":[{"system":"http://127.0.0.1:8480/terminology/task_type","code":"OrderProcessingTask"}]},"basedOn":[{"reference":'
    '"procedurerequest/"}],"partOf":[{"reference":"task/"}],"status":"completed","status":"cancelled","output":[{"valueString":""}],"id":"'
    + _META_SAMPLE
).encode()


def compress_body(body: bytes) -> bytes:
    """Compresses a serialised resource."""
    packer = zlib.compressobj(level=2, wbits=-15, zdict=_DICTIONARY)
    return packer.compress(body) + packer.flush()


def decompress_body(packed: bytes) -> bytes:
    """Restores a serialised resource, byte for byte."""
    unpacker = zlib.decompressobj(wbits=-15, zdict=_DICTIONARY)
    return unpacker.decompress(packed) + unpacker.flush()


_SCHEMA = """
CREATE TABLE IF NOT EXISTS interned_text (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS resource (
    pk INTEGER PRIMARY KEY, type INTEGER NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, access TEXT NOT NULL,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS resource_id ON resource (id, type);
CREATE INDEX IF NOT EXISTS resource_type ON resource (type, pk);
CREATE TABLE IF NOT EXISTS history (
    pk INTEGER NOT NULL, version INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (pk, version)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS term (
    param INTEGER NOT NULL, value TEXT NOT NULL, pk INTEGER NOT NULL, PRIMARY KEY (param, value, pk)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS deleted (id TEXT NOT NULL, type TEXT NOT NULL, PRIMARY KEY (id, type)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS notification (
    number INTEGER PRIMARY KEY, receiver INTEGER NOT NULL, body BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS notification_receiver ON notification (receiver, number);
"""

_RIGHT_LETTERS = {"read": "r", "readhistory": "h", "updatebody": "u"}
_RIGHT_BY_LETTER = {letter: right for right, letter in _RIGHT_LETTERS.items()}


@dataclass(frozen=True)
class StoredResource:
    """The newest version of a stored resource."""

    pk: int
    ref: Ref
    version: int
    access: AccessRights
    body: bytes

    def etag(self) -> str:
        """The ETag header: `W/"<version>"`."""
        return f'W/"{self.version}"'


class ResourceStoreError(Exception):
    """The data file cannot be used; the text names it and says why."""


_ResourceRow = tuple[int, int, str, int, str, bytes]

Criterion = tuple[str, Sequence[str]]
"""A search parameter, and the values one of which must match."""


class ResourceStore:
    """Resources, their histories and search index, and the partners' notifications."""

    def __init__(self, path: Path | None = None, history_limit: int = 5) -> None:
        self._db = _open_database(path)
        self._history_limit = history_limit
        self._id_by_text: dict[str, int] = {}
        self._text_by_id: dict[int, str] = {}
        self._load_interned_texts()
        self._is_in_transaction = False

    def close(self) -> None:
        """Closes the store; a store in memory is lost."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits everything in the block or nothing; an inner transaction is part of the outer one."""
        if self._is_in_transaction:
            yield
            return
        self._db.execute("BEGIN IMMEDIATE")
        self._is_in_transaction = True
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            self._load_interned_texts()
            raise
        else:
            self._db.execute("COMMIT")
        finally:
            self._is_in_transaction = False

    def insert(self, ref: Ref, access: AccessRights, body: bytes, terms: Iterable[Term]) -> StoredResource:
        """Stores a new resource in version 1."""
        with self.transaction():
            cursor = self._db.execute(
                "INSERT INTO resource (type, id, version, access, body) VALUES (?, ?, 1, ?, ?)",
                (self._intern(ref.type), ref.id, self._encode_access(access), compress_body(body)),
            )
            pk = int(cursor.lastrowid or 0)
            self._add_terms(pk, ref.type, terms)
        return StoredResource(pk, ref, 1, access, body)

    def replace(
        self,
        old: StoredResource,
        version: int,
        access: AccessRights,
        body: bytes,
        *,
        removed_terms: Iterable[Term] = (),
        added_terms: Iterable[Term] = (),
    ) -> StoredResource:
        """Stores the next version, or the same one with other rights; the old version goes to the bounded history."""
        with self.transaction():
            if version != old.version and self._history_limit:
                self._db.execute("INSERT INTO history SELECT pk, version, body FROM resource WHERE pk = ?", (old.pk,))
                self._db.execute("DELETE FROM history WHERE pk = ? AND version < ?", (old.pk, version - self._history_limit))
            self._db.execute(
                "UPDATE resource SET version = ?, access = ?, body = ? WHERE pk = ?",
                (version, self._encode_access(access), compress_body(body), old.pk),
            )
            self._db.executemany(
                "DELETE FROM term WHERE param = ? AND value = ? AND pk = ?",
                [(self._param_id(old.ref.type, term.param), term.value, old.pk) for term in removed_terms],
            )
            self._add_terms(old.pk, old.ref.type, added_terms)
        return StoredResource(old.pk, old.ref, version, access, body)

    def delete(self, stored: StoredResource, terms: Iterable[Term]) -> None:
        """Deletes a resource with its history; that it existed stays known."""
        with self.transaction():
            rows = [(self._param_id(stored.ref.type, term.param), term.value, stored.pk) for term in terms]
            self._db.executemany("DELETE FROM term WHERE param = ? AND value = ? AND pk = ?", rows)
            self._db.execute("DELETE FROM history WHERE pk = ?", (stored.pk,))
            self._db.execute("DELETE FROM resource WHERE pk = ?", (stored.pk,))
            self._db.execute("INSERT OR IGNORE INTO deleted (id, type) VALUES (?, ?)", (stored.ref.id, stored.ref.type))

    def is_deleted(self, ref: Ref) -> bool:
        """Whether there was such a resource."""
        found = self._db.execute("SELECT 1 FROM deleted WHERE id = ? AND type = ?", (ref.id, ref.type)).fetchone()
        return found is not None

    def get(self, ref: Ref) -> StoredResource | None:
        """The newest version, or None."""
        row = self._db.execute(
            "SELECT pk, type, id, version, access, body FROM resource WHERE id = ? AND type = ?",
            (ref.id, self._id_by_text.get(ref.type, 0)),
        ).fetchone()
        return self._to_resource(row) if row else None

    def get_version(self, stored: StoredResource, version: int) -> bytes | None:
        """The newest version, or an earlier one that the history still has; else None."""
        if version == stored.version:
            return stored.body
        row = self._db.execute("SELECT body FROM history WHERE pk = ? AND version = ?", (stored.pk, version)).fetchone()
        return decompress_body(row[0]) if row else None

    def versions(self, stored: StoredResource) -> list[bytes]:
        """All stored versions, newest first."""
        rows = self._db.execute("SELECT body FROM history WHERE pk = ? ORDER BY version DESC", (stored.pk,))
        return [stored.body, *(decompress_body(row[0]) for row in rows)]

    def find(
        self,
        kind: str,
        criteria: Sequence[Criterion],
        is_visible: Callable[[AccessRights], bool],
        *,
        after: int = 0,
        limit: int = 50,
    ) -> list[StoredResource]:
        """Visible resources that meet all criteria, in the order of their creation, after a position."""
        found: list[StoredResource] = []
        while len(found) < limit:
            rows = self._candidates(kind, criteria, after, limit + 1)
            found += [one for one in map(self._to_resource, rows) if is_visible(one.access)]
            if len(rows) < limit + 1:
                break
            after = rows[-1][0]
        return found[:limit]

    def counts(self) -> dict[str, int]:
        """The number of resources of each type."""
        rows = self._db.execute("SELECT type, count(*) FROM resource GROUP BY type")
        return {self._text_by_id[kind]: count for kind, count in rows}

    def add_notification(self, receiver: str, body: bytes) -> int:
        """Adds a notification for a partner; returns its number, which always increases."""
        with self.transaction():
            cursor = self._db.execute(
                "INSERT INTO notification (receiver, body) VALUES (?, ?)", (self._intern(receiver), compress_body(body))
            )
            return int(cursor.lastrowid or 0)

    def notifications(self, receiver: str, after: int, limit: int) -> list[tuple[int, bytes]]:
        """A partner's notifications with a number above `after`, oldest first."""
        rows = self._db.execute(
            "SELECT number, body FROM notification WHERE receiver = ? AND number > ? ORDER BY number LIMIT ?",
            (self._id_by_text.get(receiver, 0), after, limit),
        )
        return [(int(number), decompress_body(body)) for number, body in rows]

    def _candidates(self, kind: str, criteria: Sequence[Criterion], after: int, limit: int) -> list[_ResourceRow]:
        """One page of matches. Each criterion is a range of the index in the order of creation; the first one leads the join."""
        tables, wheres, values = [], [], list[int | str]()
        for position, (param, options) in enumerate(criteria):
            name = f"t{position}"
            tables.append(f"term AS {name}")
            joined = f" AND {name}.pk = t0.pk" if position else ""
            wheres.append(f"{name}.param = ? AND {name}.value IN ({', '.join('?' * len(options))}) AND {name}.pk > ?{joined}")
            values += [self._param_id(kind, param), *options, after]
        order = "t0.pk" if criteria else "r.pk"
        wheres.append("r.pk = t0.pk" if criteria else "r.type = ? AND r.pk > ?")
        values += [] if criteria else [self._id_by_text.get(kind, 0), after]
        distinct = "DISTINCT" if any(len(options) > 1 for _, options in criteria) else ""
        sql = (
            f"SELECT {distinct} r.pk, r.type, r.id, r.version, r.access, r.body "  # noqa: S608 - all names in it are constants
            f"FROM {' CROSS JOIN '.join([*tables, 'resource AS r'])} WHERE {' AND '.join(wheres)} ORDER BY {order} LIMIT ?"
        )
        return self._db.execute(sql, [*values, limit]).fetchall()

    def _to_resource(self, row: _ResourceRow) -> StoredResource:
        pk, kind, id_, version, access, body = row
        return StoredResource(pk, Ref(self._text_by_id[kind], id_), version, self._decode_access(access), decompress_body(body))

    def _add_terms(self, pk: int, kind: str, terms: Iterable[Term]) -> None:
        rows = [(self._param_id(kind, term.param), term.value, pk) for term in terms]
        self._db.executemany("INSERT OR IGNORE INTO term (param, value, pk) VALUES (?, ?, ?)", rows)

    def _param_id(self, kind: str, param: str) -> int:
        return self._intern(f"{kind}.{param}")

    def _intern(self, text: str) -> int:
        if text not in self._id_by_text:
            number = int(self._db.execute("INSERT INTO interned_text (text) VALUES (?)", (text,)).lastrowid or 0)
            self._id_by_text[text], self._text_by_id[number] = number, text
        return self._id_by_text[text]

    def _load_interned_texts(self) -> None:
        self._text_by_id = {int(id_): str(text) for id_, text in self._db.execute("SELECT id, text FROM interned_text")}
        self._id_by_text = {text: id_ for id_, text in self._text_by_id.items()}

    def _encode_access(self, access: AccessRights) -> str:
        grants = sorted((_RIGHT_LETTERS[right], self._intern(guid)) for right, guid in access.grants)
        return ",".join([str(self._intern(access.owner)), *(f"{letter}{id_}" for letter, id_ in grants)])

    def _decode_access(self, text: str) -> AccessRights:
        owner, *grants = text.split(",")
        return AccessRights(
            self._text_by_id[int(owner)], frozenset((_RIGHT_BY_LETTER[one[0]], self._text_by_id[int(one[1:])]) for one in grants)
        )


def _open_database(path: Path | None) -> sqlite3.Connection:
    try:
        db = sqlite3.connect(":memory:" if path is None else str(path), isolation_level=None, check_same_thread=False)
        db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + _SCHEMA)
    except sqlite3.Error as exc:
        raise ResourceStoreError(f"data: {path} cannot be used: {exc}") from exc
    return db
