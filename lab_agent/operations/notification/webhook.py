"""The channel that posts to an address, signed as Standard Webhooks do (standardwebhooks.com):

webhook-id: <id>                    the same in every repeat of the same notification
webhook-timestamp: 1718000000       Unix time in seconds
webhook-signature: v1,<Base64>      HMAC-SHA256(secret, "<id>.<timestamp>." + body)
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass

from lab_agent.operations.notification.channel import NotificationNotSent
from lab_agent.operations.notification.message import Message
from lab_agent.operations.notification.payloads import to_payload
from lab_agent.settings.notify import WebhookSettings, secret_bytes
from lab_agent.shared import exact_json
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import Failure
from lab_agent.shared.http_client import HttpClient, HttpOptions
from lab_agent.shared.http_dates import retry_after_of
from lab_agent.shared.url_origin import origin_of

_MAX_ANSWER = 256 * 1024
_REASONS = {
    401: "rejects the request: check `url`",
    403: "rejects the request: check `url`",
    404: "does not know the address: check `url`",
    410: "has removed the address: make a new one, and set `url`",
    413: "finds the notification too large",
    429: "asks to send less often",
}


@dataclass(frozen=True, slots=True)
class WebhookChannel:
    """Posts to the address of its settings; nothing but the signature says who we are, and no redirect is followed."""

    name: str
    settings: WebhookSettings
    clock: Clock

    @property
    def timeout(self) -> float:
        """Seconds."""
        return self.settings.timeout

    async def send(self, message: Message) -> str:
        """Post one."""
        body = exact_json.dumps(to_payload(self.settings.template, message, self.settings.chat_id))
        url = self.settings.url.get_secret_value()
        where = origin_of(url)
        try:
            async with open_client(http_options(self.settings)) as http:
                answer = await http.send("POST", url, base=url, headers=self._headers(message, body), content=body)
        except Failure as exc:  # its text has the origin at most: the path is the secret
            raise NotificationNotSent(str(exc)) from exc
        if not 200 <= answer.status < 300:
            what = _REASONS.get(answer.status, "does not take the notification")
            raise NotificationNotSent(
                f"{where} {what} ({answer.status})", retry_after=retry_after_of(answer.headers, self.clock.now())
            )
        return ""

    def _headers(self, message: Message, body: bytes) -> dict[str, str]:
        headers = {"Content-Type": "application/json; charset=utf-8", "webhook-id": message.id}
        if self.settings.secret is None:
            return headers
        stamp = str(int(self.clock.now().timestamp()))
        return headers | {
            "webhook-timestamp": stamp,
            "webhook-signature": sign(secret_bytes(self.settings.secret), message.id, stamp, body),
        }


def open_client(options: HttpOptions) -> HttpClient:
    """Make a client. Raises `NotificationNotSent` where the certificates to trust cannot be read."""
    try:
        return HttpClient(options)
    except OSError as exc:  # ssl.SSLError is one, too
        raise NotificationNotSent("the certificates of `ca_file` cannot be read") from exc


def http_options(settings: WebhookSettings) -> HttpOptions:
    """Limits of a call."""
    return HttpOptions(
        timeout=settings.timeout,
        connect_timeout=min(10.0, settings.timeout),
        read_timeout=settings.timeout,
        max_response=_MAX_ANSWER,
        max_connections=1,
        ca_file=settings.ca_file,
        proxy=settings.proxy,
    )


def sign(secret: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    """Give the value of `webhook-signature`."""
    code = hmac.new(secret, f"{message_id}.{timestamp}.".encode(), hashlib.sha256)
    code.update(body)
    return f"v1,{base64.b64encode(code.digest()).decode()}"
