"""Run by Alembic: the migrations, on the connection that `lab_agent.store.schema` opened."""

from alembic import context

from lab_agent.catalogue import catalogue_tables
from lab_agent.queue import workers
from lab_agent.results import refused_message_repository
from lab_agent.store import api_refusals, audit_tables, notification_tables, page_tables, search_tables, tables, vault_tables
from lab_agent.store.table_base import METADATA

# Imported to declare their tables in METADATA.
__all__ = [
    "api_refusals",
    "audit_tables",
    "catalogue_tables",
    "notification_tables",
    "page_tables",
    "refused_message_repository",
    "search_tables",
    "tables",
    "vault_tables",
    "workers",
]

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
