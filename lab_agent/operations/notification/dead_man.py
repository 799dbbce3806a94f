"""The dead man's switch: an address is called as long as all is well, so that silence raises the alarm somewhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from lab_agent.operations.notification.webhook import open_client
from lab_agent.settings.notify import PingSettings
from lab_agent.shared.errors import Failure
from lab_agent.shared.http_client import HttpOptions
from lab_agent.shared.url_origin import origin_of

log = structlog.get_logger(__name__)

_MAX_ANSWER = 64 * 1024


@dataclass(slots=True)
class DeadManPing:
    """Calls `url` while `is_healthy` holds, else `fail_url`, where one is set. A failure is logged once until a call works."""

    settings: PingSettings
    is_healthy: Callable[[], bool]
    _is_failing: bool = field(default=False, init=False)

    async def run(self) -> None:
        """Call once."""
        target = self.settings.url if self.is_healthy() else self.settings.fail_url
        if target is None:
            return
        url = target.get_secret_value()
        try:
            async with open_client(ping_options(self.settings)) as http:
                answer = await http.send(self.settings.method, url, base=url)
        except Failure as exc:
            self._tell_failure(str(exc))
        else:
            if 200 <= answer.status < 300:
                self._is_failing = False
            else:
                self._tell_failure(f"{origin_of(url)} answered {answer.status}")

    def _tell_failure(self, reason: str) -> None:
        if not self._is_failing:
            log.warning("the dead man's switch cannot be called", action="ping_failed", reason=reason)
        self._is_failing = True


def ping_options(settings: PingSettings) -> HttpOptions:
    """Limits of a call."""
    return HttpOptions(
        timeout=settings.timeout,
        connect_timeout=settings.timeout,
        read_timeout=settings.timeout,
        max_response=_MAX_ANSWER,
        max_connections=1,
        ca_file=settings.ca_file,
        proxy=settings.proxy,
    )
