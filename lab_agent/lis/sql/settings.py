"""Settings of a `[lis.<name>]` table of the sql adapter."""

from __future__ import annotations

import re
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from lab_agent.lis.time_zones import TimeZoneName, to_zone


def _validate_identifier(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,29}", value):
        raise ValueError("must be an identifier that every database accepts: letters, digits and _, at most 30")
    return value


class SqlSettings(BaseModel):
    """Where the staging tables are, and how they are read."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)

    url: SecretStr
    """Address of the LIS's database in SQLAlchemy form; the driver that it names must be installed."""
    table_prefix: Annotated[str, AfterValidator(_validate_identifier)] = "lab_"
    """Prefix of the names of the staging tables."""
    table_schema: Annotated[str, AfterValidator(_validate_identifier)] | None = None
    """Database schema of the tables; the default schema if not set."""
    claimed_by: Annotated[str, Field(min_length=1, max_length=60)] = "lab-agent"
    """Name under which this agent claims result rows; agents on several machines need different names."""
    claim_lasts: Annotated[float, Field(gt=0, le=86400)] = 120.0
    """Seconds after which a row claimed by another agent but not finished may be taken over."""
    time_zone: TimeZoneName | None = None
    """Time zone of times that the LIS writes without one; if not set, such a time is rejected."""
    batch: Annotated[int, Field(gt=0, le=10_000)] = 200
    """Maximum number of results processed at a time."""
    max_document_bytes: Annotated[int, Field(gt=0)] = 50_000_000
    """Largest total size of one report's documents, in bytes."""
    connections: Annotated[int, Field(gt=0, le=50)] = 2
    """Maximum number of connections to the database."""

    @property
    def zone(self) -> ZoneInfo | None:
        """The time zone of times without one."""
        return to_zone(self.time_zone)
