"""How results go to the service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from lab_agent.settings.base import SettingsGroup


class ResultsSettings(SettingsGroup):
    """Reports, observations and documents on their way to the service."""

    documents: Literal["upload", "host", "none"] = "upload"
    """How result documents reach the service: `upload` as Binary, `host` by our own API (partners must reach it), `none`
    leaves them out (stage, where no laboratory provides printed forms)."""
    send_interpretation: bool = False
    """Whether flags (high, low, …) are sent as Observation.interpretation; the interface has no field for them."""
    send_notes: bool = False
    """Whether notes of observations are sent as Observation.comment; the interface has no field for them."""
    order_document_code: str | None = None
    """Nomenclature code of a report that is one document for a whole order. Without it, the code of the order's first line."""
    report_system: str | None = Field(default=None, pattern=r"^\S+$")
    """Identifier system of our DiagnosticReports. Without it `{lab_codes_url}/report`. Never change it later."""
    observation_system: str | None = Field(default=None, pattern=r"^\S+$")
    """Identifier system of our Observations. Without it `{lab_codes_url}/observation`. Never change it later."""
    max_document: Annotated[int, Field(ge=1)] = 14_000_000
    """Largest document in bytes; a larger one is held for a person. An upload carries it in Base64, a third larger: 14 MB fit a
    service that takes requests of 20 MB."""
    left_out: Literal["hold", "keep"] = "hold"
    """What becomes of a new version that leaves out values which were final: `hold` asks a person; `keep` is for a laboratory
    system that sends only what is new, and puts the values and lines of the versions before into it."""
    mappings: Path | None = None
    """Folder with the tables codes.csv, units.csv and answers.csv, such as `config/mappings`. Left out, codes pass as they come:
    one without a system is taken for LOINC where its check digit is right, and holds its report otherwise."""
    host_days: Annotated[int, Field(ge=1, le=36500)] | None = None
    """With `documents = "host"`: days after which the address of a document ends. Left out: as long as the order is kept."""
    print_reports: bool = False
    """Whether a plain PDF is made of the observations of a final report that comes without a document."""
    print_name: str = ""
    """The laboratory's name and address, at the head of such a PDF; line by line."""
    print_logo: Path | None = None
    """A PNG or JPEG beside that name."""
    print_font: Path | None = None
    """The TrueType font of such a PDF. Left out, DejaVu Sans where it is installed, else one with Latin letters only; a report
    with letters that the font lacks is delivered without a PDF."""
