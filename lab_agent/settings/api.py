"""Where the laboratory's public API listens, who may call it, and how much it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from lab_agent.domain.label_pools import LabelPool
from lab_agent.settings.groups import Port, Seconds, SettingsGroup

PositiveCount = Annotated[int, Field(ge=1)]


class ApiTokenSettings(SettingsGroup):
    """A client that calls with a bearer token. The token itself is stored nowhere."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the client, for the log."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]
    """SHA-256 of the token, in hexadecimal: `printf %s TOKEN | sha256sum`."""
    contracts: tuple[str, ...] | None = None
    """Contract codes that this client may see; left out, it sees every contract."""


class ApiBasicSettings(SettingsGroup):
    """A client that calls with HTTP Basic."""

    name: Annotated[str, Field(min_length=1, pattern=r"^[^:]+$")]
    """User name."""
    password_hash: Annotated[str, Field(pattern=r"^\$argon2id\$")]
    """Argon2id hash of the password: `lab-api hash-password` makes it."""
    contracts: tuple[str, ...] | None = None
    """Contract codes that this client may see; left out, it sees every contract."""


class ApiPoolSettings(SettingsGroup):
    """A pool of barcodes that pre-analytics gives out. A contract that no pool serves gets none: the partner has its own."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the pool, in alerts and messages."""
    pattern: Annotated[str, Field(min_length=1, pattern=r"^[0-9A-Za-z._/#%-]*#[0-9A-Za-z._/#%-]*$")]
    """How a barcode looks: `#` is a digit of the number, `%` the check digit, everything else stands for itself. What it
    makes, unless they are second barcodes, must fit `rules.label_pattern`: orders that come back with another are refused."""
    first: Annotated[int, Field(ge=0)] = 1
    """First number. The range may be changed at will: what was given of it before is not given again."""
    last: Annotated[int, Field(ge=0, le=10**18)]
    """Last number."""
    check_digit: Literal["none", "luhn", "gs1"] = "none"
    """How the check digit is counted: `luhn` (ISO/IEC 7812), `gs1` (EAN, SSCC), or `none`."""
    contracts: tuple[str, ...] | None = None
    """Contracts that the pool serves; left out, every contract that no other pool names."""
    second: bool = False
    """Whether it gives second barcodes, to the studies whose `second_label` its barcodes fit (`####-####` for `0000-0000`)."""
    warn_below: Annotated[int, Field(ge=0)] = 1000
    """An alert is opened when fewer barcodes are left."""

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        digits, places = self.pattern.count("#"), self.pattern.count("%")
        if self.last < self.first or len(str(self.last)) > digits:
            raise ValueError(f"last must be from first to {'9' * digits}, the largest number that the pattern holds")
        if places != (self.check_digit != "none"):
            raise ValueError("pattern and check_digit do not agree: a check digit has one place, written %, in the pattern")
        return self

    def to_label_pool(self) -> LabelPool:
        """Give the pool itself; its fields are those of this table."""
        contracts = None if self.contracts is None else frozenset(self.contracts)
        return LabelPool(**{**self.model_dump(), "contracts": contracts})


class ApiSettings(SettingsGroup):
    """The laboratory's API: nomenclature, eta, questionnaire and preanalytics, for the exchange service."""

    host: str = "127.0.0.1"
    """Address to listen on. Put a proxy with TLS in front of it: the exchange service calls over HTTPS."""
    port: Port = 8482
    """Port to listen on."""
    prefix: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)*$")] = ""
    """What stands before the paths: `/lab/v1` serves `/lab/v1/nomenclature`."""
    public_url: str | None = None
    """Address under which the exchange service reaches the API, prefix included; it is printed on the registration sheet."""
    catalogue: Path | None = None
    """Folder with the CSV files of the catalogue, or an XLSX workbook: taken over at the start and upon SIGHUP when it has
    changed since it was last taken from there. Left out, the catalogue comes by `lab-agent catalogue import` alone."""
    tokens: tuple[ApiTokenSettings, ...] = ()
    """Clients with a bearer token."""
    basic: tuple[ApiBasicSettings, ...] = ()
    """Clients with HTTP Basic."""
    oauth: bool = False
    """Whether clients may also fetch short-lived tokens (OAuth 2.0 client credentials) under `/token`, with the name and token of
    `lab-agent api-token` as client id and secret."""
    token_lifetime: Seconds = 600.0
    """Seconds for which such a token is valid."""
    pools: tuple[ApiPoolSettings, ...] = ()
    """Pools of barcodes."""
    label_mark: Path | None = None
    """File, outside the database and its backups, that holds how far each range of labels has been given out: after a restore
    they go on behind it. Processes on several machines share it. Left out, there is none."""
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 50.0
    """Requests a second that each contract may make, over all API processes of the store; more are answered with 429 and
    Retry-After. The processes compare their counts every two seconds: what they let through too much by then is waited for."""
    burst: PositiveCount = 200
    """Requests that a contract may make at once before that rate holds."""
    cache_lifetime: Seconds = 86400.0
    """Seconds for which a nomenclature may be kept, where the contract says nothing else (interface: one day)."""
    max_body: PositiveCount = 1_000_000
    """Largest request body, in bytes."""
    max_basket: PositiveCount = 200
    """Largest number of items in one basket."""
    drain: Seconds = 15.0
    """Seconds that open requests get to end when the program is stopped."""
    docs: bool = False
    """Whether `/docs` and `/openapi.json` are served."""

    @property
    def label_pools(self) -> tuple[LabelPool, ...]:
        """The pools of barcodes."""
        return tuple(pool.to_label_pool() for pool in self.pools)
