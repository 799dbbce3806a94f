"""The adapter's own folder: raw messages, and values that are not final yet. All methods block.

Raw messages contain names, and the adapter has no keys to encrypt them. So accepted ones are stored only on request, readable by
the agent's user alone, and for a limited time; rejected ones are the inbox's, which seals them. Of values that are not final,
only those without a free text are kept: a text or comment may name the patient.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from lab_agent.lis.lab_messages import LabReport, ReportedObservation, ReportStatus
from lab_agent.lis.serialization import dump_message, load_stored_message
from lab_agent.shared.atomic_file import write_atomically
from lab_agent.shared.errors import DataInvalidError

ACCEPTED = "accepted"
"""Folder of messages that were accepted."""
_OPEN_REPORTS = "open-reports"
_DAY_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class MessageArchive:
    """The folders `accepted` (raw messages) and `open-reports` (values without texts)."""

    folder: Path
    keep_days: int

    def open(self) -> None:
        """Create the folders, and delete what is too old."""
        for name in (ACCEPTED, _OPEN_REPORTS):
            (self.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self.purge()

    def purge(self) -> None:
        """Delete raw messages after `keep_days`, and leftovers."""
        now = time.time()
        for path in self._files_in(ACCEPTED):
            _remove_if_older(path, now - self.keep_days * _DAY_SECONDS)
        for path in self._files_in(_OPEN_REPORTS):
            _remove_if_older(path, now - (400 * _DAY_SECONDS if path.suffix == ".json" else _DAY_SECONDS))

    def store_accepted(self, data: bytes, now: datetime) -> Path:
        """Store a raw message; returns its path."""
        path = self.folder / ACCEPTED / f"{now.astimezone(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}.hl7"
        write_atomically(path, data)
        return path

    def save_open_report(self, report: LabReport) -> None:
        """Store the values of a report that is not final, as far as they have no free text; delete those of one that is."""
        path = self._open_report_path(report.report_id)
        if report.status is ReportStatus.FINAL:
            path.unlink(missing_ok=True)
        elif report.observations:
            plain = tuple(one for one in report.observations if not _has_free_text(one))
            write_atomically(path, dump_message(replace(report, observations=plain, documents=(), patient=None)))

    def load_open_report(self, report_id: str) -> LabReport | None:
        """The values of a report whose last version was not final."""
        try:
            report = load_stored_message(self._open_report_path(report_id).read_bytes())
        except (FileNotFoundError, DataInvalidError):
            return None
        return report if isinstance(report, LabReport) else None

    def _open_report_path(self, report_id: str) -> Path:
        return self.folder / _OPEN_REPORTS / f"{hashlib.sha256(report_id.encode()).hexdigest()[:32]}.json"

    def _files_in(self, folder_name: str) -> list[Path]:
        folder = self.folder / folder_name
        return list(folder.iterdir()) if folder.is_dir() else []


def _has_free_text(one: ReportedObservation) -> bool:
    """Whether an observation says more than codes, numbers and times."""
    concepts = [concept for concept in (one.value_codeable_concept, one.method) if concept is not None]
    is_told = any(concept.text and concept.text not in {coding.display for coding in concept.coding} for concept in concepts)
    has_text = one.value_string is not None or one.value_attachment is not None or one.note is not None
    return has_text or is_told or any(limit.text for limit in one.reference_ranges)


def _remove_if_older(path: Path, limit: float) -> None:
    with suppress(FileNotFoundError):
        if path.stat().st_mtime < limit:
            path.unlink()
