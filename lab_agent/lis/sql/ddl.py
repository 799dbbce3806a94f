"""The statements that make the staging tables, in the dialect of a database, for whoever runs it to read first."""

from __future__ import annotations

from sqlalchemy.dialects import registry
from sqlalchemy.engine import Dialect, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.schema import CreateIndex, CreateTable

from lab_agent.errors import Problem, SettingsError
from lab_agent.lis.sql.tables import make_tables

DIALECTS = ("postgresql", "mysql", "mssql", "oracle", "sqlite")
"""Dialects that come with SQLAlchemy; others by their own packages."""


def create_statements(dialect: str, prefix: str, schema: str | None = None) -> str:
    """Give the statements, each ending in a semicolon. Raises `SettingsError` for a dialect that is not installed."""
    spoken = _load_dialect(dialect)
    tables = make_tables(prefix, schema).metadata.sorted_tables
    statements = [str(CreateTable(table).compile(dialect=spoken)).strip() for table in tables]
    indexes = sorted((index for table in tables for index in table.indexes), key=lambda index: str(index.name))
    statements += [str(CreateIndex(index).compile(dialect=spoken)).strip() for index in indexes]
    return "".join(f"{statement};\n\n" for statement in statements).rstrip() + "\n"


def dialect_name(url: str) -> str:
    """Give the dialect that an address names. Raises `SettingsError`."""
    try:
        return make_url(url).get_backend_name()
    except ArgumentError as exc:
        raise SettingsError((Problem("url", "is no database address", "write dialect+driver://user@host/database"),)) from exc


def _load_dialect(name: str) -> Dialect:
    try:
        made: Dialect = registry.load({"mariadb": "mysql"}.get(name, name))()
    except NoSuchModuleError as exc:
        problem = Problem("dialect", f"there is no dialect {name}", f"take one of {', '.join(DIALECTS)}")
        raise SettingsError((problem,)) from exc
    return made
