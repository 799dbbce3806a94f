"""`[backup]`: copies of the database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from lab_agent.settings.groups import Basic, Seconds, SettingsGroup


class BackupSettings(SettingsGroup):
    """What `lab-agent backup` writes, and how old the newest copy may be. See docs/restore.md."""

    folder: Basic[Path | None] = None
    """Folder of the backups, best on another disk or machine. Where it is set, their age is watched."""
    keep: Annotated[int, Field(ge=1)] = 14
    """How many backups are kept; older ones are deleted after a new one was verified."""
    keep_days: Annotated[int, Field(ge=1)] = 30
    """Days for which a backup is kept at most. The newest one always is."""
    encrypt: bool = False
    """Whether backups are encrypted whole, with the first of `store.encryption_keys`. Names, documents and tokens always are; the
    rest, medical data without names, only with this."""
    after: tuple[str, ...] = ()
    """Program and its arguments that `lab-agent backup` runs once a backup was read whole and older ones are deleted: a copy to
    another place, a ping. No shell reads them; the variable BACKUP_FILE has the path of the backup. Any exit code but 0 is one of
    the backup."""
    max_age: Seconds = 93_600.0
    """Seconds that the newest file in `folder` may be old, whoever wrote it, before an alert opens: a day and two hours."""
