"""What systemd is told."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from lab_agent.shared import sd_notify
from tests.harness.clock import DEADLINE


@pytest.mark.parametrize("abstract", [False, True])
def test_sd_notify_sends_expected_datagrams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool) -> None:
    """Where a manager listens, and none where there is no socket, or the manager is gone."""
    name = f"@lab-notify-{os.getpid()}" if abstract else str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(name.replace("@", "\0"))
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        assert sd_notify.notify_ready("up")
        assert sd_notify.notify_watchdog()
        assert sd_notify.notify_reloading(5)
        assert sd_notify.notify_stopping()
        sock.settimeout(DEADLINE)
        told = [sock.recv(99) for _ in range(4)]
    assert told == [b"READY=1\nSTATUS=up", b"WATCHDOG=1", b"RELOADING=1\nMONOTONIC_USEC=5", b"STOPPING=1"]
    assert not sd_notify.notify_ready()
    monkeypatch.delenv("NOTIFY_SOCKET")
    assert not sd_notify.notify_ready()


def test_watchdog_interval_follows_environment() -> None:
    own = str(os.getpid())
    for usec, pid, interval in (
        (None, None, None),
        ("0", None, None),
        ("x", None, None),
        ("30000000", None, 15.0),
        ("30000000", "1", None),
        ("30000000", own, 15.0),
    ):
        given = {"WATCHDOG_USEC": usec, "WATCHDOG_PID": pid}
        assert sd_notify.watchdog_interval({name: value for name, value in given.items() if value}) == interval
