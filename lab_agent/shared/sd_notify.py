"""Messages to systemd: ready, reloading, stopping, watchdog (sd_notify). Without systemd nothing is sent."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


def notify_ready(status: str = "") -> bool:
    """Tell systemd (Type=notify) that the service is up; whether there was somebody to tell."""
    return _notify("READY=1", status)


def notify_reloading(monotonic_usec: int) -> bool:
    """Tell systemd that a reload began; `notify_ready` ends it."""
    return _notify("RELOADING=1", "", f"MONOTONIC_USEC={monotonic_usec}")


def notify_stopping(status: str = "") -> bool:
    """Tell systemd that the service is going down."""
    return _notify("STOPPING=1", status)


def notify_watchdog() -> bool:
    """Tell systemd that the service is alive."""
    return _notify("WATCHDOG=1")


def watchdog_interval(environ: Mapping[str, str] | None = None) -> float | None:
    """Seconds between two signs of life: half of what systemd waits for one. None if it does not wait."""
    environ = os.environ if environ is None else environ
    usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not usec.isdecimal() or int(usec) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(usec) / 2_000_000


def _notify(state: str, status: str = "", extra: str = "") -> bool:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    lines = [state, *([f"STATUS={status}"] if status else []), *([extra] if extra else [])]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        try:
            sock.sendto("\n".join(lines).encode(), "\0" + address[1:] if address[0] == "@" else address)
        except OSError:
            return False  # a service manager that is gone is no reason to stop working
    return True
