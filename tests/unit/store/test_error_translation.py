"""What PostgreSQL says becomes the fault that it is, whether or not the driver has noticed that the connection is gone."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.errors import lookup
from sqlalchemy import exc

from lab_agent.shared.errors import SchemaMismatchError, StoreConflictError, StoreError, StoreFault, StoreUnreachableError
from lab_agent.store.error_translation import to_store_error


def _translate(state: str, *, is_gone: bool) -> Exception:
    """As SQLAlchemy would raise it, of the driver's own class for this SQLSTATE."""
    error = exc.DBAPIError.instance("SELECT 1", None, lookup(state)(), psycopg.Error, connection_invalidated=is_gone)
    assert isinstance(error, exc.DBAPIError)
    return to_store_error(error)


@pytest.mark.parametrize("is_gone", [True, False])
@pytest.mark.parametrize(
    ("state", "fault"),
    [
        ("08006", StoreFault.UNREACHABLE),
        ("25006", StoreFault.READ_ONLY),
        ("25P03", StoreFault.UNREACHABLE),
        ("25P04", StoreFault.UNREACHABLE),
        ("53100", StoreFault.DISK_FULL),
        ("53300", StoreFault.UNREACHABLE),
        ("55P03", StoreFault.LOCKED),
        ("57P01", StoreFault.UNREACHABLE),
        ("57P05", StoreFault.UNREACHABLE),
        ("58030", StoreFault.UNREACHABLE),
        ("XX001", StoreFault.DAMAGED),
    ],
)
def test_sqlstate_of_the_server_is_its_fault(state: str, fault: StoreFault, is_gone: bool) -> None:
    error = _translate(state, is_gone=is_gone)
    assert isinstance(error, StoreUnreachableError)
    assert error.fault is fault


@pytest.mark.parametrize(
    ("error", "states"),
    [
        (StoreConflictError, ("40001", "40P01")),
        (SchemaMismatchError, ("42P01", "42703")),
        (StoreError, ("22001", "25001", "42601")),  # a fault of a statement is no outage
    ],
)
def test_sqlstate_of_a_statement_is_its_error(error: type[StoreError], states: tuple[str, ...]) -> None:
    for state in states:
        assert type(_translate(state, is_gone=False)) is error, state
