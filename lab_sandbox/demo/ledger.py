"""What was checked, and whether it held. The demo's verdict is this list and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lab_sandbox.partner.failures import PartnerError


@dataclass(frozen=True, slots=True)
class Check:
    """One outcome that was looked at; `detail` says what was seen."""

    name: str
    ok: bool
    detail: str = ""

    def as_json(self) -> dict[str, Any]:
        """The entry of `checks` in the demo's last line."""
        return {"name": self.name, "ok": self.ok, **({"detail": self.detail} if self.detail and not self.ok else {})}


class CheckList:
    """Collects checks and shows each as it is made."""

    def __init__(self, on_check: Callable[[Check], None]) -> None:
        self._on_check = on_check
        self.checks: list[Check] = []

    @property
    def ok(self) -> bool:
        """Whether there were checks and all of them held."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    def record(self, name: str, ok: bool, detail: str = "") -> None:
        """Writes down one outcome."""
        check = Check(name, ok, detail)
        self.checks.append(check)
        self._on_check(check)

    @contextmanager
    def record_partner_errors(self, name: str) -> Iterator[None]:
        """Whatever keeps the partner from looking (a refusal, something that did not come in time) is a failed check."""
        try:
            yield
        except PartnerError as exc:
            self.record(name, False, str(exc))
