"""Settings of a `[lis.<name>]` table of the http adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from lab_agent.lis.time_zones import TimeZoneName, to_zone


def _validate_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError("must be an address such as https://lis.example/lab-agent/, without a password")
    return value if value.endswith("/") else f"{value}/"


def _validate_path(value: str) -> str:
    if value.startswith("/") or "://" in value or ".." in value:
        raise ValueError("must be a path below the LIS's address, such as orders or orders/{key}")
    return value


def _validate_secret(value: SecretStr) -> SecretStr:
    if len(value.get_secret_value()) < 16:
        raise ValueError("is too short: use at least 16 random characters")
    return value


SigningSecret = Annotated[SecretStr, AfterValidator(_validate_secret)]
UrlPath = Annotated[str, AfterValidator(_validate_path)]


class HttpTlsSettings(BaseModel):
    """Certificates of the endpoint for results."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)

    certificate: Path
    """Our own certificate with its chain (PEM)."""
    key: Path
    """Key of our certificate (PEM, without a password)."""
    ca: Path | None = None
    """CA certificates (PEM) of the LIS: it must then show a certificate of theirs."""


class HttpSettings(BaseModel):
    """Where orders are sent, where results arrive, and the secrets that sign both."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)

    url: Annotated[str, AfterValidator(_validate_url)]
    """Address of the LIS; the paths below are appended to it."""
    secret: SigningSecret
    """Secret that the agent signs with; at least 16 characters."""
    incoming_secret: SigningSecret
    """Secret that the LIS signs with; must differ from `secret`."""
    previous_incoming_secret: SigningSecret | None = None
    """The previous `incoming_secret`, accepted too while the LIS switches to the new one."""
    orders_path: UrlPath = "orders"
    """Path that orders are posted to."""
    cancel_path: UrlPath = "cancellations"
    """Path that cancellations are posted to."""
    status_path: UrlPath = ""
    """Path that answers GET with 200 or 404: does the LIS have the order {key}? Such as orders/{key}; empty: not available."""
    check_path: UrlPath = ""
    """Path that answers GET with 2xx while the LIS is healthy; empty: only our own endpoint is checked."""
    timeout: Annotated[float, Field(gt=0, le=600)] = 30.0
    """Seconds a call may take; keep it below `lis.call_timeout`."""
    ca_file: Path | None = None
    """CA certificates (PEM) for the LIS's certificate; those of the operating system if not set."""
    proxy: str | None = None
    """Address of an HTTP proxy."""
    host: str = "127.0.0.1"
    """Address the endpoint for results listens on; set `tls`, or put a TLS proxy in front of it, for another machine."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8300
    """Port the endpoint for results listens on."""
    tls: HttpTlsSettings | None = None
    """Encrypts the endpoint for results; without this table it is plain HTTP."""
    prefix: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)*$")] = ""
    """Prefix of the endpoint's own paths, such as /lis."""
    replay_window: Annotated[float, Field(gt=0, le=86400)] = 300.0
    """Seconds by which a timestamp may differ from our clock."""
    max_message_bytes: Annotated[int, Field(gt=0)] = 64_000_000
    """Largest message accepted, in bytes, documents included."""
    max_unfinished_bytes: Annotated[int, Field(gt=0)] = 128_000_000
    """Largest size of all messages together that arrive or are not answered yet; beyond it the largest of strangers get 503."""
    body_timeout: Annotated[float, Field(gt=0, le=3600)] = 120.0
    """Seconds in which a message must have arrived; after that the endpoint answers 408."""
    body_idle_timeout: Annotated[float, Field(gt=0, le=3600)] = 15.0
    """Seconds for which the LIS may pause in the middle of a message; after that the endpoint answers 408."""
    refused_folder: Path | None = None
    """Folder for rejected messages, each with its reason beside it; not stored if not set (the LIS still has them)."""
    time_zone: TimeZoneName | None = None
    """Time zone of times that the LIS writes without one; if not set, such a time is rejected."""

    @property
    def zone(self) -> ZoneInfo | None:
        """The time zone of times without one."""
        return to_zone(self.time_zone)

    @property
    def incoming_secrets(self) -> tuple[bytes, ...]:
        """The secrets that messages may be signed with."""
        secrets = (self.incoming_secret, self.previous_incoming_secret)
        return tuple(one.get_secret_value().encode() for one in secrets if one is not None)

    @model_validator(mode="after")
    def _check_secrets_and_paths(self) -> Self:
        if self.secret == self.incoming_secret:
            raise ValueError("secret and incoming_secret must differ: otherwise our own messages could be replayed to us")
        if self.max_unfinished_bytes < self.max_message_bytes:
            raise ValueError("max_unfinished_bytes must be at least max_message_bytes: otherwise the largest message never fits")
        if self.status_path and "{key}" not in self.status_path:
            raise ValueError("status_path must contain {key}, such as orders/{key}")
        return self
