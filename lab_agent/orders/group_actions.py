"""What a person decides about all that waits for one cause, at once: what it will do, and doing it in portions.

Each member is recorded in its timeline as if it had been decided alone, with who did it and why. A portion is one unit of work;
where one of its members cannot be changed, each is done alone, so that a bad one stops no other (law 9). After a crash the same
is simply done once more: what is done already is not done again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from lab_agent.shared.errors import LabAgentError, StoreUnreachableError
from lab_agent.store.unit_of_work import Store, UnitOfWork

PORTION = 200
"""How many are changed in one unit of work."""

T = TypeVar("T")


class GroupAction(StrEnum):
    """What is done to all that waits for one cause."""

    RETRY = "retry"  # jobs are done now; held orders are assessed now
    DISMISS = "dismiss"  # jobs are never done, results never delivered
    RELEASE = "release"  # held orders and results go on in spite of what holds them


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How many of a group stay as they are, and why, in words."""

    number: int
    why: str


@dataclass(frozen=True, slots=True)
class ActionPreview:
    """What an action would do to a group: to how many, what it does (each a whole sentence), and what it leaves as it is."""

    action: GroupAction
    number: int
    does: tuple[str, ...]
    left_out: tuple[LeftOut, ...] = ()
    needs_note: bool = False
    """Whether a note that says why has to be given."""


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """To how many an action was done, and what it left as it was."""

    done: int
    left_out: tuple[LeftOut, ...] = ()


class OutcomeCounter:
    """Counts what becomes of the members of a group."""

    def __init__(self) -> None:
        self.done = 0
        self._left_out: Counter[str] = Counter()

    def leave_out(self, why: str) -> None:
        """Count one that stays as it is."""
        self._left_out[why] += 1

    def outcome(self) -> ActionOutcome:
        """Give what was counted."""
        return ActionOutcome(self.done, tuple(LeftOut(number, why) for why, number in self._left_out.most_common()))


async def change_in_portions(
    store: Store,
    load: Callable[[UnitOfWork, T | None], Sequence[T]],
    change: Callable[[UnitOfWork, T], str | None],
    *,
    prepare: Callable[[Sequence[T]], Awaitable[None]] | None = None,
) -> ActionOutcome:
    """Change the members of a group. Raises `StoreUnreachableError`.

    `load` reads those that come after one (None: the first), up to a portion, until there is none. `change` writes one, and gives
    why it is left as it is, if so; an error that it raises is such a reason, too. `prepare` is called with each portion before.
    """
    counter, last = OutcomeCounter(), None
    while portion := await store.run_read_only(lambda uow, last=last: load(uow, last)):  # type: ignore[misc]
        if prepare is not None:
            await prepare(portion)
        await _change_portion(store, portion, change, counter)
        last = portion[-1]
    return counter.outcome()


async def _change_portion(
    store: Store, portion: Sequence[T], change: Callable[[UnitOfWork, T], str | None], counter: OutcomeCounter
) -> None:
    try:
        reasons = await store.transact(lambda uow: _change_all(uow, portion, change))
    except StoreUnreachableError:
        raise
    except LabAgentError as exc:
        if len(portion) == 1:
            counter.leave_out(str(exc))
            return
        for each in portion:
            await _change_portion(store, [each], change, counter)
        return
    for reason in reasons:
        if reason is None:
            counter.done += 1
        else:
            counter.leave_out(reason)


def _change_all(uow: UnitOfWork, portion: Sequence[T], change: Callable[[UnitOfWork, T], str | None]) -> list[str | None]:
    return [change(uow, each) for each in portion]
