"""Opening the store as the settings say: its schema checked first, its ciphers from the keys in them."""

from __future__ import annotations

from lab_agent.settings.groups import StoreSettings
from lab_agent.store.audit_mark import open_audit_mark
from lab_agent.store.audit_records import AuditOrigin
from lab_agent.store.crypto import Cipher
from lab_agent.store.program_records import SchemaVersions
from lab_agent.store.schema import check_schema
from lab_agent.store.unit_of_work import Store


def open_store(
    settings: StoreSettings,
    *,
    patience: float | None = None,
    origin: AuditOrigin | None = None,
    marked_as: StoreSettings | None = None,
) -> Store:
    """Open the store; who writes waits for a lock for `patience` seconds, where that is not the usual time.

    `origin` says in the audit who runs this process; by default it is a command of this user of the operating system.
    `marked_as`: whose mark of the audit it has, where it is a copy that is to take that one's place.
    Raises `SchemaMismatchError` if this program cannot work on its schema, `CryptoError`, `StoreError`.
    """
    schema = check_schema(settings.url)
    if schema.is_newer:
        _log_newer(schema)
    return Store(
        settings.url, build_cipher(settings), patience=patience, origin=origin, audit_mark=open_audit_mark(marked_as or settings)
    )


def build_cipher(settings: StoreSettings) -> Cipher:
    """Build the cipher of what must not be readable in the database."""
    return Cipher(*(key.get_secret_value() for key in settings.encryption_keys))


def _log_newer(schema: SchemaVersions) -> None:
    import structlog  # noqa: PLC0415 - commands open the store too, and have no use for it

    log = structlog.get_logger(__name__)
    what = "the database has a newer schema, which serves this program too"
    reason = f"the database has {schema.database}, this program {schema.program}"
    log.info(what, action="schema_newer", reason=reason)
