"""`lab-agent backup` beside the mark outside the database: no backup hides that another one was put back."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from lab_agent.orders.restored_store import load_restoration, read_number
from lab_agent.store.backups import list_backups
from lab_agent.store.restoration import RestoreSign, find_sign
from lab_agent.store.store_mark import FileMark
from tests.integration.cli.conftest import Cli, LaboratoryFolder


def test_backup_of_a_database_put_back_by_hand_hides_nothing(cli: Cli, lab: LaboratoryFolder, tmp_path: Path) -> None:
    """The nightly backup runs before the agent is started again."""
    database, mark = tmp_path / "lab.db", FileMark(tmp_path / "lab.db.mark")
    assert cli("backup", "--folder", "first").code == 0
    assert find_sign(mark.read(), lab.write(read_number)) is None
    (backup,) = list_backups(tmp_path / "first")
    for ending in ("-wal", "-shm"):
        database.with_name(database.name + ending).unlink(missing_ok=True)
    shutil.copy(backup.path, database)
    assert cli("backup", "--folder", "second").code == 0
    assert find_sign(mark.read(), lab.write(read_number)) is RestoreSign.OLDER_THAN_MARK


@pytest.mark.parametrize("has_mark", [False, True])
def test_restore_says_what_it_is_and_warns_of_labels(cli: Cli, lab: LaboratoryFolder, tmp_path: Path, has_mark: bool) -> None:
    """Labels would be issued again where there is no mark of them outside the database."""
    mark = 'label_mark = "labels.mark"' if has_mark else ""
    pool = '[[api.pools]]\nname = "main"\npattern = "77########"\nlast = 99\n'
    lab.config.write_text(lab.config.read_text().replace("[api]", f"[api]\n{mark}") + pool)
    made = cli("backup", "--folder", "first")
    assert made.code == 0, made.err
    (backup,) = list_backups(tmp_path / "first")
    restored = cli("restore", str(backup.path), "--yes")
    assert (restored.code, "api.label_mark" in restored.out) == (0, not has_mark)
    stated = lab.write(load_restoration)
    assert stated is not None
    assert (stated.sign, stated.is_open) == (RestoreSign.COMMAND, True)
    assert not list(tmp_path.glob("*.backup.tmp*")), "nothing is left beside it"


AFTER = """
import os, pathlib, sys
secrets = sorted(name for name in os.environ if name.startswith("LAB_AGENT_") or name == "CREDENTIALS_DIRECTORY")
pathlib.Path("after.txt").write_text(f"{os.environ['BACKUP_FILE']} {secrets} {sys.argv[1:]}")
print("copied")
sys.exit(int(sys.argv[1]))
"""


def set_after(lab: LaboratoryFolder, *command: str) -> None:
    lab.config.write_text(f"{lab.config.read_text()}\n[backup]\nfolder = 'backups'\nafter = {json.dumps(command)}\n")


@pytest.mark.parametrize("code", [0, 3])
def test_command_after_backup_gets_file_and_no_secret(cli: Cli, lab: LaboratoryFolder, monkeypatch: Any, code: int) -> None:
    monkeypatch.setenv("LAB_AGENT_STORE__URL", f"sqlite:///{lab.folder}/lab.db")
    set_after(lab, sys.executable, "-c", AFTER, str(code), "$HOME")
    done = cli("backup", "--json")
    (backup,) = list_backups(lab.folder / "backups")
    assert (lab.folder / "after.txt").read_text() == f"{backup.path.absolute()} [] ['{code}', '$HOME']"
    assert (done.code, json.loads(done.out)["backup"]["path"]) == (min(code, 1), f"backups/{backup.path.name}")
    assert ("exit code 3" in done.err) is (code == 3)


def test_command_after_backup_not_run_for_list_and_told_when_missing(cli: Cli, lab: LaboratoryFolder) -> None:
    (lab.folder / "backups").mkdir()
    set_after(lab, "/no/such/program")
    assert cli("backup", "--list").code == 0
    done = cli("backup")
    assert (done.code, len(list_backups(lab.folder / "backups")), "/no/such/program" in done.err) == (1, 1, True)
