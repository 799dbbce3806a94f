"""How much is logged, and in which form."""

from __future__ import annotations

from typing import Literal

from lab_agent.settings.base import SettingsGroup


class LoggingSettings(SettingsGroup):
    """The log, on standard error. It never holds a name, a birth date, a token or a payload."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least serious kind of line that is logged."""
    format: Literal["json", "console"] = "console"
    """`json`: one object a line, for machines; `console`: for people."""
