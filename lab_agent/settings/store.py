"""Where the journal is kept, and the keys that it is encrypted with."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr

from lab_agent.settings.base import SettingsGroup


class StoreSettings(SettingsGroup):
    """The database of orders, results, effects and tokens. All processes of one laboratory share it."""

    url: str = Field(default="sqlite:///lab-agent.db", pattern=r"^(sqlite|postgres(ql(\+psycopg)?)?)://", repr=False)
    """Address of the database: `sqlite:///path` (three slashes: relative to the working directory; four: absolute) or
    `postgresql://user:password@host/name` for several workers."""
    encryption_keys: Annotated[list[SecretStr], Field(min_length=1)]
    """Keys of the encryption at rest, newest first. The first encrypts; all of them decrypt, so that a key can be replaced.
    `lab-agent init` makes one. Lose them, and tokens, identification data and documents are lost."""
