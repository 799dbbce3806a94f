"""Take what waits one after the other: a bad one stops none of the others (law 9), and is told of at the end."""

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
    """Take each of `waiting` (`what` names them for people); the number of new messages.

    What cannot be taken now stays, and `LisUnavailable` tells of it when the others are through; a `StoreError` where our own
    store is all that failed. Errors of the types `at_once` end the round where they come.
    """
    new = 0
    failures: list[Exception] = []
    for one in waiting:
        try:
            new += await take(one)
        except stop_on:
            raise
        except Exception as exc:  # noqa: BLE001 — one bad one must not stop the good ones (law 9); told of below
            failures.append(exc)
    if failures and all(isinstance(failure, StoreError) for failure in failures):
        raise failures[0]  # nothing is wrong with what waits: our own store is away
    if failures:
        why = failures[0] if isinstance(failures[0], LabAgentError) else type(failures[0]).__name__
        raise LisUnavailable(f"{len(failures)} {description} could not be taken, and stay: {why}") from failures[0]
    return new
