"""What the program looks at again and again in the store, for as long as it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from lab_agent.errors import StoreError
from lab_agent.logs import get_logger

_log = get_logger(__name__)


async def repeat(work: Callable[[], Awaitable[object]], interval: float, subject: str) -> None:
    """Look every so many seconds. A store that is away is said once, and once that it is back; any other error ends it.

    `what` names, in the log, what cannot be looked at.
    """
    away = False
    while True:
        await asyncio.sleep(interval)
        try:
            await work()
        except StoreError as exc:
            if not away:
                _log.warning(f"the store is away; {subject} stays as it is", action="store.unavailable", reason=str(exc))
            away = True
        else:
            if away:
                _log.info(f"the store is back; {subject} is looked at again", action="store.restored")
            away = False
