"""Settings of a `[lis.<name>]` table of the hl7v2 adapter."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from lab_agent.lis.hl7v2.code_pages import UnknownCharsetError, codec_name, hl7_charset_name
from lab_agent.lis.hl7v2.field_map import FieldMap, default_field_map, load_field_map
from lab_agent.lis.time_zones import TimeZoneName, to_zone

_MODEL_CONFIG = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)


def _validate_encoding(value: str) -> str:
    try:
        return codec_name(value)
    except UnknownCharsetError:
        raise ValueError("is not a known code page such as utf-8, cp1251 or iso-8859-5") from None


class TlsSettings(BaseModel):
    """TLS of one connection. As a client we always verify the LIS's certificate; as a server, the client's if `ca` is set."""

    model_config = _MODEL_CONFIG

    ca: Path | None = None
    """CA certificates (PEM) for the other side's certificate; as a client, those of the operating system if not set."""
    certificate: Path | None = None
    """Our own certificate with its chain (PEM); a server needs one."""
    key: Path | None = None
    """Key of our certificate (PEM, without a password)."""
    server_name: str | None = None
    """Name that the LIS's certificate must contain, if it differs from the host."""


def _validate_networks(value: tuple[str, ...]) -> tuple[str, ...]:
    for one in value:
        ip_network(one, strict=False)
    return value


class ConnectionSettings(BaseModel):
    """One connection to the LIS: which side connects, and where."""

    model_config = _MODEL_CONFIG

    role: Literal["client", "server"]
    """`client`: we connect to the LIS. `server`: the LIS connects to us."""
    host: str = "127.0.0.1"
    """Host of the LIS (client), or the address to listen on (server)."""
    port: Annotated[int, Field(ge=0, le=65535)]
    """Port of the LIS (client), or the port to listen on (server)."""
    tls: TlsSettings | None = None
    """Encrypts the connection; without this table it is plain text, and needs a separate network."""
    allow: Annotated[tuple[str, ...], AfterValidator(_validate_networks)] = ()
    """As a server: addresses or networks (10.1.0.0/16) that may connect; all if empty."""
    max_connections: Annotated[int, Field(ge=1, le=1000)] = 64
    """As a server: connections accepted at a time; beyond that the peer that has most loses its longest idle one."""
    max_connections_per_host: Annotated[int, Field(ge=1, le=1000)] = 16
    """As a server: connections accepted at a time from one address; beyond that its own longest idle one is closed."""
    connections: Annotated[int, Field(ge=1, le=64)] = 1
    """As a client: number of connections kept open."""

    @model_validator(mode="after")
    def _check_consistency(self) -> ConnectionSettings:
        if self.role == "client" and not self.port:
            raise ValueError("a client needs the port of the LIS")
        if self.role == "server" and self.tls is not None and (self.tls.certificate is None or self.tls.key is None):
            raise ValueError("a server with TLS needs tls.certificate and tls.key")
        if self.tls is not None and (self.tls.certificate is None) != (self.tls.key is None):
            raise ValueError("tls.certificate and tls.key must be set together")
        return self


