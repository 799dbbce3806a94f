"""The mapping tables that are in force. A reload that fails keeps the old ones; with none at all, reports are held in sight."""

from __future__ import annotations

from pathlib import Path

import structlog

from lab_agent.mappings.load import MappingsError, load_mapping_tables
from lab_agent.mappings.tables import MappingTables

log = structlog.get_logger(__name__)


class MappingCache:
    """The tables of one folder; without a folder, codes pass as they are."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._tables = MappingTables() if folder is None else None

    def current(self) -> MappingTables | None:
        """The tables as they stand, read upon the first use; None where a folder is set and could not be read."""
        if self._tables is None:
            self.reload()
        return self._tables

    def reload(self) -> bool:
        """Read the folder again; whether it could be read. Logs all that is wrong with it otherwise."""
        if self._folder is None:
            return True
        try:
            fresh = load_mapping_tables(self._folder)
        except MappingsError as exc:
            log.error("mapping tables not read", action="mappings_invalid", reason=str(exc))  # noqa: TRY400 - an error of the data
            return False
        if self._tables is None or self._tables.version != fresh.version:
            log.info("mapping tables read", action="mappings_read", version=fresh.version)
        self._tables = fresh
        return True
