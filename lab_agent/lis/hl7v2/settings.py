"""The keys of a `[lis.<name>]` table of the hl7v2 adapter."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from lab_agent.lis.hl7v2.field_map import FieldMap, default_field_map, load_field_map
from lab_agent.lis.hl7v2.parser import UnknownCharsetError, codec_name, hl7_charset_name

_MODEL_CONFIG = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)


def _validate_time_zone(value: str) -> str:
    if value not in available_timezones():
        raise ValueError("is no time zone, such as Europe/Moscow")
    return value


def _validate_encoding(value: str) -> str:
    try:
        return codec_name(value)
    except UnknownCharsetError:
        raise ValueError("is no code page that is known here, such as utf-8, cp1251 or iso-8859-5") from None


class TlsSettings(BaseModel):
    """TLS of one link. As a client we always look at the LIS's certificate; as a server at the client's where `ca` is set."""

    model_config = _MODEL_CONFIG

    ca: Path | None = None
    """Certificates that the other side's is checked against (PEM); as a client, the system's if not set."""
    certificate: Path | None = None
    """Our own certificate with its chain (PEM); a server needs one."""
    key: Path | None = None
    """The key of our certificate (PEM, without a password)."""
    server_name: str | None = None
    """Name that the LIS's certificate must carry, where it is not the host."""


def _validate_networks(value: tuple[str, ...]) -> tuple[str, ...]:
    for one in value:
        ip_network(one, strict=False)
    return value


class ConnectionSettings(BaseModel):
    """One link to the LIS: who calls whom, and where."""

    model_config = _MODEL_CONFIG

    role: Literal["client", "server"]
    """`client`: we connect to the LIS. `server`: the LIS connects to us."""
    host: str = "127.0.0.1"
    """Name or address of the LIS (client), or the address that we listen on (server)."""
    port: Annotated[int, Field(ge=0, le=65535)]
    """Port of the LIS, or the port that we listen on."""
    tls: TlsSettings | None = None
    """Encrypt the link; without this table it is plain, and belongs into a network of its own."""
    allow: Annotated[tuple[str, ...], AfterValidator(_validate_networks)] = ()
    """As a server: addresses or networks (10.1.0.0/16) that may connect; all if empty. At most 64 connections are taken."""
    connections: Annotated[int, Field(ge=1, le=64)] = 1
    """As a client: connections that are kept open side by side."""

    @model_validator(mode="after")
    def _check_consistency(self) -> ConnectionSettings:
        if self.role == "client" and not self.port:
            raise ValueError("a client needs the port of the LIS")
        if self.role == "server" and self.tls is not None and (self.tls.certificate is None or self.tls.key is None):
            raise ValueError("a server with TLS needs tls.certificate and tls.key")
        if self.tls is not None and (self.tls.certificate is None) != (self.tls.key is None):
            raise ValueError("tls.certificate and tls.key belong together")
        return self


class Hl7v2Settings(BaseModel):
    """How we and the LIS reach and answer each other, and what a message looks like."""

    model_config = _MODEL_CONFIG

    orders: ConnectionSettings
    """The link that orders go out on."""
    results: ConnectionSettings | None = None
    """The link that results come in on; if not set, they come on the connections of `orders`."""
    folder: Path
    """A folder of the adapter's own (made with mode 0700): messages that we could not take lie in `refused` in it."""
    duplicates: Literal["msh10", "placer", "none"]
    """How the LIS tells a repeated order: by MSH-10, by ORC-2, or not at all (then a person settles an unknown outcome)."""
    order_message: Literal["OML", "ORM"] = "OML"
    """OML^O21, or ORM^O01 where the LIS is older."""
    acknowledgement: Literal["original", "commit", "enhanced", "none"] = "original"
    """What answers an order: AA, AE or AR (`original`), CA (`commit`), CA and then AA (`enhanced`), or nothing (`none`)."""
    answer_results: Literal["as_asked", "original", "none"] = "as_asked"
    """How we answer results: as their MSH-15 and MSH-16 ask, always with one AA or AE, or never."""
    encoding: Annotated[str, AfterValidator(_validate_encoding)] = "utf-8"
    """Code page of what we send, and of what comes without one in MSH-18."""
    charset_name: str | None = None
    """What we write into MSH-18, where the LIS wants another spelling."""
    unencodable: Literal["refuse", "replace"] = "refuse"
    """What becomes of a character that the code page has not: the order waits for a person, or a question mark is sent."""
    time_zone: Annotated[str, AfterValidator(_validate_time_zone)] | None = None
    """Time zone that is meant where the LIS writes a time without one; if not set, such a result is refused."""
    version: str = "2.5.1"
    """Version of HL7 that we write into MSH-12."""
    processing_id: Literal["P", "T", "D"] = "P"
    """Production, training or debugging (MSH-11); messages with another one are refused."""
    sending_application: str = "LAB-AGENT"
    """MSH-3."""
    sending_facility: str = ""
    """MSH-4."""
    receiving_application: str = "LIS"
    """MSH-5."""
    receiving_facility: str = ""
    """MSH-6."""
    mapping: Path | None = None
    """A mapping file (TOML) that is laid over the map which comes with the adapter."""
    retry_codes: tuple[str, ...] = ("206", "207")
    """ERR-3 codes with which the LIS says that it may work later (application record locked, internal error)."""
    duplicate_codes: tuple[str, ...] = ("205",)
    """ERR-3 codes with which the LIS says that it has this order already; that is a success."""
    connect_timeout: Annotated[float, Field(gt=0, le=300)] = 10.0
    """Seconds that connecting may take."""
    answer_timeout: Annotated[float, Field(gt=0, le=300)] = 30.0
    """Seconds to wait for each answer; afterwards the outcome is unknown. Keep it below `lis.call_timeout`."""
    frame_timeout: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """Seconds in which a message that has begun must go on; afterwards the connection is closed."""
    keep_alive: Annotated[int, Field(ge=0, le=7200)] = 60
    """Seconds of silence after which TCP looks whether the other side is still there; 0: never."""
    reconnect_wait: Annotated[float, Field(gt=0, le=300)] = 5.0
    """Seconds between two attempts to connect."""
    max_message_bytes: Annotated[int, Field(ge=1000)] = 50_000_000
    """Largest message that is read, in bytes."""
    keep: Literal["refused", "all"] = "refused"
    """Which messages are kept as they came: those that we could not take, or all (they hold names; docs/adapters-hl7v2.md)."""
    keep_days: Annotated[int, Field(ge=1, le=3660)] = 30
    """Days for which they are kept."""

    _field_map: FieldMap = PrivateAttr(default_factory=default_field_map)

    @model_validator(mode="after")
    def _load_mapping(self) -> Hl7v2Settings:
        """Read the mapping file once, here, so that what is wrong in it is a fault of the settings."""
        if self.mapping is not None:
            self._field_map = load_field_map(self.mapping)
        return self

    @property
    def field_map(self) -> FieldMap:
        """The map that comes with the adapter, with the laboratory's own laid over it."""
        return self._field_map

    @property
    def zone(self) -> ZoneInfo | None:
        """The time zone that is meant where none is written."""
        return ZoneInfo(self.time_zone) if self.time_zone else None

    @property
    def charset(self) -> str:
        """MSH-18."""
        return self.charset_name or hl7_charset_name(self.encoding)
