"""The adapter's own folder: messages as they came, and values that are not final yet. All methods block.

Raw messages hold names, and the adapter has no keys to encrypt them with. So only those are kept that a person has to look at
(all of them only where that is asked for), readable by the agent's user alone, and for a limited time.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from lab_agent.domain.lab_messages import LabReport, ReportStatus
from lab_agent.errors import DataInvalidError
from lab_agent.serialization import dump_message, load_stored_message

_DAY_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class MessageArchive:
    """The folders `refused` and `taken` (raw messages, each with its reason beside it) and `open` (values, no names)."""

    folder: Path
    keep_days: int

    def open(self) -> None:
        """Make the folders, and clear away what is older than it may be."""
        for name in ("refused", "taken", "open"):
            (self.folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self.purge()

    def purge(self) -> None:
        """Remove raw messages that were kept long enough, and debris."""
        now = time.time()
        for path in (*self._files_in("refused"), *self._files_in("taken")):
            _remove_if_older(path, now - self.keep_days * _DAY_SECONDS)
        for path in self._files_in("open"):
            _remove_if_older(path, now - (400 * _DAY_SECONDS if path.suffix == ".json" else _DAY_SECONDS))

    def store(self, folder_name: str, data: bytes, reason: str, now: datetime) -> Path:
        """Keep a message as it came; `kind` is `refused` or `taken`. Gives its place."""
        name = f"{now.astimezone(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        path = self.folder / folder_name / f"{name}.hl7"
        if reason:
            self._write_atomically(path.with_suffix(".reason.txt"), f"{reason}\n".encode())
        self._write_atomically(path, data)
        return path

    def save_open_report(self, report: LabReport) -> None:
        """Keep the values of a report that is not final; forget those of one that is."""
        path = self._open_report_path(report.report_id)
        if report.status is ReportStatus.FINAL or not report.observations:
            if report.status is ReportStatus.FINAL:
                path.unlink(missing_ok=True)
            return
        self._write_atomically(path, dump_message(replace(report, documents=())))

    def load_open_report(self, report_id: str) -> LabReport | None:
        """Give the values of a report that was not final when it was last heard of."""
        try:
            report = load_stored_message(self._open_report_path(report_id).read_bytes())
        except (FileNotFoundError, DataInvalidError):
            return None
        return report if isinstance(report, LabReport) else None

    def _open_report_path(self, report_id: str) -> Path:
        return self.folder / "open" / f"{hashlib.sha256(report_id.encode()).hexdigest()[:32]}.json"

    def _files_in(self, folder_name: str) -> list[Path]:
        folder = self.folder / folder_name
        return list(folder.iterdir()) if folder.is_dir() else []

    def _write_atomically(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
        try:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _remove_if_older(path: Path, limit: float) -> None:
    with suppress(FileNotFoundError):
        if path.stat().st_mtime < limit:
            path.unlink()
