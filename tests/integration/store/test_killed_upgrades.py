"""An upgrade that is killed has changed nothing, wherever it was; run again, it comes to its end with all data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab_agent.store.engine import create_file, sqlite_file
from lab_agent.store.schema import upgrade
from lab_agent.store.schema_versions import known_revisions
from tests.harness.paths import ROOT
from tests.harness.proof import FIGURES, SHARE
from tests.harness.schemas import REBUILT, content, describe, fill, kept, next_schemas, upgrade_to

STEP = 1 if SHARE >= 1 else 30
"""The proof kills at each statement; its short form at every thirtieth."""


def upgrade_killed_everywhere(url: str, folder: Path, step: int) -> list[dict[str, Any]]:
    """Every `step`-th statement, at each of which an upgrade was killed; the last one of all came to its end."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.harness.killed_upgrades", url, str(folder), str(step)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("step", [9, pytest.param(STEP, marks=pytest.mark.proof)], ids=["some", "each"])
def test_upgrade_killed_at_a_statement_has_changed_nothing(url: str, fresh: str, tmp_path: Path, step: int) -> None:
    upgrade_to(url, min(known_revisions()))
    fill(url)
    before = content(url)
    killed = upgrade_killed_everywhere(url, tmp_path / "work", step)
    FIGURES.add(killed_upgrades=len(killed))
    assert len(killed) >= 2
    assert [each["statement"] for each in killed if not each["is_as_before"]] == []
    if step == 1:
        statements = " ".join(each["statement"] for each in killed)
        for part in ("ALTER TABLE lines", "CREATE TABLE next_things", "UPDATE orders", "DROP TABLE next_things", "COMMIT"):
            assert part in statements
    with next_schemas(tmp_path, upto=REBUILT):
        upgrade(fresh)
    assert describe(url) == describe(fresh)
    kept(before, content(url))


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_first_upgrade_killed_at_a_statement_has_made_nothing(url: str, fresh: str, tmp_path: Path) -> None:
    if file := sqlite_file(url):
        create_file(file)
    killed = upgrade_killed_everywhere(url, tmp_path / "work", STEP)
    FIGURES.add(killed_upgrades=len(killed))
    assert [each["statement"] for each in killed if not each["is_as_before"]] == []
    assert len(killed) >= 5
    if STEP == 1:
        assert sum(each["statement"].strip().startswith("CREATE TABLE") for each in killed) > 20
    with next_schemas(tmp_path, upto=REBUILT):
        upgrade(fresh)
    assert describe(url) == describe(fresh)
