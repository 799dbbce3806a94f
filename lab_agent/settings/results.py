"""How results go to the service."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lab_agent.settings.base import Group


class ResultsSettings(Group):
    """Reports, observations and documents on their way to the service."""

    documents: Literal["upload", "host", "none"] = "upload"
    """How result documents reach the service: `upload` as Binary, `host` by our own API (partners must reach it), `none`
    leaves them out (stage, where no laboratory provides printed forms)."""
    send_interpretation: bool = False
    """Whether flags (high, low, …) are sent as Observation.interpretation; the interface has no field for them."""
    order_document_code: str | None = None
    """Nomenclature code of a report that is one document for a whole order. Without it, the code of the order's first line."""
    report_system: str | None = Field(default=None, pattern=r"^\S+$")
    """Identifier system of our DiagnosticReports. Without it `{lab_codes_url}/report`. Never change it later."""
    observation_system: str | None = Field(default=None, pattern=r"^\S+$")
    """Identifier system of our Observations. Without it `{lab_codes_url}/observation`. Never change it later."""
    max_document: Annotated[int, Field(ge=1)] = 20_000_000
    """Largest document in bytes; a larger one is held for a person."""
