"""Who runs this process, as the audit names it: the user of the operating system, and the host."""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path

from lab_agent.domain.audit import AuditChannel, AuditOrigin

_LOGIN_UID = Path("/proc/self/loginuid")
_NO_LOGIN = 2**32 - 1


def find_origin(channel: AuditChannel = AuditChannel.COMMAND) -> AuditOrigin:
    """Give `user@host`; where somebody signed in as another user (`sudo`), `that-user/user@host`. The environment has no say."""
    user, signed_in = _user_name(os.getuid()), _login_uid()
    names = user if signed_in is None or signed_in == os.getuid() else f"{_user_name(signed_in)}/{user}"
    return AuditOrigin(channel, f"{names}@{socket.gethostname()}")


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
