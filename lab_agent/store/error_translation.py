"""The rim: every error of the database libraries becomes one of ours, in one place, without parameters or rows in its words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from lab_agent.errors import AlreadyExistsError, LabAgentError, SchemaMismatchError, StoreError, StoreUnreachableError

_TRANSIENT_SQLSTATES = ("08", "40", "53", "55", "57", "58")
"""Classes of SQLSTATE that pass: connection, rollback (deadlock), resources, locks, shutdown, system."""
_SCHEMA_SQLSTATES = ("42P01", "42703", "3F000")
_SQLITE_UNREACHABLE = {
    "SQLITE_BUSY": "it is locked by another program for too long",
    "SQLITE_LOCKED": "it is locked by another program for too long",
    "SQLITE_CANTOPEN": "its file cannot be opened; does it exist, and may we read and write it and its folder?",
    "SQLITE_READONLY": "its file or folder is read-only",
    "SQLITE_IOERR": "its disk reports an error",
    "SQLITE_FULL": "its disk is full",
    "SQLITE_PERM": "its file may not be opened by this user",
}


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise what went wrong in our words: away for now, known already, another schema, or something else."""
    try:
        yield
    except exc.SQLAlchemyError as error:
        raise to_store_error(error) from error


def to_store_error(error: exc.SQLAlchemyError) -> LabAgentError:
    """Give our error for one of the database libraries'."""
    cause = getattr(error, "orig", None)
    if isinstance(cause, LabAgentError):
        return cause
    if isinstance(error, exc.IntegrityError):
        return _from_constraint_violation(str(cause), getattr(cause, "sqlstate", None))
    if isinstance(error, exc.TimeoutError):
        return StoreUnreachableError("The database cannot be reached: no connection became free in time; nothing was written.")
    if isinstance(error, exc.DBAPIError):
        return _from_driver_error(error, cause)
    return StoreError(f"The store could not do what was asked ({type(error).__name__}); nothing was written.")


def _from_driver_error(error: exc.DBAPIError, cause: BaseException | None) -> StoreError:
    name = getattr(cause, "sqlite_errorname", None)
    if isinstance(name, str):
        return _from_sqlite_error(name, str(cause))
    state = getattr(cause, "sqlstate", None)
    if state in _SCHEMA_SQLSTATES:
        return SchemaMismatchError()
    if isinstance(state, str) and not error.connection_invalidated and not state.startswith(_TRANSIENT_SQLSTATES):
        return StoreError(f"The store could not do what was asked (SQLSTATE {state}); nothing was written.")
    if isinstance(state, str) or error.connection_invalidated or isinstance(error, exc.OperationalError | exc.InterfaceError):
        why = f"SQLSTATE {state}" if state else "no connection; is it running, and are address, user and password right?"
        return StoreUnreachableError(f"The database cannot be reached, or is busy ({why}); nothing was written.")
    return StoreError(f"The store could not do what was asked ({type(cause).__name__}); nothing was written.")


def _from_sqlite_error(name: str, message: str) -> StoreError:
    if message.startswith(("no such table", "no such column")) or " has no column named " in message:
        return SchemaMismatchError()
    for start, why in _SQLITE_UNREACHABLE.items():
        if name.startswith(start):
            return StoreUnreachableError(f"The database cannot be reached: {why}; nothing was written.")
    if name in {"SQLITE_NOTADB", "SQLITE_CORRUPT"}:
        return StoreError("The database file is damaged, or is no database of ours; put back a backup.")
    return StoreError(f"The store could not do what was asked ({name}); nothing was written.")


def _from_constraint_violation(message: str, state: str | None) -> StoreError:
    if state == "23505" or message.startswith("UNIQUE"):
        return AlreadyExistsError()
    return StoreError("What was to be written belongs to something that the store does not know; nothing was written.")
