"""`lab-agent files`: where the documentation, the example settings and the systemd units are."""

from __future__ import annotations

from lab_agent.cli.output import print_raw
from lab_agent.shared.shipped_files import shipped_files_folder


def files() -> None:
    """Print the folder with the documentation (docs), example settings and tables (config), and systemd units (systemd)."""
    print_raw(str(shipped_files_folder()))
