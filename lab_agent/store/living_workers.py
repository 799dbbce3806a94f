"""Workers on a database that live: PostgreSQL has no lock of one agent, so their heartbeats tell.

Everything here blocks: call it in a thread.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import inspect, select

from lab_agent.queue.workers import workers
from lab_agent.shared.errors import StoreFault, StoreUnreachableError
from lab_agent.store.engine import open_reading_engine
from lab_agent.store.error_translation import translate_errors


def reject_living_workers(url: str, now: datetime, stale_after: timedelta) -> None:
    """Raise `StoreUnreachableError` if a worker has a heartbeat no older than that; a database without tables has none."""
    engine = open_reading_engine(url, connections=1)
    is_fresh = workers.c.beat_at.between(now - stale_after, now + stale_after)
    living = select(workers.c.host, workers.c.pid, workers.c.beat_at).where(workers.c.stopped_at.is_(None), is_fresh)
    try:
        with translate_errors(), engine.connect() as connection:
            found = connection.execute(living).all() if inspect(connection).has_table(workers.name) else ()
    finally:
        engine.dispose()
    if found:
        names = "; ".join(f"host {host}, process {pid}, heartbeat of {beat_at:%H:%M:%S} UTC" for host, pid, beat_at in found)
        wait = f"Stop it; after one that was killed, wait {stale_after.total_seconds():.0f} seconds."
        raise StoreUnreachableError(f"An agent works on the database: {names}. {wait}", StoreFault.SECOND_AGENT)
