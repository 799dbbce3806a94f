"""The keys of a `[lis.<name>]` table of the http adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator


def _validate_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError("is no address such as https://lis.example/lab-agent/, without a password in it")
    return value if value.endswith("/") else f"{value}/"


def _validate_path(value: str) -> str:
    if value.startswith("/") or "://" in value or ".." in value:
        raise ValueError("is no path below the LIS's address, such as orders or orders/{key}")
    return value


def _validate_secret(value: SecretStr) -> SecretStr:
    if len(value.get_secret_value()) < 16:
        raise ValueError("is too short: take at least 16 characters, made by chance")
    return value


def _validate_time_zone(value: str) -> str:
    if value not in available_timezones():
        raise ValueError("is no time zone, such as Europe/Moscow")
    return value


SigningSecret = Annotated[SecretStr, AfterValidator(_validate_secret)]
UrlPath = Annotated[str, AfterValidator(_validate_path)]


class HttpSettings(BaseModel):
    """Where orders are sent, where results are heard, and what both are signed with."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)

    url: Annotated[str, AfterValidator(_validate_url)]
    """Address of the LIS that the paths below are joined to."""
    secret: SigningSecret
    """What we sign with; the LIS checks it. At least 16 characters."""
    incoming_secret: SigningSecret
    """What the LIS signs with; another one than `secret`."""
    previous_incoming_secret: SigningSecret | None = None
    """The one before, while the LIS is moved to the new one."""
    orders_path: UrlPath = "orders"
    """Path that orders are posted to."""
    cancel_path: UrlPath = "cancellations"
    """Path that withdrawals are posted to."""
    status_path: UrlPath = ""
    """Path that says by GET whether the LIS has an order (200 or 404), with {key}, such as orders/{key}; empty: there is none."""
    check_path: UrlPath = ""
    """Path that answers GET with 2xx while the LIS is well; empty: there is none, and only our own endpoint is looked at."""
    timeout: Annotated[float, Field(gt=0, le=600)] = 30.0
    """Seconds that a call may take; keep it below `lis.call_timeout`."""
    ca_file: Path | None = None
    """Certificates that the LIS's certificate is checked with; the machine's own if not set."""
    proxy: str | None = None
    """Address of a proxy, if there is one between."""
    host: str = "127.0.0.1"
    """Address that results are heard on; put a proxy with TLS before it where the LIS is on another machine."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8300
    """Port that results are heard on."""
    prefix: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)*$")] = ""
    """What our own paths begin with, such as /lis."""
    replay_window: Annotated[float, Field(gt=0, le=86400)] = 300.0
    """Seconds by which a time stamp may differ from our clock."""
    max_message_bytes: Annotated[int, Field(gt=0)] = 64_000_000
    """Largest message that is taken, in bytes; documents are in it."""
    refused_folder: Path | None = None
    """Folder that keeps each refused message with its reason beside it; not kept if not set (the LIS has it still)."""
    time_zone: Annotated[str, AfterValidator(_validate_time_zone)] | None = None
    """Time zone that is meant where the LIS writes a time without one; if not set, such a time is refused."""

    @property
    def zone(self) -> ZoneInfo | None:
        """The time zone that is meant where none is written."""
        return ZoneInfo(self.time_zone) if self.time_zone else None

    @property
    def incoming_secrets(self) -> tuple[bytes, ...]:
        """What messages may be signed with."""
        secrets = (self.incoming_secret, self.previous_incoming_secret)
        return tuple(one.get_secret_value().encode() for one in secrets if one is not None)

    @model_validator(mode="after")
    def _check_secrets_and_paths(self) -> Self:
        if self.secret == self.incoming_secret:
            raise ValueError("secret and incoming_secret are the same: what we sent could be sent back to us")
        if self.status_path and "{key}" not in self.status_path:
            raise ValueError("status_path has no {key} in it, such as orders/{key}")
        return self
