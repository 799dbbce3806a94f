"""The progress bar: at a terminal, once the work takes long; never for programs, and never on standard output."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from lab_agent.cli import progress
from lab_agent.cli.progress import progress_bar
from lab_agent.settings.root import load_settings
from lab_agent.store.backups import list_backups, make_backup, restore_backup
from tests.harness.clock import wait_until
from tests.integration.cli.conftest import LaboratoryFolder

NOW = datetime(2026, 3, 1, 2, 30, tzinfo=UTC)


class Screen(io.StringIO):
    """Standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


def watch(monkeypatch: pytest.MonkeyPatch, shown_after: float = 0) -> Screen:
    """Let standard error be a terminal from now on; pytest puts its own there after the fixtures."""
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    for name, value in (("TERM", "xterm"), ("COLUMNS", "100")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(progress, "SHOWN_AFTER", shown_after)
    return screen


async def test_long_work_is_shown_on_standard_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    with progress_bar("Backing up") as tell:
        tell(30, 100)
        await wait_until(lambda: "Backing up" in screen.getvalue() and "30%" in screen.getvalue(), "the bar is shown")
    assert capsys.readouterr().out == ""


def test_short_work_and_programs_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch, shown_after=60)
    with progress_bar("Backing up") as tell:
        tell(100, 100)
    assert screen.getvalue() == ""
    screen = watch(monkeypatch)
    with progress_bar("Backing up", as_json=True) as tell:
        tell(1, 2)
    assert screen.getvalue() == ""
    piped = io.StringIO()
    monkeypatch.setattr(sys, "stderr", piped)
    with progress_bar("Backing up") as tell:
        tell(1, 2)
    assert piped.getvalue() == ""


@pytest.mark.parametrize("encrypt", [False, True])
def test_backup_and_restore_tell_how_far_they_are(lab: LaboratoryFolder, encrypt: bool) -> None:
    settings = load_settings(lab.config, requires_login=False).store

    def check(work: Callable[[progress.Tell], object]) -> None:
        told: list[tuple[int, int]] = []
        work(lambda done, total: told.append((done, total)))
        shares = [done / total for done, total in told]
        assert len(shares) > 1
        assert all(0 < share <= 1 for share in shares)

    check(lambda tell: make_backup(settings, lab.folder / "b", NOW, encrypt=encrypt, tell=tell))
    (made,) = list_backups(lab.folder / "b")
    check(lambda tell: restore_backup(settings, made.path, NOW, tell=tell))
