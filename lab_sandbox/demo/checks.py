"""The demo's checks, and the record of what the LIS simulator sent.

The list of checks alone decides whether the demo passed. The simulator's record is what the partner's findings are compared
with.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab_sandbox.demo.lis.simulator import RECEIVED_FOLDER, SENT_FOLDER, STAGES_FOLDER
from lab_sandbox.partner.errors import Json, PartnerError, decode


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check; `detail` says what was found."""

    name: str
    ok: bool
    detail: str = ""

    def as_json(self) -> dict[str, Any]:
        """The entry of `checks` in the demo's last line."""
        return {"name": self.name, "ok": self.ok, **({"detail": self.detail} if self.detail and not self.ok else {})}


class CheckList:
    """Collects checks and passes each on as it is made."""

    def __init__(self, on_check: Callable[[Check], None]) -> None:
        self._on_check = on_check
        self.checks: list[Check] = []

    @property
    def ok(self) -> bool:
        """Whether there were checks and all of them passed."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    def record(self, name: str, ok: bool, detail: str = "") -> None:
        """Adds one outcome."""
        check = Check(name, ok, detail)
        self.checks.append(check)
        self._on_check(check)

    @contextmanager
    def record_partner_errors(self, name: str) -> Iterator[None]:
        """Records the check as failed if the partner gets an error or a timeout inside the block."""
        try:
            yield
        except PartnerError as exc:
            self.record(name, False, str(exc))


@dataclass(frozen=True, slots=True)
class RecordedReport:
    """The newest version of one report: its lines (by the clinic's line numbers), observations, and all documents."""

    lines: tuple[str, ...]
    observations: tuple[Json, ...]
    documents: tuple[bytes, ...]


class LisRecord:
    """Reads the LIS simulator's own folder, and releases the stages that it waits for."""

    def __init__(self, state_folder: Path) -> None:
        self._state_folder = state_folder

    def latest_reports(self, requisition: str) -> list[RecordedReport]:
        """The newest version of each report of an order; the order-wide report covers every line that the laboratory received."""
        order = self._find_order(requisition)
        if order is None:
            return []
        numbers = {line["key"]: line["identifiers"][0]["value"] for line in order["lines"]}
        newest: dict[str, Json] = {}
        for file in sorted((self._state_folder / SENT_FOLDER).glob(f"{order['key']}-*.json")):
            message = decode(file.read_bytes())
            if message["kind"] == "report":
                newest[message["report_id"]] = message
        return [self._to_recorded_report(message, numbers) for message in newest.values()]

    def release_stage(self, requisition: str, stage: str) -> None:
        """Lets a stage of an order continue, as a laboratory assistant would."""
        (self._state_folder / STAGES_FOLDER / f"{requisition}.{stage}").touch()

    def _find_order(self, requisition: str) -> Json | None:
        orders = (decode(file.read_bytes()) for file in sorted((self._state_folder / RECEIVED_FOLDER).glob("*.json")))
        return next((order for order in orders if order["requisition"]["value"] == requisition), None)

    def _to_recorded_report(self, message: Json, numbers: dict[str, str]) -> RecordedReport:
        about = tuple(numbers[line] for line in message.get("lines", numbers))
        observations = tuple(message.get("observations", ()))
        attached = (one["value_attachment"] for one in observations if "value_attachment" in one)
        files = tuple(self._document_content(document) for document in (*message.get("documents", ()), *attached))
        return RecordedReport(about, observations, files)

    def _document_content(self, document: Json) -> bytes:
        if "content" in document:
            return base64.b64decode(str(document["content"]))
        return (self._state_folder / SENT_FOLDER / str(document["file"])).read_bytes()
