"""Opening the store as the settings say: its schema checked first, its ciphers from the keys in them."""

from __future__ import annotations

from lab_agent.crypto import Cipher
from lab_agent.settings.groups import StoreSettings
from lab_agent.store.schema import check_schema
from lab_agent.store.unit_of_work import SqlStore


def open_store(settings: StoreSettings, *, patience: float | None = None) -> SqlStore:
    """Open the store; who writes waits for a lock for `patience` seconds, where that is not the usual time.

    Raises `SchemaMismatchError` if the schema is not this program's, `CryptoError`, `StoreError`.
    """
    check_schema(settings.url)
    return SqlStore(settings.url, build_cipher(settings), patience=patience)


def build_cipher(settings: StoreSettings) -> Cipher:
    """Build the cipher of what must not be readable in the database."""
    return Cipher(*(key.get_secret_value() for key in settings.encryption_keys))
