"""The channel of mail: SMTP with a verified certificate, in a thread; mails about one condition refer to the first."""

from __future__ import annotations

import asyncio
import os
import smtplib
import socket
import ssl
from dataclasses import dataclass
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP as SMTP_POLICY
from email.utils import format_datetime

from lab_agent.operations.notification.channel import NotificationNotSent
from lab_agent.operations.notification.message import Message
from lab_agent.operations.notification.text import to_text
from lab_agent.settings.notify import EmailSettings
from lab_agent.shared.conditions.model import Severity
from lab_agent.shared.text import shorten

_MAX_REFERENCES = 20


@dataclass(frozen=True, slots=True)
class EmailChannel:
    """Sends mail to the recipients of its settings."""

    name: str
    settings: EmailSettings

    @property
    def timeout(self) -> float:
        """Seconds."""
        return self.settings.timeout

    async def send(self, message: Message) -> str:
        """Send one mail to all recipients; says whom the server refused."""
        mail = build_mail(message, self.settings)
        try:
            async with asyncio.timeout(self.settings.timeout):
                return await asyncio.to_thread(self._send, mail)
        except (OSError, UnicodeError, smtplib.SMTPException) as exc:  # a TimeoutError is an OSError
            raise NotificationNotSent(f"the mail server {self._server} {failure_reason(exc)}") from exc

    @property
    def _server(self) -> str:
        return f"{self.settings.host}:{self.settings.real_port}"

    def _send(self, mail: EmailMessage) -> str:
        with self._connect() as server:
            if self.settings.user is not None and self.settings.password is not None:
                server.login(self.settings.user, self.settings.password.get_secret_value())
            refused = server.send_message(mail, self.settings.sender, list(self.settings.recipients))
        return f"the mail server refuses {', '.join(sorted(refused))}" if refused else ""

    def _connect(self) -> smtplib.SMTP:
        host, port, seconds = self.settings.host, self.settings.real_port, self.settings.timeout
        name = socket.gethostname() if socket.gethostname().isascii() else "localhost"
        if self.settings.security == "tls":
            return smtplib.SMTP_SSL(host, port, name, timeout=seconds, context=self._tls())
        server = smtplib.SMTP(host, port, name, timeout=seconds)
        if self.settings.security == "starttls":
            try:
                server.starttls(context=self._tls())
            except BaseException:
                server.close()
                raise
        return server

    def _tls(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.settings.ca_file)
        except OSError as exc:  # ssl.SSLError is one, too
            raise NotificationNotSent("the certificates of `ca_file` cannot be read") from exc
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context


def build_mail(message: Message, settings: EmailSettings) -> EmailMessage:
    """Make the mail. No text can add a header: titles are on one line, and the policy refuses line ends."""
    domain = settings.sender.rpartition("@")[2]
    mail = EmailMessage(policy=SMTP_POLICY)
    mail["From"] = Address(f"lab-agent {shorten(message.laboratory)}", addr_spec=settings.sender)
    mail["To"] = [Address(addr_spec=each) for each in settings.recipients]
    mail["Subject"] = shorten(message.title, 250)
    mail["Date"] = format_datetime(message.at)
    mail["Message-ID"] = f"<{message.id}@{domain}>"
    if message.references:
        mail["In-Reply-To"] = f"<{message.references[0]}@{domain}>"
        mail["References"] = " ".join(f"<{each}@{domain}>" for each in message.references[:_MAX_REFERENCES])
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: no out-of-office reply
    if message.severity is Severity.CRITICAL:
        mail["Importance"] = "high"
    mail.set_content(to_text(message), charset="utf-8", cte="quoted-printable")
    return mail


def failure_reason(exc: Exception) -> str:
    """Say in words why no mail was taken. What a server says to a login is left out: it may repeat what was sent."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        why = shorten(exc.verify_message)
        return f"has a certificate that is not trusted: {why}; set `ca_file`, or as `host` the name that is in it"
    if isinstance(exc, smtplib.SMTPException):
        return _refusal_reason(exc)
    return next((reason for kind, reason in _CONNECTION_REASONS if isinstance(exc, kind)), None) or _system_reason(exc)


def _refusal_reason(exc: smtplib.SMTPException) -> str:
    match exc:
        case smtplib.SMTPAuthenticationError():
            return f"rejects user or password ({exc.smtp_code})"
        case smtplib.SMTPNotSupportedError():
            return "does not offer what the settings ask for (STARTTLS, or signing in): check `security` and `port`"
        case smtplib.SMTPRecipientsRefused():
            return f"refuses all recipients ({', '.join(sorted({str(code) for code, _ in exc.recipients.values()}))})"
        case smtplib.SMTPResponseException():
            return f"refuses: {exc.smtp_code} {shorten(_as_text(exc.smtp_error))}"
        case _:
            return "closed the connection: check `security` and `port`"


def _system_reason(exc: Exception) -> str:
    number = exc.errno if isinstance(exc, OSError) else None
    return f"cannot be reached: {os.strerror(number)}" if number else "cannot be reached: the connection broke off"


def _as_text(said: bytes | str) -> str:
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else said


_CONNECTION_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (ssl.SSLError, "cannot agree on encryption: check `security` and `port`"),
    (UnicodeError, "has a name that is none: check `host`"),
    (socket.gaierror, "has a name that cannot be resolved: check `host`"),
    (TimeoutError, "does not answer in time"),
    (ConnectionRefusedError, "refuses the connection: check `host` and `port`"),
)
