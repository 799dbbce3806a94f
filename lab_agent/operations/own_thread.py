"""Calls that may never return: of the operating system, about a file system whose server is gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def in_own_thread(call: Callable[[], T]) -> T:
    """Run `call` in a thread that takes no place of a pool, and that the end of the process does not wait for."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]  # what `call` has returned

    def run() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as exc:  # noqa: BLE001 - whatever it is, the caller gets it
            error = exc
        with suppress(RuntimeError):  # the loop has ended, and nobody waits in it any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="probe", daemon=True).start()
    return await answer
