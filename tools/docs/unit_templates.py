"""The templates for several sites on one machine: the units of the only site, with the site's name where that one has none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

UNITS = Path(__file__).parents[2] / "systemd"
_REPLACED = (
    ("/etc/lab-agent/", "/etc/lab-agent-%i/"),
    ("/var/lib/lab-agent", "/var/lib/lab-agent-%i"),
    ("/var/backups/lab-agent", "/var/backups/lab-agent-%i"),
    ("StateDirectory=lab-agent", "StateDirectory=lab-agent-%i"),
    ("User=lab-agent", "User=lab-agent-%i"),
    ("Group=lab-agent", "Group=lab-agent-%i"),
    ("lab-agent.target", "lab-agent@%i.target"),
    ("lab-agent.service", "lab-agent@%i.service"),
    ("lab-api.service", "lab-api@%i.service"),
    ("lab-agent-backup.timer", "lab-agent-backup@%i.timer"),
    ("systemctl edit lab-agent`", "systemctl edit lab-agent@SITE`"),
    ("systemctl edit lab-api`", "systemctl edit lab-api@SITE`"),
    ("systemctl edit lab-agent-backup@%i.timer`", "systemctl edit lab-agent-backup@SITE.timer`"),
)


def render_unit_templates() -> Iterator[tuple[str, str]]:
    """The name and the text of each template."""
    for unit in sorted(UNITS.iterdir()):
        if unit.suffix in {".service", ".timer", ".target"} and not unit.stem.endswith("@"):
            yield f"{unit.stem}@{unit.suffix}", render_unit_template(unit.read_text(encoding="utf-8"))


def render_unit_template(text: str) -> str:
    """The template of one unit."""
    for old, new in _REPLACED:
        text = text.replace(old, new)
    lines = (f"{line} (%i)" if line.startswith("Description=") else line for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines)
