"""Who runs this process, as the audit names it: the user of the operating system with the host, and the person."""

from __future__ import annotations

import getpass
import os
import pwd
import socket
from pathlib import Path

from lab_agent.store.audit_records import AuditChannel, AuditOrigin

_LOGIN_UID = Path("/proc/self/loginuid")
_NO_LOGIN = 2**32 - 1


def find_origin(channel: AuditChannel = AuditChannel.COMMAND, by: str | None = None) -> AuditOrigin:
    """Give `user@host`; where somebody signed in as another user (`sudo`), `that-user/user@host`.

    What a command records is of `by`, by default of that person; what a program records by itself is of nobody.
    """
    user, person = _user_name(os.getuid()), _signed_in()
    names = user if person in {None, user} else f"{person}/{user}"
    is_command = channel is AuditChannel.COMMAND
    return AuditOrigin(channel, f"{names}@{socket.gethostname()}", (by or find_person()) if is_command else "")


def find_person() -> str:
    """Give the person at the command line: who signed in to this machine, by the name that the user has there."""
    try:
        return _signed_in() or getpass.getuser()
    except (KeyError, OSError):
        return "command line"


def _signed_in() -> str | None:
    """Who signed in to this machine. The environment is asked only where the kernel knows of no sign-in: in a unit of systemd,
    whose environment `lab-agentctl` makes, and in containers."""
    uid = _login_uid()
    return (os.environ.get("SUDO_USER") or None) if uid is None else _user_name(uid)


def _login_uid() -> int | None:
    """The user who signed in to this machine, which the kernel keeps; None where nobody did."""
    try:
        found = int(_LOGIN_UID.read_text())
    except (OSError, ValueError):
        return None
    return None if found == _NO_LOGIN else found


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
