"""Opening the store as the settings say: its schema checked first, its ciphers from the keys in them."""

from __future__ import annotations

from lab_agent.crypto import Cipher
from lab_agent.settings.groups import StoreSettings
from lab_agent.store.engine import sqlite_file
from lab_agent.store.schema import check_schema
from lab_agent.store.store_mark import FileMark
from lab_agent.store.unit_of_work import SqlStore


def open_store(settings: StoreSettings) -> SqlStore:
    """Open the store. Raises `SchemaMismatchError` if the schema is not this program's, `CryptoError`, `StoreError`."""
    check_schema(settings.url)
    return SqlStore(settings.url, build_cipher(settings))


def open_mark(settings: StoreSettings) -> FileMark | None:
    """Open the mark that shows whether the database was restored; None where there is no place for it."""
    if settings.mark is not None:
        return FileMark(settings.mark)
    file = sqlite_file(settings.url)
    return None if file is None else FileMark(file.with_name(f"{file.name}.mark"))


def build_cipher(settings: StoreSettings) -> Cipher:
    """Build the cipher of what must not be readable in the database."""
    return Cipher(*(key.get_secret_value() for key in settings.encryption_keys))
