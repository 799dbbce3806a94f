"""`python -m tests.proof.mutation FILE GROUP …`: try the changes of these groups, and write what became of each to FILE.

With `--share`, only as many of them, always the same; what FILE has from before as `found` is not tried again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.harness.decisions import GROUPS
from tests.harness.paths import ROOT
from tests.proof.mutation.changes import Change, changes_of
from tests.proof.mutation.runs import FOUND, DefinitionChanges, FunctionChanges, Outcomes, run_forked

_UNIT = ROOT / "tests" / "unit"
TESTS = {
    "records": ("domain", "fhir/test_order_parser.py", "mappings", "serialization", "workflow"),
    "rules": ("rules",),
    "catalogue": tuple(f"catalogue/{each.name}" for each in sorted((_UNIT / "catalogue").glob("test_*.py"))),
}
"""Of each group, the tests below tests/unit that try its changes."""
_LEFT_OUT = (
    "catalogue/test_preanalytics.py::test_hardest_200_item_baskets_pack_quickly",
    "rules/test_basket_orders.py::test_order_from_random_catalogue_response_is_accepted",
    "rules/test_engine_fuzz.py",
    "rules/test_partner_orders.py::test_ten_thousand_valid_orders_accepted_without_findings",
    "workflow/test_audit_trail.py::test_events_of_people_are_added_with_audit",
)
"""Tests that take long and would find no more."""
_EXAMPLES = 25
_OPTIONS = ("-q", "-p", "no:xdist", "--timeout", "0", "-m", "not proof")


def choose(changes: list[Change], share: float) -> list[Change]:
    """So many of them, always the same ones, wherever they stand."""
    return [each for each in changes if int(hashlib.sha256(each.key.encode()).hexdigest()[:8], 16) < share * 2**32]


class _FewExamples:
    """A plug-in: the same few examples in each run, and no search for a smaller one once a test fails."""

    def pytest_configure(self) -> None:
        from hypothesis import HealthCheck, Phase, settings  # noqa: PLC0415 - pytest wants to be its first importer

        few = settings(
            derandomize=True,
            database=None,
            deadline=None,
            max_examples=_EXAMPLES,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        )
        settings.register_profile("mutation", few)
        settings.load_profile("mutation")


def _run_pytest(plugin: object) -> None:
    without = [option for each in _LEFT_OUT for option in ("--deselect", f"tests/unit/{each}")]
    code = pytest.main([*_OPTIONS, *without, "tests/unit"], plugins=[plugin, _FewExamples()])
    if code not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        sys.exit(f"pytest ended with {code!r}")


def _try_functions(changes: list[Change], outcomes: Outcomes, left_file: Path, groups: list[str]) -> None:
    """In a process of its own: so the one that tries the others has imported nothing of what is changed."""
    tests = [f"tests/unit/{test}" for group in groups for test in TESTS[group]]
    plugin = FunctionChanges(changes, tests, outcomes)
    _run_pytest(plugin)
    left_file.write_bytes(pickle.dumps((plugin.left, plugin.known)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.mutation", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("groups", nargs="+", choices=GROUPS)
    parser.add_argument("--share", type=float, default=1.0)
    given = parser.parse_args()
    os.chdir(ROOT)
    changes = [change for group in given.groups for module in GROUPS[group] for change in changes_of(module)]
    changes = choose(changes, given.share)
    outcomes = Outcomes(given.file, len(changes))
    before = outcomes.read()
    changes = [each for each in changes if before.get(each.key) != FOUND]
    left_file = given.file.with_suffix(".left")
    run_forked(partial(_try_functions, changes, outcomes, left_file, given.groups))
    left, known = pickle.loads(left_file.read_bytes())
    _run_pytest(DefinitionChanges(left, known, outcomes, len(changes) - len(left)))


if __name__ == "__main__":
    main()
