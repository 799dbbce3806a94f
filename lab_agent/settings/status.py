"""Where the status page listens."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lab_agent.settings.base import Port, SettingsGroup


class StatusSettings(SettingsGroup):
    """The status page, `/healthz`, `/readyz` and `/metrics`."""

    host: str = "127.0.0.1"
    """Address to listen on. The page shows patient data to people who signed in: keep it on this machine, or behind TLS."""
    port: Port = 8481
    """Port to listen on."""
    session_hours: Annotated[float, Field(gt=0, le=72)] = 8.0
    """Hours after which a signed-in person signs in anew."""
