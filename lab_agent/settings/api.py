"""The group [api]: where the laboratory's public API listens, who may call it, and its limits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from lab_agent.settings.groups import AbsoluteUrl, Basic, Port, Seconds, SettingsGroup
from lab_agent.shared.label_pools import LabelPool

PositiveCount = Annotated[int, Field(ge=1)]


class ApiTokenSettings(SettingsGroup):
    """A client with a bearer token. The token itself is stored nowhere."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the client, for the log."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]
    """SHA-256 of the token, in hexadecimal: `printf %s TOKEN | sha256sum`."""
    contracts: tuple[str, ...] | None = None
    """Contract codes that this client may see; if not set, every contract."""


class ApiBasicSettings(SettingsGroup):
    """A client with HTTP Basic."""

    name: Annotated[str, Field(min_length=1, pattern=r"^[^:]+$")]
    """User name."""
    password_hash: Annotated[str, Field(pattern=r"^\$argon2id\$")]
    """Argon2id hash of the password: `lab-api hash-password` makes it."""
    contracts: tuple[str, ...] | None = None
    """Contract codes that this client may see; if not set, every contract."""


class ApiPoolSettings(SettingsGroup):
    """A pool of barcodes that preanalytics issues. A contract that no pool serves gets none: the partner has its own."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the pool, in alerts and messages."""
    pattern: Annotated[str, Field(min_length=1, pattern=r"^[0-9A-Za-z._/#%-]*#[0-9A-Za-z._/#%-]*$")]
    """Form of a barcode: `#` is a digit of the number, `%` the check digit, everything else stands for itself. The barcodes,
    unless they are second barcodes, must match `rules.label_pattern`: orders that come back with others are rejected."""
    first: Annotated[int, Field(ge=0)] = 1
    """First number. The range may be changed at any time: numbers that were issued are not issued again."""
    last: Annotated[int, Field(ge=0, le=10**18)]
    """Last number."""
    check_digit: Literal["none", "luhn", "gs1"] = "none"
    """How the check digit is calculated: `luhn` (ISO/IEC 7812), `gs1` (EAN, SSCC), or `none`."""
    contracts: tuple[str, ...] | None = None
    """Contracts that the pool serves; if not set, every contract that no other pool names."""
    second: bool = False
    """Whether it issues second barcodes, for the studies whose `second_label` they match (`####-####` for `0000-0000`)."""
    warn_below: Annotated[int, Field(ge=0)] = 1000
    """An alert is opened when fewer barcodes are left."""

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        digits, places = self.pattern.count("#"), self.pattern.count("%")
        if self.last < self.first or len(str(self.last)) > digits:
            raise ValueError(f"last must be from first to {'9' * digits}, the largest number that the pattern has digits for")
        if places != (self.check_digit != "none"):
            raise ValueError(
                "pattern and check_digit do not agree: write one % in the pattern for a check digit, and none without"
            )
        return self

    def to_label_pool(self) -> LabelPool:
        """Give the pool itself; its fields are those of this table."""
        contracts = None if self.contracts is None else frozenset(self.contracts)
        return LabelPool(**{**self.model_dump(), "contracts": contracts})


class ApiSettings(SettingsGroup):
    """The laboratory's API for the exchange service: nomenclature, eta, questionnaire and preanalytics."""

    host: str = "127.0.0.1"
    """Address to listen on. Put a proxy with TLS in front of it: the exchange service calls over HTTPS."""
    port: Port = 8482
    """Port to listen on."""
    prefix: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)*$")] = ""
    """Prefix of the paths: `/lab/v1` serves `/lab/v1/nomenclature`."""
    public_url: Basic[AbsoluteUrl | None] = None
    """Address under which the exchange service reaches the API, prefix included; it is printed on the registration sheet."""
    catalogue: Path | None = None
    """Folder with the CSV files of the catalogue, or an XLSX workbook: imported at the start and on SIGHUP if it has changed,
    until a person imports a catalogue by `lab-agent catalogue import`. If not set, it comes by that command only."""
    tokens: tuple[ApiTokenSettings, ...] = ()
    """Clients with a bearer token."""
    basic: tuple[ApiBasicSettings, ...] = ()
    """Clients with HTTP Basic."""
    oauth: bool = False
    """Whether clients may also get short-lived tokens (OAuth 2.0 client credentials) at `/token`, with the name and token of
    `lab-agent api-token` as client id and secret."""
    token_lifetime: Seconds = 600.0
    """Seconds for which such a token is valid."""
    pools: tuple[ApiPoolSettings, ...] = ()
    """Pools of barcodes."""
    label_mark: Path | None = None
    """File, outside the database and its backups, that keeps how far each range of labels has been issued: after a restore,
    issuing continues behind it. Processes on several machines share it. If not set, there is none."""
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 50.0
    """Requests per second that each contract may make, over all API processes of the store; more are answered with 429 and
    Retry-After. The processes compare their counts every two seconds, and make up for what they let through in between."""
    burst: PositiveCount = 200
    """Requests that a contract may make at once before that rate holds."""
    cache_lifetime: Seconds = 86400.0
    """Seconds for which a nomenclature may be cached, unless the contract sets another time (interface: one day)."""
    max_body: PositiveCount = 1_000_000
    """Largest request body, in bytes."""
    max_basket: PositiveCount = 200
    """Largest number of items in one basket."""
    drain: Seconds = 15.0
    """Seconds that open requests get to finish when the program is stopped."""
    docs: bool = False
    """Whether `/docs` and `/openapi.json` are served."""

    @property
    def label_pools(self) -> tuple[LabelPool, ...]:
        """The pools of barcodes."""
        return tuple(pool.to_label_pool() for pool in self.pools)
