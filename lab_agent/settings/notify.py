"""`[notify]`: how people are told of conditions away from the machine, and the dead man's ping."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, FilePath, SecretStr, field_validator, model_validator

from lab_agent.settings.groups import AbsoluteUrl, Basic, Port, Seconds, SettingsGroup
from lab_agent.shared.errors import ForeignOrigin
from lab_agent.shared.url_origin import is_loopback, origin_of

SeverityName = Literal["critical", "warning", "notice"]
WebhookTemplate = Literal["json", "slack", "mattermost", "teams", "discord", "telegram"]
ChannelName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$")]
"""The name of a channel: it is part of an alert's key, and of the names of variables and credentials."""

_ADDRESS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]+@[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_DEFAULT_PORTS = {"starttls": 587, "tls": 465, "none": 25}
_SECRET_PREFIX = "whsec_"  # noqa: S105 - the mark of a secret, no secret
_SHORTEST_SECRET = 24


def _check_address(text: str) -> str:
    if not _ADDRESS.fullmatch(text):
        raise ValueError("is not a plain mail address; write it as name@host, without a display name")
    return text


def _check_secret_url(url: SecretStr) -> SecretStr:
    try:
        origin = origin_of(url.get_secret_value())
    except ForeignOrigin as exc:
        raise ValueError("is not an http or https address; write it as https://host/path, without a user name") from exc
    if origin.scheme == "http" and not is_loopback(url.get_secret_value()):
        raise ValueError("would send notifications unencrypted; use https (plain http is for this machine only)")
    return url


def _check_ascii(text: str) -> str:
    if not text.isascii() or not text.isprintable():
        raise ValueError("has a character that mail servers do not take at signing in; use printable ASCII")
    return text


def _check_ascii_secret(text: SecretStr) -> SecretStr:
    _check_ascii(text.get_secret_value())
    return text


MailAddress = Annotated[str, AfterValidator(_check_address)]
SecretUrl = Annotated[SecretStr, AfterValidator(_check_secret_url)]
"""An https address (http on this machine); who has it may write there, so that it is a secret."""


class ChannelSettings(SettingsGroup):
    """What every channel has."""

    severity: SeverityName | None = None
    """The least severity that this channel tells. If not set, `notify.severity`."""
    timeout: Seconds = 30.0
    """Seconds that sending one notification may take."""


class EmailSettings(ChannelSettings):
    """A channel that sends mail, by SMTP. `email.<name>` is its name."""

    host: Basic[Annotated[str, Field(pattern=r"^[A-Za-z0-9.:_-]+$")]]
    """The mail server."""
    port: Port | None = None
    """Its port. If not set, 587 for `starttls`, 465 for `tls`, 25 for `none`."""
    security: Literal["starttls", "tls", "none"] = "starttls"
    """`starttls` encrypts before anything is said, `tls` from the first byte; the server's certificate is verified. `none` is for
    a mail server on this machine only."""
    ca_file: FilePath | None = None
    """PEM file of the certificate authorities to trust, instead of the public ones."""
    user: Annotated[str, AfterValidator(_check_ascii)] | None = None
    """Login at the mail server, in ASCII. If not set, nobody signs in."""
    password: Annotated[SecretStr, AfterValidator(_check_ascii_secret)] | None = None
    """Password of that login, in ASCII."""
    sender: Basic[MailAddress]
    """Address that the mail comes from."""
    recipients: Basic[Annotated[tuple[MailAddress, ...], Field(min_length=1)]]
    """Addresses that the mail goes to."""

    @property
    def real_port(self) -> int:
        """The port, as set or as usual."""
        return _DEFAULT_PORTS[self.security] if self.port is None else self.port

    @model_validator(mode="after")
    def _check_security(self) -> Self:
        if self.security == "none" and self.host not in _LOOPBACK_HOSTS:
            raise ValueError('security = "none" is for a mail server on this machine; use "starttls" or "tls"')
        if (self.user is None) != (self.password is None):
            raise ValueError("user and password belong together; set both, or neither")
        return self


class WebhookSettings(ChannelSettings):
    """A channel that posts JSON to an address. `webhook.<name>` is its name."""

    url: SecretUrl
    """Address to post to: https, or http on this machine. It is kept secret, as who knows it may write there."""
    template: WebhookTemplate = "json"
    """What is posted: `json` is our own (docs/notifications.md), the others are what these chat tools take."""
    chat_id: str | None = None
    """For `telegram`: the chat to write to."""
    secret: SecretStr | None = None
    """Signs what is posted, as Standard Webhooks do (HMAC-SHA256): `whsec_` and Base64, or a text of at least 24 characters."""
    ca_file: FilePath | None = None
    """PEM file of the certificate authorities to trust, instead of the public ones."""
    proxy: str | None = None
    """Address of an HTTP proxy. None is taken from the environment."""

    @field_validator("secret")
    @classmethod
    def _check_secret(cls, secret: SecretStr | None) -> SecretStr | None:
        if secret is not None and len(secret_bytes(secret)) < _SHORTEST_SECRET:
            raise ValueError(f"is too short: {_SHORTEST_SECRET} bytes are the least; `openssl rand -base64 32` makes one")
        return secret

    @model_validator(mode="after")
    def _check_chat(self) -> Self:
        if self.template == "telegram" and not self.chat_id:
            raise ValueError('template = "telegram" needs chat_id; set it too')
        return self


class CommandSettings(ChannelSettings):
    """A channel that runs a program, such as that of an SMS gateway. `command.<name>` is its name."""

    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    """The program and its arguments. No shell reads them. It gets the notification as JSON on its standard input, and its title
    in the variable NOTIFICATION_TITLE; exit code 0 says that it was delivered."""


class PingSettings(SettingsGroup):
    """The dead man's switch: an address that is called as long as all is well; whoever watches it raises the alarm when no call
    comes."""

    url: SecretUrl | None = None
    """Address to call. If not set, nothing is called."""
    fail_url: SecretUrl | None = None
    """Address to call instead while the agent runs and cannot work, where the watching service has one (often `<url>/fail`)."""
    interval: Seconds = 60.0
    """Seconds between two calls."""
    method: Literal["GET", "HEAD", "POST"] = "GET"
    """Method of the call."""
    timeout: Seconds = 10.0
    """Seconds that a call may take."""
    ca_file: FilePath | None = None
    """PEM file of the certificate authorities to trust, instead of the public ones."""
    proxy: str | None = None
    """Address of an HTTP proxy. None is taken from the environment."""


class NotifySettings(SettingsGroup):
    """Who is told of conditions, away from the machine. Any number of channels, each with a name of its own."""

    laboratory: str = Field(default="", max_length=60)
    """Name of this installation in what is sent. If not set, the name of the machine."""
    link: AbsoluteUrl | None = None
    """Address of the status page as its readers reach it, for links."""
    severity: SeverityName = "warning"
    """The least severity that is told: `critical`, `warning` or `notice`."""
    first_after: Seconds = 60.0
    """Seconds for which something must hold before it is told; what begins meanwhile is told with it. What is over by then is not
    told."""
    ended_after: Seconds = 300.0
    """Seconds for which something must be over before that is told, so that what comes and goes is told once."""
    remind_every: Seconds = 86_400.0
    """Seconds between two reminders of all that still holds."""
    at_most: Annotated[int, Field(ge=1, le=1000)] = 12
    """Notifications that a channel sends within an hour. What is more waits, and is one notification then; what is critical never
    waits."""
    email: dict[ChannelName, EmailSettings] = Field(default_factory=dict)
    """Channels that send mail."""
    webhook: dict[ChannelName, WebhookSettings] = Field(default_factory=dict)
    """Channels that post to an address."""
    command: dict[ChannelName, CommandSettings] = Field(default_factory=dict)
    """Channels that run a program."""
    ping: PingSettings = Field(default_factory=PingSettings)
    """The dead man's switch."""

    def channels(self) -> Iterator[tuple[str, EmailSettings | WebhookSettings | CommandSettings]]:
        """Give all channels with their names, as in `email.it`."""
        yield from ((f"email.{name}", each) for name, each in self.email.items())
        yield from ((f"webhook.{name}", each) for name, each in self.webhook.items())
        yield from ((f"command.{name}", each) for name, each in self.command.items())


def secret_bytes(secret: SecretStr) -> bytes:
    """Give the key that a webhook's secret stands for. Raises `ValueError` where what follows `whsec_` is not Base64."""
    text = secret.get_secret_value()
    if not text.startswith(_SECRET_PREFIX):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix(_SECRET_PREFIX), validate=True)
    except binascii.Error as exc:
        raise ValueError("is not Base64 after whsec_") from exc
