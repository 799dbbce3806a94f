"""Where the laboratory's public API listens, who may call it, and how much it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from lab_agent.settings.base import Group, Port, Seconds

Count = Annotated[int, Field(ge=1)]


class ApiTokenSettings(Group):
    """A client that calls with a bearer token. The token itself is stored nowhere."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the client, for the log."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]
    """SHA-256 of the token, in hexadecimal: `printf %s TOKEN | sha256sum`."""
    contracts: tuple[str, ...] | None = None
    """Contract codes that this client may see; left out, it sees every contract."""


class ApiBasicSettings(Group):
    """A client that calls with HTTP Basic."""

    name: Annotated[str, Field(min_length=1, pattern=r"^[^:]+$")]
    """User name."""
    password_hash: Annotated[str, Field(pattern=r"^\$argon2id\$")]
    """Argon2id hash of the password: `lab-api hash-password` makes it."""
    contracts: tuple[str, ...] | None = None
    """Contract codes that this client may see; left out, it sees every contract."""


class ApiSettings(Group):
    """The laboratory's API: nomenclature, eta, questionnaire and preanalytics, for the exchange service."""

    host: str = "127.0.0.1"
    """Address to listen on. Put a proxy with TLS in front of it: the exchange service calls over HTTPS."""
    port: Port = 8482
    """Port to listen on."""
    prefix: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)*$")] = ""
    """What stands before the paths: `/lab/v1` serves `/lab/v1/nomenclature`."""
    public_url: str | None = None
    """Address under which the exchange service reaches the API, prefix included; it is printed on the registration sheet."""
    catalogue: Path = Path("config/catalogue")
    """Folder with the CSV files of the catalogue."""
    tokens: tuple[ApiTokenSettings, ...] = ()
    """Clients with a bearer token."""
    basic: tuple[ApiBasicSettings, ...] = ()
    """Clients with HTTP Basic."""
    cache_lifetime: Seconds = 86400.0
    """Seconds for which a nomenclature may be kept, where the contract says nothing else (interface: one day)."""
    max_body: Count = 1_000_000
    """Largest request body, in bytes."""
    max_basket: Count = 200
    """Largest number of items in one basket."""
    drain: Seconds = 15.0
    """Seconds that open requests get to end when the program is stopped."""
    docs: bool = False
    """Whether `/docs` and `/openapi.json` are served."""
