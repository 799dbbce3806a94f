"""One bound for what has not ended: who waits, who goes, and who goes on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from lab_agent.lis.hl7v2.transport.input_budget import SMALL_BYTES, InputBudget, InputHolder
from tests.harness.clock import DEADLINE

LONG = SMALL_BYTES * 2


@dataclass(eq=False)
class Holder:
    is_handling: bool = False
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def abort(self) -> None:
        self.closed.set()


def budget(max_bytes: int, patience: float, aborted: list[InputHolder]) -> InputBudget:
    return InputBudget(max_bytes, patience, lambda holder, _: aborted.append(holder))


async def test_long_message_waits_until_another_has_ended() -> None:
    aborted: list[InputHolder] = []
    bound, first, second, short = budget(LONG, 60, aborted), Holder(), Holder(), Holder()
    await bound.hold(first, LONG)
    waiting = asyncio.create_task(bound.hold(second, LONG))
    await bound.hold(short, SMALL_BYTES)
    await asyncio.sleep(0)
    assert not waiting.done()
    await bound.hold(short, 0)
    await bound.hold(first, 0)
    await asyncio.wait_for(waiting, DEADLINE)
    bound.release(second)
    assert (bound.total, aborted) == (0, [])


async def test_longest_that_nobody_is_storing_goes_when_nothing_ends() -> None:
    aborted: list[InputHolder] = []
    bound = budget(LONG, 0.01, aborted)
    stored, longest, last = Holder(is_handling=True), Holder(), Holder()
    waiting = [asyncio.create_task(bound.hold(each, size)) for each, size in ((stored, LONG * 3), (longest, LONG * 2))]
    await asyncio.sleep(0)
    waiting.append(asyncio.create_task(bound.hold(last, LONG)))
    async with asyncio.timeout(DEADLINE):
        await asyncio.wait([waiting[1]])
        await asyncio.wait([waiting[2]])
    assert aborted == [longest, last]
    bound.release(stored)
    await asyncio.wait_for(waiting[0], DEADLINE)
    assert bound.total == 0