class Hl7v2Settings(BaseModel):
    """How the agent and the LIS connect and acknowledge, and what messages look like."""

    model_config = _MODEL_CONFIG

    orders: ConnectionSettings
    """Connection for orders."""
    results: ConnectionSettings | None = None
    """Connection for results; if not set, they arrive on the connections of `orders`."""
    folder: Path
    """The adapter's own folder (created with mode 0700): values of reports that are not final, and what `keep` says."""
    duplicates: Literal["msh10", "placer", "none"]
    """How the LIS recognises a repeated order: by MSH-10, by ORC-2, or not at all (an operator settles unknown outcomes)."""
    order_message: Literal["OML", "ORM"] = "OML"
    """OML^O21, or ORM^O01 for an older LIS."""
    one_line_per_message: bool = False
    """Whether each line of an order is a message of its own, for a LIS that reads only the first line of a message."""
    unnamed_lines: Literal["accept", "hold"] = "accept"
    """What follows if the answer to an order names some of its lines only: all count as accepted, or an operator decides."""
    acknowledgement: Literal["original", "commit", "enhanced", "none"] = "original"
    """How the LIS acknowledges an order: AA, AE or AR (`original`), CA (`commit`), CA and then AA (`enhanced`), not (`none`)."""
    answer_results: Literal["as_asked", "original", "none"] = "as_asked"
    """How results are acknowledged: as their MSH-15 and MSH-16 ask, always with one AA or AE, or never."""
    encoding: Annotated[str, AfterValidator(_validate_encoding)] = "utf-8"
    """Code page of sent messages, and of received ones without MSH-18 if `received_encoding` is not set."""
    received_encoding: Annotated[str, AfterValidator(_validate_encoding)] | None = None
    """Code page of received messages without MSH-18, or with letters beyond the ASCII that it names; `encoding` if not set."""
    charset_name: str | None = None
    """Value of MSH-18, if the LIS expects another spelling."""
    unencodable: Literal["refuse", "replace"] = "refuse"
    """What happens to characters that the code page lacks: the order waits for an operator, or question marks are sent."""
    time_zone: TimeZoneName | None = None
    """Time zone of times that the LIS writes without one; if not set, such a result is rejected."""
    version: str = "2.5.1"
    """HL7 version in MSH-12."""
    processing_id: Literal["P", "T", "D"] = "P"
    """Production, training or debugging (MSH-11); messages with another value are rejected."""
    sending_application: str = "LAB-AGENT"
    """MSH-3."""
    sending_facility: str = ""
    """MSH-4."""
    receiving_application: str = "LIS"
    """MSH-5."""
    receiving_facility: str = ""
    """MSH-6."""
    mapping: Path | None = None
    """A mapping file (TOML) that overrides parts of the default field map."""
    retry_codes: tuple[str, ...] = ("206", "207")
    """ERR-3 codes that mean "try again later" (application record locked, internal error)."""
    duplicate_codes: tuple[str, ...] = ("205",)
    """ERR-3 codes that mean the LIS already has the order, which is a success."""
    connect_timeout: Annotated[float, Field(gt=0, le=300)] = 10.0
    """Seconds to wait for a connection."""
    answer_timeout: Annotated[float, Field(gt=0, le=300)] = 30.0
    """Seconds to wait for each acknowledgement; after that the outcome is unknown. Keep it below `lis.call_timeout`."""
    frame_timeout: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """Seconds of silence in the middle of a message after which the connection is closed, and of waiting for the next part of a
    continued message (DSC)."""
    keep_alive: Annotated[int, Field(ge=0, le=7200)] = 60
    """Seconds of silence after which TCP probes the other side; 0: never."""
    reconnect_wait: Annotated[float, Field(gt=0, le=300)] = 5.0
    """Seconds between two attempts to connect."""
    max_message_bytes: Annotated[int, Field(ge=1000)] = 50_000_000
    """Largest message accepted, in bytes."""
    max_unfinished_bytes: Annotated[int, Field(ge=1000)] = 150_000_000
    """Most that all connections together hold of messages that have not ended; at least `max_message_bytes`."""
    keep: Literal["refused", "all"] = "refused"
    """Which raw messages are kept: the rejected ones, sealed in the agent's database, or accepted ones as well, in plain text in
    the folder (they contain names; see docs/adapters-hl7v2.md)."""
    keep_days: Annotated[int, Field(ge=1, le=3660)] = 30
    """Days for which accepted messages are kept; `retention.refused_days` is that of rejected ones."""

    @model_validator(mode="after")
    def _check_limits(self) -> Hl7v2Settings:
        if self.max_unfinished_bytes < self.max_message_bytes:
            raise ValueError("max_unfinished_bytes is below max_message_bytes: such messages could not be received")
        return self

    _field_map: FieldMap = PrivateAttr(default_factory=default_field_map)

    @model_validator(mode="after")
    def _load_mapping(self) -> Hl7v2Settings:
        """Load the mapping file here, so that a mistake in it is reported with the settings."""
        if self.mapping is not None:
            self._field_map = load_field_map(self.mapping)
        return self

    @property
    def field_map(self) -> FieldMap:
        """The default field map, overridden by the mapping file."""
        return self._field_map

    @property
    def zone(self) -> ZoneInfo | None:
        """The time zone of times without one."""
        return to_zone(self.time_zone)

    @property
    def encoding_in(self) -> str:
        """Code page of received messages that do not say theirs."""
        return self.received_encoding or self.encoding

    @property
    def charset(self) -> str:
        """MSH-18."""
        return self.charset_name or hl7_charset_name(self.encoding)
