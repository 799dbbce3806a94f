"""The agent in small, for a process that is killed: an inbox and a handover over a journal, one synced line for each commit."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from lab_agent.lis.lab_messages import AccessionUpdate, LabMessage, LabReport
from lab_agent.lis.lab_order import LabOrder
from lab_agent.lis.laboratory_system import Lis
from lab_agent.lis.testing import resume_submit

_fsync = os.fsync  # the one of the system, whatever a test puts into its place


class Journal:
    """What was committed: `prepared|key`, `done|key` and `kept|message|value`. It is the inbox, too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # a line that the kill tore was never committed
            os.truncate(path, len(whole.encode()))
        self.lines = whole.splitlines()

    def commit(self, line: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{line}\n")
            file.flush()
            _fsync(file.fileno())
        self.lines.append(line)

    async def accept(self, message: str, content: LabMessage) -> bool:
        if await self.was_accepted(message):
            return False
        if isinstance(content, AccessionUpdate):  # the number of an order whose acknowledgement outlived its process
            return True
        assert isinstance(content, LabReport)
        assert content.observations[0].value_quantity
        self.commit(f"kept|{message}|{content.observations[0].value_quantity.value}")
        return True

    async def accept_all(self, messages: Mapping[str, LabMessage]) -> frozenset[str]:
        return frozenset([name for name, content in messages.items() if await self.accept(name, content)])

    async def was_accepted(self, message: str) -> bool:
        return any(line.startswith(f"kept|{message}|") for line in self.lines)

    async def find_accepted(self, messages: Collection[str]) -> frozenset[str]:
        return frozenset([name for name in messages if await self.was_accepted(name)])

    async def reject(self, _message: str, reason: str, *, raw: bytes | None = None) -> None:
        raise AssertionError(reason, raw)

    async def alert(self, _key: str, text: str | None) -> None:
        assert text is None, text

    async def hand_over(self, adapter: Lis, order: LabOrder) -> None:
        """Submit an order as the agent does, from wherever a kill has left it."""
        if f"done|{order.key}" in self.lines:
            return
        if f"prepared|{order.key}" in self.lines:
            assert await resume_submit(adapter, order, prepared_committed=True)
        else:
            await adapter.prepare(order)
            self.commit(f"prepared|{order.key}")
            await adapter.submit(order)
        self.commit(f"done|{order.key}")


def kept_values(path: Path) -> list[str]:
    """The values of the results that a journal has."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.split("|")[2] for line in lines if line.startswith("kept|")]
