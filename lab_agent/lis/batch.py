"""Takes waiting items, one by one or in groups: a bad item does not stop the others (law 9), and is reported at the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import takewhile
from typing import TypeVar

from lab_agent.shared.errors import LabAgentError, LisUnavailable, StoreError

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
        new += await _take(one, take, failures, stop_on)
    _report(failures, description)
    return new


async def take_together(
    waiting: Sequence[T],
    take_first: Callable[[Sequence[T]], Awaitable[tuple[int, int]]],
    take: Callable[[T], Awaitable[int]],
    description: str,
    *,
    size: int,
    alone: Callable[[T], bool] = lambda _: False,
    stop_on: tuple[type[Exception], ...] = (),
) -> int:
    """Take the `waiting` items in groups of at most `size`, in their order; where a group fails, its items are taken by `take`.

    So are those that go `alone`. `take_first` takes the first ones of a group, at least one; it gives how many it took, and how
    many of them were new messages.
    Returns and raises as `take_each`; a group that fails with an error of the types `stop_on` ends the round, too.
    """
    new, begin = 0, 0
    failures: list[Exception] = []
    while group := _next_group(waiting[begin : begin + size], alone):
        try:
            taken, of_them_new = (
                await take_first(group) if len(group) > 1 else (1, await _take(group[0], take, failures, stop_on))
            )
        except stop_on:
            raise
        except Exception:  # noqa: BLE001 — which item is bad is found by taking them one by one, and reported then
            taken, of_them_new = len(group), sum([await _take(one, take, failures, stop_on) for one in group])
        begin, new = begin + taken, new + of_them_new
    _report(failures, description)
    return new


def _next_group(waiting: Sequence[T], alone: Callable[[T], bool]) -> Sequence[T]:
    return tuple(takewhile(lambda one: not alone(one), waiting)) or waiting[:1]


async def _take(
    one: T, take: Callable[[T], Awaitable[int]], failures: list[Exception], stop_on: tuple[type[Exception], ...] = ()
) -> int:
    try:
        return await take(one)
    except stop_on:
        raise
    except Exception as exc:  # noqa: BLE001 — one bad item must not stop the others (law 9); reported at the end
        failures.append(exc)
        return 0


def _report(failures: Sequence[Exception], description: str) -> None:
    if failures and all(isinstance(failure, StoreError) for failure in failures):
        raise failures[0]  # nothing is wrong with the items: our own store is unavailable
    if failures:
        why = failures[0] if isinstance(failures[0], LabAgentError) else type(failures[0]).__name__
        raise LisUnavailable(f"{len(failures)} {description} could not be taken and will be retried: {why}") from failures[0]
