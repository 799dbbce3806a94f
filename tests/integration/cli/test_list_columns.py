"""Lists at terminals of different widths: keys are whole, and what is left out is said once."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from lab_agent.domain.ids import OrderKey, ResourceId
from lab_agent.domain.records import OrderRecord
from lab_agent.domain.state_machines import OrderState
from tests.harness.pseudo_terminal import run_at_terminal
from tests.integration.cli.conftest import Cli, LaboratoryFolder

KEY = OrderKey("OABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
NOW = datetime(2026, 3, 1, 9, tzinfo=UTC)
REASON = "the order names a contract that the settings do not have, so nothing can be said of it before somebody has looked"
LISTS = (
    *("orders list", "results list", "results orphans", "results refused list", "outbox list", "adapter list", "rules"),
    *("eta list", "api-token list", "user list", "mappings release", "backup --list --folder ."),
)


@pytest.fixture
def held(lab: LaboratoryFolder) -> LaboratoryFolder:
    order = OrderRecord(
        key=KEY,
        task_id=ResourceId("t1"),
        state=OrderState.HELD,
        seen_at=NOW,
        changed_at=NOW,
        held_since=NOW,
        hold_cause="contract.known",
        contract="C-100",
        reason=REASON,
    )
    lab.write(lambda uow: uow.orders.add(order))
    return lab


def test_terminal_of_any_width_keeps_keys_whole(held: LaboratoryFolder) -> None:
    widths = []
    for columns in (60, 80, 200):
        shown = run_at_terminal("orders", "list", columns=columns)
        assert sum(line.startswith(KEY) for line in shown.lines) == 1
        assert max(map(len, shown.lines)) <= columns
        widths.append(len(shown.lines[0].split()))
        assert columns == 200 or (shown.err.count("columns left out: "), "waiting" in shown.err) == (1, True)
    assert widths[2] > widths[1]
    for shown in (run_at_terminal("orders", "list", columns=300), run_at_terminal("orders", "list", "--wide", columns=60)):
        assert (len(shown.lines), "columns left out" in shown.err, REASON in shown.lines[1]) == (2, False, True)


def test_named_columns_alone_are_shown(held: LaboratoryFolder, cli: Cli) -> None:
    shown = run_at_terminal("orders", "list", "--columns", "state,order", columns=60)
    assert [line.split() for line in shown.lines] == [["state", "order"], ["held", KEY]]
    assert cli("orders", "list", "--columns", "state,order").out.splitlines() == shown.lines


def test_json_has_all_columns_whatever_is_chosen(held: LaboratoryFolder, cli: Cli) -> None:
    (row,) = cli("orders", "list", "--json", "--columns", "order").json()
    assert [row] == cli("orders", "list", "--json").json()
    heads = re.split(r" {2,}", cli("orders", "list", "--wide").out.splitlines()[0].strip())
    assert [head.replace(" ", "_") for head in heads] == [*row]


def test_every_list_names_its_columns(lab: LaboratoryFolder, cli: Cli) -> None:
    for words in LISTS:
        done = cli(*words.split(), "--columns", "no-such")
        assert (done.code, "no column 'no-such'" in done.err, "the columns are " in done.err) == (2, True, True), words
        assert cli(*words.split(), "--wide").code == 0, words
