"""Reads the files that an adapter's settings name again (a map), and lets the running adapter take them over."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ValidationError

from lab_agent.lis.guard import GuardedAdapter
from lab_agent.settings.errors import to_problems
from lab_agent.shared.errors import Failure


class ReloadOutcome(StrEnum):
    """What became of an adapter's files at a reload."""

    UNCHANGED = "unchanged"
    RELOADED = "reloaded"
    NEEDS_RESTART = "needs_restart"
    """They have changed, and the adapter cannot take them over while it runs."""
    INVALID = "invalid"
    """What was in force before stays so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadResult:
    """The outcome for one adapter; `reason` says what is wrong with an invalid file."""

    name: str
    outcome: ReloadOutcome
    reason: str | None = None


@dataclass(slots=True)
class AdapterReloader:
    """Reloads one adapter: `table` as it was read at the start, `settings` as they are in force."""

    name: str
    adapter: GuardedAdapter
    table: dict[str, Any]
    settings: BaseModel

    async def reload(self) -> ReloadResult:
        """Read the files again. Never raises: what is invalid changes nothing."""
        try:
            new = await asyncio.to_thread(type(self.settings).model_validate, self.table)
        except ValidationError as exc:
            problems = to_problems(exc, type(self.settings), prefix=f"lis.{self.name}")
            return self._result(ReloadOutcome.INVALID, "; ".join(map(str, problems)))
        except Exception as exc:  # noqa: BLE001 — foreign code: whatever it raises is the result
            return self._result(ReloadOutcome.INVALID, f"reading the settings failed with {type(exc).__name__}")
        return await self._take_over(new)

    async def _take_over(self, new: BaseModel) -> ReloadResult:
        if new == self.settings:
            return self._result(ReloadOutcome.UNCHANGED)
        try:
            if not await self.adapter.reload(new):
                return self._result(ReloadOutcome.NEEDS_RESTART)
        except Failure as failure:
            return self._result(ReloadOutcome.INVALID, str(failure))
        self.settings = new
        return self._result(ReloadOutcome.RELOADED)

    def _result(self, outcome: ReloadOutcome, reason: str | None = None) -> ReloadResult:
        return ReloadResult(name=self.name, outcome=outcome, reason=reason)
