"""The error of a task of asyncio that has ended."""

from __future__ import annotations

import asyncio
from typing import Any


def retrieve_error(task: asyncio.Future[Any]) -> BaseException | None:
    """What a task that has ended by itself failed with; None where it succeeded or was cancelled.

    asyncio logs the error of a task that nobody has asked for: `add_done_callback(retrieve_error)` is for where nobody may ask.
    """
    return None if task.cancelled() else task.exception()
