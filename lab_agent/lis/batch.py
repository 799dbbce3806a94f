"""Takes waiting items one by one: a bad item does not stop the others (law 9) and is reported at the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from lab_agent.errors import LabAgentError, LisUnavailable, StoreError

T = TypeVar("T")


async def take_each(
    waiting: Iterable[T],
    take: Callable[[T], Awaitable[int]],
    description: str,
    *,
    stop_on: tuple[type[Exception], ...] = (),
) -> int:
    """Take each of the `waiting` items (`description` names them for people); returns the number of new messages.

    An item that cannot be taken now stays where it is: `LisUnavailable` reports it once the others are done, or the `StoreError`
    itself if only our own store failed. Errors of the types `stop_on` end the round at once.
    """
    new = 0
    failures: list[Exception] = []
    for one in waiting:
        try:
            new += await take(one)
        except stop_on:
            raise
        except Exception as exc:  # noqa: BLE001 — one bad item must not stop the others (law 9); reported below
            failures.append(exc)
    if failures and all(isinstance(failure, StoreError) for failure in failures):
        raise failures[0]  # nothing is wrong with the items: our own store is unavailable
    if failures:
        why = failures[0] if isinstance(failures[0], LabAgentError) else type(failures[0]).__name__
        raise LisUnavailable(f"{len(failures)} {description} could not be taken and will be retried: {why}") from failures[0]
    return new
