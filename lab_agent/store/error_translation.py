"""Every error of the database libraries becomes one of ours here, without parameters or rows in its text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from lab_agent.errors import AlreadyExistsError, LabAgentError, SchemaMismatchError, StoreError, StoreUnreachableError

_TRANSIENT_SQLSTATES = ("08", "40", "53", "55", "57", "58")
"""Classes of SQLSTATE that are temporary: connection, rollback (deadlock), resources, locks, shutdown, system."""
_SCHEMA_SQLSTATES = ("42P01", "42703", "3F000")
_SQLITE_UNREACHABLE = {
    "SQLITE_BUSY": "it was locked by another program for too long",
    "SQLITE_LOCKED": "it was locked by another program for too long",
    "SQLITE_CANTOPEN": "its file cannot be opened; check that it exists and that it and its folder can be read and written",
    "SQLITE_READONLY": "its file or folder is read-only",
    "SQLITE_IOERR": "its disk reports an error",
    "SQLITE_FULL": "its disk is full",
    "SQLITE_PERM": "its file may not be opened by this user",
}


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise errors of the database libraries as ours: unreachable, already there, other schema, or anything else."""
    try:
        yield
    except exc.SQLAlchemyError as error:
        raise to_store_error(error) from error


def to_store_error(error: exc.SQLAlchemyError) -> LabAgentError:
    """Give our error for one of the database libraries."""
    cause = getattr(error, "orig", None)
    if isinstance(cause, LabAgentError):
        return cause
    if isinstance(error, exc.IntegrityError):
        return _from_constraint_violation(str(cause), getattr(cause, "sqlstate", None))
    if isinstance(error, exc.TimeoutError):
        return StoreUnreachableError("The database is unavailable: no connection became free in time; nothing was written.")
    if isinstance(error, exc.DBAPIError):
        return _from_driver_error(error, cause)
    return StoreError(f"The store operation failed ({type(error).__name__}); nothing was written.")


def _from_driver_error(error: exc.DBAPIError, cause: BaseException | None) -> StoreError:
    name = getattr(cause, "sqlite_errorname", None)
    if isinstance(name, str):
        return _from_sqlite_error(name, str(cause))
    state = getattr(cause, "sqlstate", None)
    if state in _SCHEMA_SQLSTATES:
        return SchemaMismatchError()
    if isinstance(state, str) and not error.connection_invalidated and not state.startswith(_TRANSIENT_SQLSTATES):
        return StoreError(f"The store operation failed (SQLSTATE {state}); nothing was written.")
    if isinstance(state, str) or error.connection_invalidated or isinstance(error, exc.OperationalError | exc.InterfaceError):
        why = f"SQLSTATE {state}" if state else "no connection; check that it runs, and its address, user and password"
        return StoreUnreachableError(f"The database is unavailable ({why}); nothing was written.")
    return StoreError(f"The store operation failed ({type(cause).__name__}); nothing was written.")


def _from_sqlite_error(name: str, message: str) -> StoreError:
    if message.startswith(("no such table", "no such column")) or " has no column named " in message:
        return SchemaMismatchError()
    for start, why in _SQLITE_UNREACHABLE.items():
        if name.startswith(start):
            return StoreUnreachableError(f"The database is unavailable: {why}; nothing was written.")
    if name in {"SQLITE_NOTADB", "SQLITE_CORRUPT"}:
        return StoreError("The database file is damaged, or not a database of this program; restore a backup.")
    return StoreError(f"The store operation failed ({name}); nothing was written.")


def _from_constraint_violation(message: str, state: str | None) -> StoreError:
    if state == "23505" or message.startswith("UNIQUE"):
        return AlreadyExistsError()
    return StoreError("The record refers to one that does not exist; nothing was written.")
