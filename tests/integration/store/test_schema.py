"""The schema: made, brought up to date, and named clearly when it is another."""

from __future__ import annotations

import stat
import uuid
from itertools import product
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

from lab_agent.shared.errors import SchemaMismatchError, StoreError, StoreUnreachableError
from lab_agent.store import table_base
from lab_agent.store.engine import create_file, parse_url, sqlite_file
from lab_agent.store.error_translation import translate_errors
from lab_agent.store.schema import check_schema, upgrade
from lab_agent.store.unit_of_work import Store
from tests.harness.schemas import TEXT_INDEX, closing_engine


def _run(url, statement):
    with closing_engine(url) as engine, translate_errors(), engine.begin() as connection:
        result = connection.execute(text(statement))
        return result.all() if result.returns_rows else []


def test_upgrade_creates_schema_and_is_repeatable(url):
    with pytest.raises(SchemaMismatchError, match="run `lab-agent db upgrade`"):
        check_schema(url)
    upgrade(url)
    instance = _run(url, "SELECT value FROM key_values WHERE key = 'instance'")
    upgrade(url)
    check_schema(url)
    assert _run(url, "SELECT value FROM key_values WHERE key = 'instance'") == instance


def _is_declared(name, kind, parents):
    """Indexes of text and of an expression are known to their database alone."""
    return not (name or "").startswith((TEXT_INDEX, "ix_order_search_grams"))


def test_migrations_and_tables_agree(url):
    upgrade(url)
    with closing_engine(url) as engine, engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "include_name": _is_declared})
        differences = compare_metadata(context, table_base.METADATA)
    assert differences == []
    wanted = {index.name for table in table_base.METADATA.tables.values() for index in table.indexes if index.dialect_kwargs}
    listed = "SELECT name FROM sqlite_master WHERE type = 'index' AND sql LIKE '% WHERE %'"
    if url.startswith("postgresql"):
        listed = "SELECT indexname FROM pg_indexes WHERE schemaname = 'public' AND indexdef LIKE '% WHERE %'"
    assert {name for (name,) in _run(url, listed)} == wanted


def test_database_of_another_schema_is_rejected(url):
    """A newer one, one without a schema, and one that an upgrade does not fit: it leaves nothing."""
    upgrade(url)
    _run(url, "UPDATE alembic_version SET version_num = '9999'")
    for act in (check_schema, upgrade):
        with pytest.raises(SchemaMismatchError, match=r"has schema 9999, which this program .* install the newer program"):
            act(url)
    _run(url, "DELETE FROM alembic_version")
    with pytest.raises(SchemaMismatchError, match="empty"):
        check_schema(url)
    _run(url, "DROP TABLE alerts")
    with pytest.raises(StoreError):
        upgrade(url)
    with pytest.raises(SchemaMismatchError):
        _run(url, "SELECT * FROM alerts")


async def test_store_on_empty_database_says_so(url, cipher):
    if file := sqlite_file(url):
        create_file(file)
    store = Store(url, cipher)
    with pytest.raises(SchemaMismatchError):
        await store.transact(lambda uow: uow.key_values.get("a"))
    await store.close()


def test_path_may_contain_any_characters(tmp_path):
    """The file is for its owner alone."""
    path = tmp_path / "ж %41?#&" / "lab.db"
    address = parse_url("sqlite:///x").set(database=str(path)).render_as_string()
    upgrade(address)
    check_schema(address)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_unsupported_database_urls_are_rejected(cipher):
    urls = ("", "nonsense", "mysql://a/b", "sqlite://", "sqlite:///:memory:")
    for url, act in product(urls, (upgrade, check_schema, lambda url: Store(url, cipher))):
        with pytest.raises(StoreError, match=r"sqlite:///path/to/file\.db"):
            act(url)


def test_every_postgresql_url_spelling_is_accepted():
    for scheme in ("postgres", "postgresql", "postgresql+psycopg", "postgresql+psycopg2"):
        assert parse_url(f"{scheme}://u:p@h/d").drivername == "postgresql+psycopg"


def test_unreachable_server_is_reported():
    url = "postgresql://nobody:secret@127.0.0.1:1/lab"
    for act in (upgrade, check_schema):
        with pytest.raises(StoreUnreachableError, match="is unavailable") as caught:
            act(url)
        assert "secret" not in str(caught.value)


def test_postgresql_without_database_encoding_works(postgres_server):
    """`initdb` in the locale C makes such a database, and psycopg would give bytes for text."""
    name = f"t{uuid.uuid4().hex}"
    url = postgres_server.replace("/postgres?", f"/{name}?")
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE \"{name}\" ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
        try:
            upgrade(url)
            check_schema(url)
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def test_upgrade_creates_nothing_beside_the_log_of_a_lost_database(tmp_path: Path) -> None:
    """A new database would unlink the write-ahead log, with all that was committed since the last checkpoint."""
    (tmp_path / "lab.db-wal").write_bytes(b"committed")
    with pytest.raises(StoreUnreachableError, match="move it back"):
        upgrade(f"sqlite:///{tmp_path / 'lab.db'}")
    assert not (tmp_path / "lab.db").exists()
    assert (tmp_path / "lab.db-wal").read_bytes() == b"committed"
