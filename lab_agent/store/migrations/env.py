"""Run by Alembic: the migrations, on the connection that `lab_agent.store.schema` opened."""

from alembic import context

from lab_agent.store import catalogue_tables as _catalogue_tables  # noqa: F401 - declares its tables in METADATA
from lab_agent.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
