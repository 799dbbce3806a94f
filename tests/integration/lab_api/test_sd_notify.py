"""What systemd is told."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from lab_agent import sd_notify
from tests.harness.clock import DEADLINE


@pytest.mark.parametrize("abstract", [False, True])
def test_sd_notify_sends_expected_datagrams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool) -> None:
    name = f"@lab-notify-{os.getpid()}" if abstract else str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(name.replace("@", "\0"))
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        assert sd_notify.notify_ready("up")
        assert sd_notify.notify_watchdog()
        assert sd_notify.notify_reloading(5)
        assert sd_notify.notify_stopping()
        sock.settimeout(DEADLINE)
        assert [sock.recv(99) for _ in range(4)] == [
            b"READY=1\nSTATUS=up",
            b"WATCHDOG=1",
            b"RELOADING=1\nMONOTONIC_USEC=5",
            b"STOPPING=1",
        ]
    assert not sd_notify.notify_ready()  # the manager is gone


def test_sd_notify_without_socket_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not sd_notify.notify_ready()


@pytest.mark.parametrize(
    ("environ", "interval"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "x"}, None),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
    ],
)
def test_watchdog_interval_follows_environment(environ: dict[str, str], interval: float | None) -> None:
    assert sd_notify.watchdog_interval(environ) == interval
