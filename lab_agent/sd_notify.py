"""Tell systemd how we are (Type=notify): a datagram to the socket named in NOTIFY_SOCKET, and nothing where there is none."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


def notify_ready(status: str = "") -> bool:
    """Say that the service is up. Gives whether anybody was told."""
    return _send_notification("READY=1", status)


def notify_reloading(monotonic_usec: int) -> bool:
    """Say that a reload began; `ready` ends it."""
    return _send_notification("RELOADING=1", "", f"MONOTONIC_USEC={monotonic_usec}")


def notify_stopping(status: str = "") -> bool:
    """Say that the service is going down."""
    return _send_notification("STOPPING=1", status)


def notify_watchdog() -> bool:
    """Say that the service is alive."""
    return _send_notification("WATCHDOG=1")


def watchdog_interval(environ: Mapping[str, str] | None = None) -> float | None:
    """Seconds between two signs of life: half of what systemd waits. None if it does not wait for any."""
    environ = os.environ if environ is None else environ
    usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not usec.isdecimal() or int(usec) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(usec) / 2_000_000


def _send_notification(state: str, status: str = "", extra: str = "") -> bool:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    lines = [state, *([f"STATUS={status}"] if status else []), *([extra] if extra else [])]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        try:
            link.sendto("\n".join(lines).encode(), "\0" + address[1:] if address[0] == "@" else address)
        except OSError:
            return False  # a manager that is gone is no reason to stop working
    return True
