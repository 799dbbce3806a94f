"""Every error of the database libraries becomes one of ours here, without parameters or rows in its text."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from lab_agent.shared.errors import (
    AlreadyExistsError,
    LabAgentError,
    SchemaMismatchError,
    StoreConflictError,
    StoreError,
    StoreFault,
    StoreUnreachableError,
)

_TRANSIENT_SQLSTATES = ("08", "53", "55", "57", "58")
"""Classes of SQLSTATE that are temporary: connection, resources, locks, shutdown, system."""
_TIMED_OUT_SQLSTATES = ("25P03", "25P04")
"""The server has ended the connection, whose transaction stood still or took too long; the driver may not have noticed yet."""
_CONFLICT_SQLSTATES = ("40",)
"""Rollback: a deadlock, say."""
_SCHEMA_SQLSTATES = ("42P01", "42703", "3F000")
_DISK_FULL_SQLSTATE, _READ_ONLY_SQLSTATE = "53100", "25006"
_DAMAGED_SQLSTATES = ("XX001", "XX002")
_LOCKED_SQLSTATE = "55P03"
_NO_CONNECTION = "no connection; check that it runs, and its address, user and password"
_NO_ANSWER = "its server does not answer; check that it runs, and the way to it"
_SQLITE_FAULTS = {
    "SQLITE_BUSY": (StoreFault.LOCKED, "it was locked by another program for too long"),
    "SQLITE_LOCKED": (StoreFault.LOCKED, "it was locked by another program for too long"),
    "SQLITE_PROTOCOL": (StoreFault.LOCKED, "it was locked by another program for too long"),
    "SQLITE_CANTOPEN": (
        StoreFault.UNREACHABLE,
        "its file cannot be opened; check that it exists and that it and its folder can be read and written",
    ),
    "SQLITE_READONLY": (StoreFault.READ_ONLY, "its file or folder is read-only"),
    "SQLITE_IOERR": (StoreFault.UNREACHABLE, "its disk reports an error"),
    "SQLITE_FULL": (StoreFault.DISK_FULL, "its disk is full"),
    "SQLITE_PERM": (StoreFault.READ_ONLY, "its file may not be opened by this user"),
    "SQLITE_NOTADB": (StoreFault.DAMAGED, "its file is damaged, or not a database of this program; restore a backup"),
    "SQLITE_CORRUPT": (StoreFault.DAMAGED, "its file is damaged, or not a database of this program; restore a backup"),
}
"""What SQLite's error codes mean, by how their names begin."""
_ERRNO_FAULTS = {
    errno.ENOSPC: StoreFault.DISK_FULL,
    errno.EDQUOT: StoreFault.DISK_FULL,
    errno.EROFS: StoreFault.READ_ONLY,
    errno.EACCES: StoreFault.READ_ONLY,
    errno.EPERM: StoreFault.READ_ONLY,
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
    if isinstance(error, exc.PendingRollbackError):
        return StoreUnreachableError("The database is unavailable: its connection was lost before; nothing was written.")
    if isinstance(error, exc.TimeoutError):
        return StoreUnreachableError("The database is unavailable: no connection became free in time; nothing was written.")
    if isinstance(error, exc.DBAPIError):
        return _from_driver_error(error, cause)
    return StoreError(f"The store operation failed ({type(error).__name__}); nothing was written.")


def from_os_error(error: OSError, what: str) -> StoreUnreachableError:
    """Give our error for one of the operating system about a file of the database; `what` says what cannot be done."""
    return StoreUnreachableError(f"{what}: {error.strerror}.", _ERRNO_FAULTS.get(error.errno or 0))


def _from_driver_error(error: exc.DBAPIError, cause: BaseException | None) -> StoreError:
    name = getattr(cause, "sqlite_errorname", None)
    if isinstance(name, str):
        return _from_sqlite_error(name, str(cause))
    state = getattr(cause, "sqlstate", None)
    if state in _SCHEMA_SQLSTATES:
        return SchemaMismatchError()
    if isinstance(state, str) and state.startswith(_CONFLICT_SQLSTATES):
        return StoreConflictError(f"Two transactions were in each other's way (SQLSTATE {state}); nothing was written.")
    fault = _sqlstate_fault(state) if isinstance(state, str) else None
    if isinstance(state, str) and fault is None and not error.connection_invalidated:
        return StoreError(f"The store operation failed (SQLSTATE {state}); nothing was written.")
    if isinstance(state, str) or error.connection_invalidated or isinstance(error, exc.OperationalError | exc.InterfaceError):
        why = f"SQLSTATE {state}" if state else _NO_ANSWER if type(cause).__name__ == "ConnectionTimeout" else _NO_CONNECTION
        return StoreUnreachableError(f"The database is unavailable ({why}); nothing was written.", fault)
    return StoreError(f"The store operation failed ({type(cause).__name__}); nothing was written.")


def _sqlstate_fault(state: str) -> StoreFault | None:
    """What is wrong with a PostgreSQL database; None where the fault is in what was asked."""
    if state == _DISK_FULL_SQLSTATE:
        return StoreFault.DISK_FULL
    if state == _READ_ONLY_SQLSTATE:  # a standby, or a database that was set to read-only
        return StoreFault.READ_ONLY
    if state in _DAMAGED_SQLSTATES:
        return StoreFault.DAMAGED
    if state == _LOCKED_SQLSTATE:
        return StoreFault.LOCKED
    return StoreFault.UNREACHABLE if state.startswith(_TRANSIENT_SQLSTATES) or state in _TIMED_OUT_SQLSTATES else None


def _from_sqlite_error(name: str, message: str) -> StoreError:
    if message.startswith(("no such table", "no such column")) or " has no column named " in message:
        return SchemaMismatchError()
    for start, (fault, why) in _SQLITE_FAULTS.items():
        if name.startswith(start):
            return StoreUnreachableError(f"The database is unavailable: {why}; nothing was written.", fault)
    return StoreError(f"The store operation failed ({name}); nothing was written.")


def _from_constraint_violation(message: str, state: str | None) -> StoreError:
    if state == "23505" or message.startswith("UNIQUE"):
        return AlreadyExistsError()
    return StoreError("The record refers to one that does not exist; nothing was written.")
