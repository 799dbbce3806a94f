"""Each small change of records, rules or catalogue is found by their unit tests, or is listed with its reason.

In each group nine of ten have to be found. The short form tries few, always the same ones, and of records alone.
"""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.decisions import GROUPS
from tests.harness.paths import ROOT
from tests.harness.proof import SHARE, Figures, in_full
from tests.proof.mutation.survivors import FILE, read_survivors

SHORT = {"records": 0.02}
"""How much of which group the short form tries."""
LEAST_FOUND = 0.9
pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(
        importlib.util.find_spec("mutmut") is None, reason="mutmut is missing: `make .venv/.mutation` installs it"
    ),
]


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("group", [each if each in SHORT else pytest.param(each, marks=in_full) for each in GROUPS])
def test_changes_are_found_or_listed(tmp_path: Path, figures: Figures, group: str) -> None:
    is_full = SHARE >= 1
    found, survived = try_changes(tmp_path, group, 1.0 if is_full else SHORT[group])
    listed = read_survivors(FILE.read_text())
    unlisted = [key for key in survived if listed.reason(key) is None]
    total = len(found) + len(survived)
    figures.add(changes=total, found=len(found), listed=len(survived) - len(unlisted), unlisted=len(unlisted))
    figures.most(**{f"percent_found_in_{group}": math.floor(1000 * len(found) / total) / 10})
    assert unlisted == []
    if is_full:
        assert len(found) >= LEAST_FOUND * total
        assert [key for key in listed.by_key if key.partition(":")[0] in GROUPS[group] and key not in survived] == []


def try_changes(folder: Path, group: str, share: float) -> tuple[list[str], list[str]]:
    """The keys of the changes that were found, and of those that survived."""
    from tests.proof.mutation.runs import FOUND, Outcomes  # noqa: PLC0415 - needs mutmut

    file, log = folder / "outcomes.jsonl", folder / "log"
    command = [sys.executable, "-m", "tests.proof.mutation", str(file), group, "--share", str(share)]
    with log.open("w") as output:
        ended = subprocess.run(command, cwd=ROOT, stdout=output, stderr=output, check=False)
    assert ended.returncode == 0, log.read_text()[-5000:]
    outcomes = Outcomes(file, 0).read()
    found = [key for key, outcome in outcomes.items() if outcome == FOUND]
    return found, [key for key in outcomes if outcomes[key] != FOUND]
